"""A problem: where, what, and how to mend it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def visible(text: str, *, lines: bool = True) -> str:
    r"""``text`` for a terminal: what would steer it, or turn the text around, as ``\u001b``.

    Line feeds and tabs stay, unless the text has to stand on one line. JSON stays the same JSON.
    """
    text = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text if lines else text.replace("\n", "\\n").replace("\t", "\\t")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A spot in a file; line and column count from 1, from the file's top."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return visible(f"{self.path}:{self.line}:{self.column}", lines=False)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong, in a sentence, with what to do about it."""

    place: Place
    code: str
    message: str
    hint: str
    severity: Severity = "error"

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else " (warning)"
        message, hint = visible(self.message, lines=False), visible(self.hint, lines=False)
        return f"{self.place}: {self.code}{mark} {message}\n  hint: {hint}"

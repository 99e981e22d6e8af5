"""A problem: where, what, and how to fix it; and how text of others is shown in one."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
LONGEST_QUOTE = 60
"""Characters of what somebody wrote that a message repeats."""
LONGEST_TEXT = 600
"""Characters of a whole message or hint."""

_LONG_QUOTE = re.compile(rf"`[^`]{{{LONGEST_QUOTE + 20},}}`|“[^”]{{{LONGEST_QUOTE + 20},}}”")


def printable(text: str) -> str:
    r"""``text`` on one line, with all that a terminal obeys or hides spelled out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def quote(text: str) -> str:
    """``text`` in quotation marks of code, as a message repeats it: printable, and not too long."""
    shown = text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"
    return f"`{printable(shown)}`"


def visible(text: str) -> str:
    r"""``text`` for a terminal: what would steer it, or turn the text around, as ``\u001b``.

    Line feeds and tabs stay, and JSON stays the same JSON.
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(data: object) -> str:
    """``data``, dataclasses among it, as JSON."""
    return json.dumps(data, default=asdict, ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A spot in a file; line and column count from 1, from the file's top."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{printable(self.path)}:{self.line}:{self.column}"

    def __reduce__(self) -> tuple[type[Place], tuple[str, int, int]]:
        """As its three parts: a card has hundreds, and dataclasses are slow to unpickle field by field."""
        return Place, (self.path, self.line, self.column)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong, in a sentence, with what to do about it.

    What message and hint quote is cut to a length that a reader can take in, whoever wrote them.
    """

    place: Place
    code: str
    message: str
    hint: str
    severity: Severity = "error"

    def __post_init__(self) -> None:
        for name in ("message", "hint"):
            object.__setattr__(self, name, _bounded(getattr(self, name)))

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else " (warning)"
        message, hint = printable(self.message), printable(self.hint)
        return f"{self.place}: {self.code}{mark} {message}\n  hint: {hint}"


def _bounded(text: str) -> str:
    if len(text) <= LONGEST_QUOTE:
        return text
    text = _LONG_QUOTE.sub(lambda found: f"{found[0][: LONGEST_QUOTE + 1]}…{found[0][-1]}", text)
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[: LONGEST_TEXT * 2 // 3]} … {text[-LONGEST_TEXT // 3 + 3 :]}"

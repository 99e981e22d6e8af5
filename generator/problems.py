"""A problem: where, what, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A spot in a file; line and column count from 1, from the file's top."""

    path: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


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
        return f"{self.place}: {self.code}{mark} {self.message}\n  hint: {self.hint}"

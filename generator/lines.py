"""A file's text, made uniform, and the places in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from generator.characters import Fault, faults
from generator.problems import Place, Problem

BYTE_ORDER_MARK = "\ufeff"

# What neither YAML nor a browser may be given; the tab and the line feed are the controls that stay.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]"
)
_LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")


def is_printable(text: str) -> bool:
    """Whether ``text`` holds no character that neither YAML nor a browser may be given."""
    return not _UNPRINTABLE.search(text)


class Lines:
    """The text of one file, with LF for every line end, and where each character stands.

    A byte order mark at the top is dropped; a character that may not stand in a text
    becomes U+FFFD, so that offsets stay what they were. ``problems`` names both kinds of fault.
    Lines end where CommonMark and YAML end them: at LF, CRLF or a lone CR.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        raw = text.removeprefix(BYTE_ORDER_MARK)
        uniform = raw.replace("\r\n", "\n").replace("\r", "\n")
        self.text = _UNPRINTABLE.sub("\ufffd", uniform)
        self.rows = self.text.split("\n")
        self._starts = [0, *accumulate(len(row) + 1 for row in self.rows)][:-1]
        self.problems = tuple(self._faults(raw, uniform))

    def place(self, offset: int) -> Place:
        """The place of the character at ``offset`` of ``text``; its end counts as a place."""
        offset = min(max(offset, 0), len(self.text))
        row = bisect_right(self._starts, offset) - 1
        return Place(self.path, row + 1, offset - self._starts[row] + 1)

    def at(self, row: int, column: int = 0) -> Place:
        """The place of a row and a column that count from 0, moved into the text where needed."""
        row = min(max(row, 0), len(self.rows) - 1)
        return Place(self.path, row + 1, min(max(column, 0), len(self.rows[row])) + 1)

    def start(self, row: int) -> int:
        """The offset of a row's first character; the length of the text behind the last row."""
        return self._starts[row] if row < len(self._starts) else len(self.text)

    def _faults(self, raw: str, uniform: str) -> Iterator[Problem]:
        if lone := list(_LONE_CARRIAGE_RETURN.finditer(raw)):
            first = lone[0].start()
            yield Problem(
                self.place(first - raw.count("\r\n", 0, first)),
                "carriage-return",
                f"{_times(len(lone))} a line ends in a lone carriage return, first here",
                "Save the file with LF or CRLF line ends.",
            )
        if unprintable := list(_UNPRINTABLE.finditer(uniform)):
            code = ord(unprintable[0].group())
            name = "a NUL" if code == 0 else f"U+{code:04X}"
            yield Problem(
                self.place(unprintable[0].start()),
                "control-character",
                f"{_times(len(unprintable))} a character that no text may hold, first {name} here",
                "Delete it; an editor that shows invisible characters finds it.",
            )
        for fault in faults(_UNPRINTABLE.sub(" ", uniform)):
            yield strange(fault, self.place(fault.offset))


def strange(fault: Fault, place: Place) -> Problem:
    """The problem that a character is which cannot be seen or told apart."""
    times = "" if fault.count == 1 else f", {fault.count} times, first here"
    message = f"{fault.name} {fault.why}{times}"
    return Problem(place, "strange-character", message, fault.hint)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

"""A table's cell holds its whole formula."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity
from generator.prose import passages

CODE = "table-pipe"
SEVERITY: Severity = "error"
SENTENCE = (
    r"No `|` within `$…$` splits a table's cell: there it is written `\mid` or `\lvert … \rvert`."
)

_CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
_DOLLAR = re.compile(r"(?<!\\)(?:\\\\)*\$")


def check(library: Base) -> Iterator[Problem]:
    """Each cell in which a formula begins, or ends, alone."""
    for card in library.cards.values():
        for passage in passages(card):
            if passage.role == "cell" and len(_DOLLAR.findall(_CODE.sub("", passage.raw))) % 2:
                message = "a formula is cut in two: its `|` ends the table's cell"
                hint = r"Write `\mid`, or `\lvert x \rvert` for an absolute value."
                yield Problem(passage.place, CODE, message, hint, SEVERITY)

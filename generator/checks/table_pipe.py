"""A table's cell holds its whole formula."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "table-pipe"
SEVERITY: Severity = "error"
SENTENCE = (
    r"No `|` within `$…$` splits a table's cell: there it is written `\mid` or `\lvert … \rvert`."
)

_DOLLAR = re.compile(r"(?<!\\)(?:\\\\)*\$")


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each cell in which a formula begins, or ends, alone."""
    for passage in reading.passages:
        if passage.role != "cell":
            continue
        code = " ".join(piece.text for piece in passage.pieces if piece.kind == "code")
        if (len(_DOLLAR.findall(passage.raw)) - len(_DOLLAR.findall(code))) % 2:
            message = "a formula is cut in two: its `|` ends the table's cell"
            hint = r"Write `\mid`, or `\lvert x \rvert` for an absolute value."
            yield Problem(passage.place, CODE, message, hint, SEVERITY)

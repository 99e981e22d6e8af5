r"""No TeX command without its backslash, and none outside of a formula."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.model import place_of
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "tex-backslash"
SEVERITY: Severity = "error"
SENTENCE = (
    r"A TeX command has its backslash (`\sqrt`, not `sqrt`), and stands in a formula, not in prose."
)

# Long names are recognised within a run of letters (sqrtL); short ones must be a run of their own,
# since the letters of log or le may be a product of variables.
_LONG = (
    "frac|sqrt|partial|nabla|times|cdot|approx|infty|lfloor|rfloor|lceil|rceil|langle|rangle|"
    "alpha|beta|gamma|delta|epsilon|theta|lambda|sigma|omega|mathrm|mathbf|mathcal|operatorname|"
    "left|right|quad|ldots|cdots|begin|Theta|Delta|Sigma|Omega"
)
_SHORT = (
    "log|ln|exp|max|min|sup|inf|lim|sin|cos|tan|det|arg|sum|prod|int|leq|geq|neq|sim|ll|gg|"
    "pm|mu|rho|tau|phi|psi|chi|eta|xi|zeta|pi|text|top|star|hat|bar|tilde"
)
_BARE = re.compile(rf"(?<![A-Za-z\\])(?:[A-Za-z]*?({_LONG})[A-Za-z]*|({_SHORT})(?![A-Za-z]))")
# Words within a formula, names of environments, and the commands that stand there rightly.
_RIGHT = re.compile(
    r"\\(?:text\w*|math\w+|operatorname\*?|begin|end|tag|label|color|unicode)\s*\{[^{}]*\}|\\[A-Za-z]+"
)
_COMMAND = re.compile(r"\\[A-Za-z]{2,}")


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each command that would be drawn as a product of letters, or as text."""
    yield from _without_backslash(reading)
    yield from _outside(reading)


def _without_backslash(reading: Reading) -> Iterator[Problem]:
    for token in reading.formulas:
        hidden = _RIGHT.sub(lambda found: "\\" * len(found[0]), token.content)
        for found in _BARE.finditer(hidden):
            name = found[1] or found[2]
            message = f"`{name}` has lost its backslash, and is drawn as single letters"
            place = place_of(token, found.start(1) if found[1] else found.start(2))
            hint = rf"Write `\{name}`, or `\text{{…}}` around a word."
            yield Problem(place, CODE, message, hint, SEVERITY)


def _outside(reading: Reading) -> Iterator[Problem]:
    for passage in reading.passages:
        for piece in passage.pieces:
            found = _COMMAND.search(piece.text) if piece.kind == "text" else None
            if found:
                message = f"`{found[0]}` stands in prose, where it is not drawn"
                place = place_of(piece.token, found.start())
                hint = "Put the formula between dollar signs, or a file's path between backticks."
                yield Problem(place, CODE, message, hint, SEVERITY)

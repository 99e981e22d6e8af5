"""TeX → MathML: one parser for the checks, which say where it stops, and for the pages."""

from __future__ import annotations

import re

from math_core import LatexError, LatexToMathML

MAX_LENGTH = 2_000
"""Characters of a formula. The parser recurses into each group and overflows the stack of the
process at some thousands of them; the longest formula that a reader can follow has a few hundred."""

MAX_NESTING = 40
"""Groups, brackets and environments inside one another, for the same reasons."""

_OPENS = re.compile(
    r"\\\\|\\[{}]|(?P<opens>\{|\\left(?![A-Za-z])|\\begin(?![A-Za-z]))|(?P<closes>\}|\\right(?![A-Za-z])|\\end(?![A-Za-z]))"
)

_PARSER = LatexToMathML(fancy_error=False)


class TexError(ValueError):
    """TeX that cannot be drawn: why, and the offset of the character at which its reader stops."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


def too_deep(tex: str) -> int | None:
    """The offset at which a formula nests deeper than is read; ``None`` where it never does."""
    depth = 0
    for found in _OPENS.finditer(tex):
        depth += (found["opens"] is not None) - (found["closes"] is not None)
        if depth > MAX_NESTING:
            return found.start()
    return None


def mathml(tex: str, display: bool = False) -> str:
    """The formula as a ``<math>`` element. Raises ``TexError``."""
    if len(tex) > MAX_LENGTH:
        raise TexError(0, f"it has {len(tex):,} characters, and {MAX_LENGTH:,} are the most")
    if (deep := too_deep(tex)) is not None:
        raise TexError(deep, f"its groups stand more than {MAX_NESTING} deep in one another")
    try:
        return _PARSER.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        offset, _, sentence = str(error).partition(": ")
        why = sentence.strip().rstrip(".")
        raise TexError(int(offset), f"{why[:1].lower()}{why[1:]}") from None

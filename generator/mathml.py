"""TeX → MathML: one parser for the checks, which say where it stops, and for the pages."""

from __future__ import annotations

from math_core import LatexError, LatexToMathML

MAX_LENGTH = 2_000
"""Characters of a formula. The parser recurses into each group and overflows the stack of the
process at some thousands of them; the longest formula that a reader can follow has a few hundred."""

_PARSER = LatexToMathML(fancy_error=False)


class TexError(ValueError):
    """TeX that cannot be drawn: why, and the offset of the character at which its reader stops."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


def mathml(tex: str, display: bool = False) -> str:
    """The formula as a ``<math>`` element. Raises ``TexError``."""
    if len(tex) > MAX_LENGTH:
        raise TexError(0, f"it has {len(tex):,} characters, and {MAX_LENGTH:,} are the most")
    try:
        return _PARSER.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        offset, _, sentence = str(error).partition(": ")
        why = sentence.strip().rstrip(".")
        raise TexError(int(offset), f"{why[:1].lower()}{why[1:]}") from None

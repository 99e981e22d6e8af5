"""Every formula can be drawn."""

from __future__ import annotations

from collections.abc import Iterator

from math_core import LatexError, LatexToMathML

from generator.checks import Base
from generator.model import place_of
from generator.problems import Problem, Severity

CODE = "tex"
SEVERITY: Severity = "error"
SENTENCE = "Every formula is TeX that the renderer's own parser reads to its end."

_MATHML = LatexToMathML(fancy_error=False)


def check(base: Base) -> Iterator[Problem]:
    """Each formula that cannot be drawn, at the character where its reader stops."""
    for token in base.formulas:
        try:
            _MATHML.convert_with_local_state(token.content, displaystyle=token.block)
        except LatexError as error:
            offset, _, sentence = str(error).partition(": ")
            shown = sentence.strip().rstrip(".")
            message = f"this formula cannot be drawn: {shown[:1].lower()}{shown[1:]}"
            hint = "Mend the TeX here; KaTeX's list of functions has what Obsidian and Anki read."
            yield Problem(place_of(token, int(offset)), CODE, message, hint, SEVERITY)

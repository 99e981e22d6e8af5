"""Every formula can be drawn."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.mathml import TexError, mathml
from generator.model import place_of
from generator.problems import Problem, Severity

CODE = "tex"
SEVERITY: Severity = "error"
SENTENCE = "Every formula is TeX that the renderer's own parser reads to its end."


def check(base: Base) -> Iterator[Problem]:
    """Each formula that cannot be drawn, at the character where its reader stops."""
    for token in base.formulas:
        try:
            mathml(token.content, token.block)
        except TexError as error:
            message = f"this formula cannot be drawn: {error}"
            hint = "Mend the TeX here; KaTeX's list of functions has what Obsidian and Anki read."
            stop = min(error.offset, len(token.content.rstrip()))
            yield Problem(place_of(token, stop), CODE, message, hint, SEVERITY)

"""Every formula can be drawn."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import place_of
from generator.checks import Reading
from generator.problems import Problem, Severity
from generator.tex.commands import refused
from generator.tex.mathml import TexError, mathml

_MOST = 5
"""Parts of one formula that are named; more of them say no more."""

CODE = "tex"
SEVERITY: Severity = "error"
SENTENCE = (
    "Every formula is TeX that the renderer's own parser reads to its end, of the commands, environments "
    "and characters that site, handbook, Obsidian and Anki draw alike: `generator/tex/commands.toml`."
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each formula that cannot be drawn, where its reader stops, and each part that is drawn differently."""
    for token in reading.formulas:
        unlike = list(refused(token.content))
        for each in unlike[:_MOST]:
            message = f"{each.what} is not drawn alike everywhere"
            yield Problem(place_of(token, each.offset), CODE, message, each.hint, SEVERITY)
        if unlike:
            continue
        try:
            mathml(token.content, token.block)
        except TexError as error:
            message = f"this formula cannot be drawn: {error}"
            hint = "Fix the TeX here, so that each group, bracket and argument is whole."
            stop = min(error.offset, len(token.content.rstrip()))
            yield Problem(place_of(token, stop), CODE, message, hint, SEVERITY)

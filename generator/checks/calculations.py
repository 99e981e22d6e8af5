"""Every number that a card calculates is what its expression is worth."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.evidence.derived import UNREAD
from generator.problems import Problem, Severity

CODE = "calc"
SEVERITY: Severity = "error"
SENTENCE = (
    "A `calc:` link is one number with its unit, and equals its expression, whose names are metrics, settings, "
    "public facts and the card's scenario, at the precision printed; units agree."
)
NEVER_SILENT = "a number that does not follow is not shown"


def check(base: Base) -> Iterator[Problem]:
    """What arithmetic says against each link, by codes such as ``calc-number``."""
    for card in base.cards:
        for link in card.calcs():
            found = base.library.derived[link]
            if isinstance(found, Problem) and found.code != UNREAD:
                yield found

"""What a card names in ``related`` is a card."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "dead-related"
SEVERITY: Severity = "error"
SENTENCE = "Each name in `related` is a card, written or planned."
NEVER_SILENT = "a reader who follows it arrives nowhere"


def check(base: Base) -> Iterator[Problem]:
    """Each name that is no card's."""
    for card in base.cards:
        for index, name in enumerate(card.related):
            if name not in base.known:
                place = card.places[f"related.{index}"]
                message = f"`related` names `{name}`, which is no card"
                yield Problem(place, CODE, message, base.meant(name), SEVERITY)

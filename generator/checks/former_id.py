"""A former id leads to one card."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Place, Problem, Severity

CODE = "former-id"
SEVERITY: Severity = "error"
SENTENCE = "A former id, in `formerly`, is no card's id today, and leads to one card alone."
NEVER_SILENT = "an old link can lead to one card alone"


def check(base: Base) -> Iterator[Problem]:
    """Each former id that leads elsewhere already."""
    claimed: dict[str, Place] = {}
    for card in sorted(base.cards, key=lambda card: card.path):
        for index, former in enumerate(card.formerly):
            place = card.places[f"formerly.{index}"]
            if former == card.id:
                continue
            if former in base.known:
                message = f"`{former}` is the id of another card, so it cannot lead here"
            elif former in claimed:
                message = f"`{former}` leads elsewhere already, by {claimed[former]}"
            else:
                claimed[former] = place
                continue
            yield Problem(place, CODE, message, "Remove it from one of the two.", SEVERITY)

"""Every card has an id of its own."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import Card
from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "duplicate-id"
SEVERITY: Severity = "error"
SENTENCE = "No two cards have one id."
NEVER_SILENT = "only one of the two cards is shown"


def check(base: Base) -> Iterator[Problem]:
    """Each card whose id one before it has, by their paths."""
    first: dict[str, Card] = {}
    for card in sorted(base.contents.cards, key=lambda card: card.path):
        other = first.setdefault(card.id, card)
        if other is not card:
            yield Problem(
                card.places["id"],
                CODE,
                f"the id `{card.id}` is taken by {other.places['id']}",
                "Give each card an id of its own.",
                SEVERITY,
            )

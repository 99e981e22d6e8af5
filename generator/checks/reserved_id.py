"""No id of a card, a follow-up or a pitfall takes the address of something else."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards import addresses
from generator.cards.model import Card
from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "reserved-id"
SEVERITY: Severity = "error"
SENTENCE = (
    "No card is called like the vault's first note, and no follow-up or pitfall like a part of a "
    "card's page or another one in its other language."
)
NEVER_SILENT = "two things would have one address"


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each id that is taken."""
    for card in reading.cards:
        if card.id == addresses.HOME_NOTE.lower():
            message = f"the vault's first note is called {addresses.HOME_NOTE}"
            hint = "Give the card another id."
            yield Problem(card.places["id"], CODE, message, hint, SEVERITY)
        yield from _items(card)


def _items(card: Card) -> Iterator[Problem]:
    """Follow-ups and pitfalls whose id something else on the page or in the note has."""
    for half in card.sections.values():
        items = [item for section in half.values() for item in section.items]
        blocks = {
            addresses.block(item.id, language): item.id for item in items for language in LANGS[1:]
        }
        for item in items:
            if item.id in addresses.CARD_ANCHORS or item.id.startswith(addresses.PREFIXES):
                message = f"the id `{item.id}` is taken by a part of the card's page"
            elif item.id in blocks:
                message = f"the id `{item.id}` is what `{blocks[item.id]}` is called in its other language"
            else:
                continue
            hint = "Choose another, the same in both languages."
            yield Problem(item.place, CODE, message, hint, SEVERITY)

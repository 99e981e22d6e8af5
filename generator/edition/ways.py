"""The ways that lead through a card: reading order, and each learning path that it is on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.cards.model import Card, LearningPath
from generator.library.library import Library


@dataclass(frozen=True, slots=True)
class Way:
    """What stands before and behind a card on one way; reading order has no ``path``.

    ``place`` counts from one, and ``count`` is how many written cards the way has.
    """

    path: LearningPath | None
    before: Card | None
    after: Card | None
    place: int
    count: int


def through(library: Library) -> Mapping[str, tuple[Way, ...]]:
    """The ways through each card by its id: reading order first, then paths in their order."""
    found: dict[str, list[Way]] = {card: [] for card in library.cards}
    ways: list[tuple[LearningPath | None, Sequence[str]]] = [(None, list(library.cards))]
    ways += [(path, path.cards) for path in library.paths]
    for path, names in ways:
        cards = [library.cards[name] for name in names if name in library.cards]
        for card, way in zip(cards, _along(path, cards), strict=True):
            found[card.id].append(way)
    return {card: tuple(ways) for card, ways in found.items()}


def _along(path: LearningPath | None, cards: Sequence[Card]) -> Iterator[Way]:
    befores, afters = [None, *cards[:-1]], [*cards[1:], None]
    for place, (before, after) in enumerate(zip(befores, afters, strict=False), start=1):
        yield Way(path, before, after, place, len(cards))

"""What a base opens with: one answer of a card, in which each number leads to the run that proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from generator.cards.model import Awaited, Calc, Card, Claim, Link, Param
from generator.edition.edition import DemoPanel, Edition
from generator.lang import LANGS, SectionName
from generator.render.html import evidence_anchor

SECTIONS: tuple[SectionName, ...] = ("answer", "spoken")


@dataclass(frozen=True, slots=True)
class Opening:
    """A section of a card that can stand alone, and the proofs of its numbers, each demo's by itself."""

    card: Card
    section: SectionName
    panels: tuple[DemoPanel, ...]


def opening(edition: Edition) -> Opening | None:
    """The first section that has proven numbers and no others; ``None`` where there is none.

    A sentence goes before a spoken answer, and a card of the first path before all others.
    """
    cards = edition.library.cards
    first = edition.library.paths[0].cards if edition.library.paths else ()
    order = dict.fromkeys([*(name for name in first if name in cards), *cards])
    for section in SECTIONS:
        for card in map(cards.__getitem__, order):
            halves = [card.sections[lang][section].links for lang in LANGS]
            if all(_is_proven(edition, links) for links in halves):
                return Opening(card, section, tuple(_panels(edition, card, sum(halves, ()))))
    return None


def _is_proven(edition: Edition, links: Sequence[Link]) -> bool:
    """Whether there are numbers in the text, and each is of a claim that a run bears out."""
    numbers = [link for link in links if isinstance(link, Claim | Param | Calc | Awaited)]
    return bool(numbers) and all(
        isinstance(link, Claim) and edition.state(link) in ("proven", "bounded") for link in numbers
    )


def _panels(edition: Edition, card: Card, links: Sequence[Link]) -> Iterator[DemoPanel]:
    """Of the card's evidence what these links lead to."""
    anchors = {
        evidence_anchor(link.demo, link.metric, link.device)
        for link in links
        if isinstance(link, Claim)
    }
    for panel in edition.panels(card):
        rows = tuple(row for row in panel.rows if row.anchor in anchors)
        if rows:
            yield replace(panel, rows=rows, settings=(), figures=(), placed=frozenset(), awaited={})

"""What stands behind the numbers of cards, as shares of all numerals that are not free.

``measured``
    A claim whose metric is exact, bounded, sampled or measured, and a setting of a run (``param:``).
``computed``
    A claim whose metric is computed, and a ``calc:`` that counts: one in whose braces stand a claim, a setting or
    a public fact, the scenario's model and device among these.
``cited``
    A public fact (``fact:``), and somebody else's result (``source:``).
``given``
    What is assumed for the argument (``given:``), and a ``calc:`` of nothing else.
``bare``
    A number without a link to a proof, or whose link the evidence does not bear.

A number that is called wrong (``wrong:``) goes with the metric that refutes it. *Backed* are the first three.
The numerals of both languages count, each where it is printed; ``numerals`` says what one is, and which are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from generator.cache import NOTHING_KEPT, Cache
from generator.cards.model import Card, Citation, Given
from generator.evidence import numerals
from generator.evidence.derived import Derived
from generator.evidence.facts import PublicFact
from generator.evidence.numerals import NAMING, Proof
from generator.evidence.verdicts import Verdict
from generator.library.library import Library
from generator.problems import Problem
from runnable_demos.lab.metrics import Metric

Kind = Literal["measured", "computed", "cited", "given", "bare"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BACKED: tuple[Kind, ...] = ("measured", "computed", "cited")

Counted = tuple[tuple[Proof | None, int], ...]
"""How many numerals stand in each link of a text, and how many in none."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How many numerals of a text are of each kind; their ``total`` may be 0."""

    counts: Mapping[Kind, int]

    @property
    def total(self) -> int:
        """All numerals but those that are free."""
        return sum(self.counts.values())

    def of(self, *kinds: Kind) -> Fraction:
        """The share of these kinds among all; 0 where there is no numeral."""
        return Fraction(sum(self.counts[kind] for kind in kinds), self.total or 1)

    @property
    def backed(self) -> Fraction:
        """The share that leads to a run, to arithmetic on what does, or to a source."""
        return self.of(*BACKED)

    @staticmethod
    def together(parts: Iterable[Shares]) -> Shares:
        """Several texts as one."""
        found = tuple(parts)
        return Shares({kind: sum(each.counts[kind] for each in found) for kind in KINDS})


def of_cards(library: Library, cache: Cache = NOTHING_KEPT) -> Mapping[str, Shares]:
    """The shares of each card, in reading order. The text of a card is read again only when it has changed."""
    cards = tuple(library.cards.values())
    naming = library.naming
    sources = [(card.path, card.digest, sorted(naming)) for card in cards]
    counted = cache.each("numerals", sources, lambda index: count(cards[index], naming))
    return {card.id: weigh(found, library) for card, found in zip(cards, counted, strict=True)}


def count(card: Card, naming: Collection[str] = NAMING) -> Counted:
    """How many numerals of ``card`` stand in each link, and how many in none; those that are free do not count."""
    found = (each.link for each in numerals.of_card(card, naming) if each.state != "free")
    return tuple(Counter(found).items())


def weigh(counted: Counted, library: Library) -> Shares:
    """The shares of what was ``counted``, by what the evidence says of each link."""
    counts = Counter[Kind]()
    for link, number in counted:
        counts[_kind(link, library)] += number
    return Shares({kind: counts[kind] for kind in KINDS})


def _kind(link: Proof | None, library: Library) -> Kind:
    match library.proof(link) if link else None:
        case None | Problem():
            return "bare"
        case Given() | Derived(state="assumed"):
            return "given"
        case Citation() | PublicFact():
            return "cited"
        case Derived() | Verdict(metric=Metric(kind="computed")):
            return "computed"
    return "measured"

"""Public facts by entry and key, and what they say of a number that a card prints.

A fact is no metric: nobody here ran anything. It is what a publisher says, with the place where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from generator.cards.model import Fact
from generator.evidence.quantities import Quantity, QuantityError, read
from generator.lang import Text
from generator.names import suggest
from generator.problems import Problem

COUNTED = frozenset({"param", "token"})
"""Units of what is counted: a card prints the number in the link, and the noun behind it."""


@dataclass(frozen=True, slots=True)
class FactSource:
    """Where a fact stands; ``opened`` is the day on which that place was read.

    It is ``None`` where only somebody's quotation of it was read; then ``where`` says so.
    """

    title: str
    url: str
    where: str
    opened: date | None


@dataclass(frozen=True, slots=True)
class PublicFact:
    """One number of an entry: ``value`` of its ``unit``, and ``shown`` as a reader sees it.

    ``unit`` is one of ``metrics.Unit``, or ``param``. ``derived`` is the expression by which the value
    follows from other keys of its entry, which stand in the source; empty where the source says it itself.
    """

    entry: str
    key: str
    name: Text
    label: Text
    value: Fraction
    unit: str
    shown: str
    derived: str
    source: FactSource
    as_of: date


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a base by entry and key.

    ``broken`` are the entries that could not be read; ``whole`` says that the files could be,
    so that what is not here is nowhere.
    """

    entries: Mapping[str, Mapping[str, PublicFact]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    whole: bool = True
    kinds: Mapping[str, str] = field(default_factory=dict)
    """What each entry is: ``model``, ``device`` or ``link``."""

    def extended(self, own: Facts) -> Facts:
        """These and ``own``: an entry of ``own`` takes the place of one of the same id."""
        kept = {name: keys for name, keys in self.entries.items() if name not in own.broken}
        broken = self.broken - own.entries.keys() | own.broken
        kinds = {**self.kinds, **own.kinds}
        return Facts({**kept, **own.entries}, broken, self.whole and own.whole, kinds)

    def is_unread(self, entry: str) -> bool:
        """Whether ``entry`` may be there, but could not be read: that is one problem, told already."""
        return entry in self.broken or (not self.whole and entry not in self.entries)

    def find(self, link: Fact) -> PublicFact | None:
        """The fact that ``link`` names, if there is one."""
        return self.entries.get(link.entry, {}).get(link.key)


def judge(link: Fact, facts: Facts) -> PublicFact | Problem:
    """The fact that ``link`` states, or why it cannot stand."""
    fact = facts.find(link)
    if fact is None:
        return _unknown(link, facts)
    try:
        printed = read(link.text)
    except QuantityError as error:
        hint = "The link holds one number and its unit; other words, and what is counted, stay outside."
        message = f"“{link.text}” is no number to compare: {error}"
        return Problem(link.place, "fact-text", message, hint)
    if printed.unit != fact.unit and (printed.unit or fact.unit not in COUNTED):
        return _wrong_unit(link, fact, printed)
    if printed.equals(fact.value):
        return fact
    message = f"“{link.text}” is printed, but the fact is {_reprinted(printed, fact)}"
    hint = "Let `proofdeck refresh` rewrite the number."
    return Problem(link.place, "fact-number", message, hint)


def _unknown(link: Fact, facts: Facts) -> Problem:
    keys = facts.entries.get(link.entry)
    if keys is None:
        message = f"no `facts.yml` has an entry `{link.entry}`"
        return Problem(link.place, "fact-entry", message, suggest(link.entry, facts.entries))
    message = f"the entry `{link.entry}` has no key `{link.key}`"
    return Problem(link.place, "fact-key", message, suggest(link.key, keys))


def _wrong_unit(link: Fact, fact: PublicFact, printed: Quantity) -> Problem:
    name = f"`{fact.entry}/{fact.key}`"
    if not printed.unit:
        message = f"“{link.text}” lacks its unit: {name} is in {fact.unit}"
        return Problem(link.place, "fact-unit", message, "Write the unit inside the link.")
    wanted = f"in {fact.unit}" if fact.unit and fact.unit != "param" else "a plain number"
    message = f"“{link.text}” is in {printed.unit}, but {name} is {wanted}"
    hint = "Print that unit (`B` are bytes, not a billion; `FLOPS` a rate), or name another key."
    return Problem(link.place, "fact-unit", message, hint)


def _reprinted(printed: Quantity, fact: PublicFact) -> str:
    """The fact in full, and as the card would print it."""
    try:
        return f"“{printed.reprint(fact.value)}” ({fact.shown})"
    except QuantityError:
        return fact.shown

"""What stands behind the numbers, as a page shows it: a bar, and shares in percent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from generator import words
from generator.evidence.quantities import round_half_up
from generator.lang import Text
from generator.library.shares import KINDS, Kind, Shares

WIDTH = 1000
"""Of the whole bar, in the units of its drawing."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind's stretch of the bar; ``number`` counts its numerals."""

    kind: Kind
    label: Text
    number: int
    percent: str
    start: int
    width: int


def parts(shares: Shares) -> Iterator[Part]:
    """The bar from its start to its end; kinds of which there is nothing have no width."""
    told = words.group("shares")
    before = 0
    for index, kind in enumerate(KINDS, 1):
        end = round_half_up(shares.of(*KINDS[:index]) * WIDTH)
        number = shares.counts[kind]
        yield Part(kind, told[kind], number, percent(shares.of(kind)), before, end - before)
        before = end


def told(shares: Shares) -> Text:
    """The bar in words."""
    values = {part.kind: part.percent for part in parts(shares)}
    return words.fill(words.phrase("shares.bar"), **values)


def percent(share: Fraction) -> str:
    """``96.3%``: to a tenth, where 0% is none and 100% all, without exception."""
    if share in (0, 1):
        return "100%" if share else "0%"
    tenths = min(max(round_half_up(share * 1000), 1), 999)
    return f"{tenths // 10}.{tenths % 10}%"

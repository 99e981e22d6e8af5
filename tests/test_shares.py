"""What stands behind the numbers, against a base counted by hand and sums of fractions."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import checks
from generator.cache import NOTHING_KEPT, Cache
from generator.cards.model import Card
from generator.edition.proportions import WIDTH, parts, percent, told
from generator.evidence import numerals
from generator.library import shares
from generator.library.library import Library
from generator.library.shares import KINDS, Shares

BASE = Path(__file__).parent / "library"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the small base, to be changed."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def load(folder: Path, cache: Cache = NOTHING_KEPT) -> Library:
    """The base in ``folder``."""
    found, _ = checks.load(folder / "cards", demos=folder / "runnable_demos", cache=cache)
    assert found is not None
    return found


def edit(folder: Path, card: str, old: str, new: str) -> None:
    """Change one text, which stands there once, of a card."""
    path = folder / "cards" / "numerics" / f"{card}.md"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def counts(found: Shares) -> tuple[int, ...]:
    """The counts in the order of the kinds."""
    return tuple(found.counts[kind] for kind in KINDS)


HAND = {
    # 53 thrice in either half; what is refuted there is words, and no number.
    "rounding": (6, 0, 0, 0, 0),
    # Of a half: 8 B five times, 4 B three times, 53 and 10,000 are measured, one of the 4 B refuted;
    # 2 billion twice, 4 billion and 200,000 follow; 16 GB twice, 1.5 TB/s and 12 are cited; 52 is given.
    "float-bytes": (20, 8, 8, 2, 0),
    # Of a half: 4 times thrice, 10,000, 3e-16 and 8 B.
    "kahan-sum": (12, 0, 0, 0, 0),
}


def test_the_small_base_was_counted_by_hand(folder: Path) -> None:
    """Each kind of each card is what a reader counts."""
    edit(folder, "float-bytes", "就是放得下多少个双精度数", "放得下 [20 亿][how-many] 个双精度数")
    edit(folder, "float-bytes", "that says how many doubles go in", "[2 billion][how-many] go in")
    found = shares.of_cards(load(folder))
    assert {name: counts(each) for name, each in found.items()} == HAND
    whole = Shares.together(found.values())
    assert counts(whole) == tuple(sum(each) for each in zip(*HAND.values(), strict=True))
    assert whole.total == 56
    assert whole.backed == Fraction(54, 56)
    assert [whole.of(kind) for kind in KINDS] == [Fraction(n, 56) for n in (38, 8, 8, 2, 0)]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        # a bare number more
        ("数组里没有别的开销", "100 个数的数组里没有别的开销", (0, 0, 0, 0, 1)),
        # a name is none
        ("数组里没有别的开销", "H100 的数组里没有别的开销", (0, 0, 0, 0, 0)),
        # a calculation from assumptions alone is one
        ("[52](given:) 位尾数", '[52](calc: "50 + {devices}") 位尾数', (0, 0, 0, 0, 0)),
        # one with a measured number counts
        (
            "[52](given:) 位尾数",
            '[52](calc: "{claim:float_sums/significant_bits} - 1") 位尾数',
            (0, 1, 0, -1, 0),
        ),
        # one with the scenario's device counts
        ("[52](given:) 位尾数", '[4](calc: "{model/layers}") 位尾数', (0, 1, 0, -1, 0)),
        # a number that the evidence does not bear is as good as bare
        ("[53](claim:float_sums/significant_bits) 位", "[54](claim:float_sums/significant_bits) 位", (-1, 0, 0, 0, 1)),
        ("[10,000](param:float_sums/count) 个数", "[10,001](param:float_sums/count) 个数", (-1, 0, 0, 0, 1)),
        ("[12](fact:toy-model/head_width) 的", "[13](fact:toy-model/head_width) 的", (0, 0, -1, 0, 1)),
        ("[12](fact:toy-model/head_width) 的", "[12](param:float_sums/seeds) 的", (0, 0, -1, 0, 1)),
        # what refutes a number tells its kind
        ("[4 B](wrong:float_sums/bytes_per_number)。", "[8 B](wrong:float_sums/bytes_per_number)。", (-1, 0, 0, 0, 1)),
    ],
)  # fmt: skip
def test_each_kind_of_link_weighs_as_it_is_defined(
    old: str, new: str, change: tuple[int, ...], folder: Path
) -> None:
    """One link is changed, and its numeral goes from one kind to another."""
    before = counts(shares.of_cards(load(folder))["float-bytes"])
    edit(folder, "float-bytes", old, new)
    after = counts(shares.of_cards(load(folder))["float-bytes"])
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == change


def test_a_metric_that_is_computed_makes_its_claim_computed(folder: Path) -> None:
    """The kind of the metric decides, for claims and for what they refute."""
    found = load(folder)
    [metric] = [
        each
        for each in found.evidence.records["float_sums", "cpu"].result.metrics
        if each.name == "bytes_per_number"
    ]
    object.__setattr__(metric, "kind", "computed")
    # 8 B stands five times in a half, and is refuted as 4 B once.
    assert counts(shares.of_cards(found)["float-bytes"])[:2] == (20 - 10, 6 + 10)


def test_a_text_is_read_again_only_when_it_has_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cache, nothing is counted where nothing changed, and one card where one did."""
    cache = Cache(tmp_path / "cache")
    first = shares.of_cards(load(folder, cache), cache)
    read: list[str] = []

    def counting(card: Card, naming: Collection[str]) -> Iterator[numerals.Numeral]:
        read.append(card.id)
        return real(card, naming)

    real = numerals.of_card
    monkeypatch.setattr(numerals, "of_card", counting)
    monkeypatch.setattr(
        "generator.cache.spread", lambda make, items: [make(each) for each in items]
    )
    assert shares.of_cards(load(folder, cache), cache) == first
    assert read == []
    edit(folder, "rounding", "误差从存下的一刻就在", "误差从存下的第 1 刻就在")
    assert shares.of_cards(load(folder, cache), cache) == first
    assert read == ["rounding"]
    glossary = folder / "cards" / "glossary.yml"
    glossary.write_text(glossary.read_text("utf-8").replace("naming: [", "naming: [Foo, "), "utf-8")
    shares.of_cards(load(folder, cache), cache)
    assert read == ["rounding", "rounding", "float-bytes", "kahan-sum"]


def test_nothing_has_no_shares() -> None:
    """Without a numeral every share is 0, and nothing divides by it."""
    nothing = Shares.together([])
    assert nothing.total == 0
    assert [nothing.of(kind) for kind in KINDS] == [0] * len(KINDS)


COUNTS = st.tuples(*[st.integers(0, 500)] * len(KINDS)).filter(any)


@given(COUNTS)
def test_the_bar_is_whole_and_each_part_as_wide_as_its_share(numbers: tuple[int, ...]) -> None:
    """Parts stand end to end, and none is wider or narrower than its share by more than one unit."""
    found = Shares(dict(zip(KINDS, numbers, strict=True)))
    bar = list(parts(found))
    assert [part.start for part in bar] == [sum(p.width for p in bar[:i]) for i in range(len(bar))]
    assert sum(part.width for part in bar) == WIDTH
    for part, number in zip(bar, numbers, strict=True):
        assert abs(part.width - Fraction(number * WIDTH, sum(numbers))) <= 1
        assert part.number == number
    assert {part.percent in told(found)["en"] for part in bar} == {True}


@pytest.mark.parametrize(
    ("share", "printed"),
    [
        (Fraction(0), "0%"),
        (Fraction(1), "100%"),
        (Fraction(1, 2), "50.0%"),
        (Fraction(1, 8), "12.5%"),
        (Fraction(1, 800), "0.1%"),
        (Fraction(3, 800), "0.4%"),
        (Fraction(1, 10**6), "0.1%"),
        (1 - Fraction(1, 10**6), "99.9%"),
    ],
)
def test_all_and_nothing_are_printed_of_those_alone(share: Fraction, printed: str) -> None:
    """Tenths are rounded half up, and a share that is not all is not printed as all."""
    assert percent(share) == printed

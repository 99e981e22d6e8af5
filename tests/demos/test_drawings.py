"""Drawings for both screens over figures of all kinds, made up and recorded: all words are legible and apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from runnable_demos.lab import figures, records
from runnable_demos.lab.lettering import NARROW, WIDE
from runnable_demos.lab.mechanisms import Box, Lanes, Mechanism, Shards, Span, Tile, Tiles
from runnable_demos.lab.metrics import Axis, Category, Figure, Series, Text
from tests.demos import crowding

EVIDENCE = Path(records.__file__).parents[1] / "evidence"
EN = ["peak", "bytes", "of", "activations", "kept", "recomputed", "s×s", "(GB)", "softmax", "AdamW"]
ZH = ["激活", "每卡的字节", "重算", "峰值", "（实测）", "，", "N×N ", "k = 4 ", "AdamW ", "梯度"]


@st.composite
def texts(draw: st.DrawFn, most: int = 5) -> Text:
    """Words in both languages."""
    zh = draw(st.lists(st.sampled_from(ZH), min_size=1, max_size=most))
    en = draw(st.lists(st.sampled_from(EN), min_size=1, max_size=most))
    return {"zh": "激" + "".join(zh).strip(), "en": " ".join(en)}


def series(name: str, label: Text, mark: str, xs: list[float], ys: list[float]) -> Series:
    """A series that has its name from its number."""
    return Series(name, label, tuple(xs), tuple(ys), mark)  # type: ignore[arg-type]


@st.composite
def categories(draw: st.DrawFn, most: int) -> tuple[Category, ...]:
    """Places with names."""
    names = draw(st.lists(texts(3), min_size=1, max_size=most))
    return tuple(Category(f"p{at}", name) for at, name in enumerate(names))


@st.composite
def lines(draw: st.DrawFn) -> Figure:
    """Lines, points and steps over numbers."""
    xs = sorted(draw(st.sets(st.integers(1, 70_000), min_size=2, max_size=8)))
    top = draw(st.sampled_from([1, 40, 9_000, 3_000_000, 5e11]))
    heights = st.lists(st.floats(0.01, 1), min_size=len(xs), max_size=len(xs))
    marks = draw(st.lists(st.sampled_from(["theory", "measured", "step"]), min_size=1, max_size=4))
    found = [
        series(
            f"s{at}", draw(texts()), mark, list(map(float, xs)), [top * y for y in draw(heights)]
        )
        for at, mark in enumerate(marks)
    ]
    scales, units = st.sampled_from(["linear", "log2", "log10"]), st.sampled_from(["", "B", "s"])
    x, y = (Axis(draw(texts()), draw(units), draw(scales)) for _ in range(2))
    return Figure("lines", draw(texts()), x, y, tuple(found))


@st.composite
def stacks(draw: st.DrawFn) -> Figure:
    """Bars over names, or areas over time."""
    area = draw(st.booleans())
    names = () if area else draw(categories(10))
    n = draw(st.integers(2, 20)) if area else len(names)
    top = draw(st.sampled_from([1, 16, 12_345, 7e10]))
    heights = st.lists(st.floats(0, 1), min_size=n, max_size=n)
    found = [
        series(
            f"s{at}", draw(texts()), "area" if area else "bar",
            list(map(float, range(n))), [top * y for y in draw(heights)],
        )
        for at in range(draw(st.integers(1, 5)))
    ]  # fmt: skip
    x = Axis(draw(texts()), categories=names)
    return Figure("stacks", draw(texts()), x, Axis(draw(texts()), "B"), tuple(found))


@st.composite
def kinds(draw: st.DrawFn, names: set[str]) -> tuple[Series, ...]:
    """The kinds of a mechanism's parts."""
    return tuple(series(name, draw(texts()), "bar", [], []) for name in sorted(names))


KINDS = st.sampled_from("abcdef")


@st.composite
def lanes(draw: st.DrawFn) -> Lanes:
    """Rows of spans, with labels or without."""
    rows = draw(categories(14))
    spans = []
    for row in range(len(rows)):
        edges = sorted(draw(st.sets(st.integers(0, 40), max_size=9)))
        for start, end in itertools.pairwise(edges):
            label = draw(st.sampled_from(["", "F1", "9–12", "256 MB"]))
            spans.append(Span(row, draw(KINDS), start, end, label))
    spans = spans or [Span(0, "a", 0, 1)]
    x, y = (
        Axis(draw(texts()), draw(st.sampled_from(["", "s"]))),
        Axis(draw(texts()), categories=rows),
    )
    named = draw(kinds({span.kind for span in spans}))
    return Lanes("lanes", draw(texts()), x, y, named, tuple(spans))


@st.composite
def tiles(draw: st.DrawFn) -> Tiles:
    """A matrix, with notes in some blocks."""
    rows, columns = draw(categories(5)), draw(categories(6))
    notes = st.lists(st.sampled_from(["m = 1", "ℓ, Õ × 0.14", "ℓ = 3.12"]), max_size=3)
    found = tuple(
        Tile(row, column, draw(KINDS), tuple(draw(notes)))
        for row in range(len(rows))
        for column in range(len(columns))
    )
    x, y = Axis(draw(texts()), categories=columns), Axis(draw(texts()), categories=rows)
    return Tiles("tiles", draw(texts()), x, y, draw(kinds({t.kind for t in found})), found)


@st.composite
def shards(draw: st.DrawFn) -> Shards:
    """Groups of ranks that hold all of some parts, and a share of others."""
    groups, names = draw(categories(4)), sorted(draw(st.sets(KINDS, min_size=1)))
    size = draw(st.sampled_from([1.0, 24.0, 65_536.0, 24e9]))
    boxes = []
    for group in range(len(groups)):
        ranks = draw(st.integers(1, 8))
        for kind in names:
            cut = draw(st.booleans())
            for rank in range(ranks):
                edges = (rank / ranks, (rank + 1) / ranks) if cut else (0.0, 1.0)
                boxes.append(Box(group, rank, kind, *(size * each for each in edges), size))
    boxes.sort(key=lambda box: (box.group, box.rank, box.kind))
    x, y = Axis(draw(texts()), categories=groups), Axis(draw(texts()), "B")
    return Shards("shards", draw(texts()), x, y, draw(kinds(set(names))), tuple(boxes))


MADE_UP = st.one_of(lines(), stacks(), lanes(), tiles(), shards())


@settings(max_examples=60, phases=[Phase.generate])  # to shrink a drawing takes minutes
@given(MADE_UP, st.sampled_from(["zh", "en"]), st.booleans())
def test_words_are_apart_and_within_on_a_narrow_screen(
    figure: Figure, lang: str, standalone: bool
) -> None:
    """Whatever a figure holds, no two texts overlap, none leaves the drawing, none is small."""
    svg = figures.draw(figure, lang, prefix="p", standalone=standalone, narrow=True)
    assert crowding.faults(svg) == []


@settings(max_examples=20, phases=[Phase.generate])
@given(MADE_UP, st.sampled_from(["zh", "en"]))
def test_a_drawing_is_as_wide_as_its_screen(figure: Figure, lang: str) -> None:
    """Two drawings of one figure: one language, the same words of kinds, each of its own width."""
    drawn = {
        width: figures.draw(figure, lang, prefix="p", narrow=width == NARROW)
        for width in (WIDE, NARROW)
    }
    for width, svg in drawn.items():
        assert f'width="{width}" ' in svg and f'viewBox="0 0 {width} ' in svg
        written = "".join(each.words.replace(" ", "") for each in crowding.texts(svg))
        if len(figure.series) > 1 or isinstance(figure, Mechanism):
            assert all(s.label[lang].replace(" ", "") in written for s in figure.series)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_recorded_figures_are_legible_on_both_screens(lang: str) -> None:
    """Every figure of the committed evidence."""
    found = {}
    for path in sorted(EVIDENCE.glob("*.json")):
        for figure in records.load(path).result.figures:
            for narrow in (False, True):
                svg = figures.draw(figure, lang, prefix="p", narrow=narrow)
                if said := crowding.faults(svg):
                    found[path.stem, figure.name, narrow] = said
    assert found == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('x="10" y="20"', None),
        ('x="295" y="20"', "outside"),
        ('x="10" y="5"', "outside"),
        ('x="20" y="44"', "collides"),
    ],
)
def test_crowding_is_seen(change: str, said: str | None) -> None:
    """Two words apart are well; one over the edge or over the other is not, nor is a small one."""
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 60">'
    one = '<text style="font-size: 12px" x="10" y="40">words</text>'
    svg = f'{head}{one}<text style="font-size: 12px" {change}>more</text></svg>'
    found = crowding.faults(svg)
    assert [s for s in found if said and said in s] == found and bool(found) == bool(said)
    assert crowding.faults(svg.replace("12px", "11px"))

"""Mechanisms: what is no such figure is refused; a record keeps them; each drawing shows its data, on any screen."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runnable_demos.lab import discovery, figures, provenance, records, sketches, words
from runnable_demos.lab.mechanisms import (
    Box,
    Lanes,
    Mechanism,
    Mechanisms,
    Shards,
    Span,
    Tile,
    Tiles,
)
from runnable_demos.lab.metrics import Axis, Category, Figure, Record, Result, Series
from tests.demos.sketched import CROWDED, SCHEDULE, SKETCHES, STAGES, TILES, text
from tests.demos.test_figures import BARS, CURVE, TIMELINE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SVG = "{http://www.w3.org/2000/svg}"
STYLES = Path(__file__).parents[2] / "site_overrides" / "styles"


def first(figure: Mechanism, **changes: Any) -> dict[str, Any]:
    """The parts of ``figure``, the first of them changed."""
    name = next(n for n in ("spans", "tiles", "boxes") if hasattr(figure, n))
    return {name: (replace(figure.parts[0], **changes), *figure.parts[1:])}


# --- data ----------------------------------------------------------------------------------------

WRONG: list[tuple[Mechanism, dict[str, Any], str]] = [
    (SCHEDULE, {"spans": ()}, "shows nothing"),
    (SCHEDULE, {"series": SCHEDULE.series[:1]}, "no series is called 'backward'"),
    (SCHEDULE, {"series": (*SCHEDULE.series, SCHEDULE.series[0])}, "each once"),
    (SCHEDULE, {"series": (replace(SCHEDULE.series[0], x=(1.0,), y=(1.0,)),)}, "without points"),
    (SCHEDULE, first(SCHEDULE, kind="idle"), "no series is called 'idle'"),
    (SCHEDULE, first(SCHEDULE, row=-1), "no row -1"),
    (SCHEDULE, {"y": Axis(SCHEDULE.y.label, categories=SCHEDULE.y.categories[:3])}, "no row 3"),
    (SCHEDULE, first(SCHEDULE, end=0), "runs from 0 to 0"),
    (SCHEDULE, first(SCHEDULE, end=float("inf")), "to inf"),
    (SCHEDULE, first(SCHEDULE, end=float("nan")), "to nan"),
    (SCHEDULE, first(SCHEDULE, end=1.5), "overlap at 1"),
    (SCHEDULE, {"spans": SCHEDULE.spans[::-1]}, "do not stand in order"),
    (SCHEDULE, first(SCHEDULE, label="a\u202eb"), "no short label"),
    (SCHEDULE, first(SCHEDULE, label="F" * 25), "no short label"),
    (TILES, {"tiles": TILES.tiles[:-1]}, "not those of 4 rows and 4 columns"),
    (TILES, {"tiles": (TILES.tiles[0], *TILES.tiles)}, "not those of"),
    (TILES, first(TILES, column=4), "not those of"),
    (TILES, first(TILES, notes=("a\nb",)), "no short label"),
    (TILES, first(TILES, notes=tuple("abcd")), "more than three"),
    (STAGES, first(STAGES, end=0.0), "holds from 0 to 0.0"),
    (STAGES, first(STAGES, start=-1.0), "holds from -1.0"),
    (STAGES, first(STAGES, end=5e9), "holds from 0 to 5000000000.0"),
    (STAGES, first(STAGES, whole=5e9), "do not agree how large weights is"),
    (STAGES, {"boxes": STAGES.boxes[::-1]}, "in order, each once"),
    (STAGES, {"boxes": (STAGES.boxes[0], *STAGES.boxes)}, "in order, each once"),
    (STAGES, {"boxes": STAGES.boxes[:-12]}, "not those of its groups"),
    (STAGES, {"boxes": STAGES.boxes[3:]}, "ranks of group 0 do not count from 0"),
]  # fmt: skip


@pytest.mark.parametrize(("figure", "changes", "said"), WRONG, ids=lambda each: str(each)[:30])
def test_what_is_no_mechanism_is_refused(
    figure: Mechanism, changes: dict[str, Any], said: str
) -> None:
    """Out of order, out of bounds, overlapping, without a kind or a size: a sentence says which."""
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(figure, **changes)


def recorded(*found: Mechanism) -> Record:
    """A record with these figures."""
    title = text("字", "word")
    result = Result((), found)
    return Record(
        "sample", title, title, "cpu", "full", (), result, {}, {"demo.py": "0" * 64}, "2026-11-30"
    )


def test_a_record_keeps_every_field() -> None:
    """Written and read again, each figure is what it was, and of its own kind."""
    before = recorded(*SKETCHES)
    after = records.loads(records.dumps(before))
    assert after == before
    assert [type(figure) for figure in after.result.figures] == [Lanes, Lanes, Tiles, Shards]


def test_a_record_of_none_such_is_no_evidence() -> None:
    """A span that ends before it begins, or a field too many, in a record whose digest is right."""

    def edited(change: Callable[[dict[str, Any]], None]) -> str:
        content = json.loads(records.dumps(recorded(SCHEDULE)))
        change(content["result"]["figures"][0])
        content.pop("digest")
        return json.dumps({**content, "digest": records._digest(content)})

    with pytest.raises(records.RecordError, match=r"figures\[0\]: figure schedule: a span runs"):
        records.loads(edited(lambda figure: figure["spans"][0].update(end=-1)))
    with pytest.raises(records.RecordError, match="unknown field tiles"):
        records.loads(edited(lambda figure: figure.update(tiles=[])))
    with pytest.raises(records.RecordError, match="lacks row"):
        records.loads(edited(lambda figure: figure["spans"][0].pop("row")))


def test_other_demos_do_not_go_stale() -> None:
    """Only a demo that draws a mechanism depends on the file that says what one is."""
    folder = Path(discovery.__file__).parents[1]
    for name in discovery.discover(folder):
        uses = "runnable_demos.lab.mechanisms" in (folder / f"{name}.py").read_text("utf-8")
        assert ("runnable_demos/lab/mechanisms.py" in provenance.sources(name)) == uses


# --- in a demo's run -----------------------------------------------------------------------------

MEASURES = """
[figure.schedule]
title = ["调度，{n}", "Schedule, {n}"]
kind = "computed"
x = {label = ["时间", "time"], unit = "s"}
y = {label = ["卡", "rank"]}
[figure.schedule.series]
forward = ["bar", "前向", "forward"]
idle = ["bar", "等待 {n}", "idle {n}"]
[figure.schedule.places]
host = ["主机", "host"]

[figure.matrix]
title = ["矩阵", "Matrix"]
x = {label = ["列", "column"]}
y = {label = ["行", "row"]}
[figure.matrix.series]
done = ["bar", "完成", "done"]

[figure.held]
title = ["持有", "Held"]
x = {label = ["阶段", "stage"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.held.series]
weights = ["bar", "权重", "weights"]
states = ["bar", "状态", "states"]
"""
SPANS = [Span(1, "forward", 2, 3), Span(0, "idle", 1, 2), Span(0, "forward", 0, 1, "F1")]


@dataclass(frozen=True)
class Config:
    """What a demo's configuration has."""

    n: int = 3
    device: str = "cpu"


def found() -> Mechanisms:
    """A run that finds everything."""
    mechanisms = Mechanisms(MEASURES, Config())
    mechanisms.lanes("schedule", SPANS, rows=[0, "host"])
    mechanisms.tiles("matrix", [Tile(0, 1, "done"), Tile(0, 0, "done", ("m",))], [0], [0, 1])
    boxes = [Box(0, 0, "states", 0, 4, 8), Box(0, 0, "weights", 0, 2, 2)]
    mechanisms.shards("held", boxes, groups=[0])
    return mechanisms


def numbered(*numbers: int) -> tuple[Category, ...]:
    """Places that are whole numbers."""
    return tuple(Category(str(n), text(str(n), str(n))) for n in numbers)


def test_a_run_fills_in_figures_of_the_table() -> None:
    """Words and kinds are the table's, parts the run's, in the order in which a record has them."""
    schedule, matrix, held = found().result().figures
    forward = Series("forward", text("前向", "forward"), (), (), "bar", "computed")
    idle = Series("idle", text("等待 3", "idle 3"), (), (), "bar", "computed")
    rows = (*numbered(0), Category("host", text("主机", "host")))
    assert schedule == Lanes(
        "schedule",
        text("调度，3", "Schedule, 3"),
        Axis(text("时间", "time"), "s"),
        Axis(text("卡", "rank"), categories=rows),
        (forward, idle),
        (SPANS[2], SPANS[1], SPANS[0]),
    )
    assert isinstance(matrix, Tiles)
    assert [tile.column for tile in matrix.tiles] == [0, 1]
    assert (matrix.x.categories, matrix.y.categories) == (numbered(0, 1), numbered(0))
    assert isinstance(held, Shards)
    assert [box.kind for box in held.boxes] == ["weights", "states"]
    assert held.held(0, 0) == 6


def test_a_run_that_strays_from_its_table_is_refused() -> None:
    """A figure or a kind that the table lacks, one that is drawn twice, a kind that never occurs."""
    fresh = Mechanisms(MEASURES, Config())
    with pytest.raises(KeyError, match="no figure 'other'"):
        fresh.lanes("other", SPANS, [0, 1])
    with pytest.raises(KeyError, match="no series 'wait'"):
        fresh.lanes("schedule", [Span(0, "wait", 0, 1)], [0])
    with pytest.raises(ValueError, match="lacks the series idle"):
        fresh.lanes("schedule", [Span(0, "forward", 0, 1)], [0])
    with pytest.raises(KeyError, match="no place 'gpu'"):
        fresh.lanes("schedule", SPANS, [0, "gpu"])
    with pytest.raises(ValueError, match="drawn twice"):
        found().lanes("schedule", SPANS, [0, 1])


DEMO = '''
TITLE = {"zh": "字", "en": "word"}
QUESTION = {"zh": "字", "en": "word"}
PRESETS = {}
MEASURES = """%s"""


class Config:
    n: int = parameter(3, {"zh": "字", "en": "word"})


def run(config, progress):
    return None
'''


def test_words_are_renewed(tmp_path: Path) -> None:
    """Kinds and rows get the words that the demo has today, and no part is touched."""
    file = tmp_path / "sample.py"
    file.write_text(DEMO % MEASURES.replace('"idle {n}"', '"waits"').replace('"host"]', '"CPU"]'))
    demo = discovery.parse(file.read_bytes(), file)
    assert demo
    result = found().result()
    before = replace(recorded(), result=replace(result, terms={"n": 3}))
    after = words.renewed(before, demo).result.figures[0]
    assert isinstance(after, Lanes)
    assert after.series[1].label["en"] == "waits"
    assert after.y.categories[1].label["en"] == "CPU"
    assert after.spans == result.figures[0].spans  # type: ignore[attr-defined]


# --- in words ------------------------------------------------------------------------------------


def test_the_text_alternative_tells_what_is_drawn() -> None:
    """Title, then each row with its parts, in the language asked for."""
    schedule, matrix, held = found().result().figures
    assert isinstance(schedule, Lanes)
    assert isinstance(matrix, Tiles)
    assert isinstance(held, Shards)
    assert sketches.alternative(schedule, "en") == (
        "Schedule, 3. rank 0: forward F1 0–1 s, idle 3 1–2 s. host: forward 2–3 s."
    )
    assert sketches.alternative(schedule, "zh") == (
        "调度，3。卡 0：前向 F1 0–1 s，等待 3 1–2 s。主机：前向 2–3 s。"
    )
    assert sketches.alternative(matrix, "en") == "Matrix. row 0: done m, done."
    assert sketches.alternative(held, "en") == (
        "Held. stage 0 rank 0: weights 2 B, states 4 B / 8 B."
    )


# --- drawn ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A rectangle of a drawing; ``kind`` is the number of its kind, ``None`` for a frame."""

    x: float
    y: float
    width: float
    height: float
    kind: int | None


def boxes(svg: str) -> list[Drawn]:
    """The parts and frames of a drawing, in order, without those of the legend and the hatchings."""
    found = []
    for node in ET.fromstring(svg).findall(f"{SVG}rect"):
        x, y, width, height = (float(node.attrib[n]) for n in ("x", "y", "width", "height"))
        kind = re.search(r"url\(#[\w-]*-(\d+)\)", node.attrib["style"])
        if (width, height) != (22, 14):
            found.append(Drawn(x, y, width, height, int(kind[1]) if kind else None))
    return found


def written(svg: str) -> list[str]:
    """The texts of a drawing."""
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_lanes_are_drawn_where_they_are() -> None:
    """One box a span, its left and its width in proportion to its time, its row and kind as recorded."""
    drawn = boxes(sketches.draw(SCHEDULE, "en", prefix="p"))
    assert len(drawn) == len(SCHEDULE.spans) == 64
    scale = drawn[0].width  # the first span takes one slot, from 0 on
    rows = sorted({box.y for box in drawn})
    for box, span in zip(drawn, SCHEDULE.spans, strict=True):
        assert box.x - drawn[0].x == pytest.approx(span.start * scale, abs=1)
        assert box.width == pytest.approx((span.end - span.start) * scale, abs=0.2)
        assert rows.index(box.y) == span.row
        assert box.kind == ["forward", "backward"].index(span.kind)


def test_a_narrow_screen_has_time_on_several_strips() -> None:
    """No time is lost: of each kind as much is drawn as recorded, and most labels have room."""
    svg = sketches.draw(SCHEDULE, "en", prefix="p", narrow=True)
    drawn = boxes(svg)
    slot = next(box.width for box in drawn)
    for kind, each in ((0, 1), (1, 2)):
        total = sum(box.width for box in drawn if box.kind == kind)
        assert total / slot == pytest.approx(32 * each, abs=0.5)
    assert len({box.y for box in drawn}) == 3 * 4
    labels = {word for word in written(svg) if re.fullmatch(r"[FB]\d", word)}
    assert labels == {f"{kind}{k}" for kind in "FB" for k in range(1, 9)}


@pytest.mark.parametrize("narrow", [False, True])
def test_tiles_are_drawn_where_they_are(narrow: bool) -> None:
    """A box a tile on a grid of four by four, with its notes and its state's hatching."""
    svg = sketches.draw(TILES, "zh", prefix="p", narrow=narrow)
    drawn = boxes(svg)
    assert len(drawn) == 16
    xs, ys = (sorted({getattr(box, side) for box in drawn}) for side in "xy")
    states = ["done", "now", "skipped", "later"]
    for box, tile in zip(drawn, TILES.tiles, strict=True):
        assert (ys.index(box.y), xs.index(box.x)) == (tile.row, tile.column)
        assert box.kind == states.index(tile.kind)
    assert Counter(written(svg))["ℓ = 3.12"] == 5


@pytest.mark.parametrize("narrow", [False, True])
def test_shards_are_drawn_to_one_scale(narrow: bool) -> None:
    """Heights are bytes: in each group as many are filled as its ranks hold, framed where whole."""
    svg = sketches.draw(STAGES, "en", prefix="p", narrow=narrow)
    drawn = boxes(svg)
    held = [box for box in drawn if box.kind is not None]
    assert len(held) == len(STAGES.boxes) == 48
    scale = held[2].height / 24e9  # of stage 0 the first rank's third box holds all of the states
    for box, told in zip(held, STAGES.boxes, strict=True):
        assert box.height == pytest.approx((told.end - told.start) * scale, abs=0.2)
        assert box.kind == ["weights", "gradients", "states"].index(told.kind)
    frames = [box for box in drawn if box.kind is None]
    for frame, box, told in zip(frames, held, STAGES.boxes, strict=True):
        assert frame.height == pytest.approx(told.whole * scale, abs=0.2)
        foot = frame.y + frame.height - box.y - box.height
        assert foot == pytest.approx(told.start * scale, abs=0.3)
    # (2 + 2 + 12) bytes of 2e9 parameters, of which stages divide 12, 14 and 16 by four ranks
    totals = [each for each in written(svg) if each.endswith("a rank")]
    assert totals == ["32 GB a rank", "14 GB a rank", "11 GB a rank", "8 GB a rank"]


def test_the_unit_of_shards_is_that_of_their_numbers() -> None:
    """Three parts of 400 kB make a stack of more than a megabyte, and still are so many kilobytes."""
    parts = tuple(
        replace(box, start=0.0, end=4e5, whole=4e5) for box in STAGES.boxes if box.group == 0
    )
    one = replace(STAGES.x, categories=STAGES.x.categories[:1])
    said = written(sketches.draw(replace(STAGES, boxes=parts, x=one), "en", prefix="p"))
    assert "bytes (KB)" in said
    assert Counter(said)["400"] == len(parts)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("figure", SKETCHES, ids=lambda figure: figure.name)
def test_colour_alone_tells_nothing_apart(figure: Mechanism, narrow: bool) -> None:
    """Of any two kinds the hatchings differ, and each is named beside its own."""
    svg = sketches.draw(figure, "en", prefix="p", narrow=narrow)
    patterns = ET.fromstring(svg).findall(f"{SVG}defs/{SVG}pattern")
    hatches = [[path.attrib["d"] for path in each.iter(f"{SVG}path")] for each in patterns]
    assert len(hatches) == len(figure.series)
    assert all(hatches.count(each) == 1 for each in hatches)
    assert [word for word in written(svg) if word in {s.label["en"] for s in figure.series}] == [
        s.label["en"] for s in figure.series
    ]


@pytest.mark.parametrize("figure", SKETCHES, ids=lambda figure: figure.name)
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_file_of_its_own_has_title_language_and_colours(figure: Mechanism, lang: str) -> None:
    """As any figure's: the title as text, one language, both colour schemes, ids with the prefix."""
    svg = figures.draw(figure, lang, prefix="mine", standalone=True)
    assert "".join(written(svg)).startswith(figure.title[lang])
    assert "prefers-color-scheme: dark" in svg
    if lang == "en":
        assert not re.search("[\u4e00-\u9fff]", svg.replace("Noto Sans", ""))
    assert all(name.startswith("mine-") for name in re.findall(r'\bid="([^"]*)"', svg))
    assert set(re.findall(r"url\(#([^)]*)\)", svg)) == set(re.findall(r'\bid="([^"]*)"', svg))
    assert not re.search(r"(?<!, )#[0-9a-f]{6}\b", svg.split("</style>")[1])


def test_words_cannot_leave_their_place() -> None:
    """Labels, notes and names that look like markup are shown as they are."""
    evil = '"><b onload=x>&'
    figure = replace(
        TILES, title=text(evil, evil), **first(TILES, notes=(evil,)),
        y=replace(TILES.y, label=text(evil, evil)),
    )  # fmt: skip
    svg = sketches.draw(figure, "en", prefix="p", standalone=True)
    root = ET.fromstring(svg)
    assert evil in written(svg)
    assert root.attrib["aria-label"].startswith(evil)
    assert "<b" not in svg.replace("<body", "")


# --- in a browser --------------------------------------------------------------------------------

SIZES = """svg => [...svg.querySelectorAll('text')].map(
    t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"""
SMALLEST = 10.5
"""CSS pixels of type that is still read, on a phone and on paper."""


SHOWN: tuple[Figure, ...] = (*SKETCHES, CURVE, BARS, TIMELINE)


def page_of(lang: str) -> str:
    """A page with a figure of each kind, as the site places them in a card."""
    styles = "\n".join(
        (STYLES / f"{name}.css").read_text("utf-8") for name in ("tokens", "evidence")
    )
    drawn = "".join(
        '<figure class="pd-figure"><div class="pd-drawings">'
        + figures.draw(each, lang, prefix=each.name)
        + figures.draw(each, lang, prefix=f"{each.name}-narrow", narrow=True)
        + f"</div><figcaption>{each.title[lang]}</figcaption></figure>"
        for each in SHOWN
    )
    return f'<meta charset="utf-8"><style>{styles}</style><main class="pd-card">{drawn}</main>'


@pytest.mark.browser
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_each_screen_has_a_legible_drawing_of_its_own(chromium: Browser, lang: str) -> None:
    """On phones, at 1280 pixels and on paper one of the two shows and is told, its words apart and not small."""
    page = chromium.new_page()
    page.set_content(page_of(lang))
    screens = [(320, "screen", 1), (390, "screen", 1), (1280, "screen", 0)]
    for width, media, shown in [*screens, (688, "print", 0), (480, "print", 0)]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        visible = page.eval_on_selector_all(
            "svg.pd-fig", "all => all.map(each => each.checkVisibility())"
        )
        assert visible == [at % 2 == shown for at in range(2 * len(SHOWN))]
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        named = page.get_by_role("img").all()
        assert [each.get_attribute("aria-label") for each in named] == [
            sketches.alternative(each, lang) if isinstance(each, Mechanism) else each.title[lang]
            for each in SHOWN
        ]
        for each in named if width != 480 else []:
            assert each.evaluate(CROWDED) == []
            assert min(each.evaluate(SIZES)) >= SMALLEST
    page.close()

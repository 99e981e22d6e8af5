"""Figures: what is drawn is what was measured, in each language, as text that a page can style."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnable_demos.lab import figures, records
from runnable_demos.lab.lettering import wrap
from runnable_demos.lab.metrics import Axis, Category, Figure, Series
from runnable_demos.lab.scales import scale_for
from tests.demos.sketched import CROWDED

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIDENCE = Path(records.__file__).parents[1] / "evidence"
SVG = "{http://www.w3.org/2000/svg}"


def text(zh: str, en: str) -> dict[str, str]:
    """The same words in both languages."""
    return {"zh": zh, "en": en}


CURVE = Figure(
    "curve",
    text("U 形曲线", "The U-curve"),
    Axis(text("段长 k", "segment length k"), scale="log2"),
    Axis(text("峰值", "peak"), "B"),
    (
        Series("s", text("理论", "theory"), (1, 2, 4, 8), (8e6, 5e6, 4e6, 9e6), "theory"),
        Series("s", text("实测", "measured"), (1, 2, 4, 8), (8.5e6, 5.5e6, 4.5e6, 9e6)),
    ),
)
NAMES = ("fp32", "AMP 自动混合精度（带 fp32 主权重）", "纯 bf16", "bf16 + 主权重")
BARS = Figure(
    "bars",
    text("每参数字节", "Bytes a parameter"),
    Axis(text("方案", "recipe"), categories=tuple(Category(n, text(n, n)) for n in NAMES)),
    Axis(text("字节/参数", "bytes a parameter"), "B/param"),
    (
        Series("s", text("权重", "weights"), (0, 1, 2, 3), (4, 4, 2, 2), "bar"),
        Series("s", text("优化器", "optimizer"), (0, 1, 2, 3), (8, 8, 4, 12), "bar"),
    ),
)
STAGES = Figure(
    "stages",
    text("每卡字节", "Bytes a rank"),
    Axis(text("阶段", "stage")),
    Axis(text("字节", "bytes"), "B"),
    (Series("s", text("状态", "states"), (0, 1, 2, 3), (16e9, 7e9, 6e9, 4e9), "bar"),),
)
TIMELINE = Figure(
    "timeline",
    text("实时显存", "Live memory"),
    Axis(text("事件", "event")),
    Axis(text("存活字节", "bytes alive"), "B"),
    (
        Series("s", text("参数", "parameters"), (0, 1, 2, 3), (1e6, 1e6, 1e6, 1e6), "area"),
        Series("s", text("激活", "activations"), (0, 1, 2, 3), (0, 2e6, 3e6, 1e6), "area"),
    ),
)
LOG = Figure(
    "log",
    text("显存随 N 的增长", "Memory over N"),
    Axis(text("序列长度 N", "length N"), scale="log2"),
    Axis(text("字节", "bytes"), "B", scale="log2"),
    (
        Series("s", text("朴素", "naive"), (256, 512, 1024), (2**20, 2**22, 2**24)),
        Series("s", text("分块", "tiled"), (256, 512, 1024), (2**18, 2**19, 2**20), "step"),
    ),
)
SAMPLES = (CURVE, BARS, STAGES, TIMELINE, LOG)


def recorded() -> list[tuple[str, Figure]]:
    """Every figure of the committed evidence."""
    found = [("sample", figure) for figure in SAMPLES]
    for path in sorted(EVIDENCE.glob("*.json")):
        record = records.load(path)
        found += [(record.demo, figure) for figure in record.result.figures]
    return found


def words(svg: str) -> list[str]:
    """The texts of a figure, as a reader finds them."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("figure", SAMPLES, ids=lambda figure: figure.name)
def test_text_is_text_in_one_language(figure: Figure, lang: str) -> None:
    """Axis and series names stand in the file as text, in the language asked for and no other."""
    found = words(figures.draw(figure, lang, prefix="p", standalone=True))
    assert figure.title[lang] in found
    if len(figure.series) > 1:
        assert {s.label[lang] for s in figure.series} <= set(found)
    assert any(word.startswith(figure.x.label[lang]) for word in found if figure is not BARS) or (
        figure is BARS and set(NAMES) <= set(found)
    )
    if lang == "en" and figure is not BARS:
        assert not re.search("[\u4e00-\u9fff]", "".join(found))


@pytest.mark.parametrize("figure", SAMPLES, ids=lambda figure: figure.name)
def test_the_same_figure_gives_the_same_bytes(figure: Figure) -> None:
    """Nothing in a figure depends on the time or on what was drawn before."""
    first = figures.draw(figure, "zh", prefix="p")
    figures.draw(CURVE, "en", prefix="q")
    assert figures.draw(figure, "zh", prefix="p") == first


@pytest.mark.parametrize("figure", SAMPLES, ids=lambda figure: figure.name)
def test_colours_are_variables_and_ids_are_prefixed(figure: Figure) -> None:
    """A page can style every colour, and two figures on one page share no id."""
    svg = figures.draw(figure, "zh", prefix="demo-name-zh")
    bare = re.sub(r"var\(--pd-fig-\w+, #[0-9a-f]{6}\)", "", svg)
    assert not re.search(r"#[0-9a-fA-F]{6}\b(?![\w-])", bare)
    assert all(i.startswith("demo-name-zh-") for i in re.findall(r'\bid="([^"]*)"', svg))
    used = re.findall(r'href="#([^"]*)"', svg)
    assert set(used) <= set(re.findall(r'\bid="([^"]*)"', svg))
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_the_curve_is_drawn_where_it_was_measured() -> None:
    """Equal steps of log k are equal steps on the page, and heights are in proportion."""
    svg = figures.draw(CURVE, "en", prefix="p")
    root = ET.fromstring(svg)
    dashed = next(
        node.attrib["d"]
        for node in root.iter(f"{SVG}path")
        if "dasharray" in node.attrib["style"] and node.attrib["d"].count("L") == 3
    )
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", dashed)]
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(points)]
    assert max(gaps) - min(gaps) < 0.3
    rise = [points[0][1] - y for _, y in points]
    assert rise[1] / rise[2] == pytest.approx((8 - 5) / (8 - 4), abs=0.01)


def test_bars_and_peaks_say_their_totals() -> None:
    """Stacks carry the sum at their end; a timeline carries its peak with the unit."""
    assert {"12", "6", "14"} <= set(words(figures.draw(BARS, "en", prefix="p")))
    assert {"16", "7", "6", "4"} <= set(words(figures.draw(STAGES, "en", prefix="p")))
    assert "peak 4 MB" in words(figures.draw(TIMELINE, "en", prefix="p"))
    assert "峰值 4 MB" in words(figures.draw(TIMELINE, "zh", prefix="p"))


@pytest.mark.parametrize(
    ("value", "unit", "binary", "expected"),
    [
        (1_500_000, "B", False, "1.5 MB"),
        (1_048_576, "B", True, "1 MiB"),
        (999, "B", False, "999 B"),
        (12, "B/param", False, "12 B/param"),
        (0.0025, "s", False, "2.5 ms"),
        (3.5e12, "FLOP", False, "3.5 TFLOP"),
        (0.15, "", False, "0.15 "),
        (-2, "", False, "−2 "),
        (4096, "", False, "4,096 "),
    ],
)
def test_numbers_are_written_with_their_unit(
    value: float, unit: str, binary: bool, expected: str
) -> None:
    """B, KB and KiB are told apart; a minus is a minus."""
    scale = scale_for([value], unit, binary)  # type: ignore[arg-type]
    assert f"{scale.number(value)} {scale.unit}" == expected


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("one two three four", ["one two", "three four"]),
        ("一二三四五六七八九十", ["一二三四五", "六七八九十"]),
        ("averyveryverylongword", ["averyveryverylongword"]),
        ("两行 mixed 的标题", ["两行 mixed", "的标题"]),
    ],
)
def test_long_titles_are_wrapped(text: str, lines: list[str]) -> None:
    """Lines break at spaces and between 汉字, and a single long word stands alone."""
    assert wrap(text, 5.9 * 10, 10) == lines


def test_powers_are_written_as_powers() -> None:
    """Where a log axis without unit runs far, its ticks are powers."""
    far = Figure(
        "far", CURVE.title, Axis(CURVE.x.label, scale="log2"), CURVE.y,
        (Series("s", CURVE.x.label, (1, 2.0**22), (1, 2)),),
    )  # fmt: skip
    assert "2²¹" in words(figures.draw(far, "en", prefix="p"))


@pytest.mark.browser
def test_no_text_collides_or_leaves_the_figure(chromium: Browser) -> None:
    """In a browser with 汉字 fonts, no two texts of any figure overlap, and all are inside, on both screens."""
    faults = {}
    page = chromium.new_page()
    for demo, figure in recorded():
        for lang, narrow in itertools.product(("zh", "en"), (False, True)):
            svg = figures.draw(figure, lang, prefix="p", standalone=True, narrow=narrow)
            page.set_content(svg)
            if found := page.eval_on_selector("svg.pd-fig", CROWDED):
                faults[f"{demo}/{figure.name}/{lang}/{narrow}"] = found
    page.close()
    assert faults == {}

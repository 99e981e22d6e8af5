"""Draw a mechanism as SVG, for a wide or a narrow screen, in one language, for light and dark alike.

Each kind of part has a colour and a hatching of its own, so that colour alone tells nothing apart.
Words that have no room in their part are left out; the figure's data has them.
The same figure gives the same bytes. Standard library only.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median_high

from runnable_demos.lab.colours import COLOURS, as_file
from runnable_demos.lab.lettering import (
    BOLD,
    FONT,
    LINE,
    NARROW,
    SMALL,
    WIDE,
    head,
    legible,
    text_width,
    wrap,
)
from runnable_demos.lab.mechanisms import Box, Lanes, Mechanism, Shards, Span, Tiles
from runnable_demos.lab.metrics import Axis
from runnable_demos.lab.scales import Scale, round_places, scale_for

LANE, TILE, STACK = 26, 92, {WIDE: 210, NARROW: 170}
"""Pixels: a lane's height, the most that a tile is wide, the height of the tallest stack of boxes."""
COLUMN, BETWEEN = 33, 14
"""Pixels: the least that a rank's stack takes in width, and between groups of them."""
FEW = 8
"""Lanes that stand apart; more stand close together, and all on one strip."""

RANK = {"zh": "卡 {}", "en": "rank {}"}
EACH = {"zh": "每卡 {}", "en": "{} a rank"}
MOST = {"zh": "最多 {}", "en": "at most {}"}
_MARGIN = 8
_SERIES = [name for name in COLOURS if name.isdigit()]
_HATCHES = (
    "",
    "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4",
    "M2,1 v2 M6,5 v2",
    "M0,4 H8",
    "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4",
    "M0,4 H8 M4,0 V8",
)


def draw(
    figure: Mechanism, lang: str, *, prefix: str, standalone: bool = False, narrow: bool = False
) -> str:
    """The SVG of ``figure`` in ``lang``; ``prefix`` and ``standalone`` are as ``figures.draw`` has them."""
    sheet = _Sheet(figure, lang, NARROW if narrow else WIDE, prefix)
    if standalone:
        sheet.title()
    sheet.legend()
    drawing = {Lanes: _lanes, Tiles: _tiles, Shards: _shards}[type(figure)]
    drawing(sheet, figure)  # type: ignore[operator]  # each takes its own kind
    drawn = sheet.svg()
    return as_file(drawn) if standalone else drawn


# --- in place of the drawing ---------------------------------------------------------------------


def alternative(figure: Mechanism, lang: str) -> str:
    """What the drawing says, for who does not see it: its title, then row by row."""
    told = {Lanes: _told_lanes, Tiles: _told_tiles, Shards: _told_shards}[type(figure)]
    stop, gap = ("。", "") if lang == "zh" else (".", " ")
    rows = list(told(figure, lang))  # type: ignore[operator]  # each takes its own kind
    return gap.join(f"{each}{stop}" for each in [figure.title[lang], *rows])


def _told_lanes(figure: Lanes, lang: str) -> Iterator[str]:
    scale = scale_for([v for s in figure.spans for v in (s.start, s.end)], figure.x.unit)
    for row in range(len(figure.y.categories)):
        spans = (
            f"{_named(figure, span, lang)} {scale.number(span.start)}–{scale.show(span.end)}"
            for span in figure.spans
            if span.row == row
        )
        yield _line(_place(figure.y, row, lang), spans, lang)


def _told_tiles(figure: Tiles, lang: str) -> Iterator[str]:
    for row in range(len(figure.y.categories)):
        tiles = (
            " ".join([figure.label(tile.kind)[lang], *tile.notes])
            for tile in figure.tiles
            if tile.row == row
        )
        yield _line(_place(figure.y, row, lang), tiles, lang)


def _told_shards(figure: Shards, lang: str) -> Iterator[str]:
    scale = scale_for([box.whole for box in figure.boxes], figure.y.unit)
    for group in range(len(figure.x.categories)):
        for rank in range(figure.ranks(group)):
            boxes = (
                f"{figure.label(box.kind)[lang]} {scale.show(box.end - box.start)}"
                + ("" if box.end - box.start == box.whole else f" / {scale.show(box.whole)}")
                for box in figure.boxes
                if (box.group, box.rank) == (group, rank)
            )
            yield _line(f"{_place(figure.x, group, lang)} {RANK[lang].format(rank)}", boxes, lang)


def _named(figure: Lanes, span: Span, lang: str) -> str:
    return f"{figure.label(span.kind)[lang]} {span.label}".rstrip()


def _line(name: str, parts: Iterator[str], lang: str) -> str:
    colon, comma = ("：", "，") if lang == "zh" else (": ", ", ")
    return f"{name}{colon}{comma.join(parts)}"


def _place(axis: Axis, number: int, lang: str) -> str:
    """The name of a row, column or group; the axis says what it is where that is a number."""
    name = axis.categories[number].label[lang]
    return f"{axis.label[lang]} {name}" if name.isdigit() else name


# --- a sheet -------------------------------------------------------------------------------------


@dataclass
class _Sheet:
    """A drawing under way: what stands on it, and how far down it has come."""

    figure: Mechanism
    lang: str
    width: int
    prefix: str
    y: float = _MARGIN
    parts: list[ET.Element] = field(default_factory=list)

    @property
    def narrow(self) -> bool:
        return self.width == NARROW

    def words(self, text: Mapping[str, str]) -> str:
        return text[self.lang]

    def colour(self, kind: str) -> str:
        return _SERIES[self._number(kind) % len(_SERIES)]

    def _number(self, kind: str) -> int:
        return [series.name for series in self.figure.series].index(kind)

    def _add(self, tag: str, style: str, words: str = "", **attributes: float | str) -> None:
        shown = {
            name: each if isinstance(each, str) else f"{each:.1f}".removesuffix(".0")
            for name, each in attributes.items()
        }
        element = ET.Element(tag, {**shown, "style": style})
        element.text = legible(words)
        self.parts.append(element)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        ink: str = "fg",
        size: float = SMALL,
        anchor: str = "start",
        bold: bool = False,
        over: str = "",
    ) -> None:
        """``words`` with the middle of their line at ``y``; ``over`` is the kind of part that they stand in."""
        style = f"fill: {_ink(ink)}; font-size: {size}px; text-anchor: {anchor}"
        style += "; font-weight: bold" if bold else ""
        if over and _hatch(self._number(over)):
            style += f"; stroke: {_ink('bg')}; stroke-width: 3.5px; stroke-linejoin: round; paint-order: stroke"
        self._add("text", style, words, x=x, y=y + 0.36 * size)

    def lines(self, x: float, y: float, lines: list[str], **more: str) -> None:
        """Lines of small words, with the middle of all at ``y``."""
        for number, line in enumerate(lines):
            self.text(x, y + 14 * (number - (len(lines) - 1) / 2), line, **more)  # type: ignore[arg-type]

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A part of a kind."""
        style = f"fill: url(#{self.prefix}-{self._number(kind)}); stroke: {_ink(self.colour(kind))}"
        self._add("rect", style, x=x, y=y, width=width, height=height)

    def frame(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """A rectangle that is no part."""
        self._add("rect", style, x=x, y=y, width=width, height=height)

    def rule(self, x: float, top: float, bottom: float) -> None:
        """An upright line of the grid."""
        self._add(
            "path", f"fill: none; stroke: {_ink('grid')}", d=f"M{x:.1f},{top:.1f} V{bottom:.1f}"
        )

    def title(self) -> None:
        """The title, in a file that stands alone."""
        room = (self.width - 2 * _MARGIN) / BOLD
        for line in wrap(self.words(self.figure.title), room, FONT + 2):
            self.text(_MARGIN, self.y + LINE / 2, line, size=FONT + 2, bold=True)
            self.y += LINE

    def legend(self) -> None:
        """Each kind with its words, row by row."""
        x, high = float(_MARGIN), LINE
        for series in self.figure.series:
            lines = wrap(self.words(series.label), self.width - 2 * _MARGIN - 30, SMALL)
            wide = 30 + max(text_width(line, SMALL) for line in lines) + 16
            if x > _MARGIN and x + wide - 16 > self.width - _MARGIN:
                x, self.y, high = _MARGIN, self.y + high, LINE
            self.box(x, self.y + 4, 22, 14, series.name)
            for at, line in enumerate(lines):
                self.text(x + 30, self.y + 11 + 15 * at, line)
            x, high = x + wide, max(high, LINE + 15 * (len(lines) - 1))
        self.y += high + 4

    def note(self, words: str, left: float = _MARGIN) -> None:
        """What axes are called."""
        for line in wrap(words, self.width - left - _MARGIN, SMALL):
            self.text(left, self.y + 8, line, ink="muted")
            self.y += 16

    def svg(self) -> str:
        """All of it."""
        height = math.ceil(self.y + _MARGIN)
        told = alternative(self.figure, self.lang)
        defs = ET.Element("defs")
        for number, series in enumerate(self.figure.series):
            defs.append(
                _pattern(f"{self.prefix}-{number}", self.colour(series.name), _hatch(number))
            )
        drawn = "\n".join(ET.tostring(each, encoding="unicode") for each in [defs, *self.parts])
        return f"{head(told, self.lang, self.width, height)}{drawn}\n</svg>\n"


def _ink(name: str) -> str:
    return f"var(--pd-fig-{name}, {COLOURS[name][0]})"


def _hatch(number: int) -> str:
    return _HATCHES[number % len(_HATCHES)]


def _pattern(name: str, colour: str, hatch: str) -> ET.Element:
    """A tint, light enough for words in it, with a hatching."""
    size = {"width": "8", "height": "8"}
    pattern = ET.Element("pattern", {"id": name, **size, "patternUnits": "userSpaceOnUse"})
    tint = 0.12 if hatch else 0.3
    ET.SubElement(pattern, "rect", {**size, "style": f"fill: {_ink(colour)}; fill-opacity: {tint}"})
    if hatch:
        style = f"fill: none; stroke: {_ink(colour)}; stroke-opacity: .55; stroke-width: 1.3"
        ET.SubElement(pattern, "path", {"d": hatch, "style": style})
    return pattern


# --- lanes ---------------------------------------------------------------------------------------


def _lanes(sheet: _Sheet, figure: Lanes) -> None:
    """Rows over time; where labels have no room on one strip, time goes on below."""
    names = [_wrapped(sheet, each.label) for each in figure.y.categories]
    left = _gutter(names)
    few, labelled = len(names) <= FEW, {span.row for span in figure.spans if span.label}
    gap = 4 if few else 2
    least = [LANE if few else 18 if row in labelled else 14 for row in range(len(names))]
    heights = [max(each, 14 * len(name)) for each, name in zip(least, names, strict=True)]
    tops = [sum(heights[:row]) + gap * row for row in range(len(names) + 1)]
    low, high = min(s.start for s in figure.spans), max(s.end for s in figure.spans)
    room = sheet.width - left - 2 * _MARGIN
    length = _strip(figure, high - low, room, (4 if sheet.narrow else 2) if few else 1)
    scale = scale_for([low, high], figure.x.unit)
    sheet.note(f"{sheet.words(figure.y.label)} ↓")
    while low < high:
        per = room / length
        bottom = sheet.y + tops[-1]
        for tick in round_places(low, low + length, scale.worth, 5 if sheet.narrow else 10):
            x = left + (tick - low) * per
            sheet.rule(x, sheet.y, bottom + 2)
            sheet.text(x, bottom + 10, scale.number(tick), ink="muted", anchor="middle")
        for row, name in enumerate(names):
            y = sheet.y + tops[row]
            sheet.lines(_MARGIN, y + heights[row] / 2, name)
            for span in figure.spans:
                start, end = max(span.start, low), min(span.end, low + length)
                if span.row == row and start < end:
                    at = (left + (start - low) * per, y)
                    _span(sheet, span, at, (end - start) * per, heights[row])
        sheet.y = bottom + 24
        low += length
    unit = f" ({scale.unit})" if scale.unit else ""
    sheet.note(f"{sheet.words(figure.x.label)}{unit} →", left)


def _span(sheet: _Sheet, span: Span, at: tuple[float, float], width: float, height: float) -> None:
    x, y = at
    sheet.box(x, y, width, height, span.kind)
    if span.label and text_width(span.label, SMALL) + 3 <= width:
        middle = (x + width / 2, y + height / 2)
        sheet.text(*middle, span.label, anchor="middle", over=span.kind)


def _strip(figure: Lanes, whole: float, room: float, most: int) -> float:
    """How much time stands on one strip, so that most labels have room."""
    labelled = [span for span in figure.spans if span.label]
    needs = ((text_width(s.label, SMALL) + 3) / (s.end - s.start) for s in labelled)
    need = median_high(needs) if labelled else 0.0
    strips = min(max(math.ceil(need * whole / room), 1), most)
    length = whole / strips
    even = all(float(v).is_integer() for s in figure.spans for v in (s.start, s.end))
    return math.ceil(length) if even else length


# --- tiles ---------------------------------------------------------------------------------------


def _tiles(sheet: _Sheet, figure: Tiles) -> None:
    """A matrix in blocks, with the names of rows and columns beside them."""
    rows = [_wrapped(sheet, each.label) for each in figure.y.categories]
    columns = [sheet.words(each.label) for each in figure.x.categories]
    left = _gutter(rows)
    width = min((sheet.width - left - _MARGIN) / len(columns), TILE)
    notes = [
        [line for note in tile.notes for line in wrap(note, width - 4, SMALL)]
        for tile in figure.tiles
    ]
    room = all(text_width(line, SMALL) + 4 <= width for lines in notes for line in lines)
    most = max(map(len, notes)) if room else 0
    height = max(26, 14 * max(most, *map(len, rows)) + 8)
    sheet.note(f"{sheet.words(figure.y.label)} ↓ · {sheet.words(figure.x.label)} →")
    if all(text_width(name, SMALL) + 4 <= width for name in columns):
        for column, label in enumerate(columns):
            x = left + (column + 0.5) * width
            sheet.text(x, sheet.y + 8, label, ink="muted", anchor="middle")
        sheet.y += 18
    for row, name in enumerate(rows):
        sheet.lines(_MARGIN, sheet.y + (row + 0.5) * height, name)
    for tile, lines in zip(figure.tiles, notes, strict=True):
        x, y = left + tile.column * width, sheet.y + tile.row * height
        sheet.box(x + 1, y + 1, width - 2, height - 2, tile.kind)
        if room:
            middle = (x + width / 2, y + height / 2)
            sheet.lines(*middle, lines, anchor="middle", over=tile.kind)
    sheet.y += height * len(rows)


# --- shards --------------------------------------------------------------------------------------


def _shards(sheet: _Sheet, figure: Shards) -> None:
    """Groups side by side, as many as have room; in each a stack a rank, all to one scale."""
    groups = range(len(figure.x.categories))
    tallest = max(sum(figure.wholes(group).values()) for group in groups)
    per = STACK[sheet.width] / tallest
    ranks = max(figure.ranks(group) for group in groups)
    room = sheet.width - 2 * _MARGIN + BETWEEN
    beside = min(len(groups), max(1, int(room // (ranks * COLUMN + BETWEEN))))
    slot = room / beside - BETWEEN
    column = min(slot / ranks, 64)
    scale = scale_for([box.whole for box in figure.boxes], figure.y.unit)
    below = [_below(sheet, figure, group, scale, slot) for group in groups]
    words = sheet.words(figure.y.label)
    sheet.note(f"{words} ({scale.unit})" if scale.unit else words)
    for first in range(0, len(groups), beside):
        row = groups[first : first + beside]
        foot = sheet.y + STACK[sheet.width]
        for group in row:
            left = _MARGIN + (group - first) * (slot + BETWEEN)
            _group(sheet, figure, group, scale, (left, foot), column, per)
            for line, (words, bold) in enumerate(below[group]):
                sheet.text(left, foot + 28 + 15 * line, words, bold=bold)
        sheet.y = foot + 32 + 15 * max(len(below[group]) for group in row)


def _below(
    sheet: _Sheet, figure: Shards, group: int, scale: Scale, width: float
) -> list[tuple[str, bool]]:
    """Lines of words: a group's name, and what its ranks hold; the name stands out."""
    held = [figure.held(group, rank) for rank in range(figure.ranks(group))]
    form = EACH if len(set(held)) == 1 else MOST
    total = form[sheet.lang].format(scale.show(max(held)))
    name = _place(figure.x, group, sheet.lang)
    return [
        (line, bold)
        for words, bold in ((name, True), (total, False))
        for line in wrap(words, width / (BOLD if bold else 1), SMALL)
    ]


def _group(
    sheet: _Sheet,
    figure: Shards,
    group: int,
    scale: Scale,
    at: tuple[float, float],
    column: float,
    per: float,
) -> None:
    """The stacks of one group, whose first stands with its left foot ``at`` a place."""
    left, foot = at
    ranks, wholes = figure.ranks(group), figure.wholes(group)
    own = {(box.rank, box.kind): box for box in figure.boxes if box.group == group}
    wide = column - 4
    for rank in range(ranks):
        x, y = left + rank * column, foot
        for kind, whole in wholes.items():
            y -= whole * per
            dashed = (
                f"fill: none; stroke: {_ink('muted')}; stroke-dasharray: 2 2; stroke-opacity: .6"
            )
            sheet.frame(x, y, wide, whole * per, dashed)
            if box := own.get((rank, kind)):
                _box(sheet, box, (x, y), wide, per, scale.number(box.end - box.start, 3))
        words = RANK[sheet.lang].format(rank)
        if text_width(words, SMALL) + 4 > column:
            words = str(rank)
        sheet.text(x + wide / 2, foot + 10, words, ink="muted", anchor="middle")


def _box(
    sheet: _Sheet, box: Box, at: tuple[float, float], width: float, per: float, words: str
) -> None:
    """What is held, at its place within its part, which begins at the bottom."""
    x, top = at
    y, height = top + (box.whole - box.end) * per, (box.end - box.start) * per
    sheet.box(x, y, width, height, box.kind)
    if height >= 15 and text_width(words, SMALL) + 2 <= width:
        middle = (x + width / 2, y + height / 2)
        sheet.text(*middle, words, anchor="middle", over=box.kind)


def _wrapped(sheet: _Sheet, label: Mapping[str, str]) -> list[str]:
    return wrap(sheet.words(label), 0.26 * sheet.width, SMALL)


def _gutter(names: list[list[str]]) -> float:
    """Where the rows begin, beside their names."""
    return _MARGIN + 10 + max(text_width(line, SMALL) for name in names for line in name)

"""A figure's numbers as a table: on a page, or as a file where it has more rows than anybody reads there."""

from __future__ import annotations

import csv
import io
import sys

from generator import words
from generator.lang import LANGS, on_one_line
from runnable_demos.lab.mechanisms import Box, Lanes, Mechanism, Span, Tile, Tiles
from runnable_demos.lab.metrics import Figure
from runnable_demos.lab.scales import scale_for

MOST_ROWS = 80
"""Rows of a table in a document; a timeline has thousands of points, which nobody reads one by one."""
MOST_ON_PAGE = 24
"""Rows of a table on a page of the site, where a longer one is a file."""


def figure_rows(figure: Figure, most: int = MOST_ROWS) -> list[list[object]]:
    """A figure's numbers as a table: its x, then one column a series; empty where a series has no point."""
    places = list(dict.fromkeys(x for series in figure.series for x in series.x))
    places.sort()
    lookup = [dict(zip(series.x, series.y, strict=True)) for series in figure.series]

    across = scale_for(places, figure.x.unit, binary=figure.x.scale == "log2")
    heights = [y for series in figure.series for y in series.y]
    along = scale_for(heights, figure.y.unit, binary=figure.y.scale == "log2")

    def named(x: float) -> object:
        return figure.x.categories[int(x)].label if figure.x.categories else across.show(x)

    return [
        [named(x), *(along.show(points[x]) if x in points else "" for points in lookup)]
        for x in places[:most]
    ]


def part_rows(figure: Mechanism, most: int = MOST_ROWS) -> list[list[object]]:
    """What a mechanism is made of, as a table: heads, then a row a part."""
    numbers = [getattr(part, name) for part in figure.parts for name in figure.NUMBERS]
    unit = figure.x.unit if isinstance(figure, Lanes) else figure.y.unit
    scale = scale_for(numbers, unit)
    told = words.group("parts")

    def row(part: Span | Tile | Box) -> list[object]:
        kind = figure.label(part.kind)
        match part:
            case Span():
                place = figure.place(figure.y, part.row)
                return [place, kind, scale.show(part.start), scale.show(part.end), part.label]
            case Tile():
                places = figure.place(figure.y, part.row), figure.place(figure.x, part.column)
                return [*places, kind, ", ".join(part.notes)]
            case Box():
                held = [part.start, part.end, part.whole]
                place = figure.place(figure.x, part.group)
                return [place, str(part.rank), kind, *map(scale.show, held)]

    if isinstance(figure, Lanes):
        heads = [figure.y.label, told["kind"], told["start"], told["end"], told["label"]]
    elif isinstance(figure, Tiles):
        heads = [figure.y.label, figure.x.label, told["kind"], told["label"]]
    else:
        heads = [figure.x.label, told["rank"], told["kind"], *(told[n] for n in figure.NUMBERS)]
    return [[*heads], *map(row, figure.parts[:most])]


def is_long(figure: Figure) -> bool:
    """Whether the table has more rows than a page of the site shows."""
    return _length(figure) > MOST_ON_PAGE


def _length(figure: Figure) -> int:
    if isinstance(figure, Mechanism):
        return len(figure.parts)
    return len({x for series in figure.series for x in series.x})


def table_file(figure: Figure) -> str:
    """The whole table as CSV, with its heads in both languages."""
    if isinstance(figure, Mechanism):
        rows = part_rows(figure, sys.maxsize)
    else:
        heads = [figure.x.label, *(series.label for series in figure.series)]
        rows = [[*heads], *figure_rows(figure, sys.maxsize)]
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([_cell(cell) for cell in row] for row in rows)
    return made.getvalue()


def _cell(cell: object) -> object:
    return on_one_line({lang: cell[lang] for lang in LANGS}) if isinstance(cell, dict) else cell

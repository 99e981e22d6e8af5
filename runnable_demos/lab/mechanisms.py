"""Figures that show how something works: lanes over time, tiles of a matrix, shards over ranks.

They are figures whose series are kinds of parts, each with its words and without points, and whose
axes name rows and columns. A demo that draws one fills ``Mechanisms``, which is ``Findings``
otherwise; its table has such a figure as any other, each kind of part as a series of mark ``bar``:

    [figure.schedule]
    title = ["zh", "en"]
    kind = "computed"
    x = {label = ["时间", "time"], unit = "s"}
    y = {label = ["卡", "rank"]}
    [figure.schedule.series]
    forward = ["bar", "前向", "forward"]
    [figure.schedule.places]
    first = ["zh", "en"]                # names of rows, columns or groups that are no whole numbers

Standard library only.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from runnable_demos.lab.findings import Findings
from runnable_demos.lab.metrics import Axis, Category, Figure, Kind, Series

LONGEST = 24
"""Characters of a label, which both languages share: ``F3``, ``m = 0.7``."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a row does from ``start`` until before ``end``, on the axis x."""

    row: int
    kind: str
    start: float
    end: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One block of a matrix, the state that it is in, and up to three short notes in it."""

    row: int
    column: int
    kind: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """What one rank of a group holds of a part that has ``whole`` bytes: those from ``start`` to ``end``."""

    group: int
    rank: int
    kind: str
    start: float
    end: float
    whole: float


Part = Span | Tile | Box


@dataclass(frozen=True, slots=True)
class Mechanism(Figure, ABC):
    """A figure of parts, each of a kind that one of ``series`` names; see the three that there are."""

    NUMBERS: ClassVar[tuple[str, ...]] = ()
    """Fields of a part that are as exact as its kind: measured ones are replayed."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """All that is drawn, in order."""

    def __post_init__(self) -> None:
        """Refuse, with ``ValueError``, what is no such figure."""
        if not self.parts:
            raise ValueError(f"figure {self.name}: it shows nothing")
        names = [series.name for series in self.series]
        if len(set(names)) < len(names) or any(series.x for series in self.series):
            raise ValueError(f"figure {self.name}: its series are kinds, each once, without points")
        for part in self.parts:
            if part.kind not in names:
                raise ValueError(f"figure {self.name}: no series is called {part.kind!r}")
        if fault := next(self._faults(), ""):
            raise ValueError(f"figure {self.name}: {fault}")

    @abstractmethod
    def _faults(self) -> Iterator[str]:
        """What is wrong with its parts, beside their kinds."""

    def place(self, axis: Axis, number: int) -> Mapping[str, str]:
        """The name of a row, column or group."""
        return axis.categories[number].label

    def label(self, kind: str) -> Mapping[str, str]:
        """A kind's words."""
        return next(series.label for series in self.series if series.name == kind)

    def kind_of(self, part: Part) -> Kind:
        """Where a part's numbers come from."""
        return next(series.kind for series in self.series if series.name == part.kind)


@dataclass(frozen=True, slots=True)
class Lanes(Mechanism):
    """Rows over time (ranks, layers, tensors), each with spans in order that do not overlap.

    ``x`` is time, and ``y.categories`` are the rows.
    """

    spans: tuple[Span, ...]
    NUMBERS: ClassVar[tuple[str, ...]] = ("start", "end")

    @property
    def parts(self) -> tuple[Span, ...]:
        """The spans, row by row."""
        return self.spans

    def _faults(self) -> Iterator[str]:
        for span in self.spans:
            if not 0 <= span.row < len(self.y.categories):
                yield f"it has no row {span.row}"
            if not -math.inf < span.start < span.end < math.inf:
                yield f"a span runs from {span.start!r} to {span.end!r}"
            yield from _illegible([span.label])
        for before, after in itertools.pairwise(self.spans):
            if (before.row, before.start) > (after.row, after.start):
                yield "its spans do not stand in order, row by row"
            if before.row == after.row and before.end > after.start:
                yield f"two spans of row {before.row} overlap at {after.start!r}"


@dataclass(frozen=True, slots=True)
class Tiles(Mechanism):
    """A matrix in blocks, each once, row by row: ``y.categories`` are its rows, ``x.categories`` its columns."""

    tiles: tuple[Tile, ...]

    @property
    def parts(self) -> tuple[Tile, ...]:
        """The tiles, row by row."""
        return self.tiles

    def _faults(self) -> Iterator[str]:
        rows, columns = len(self.y.categories), len(self.x.categories)
        places = [(tile.row, tile.column) for tile in self.tiles]
        if places != list(itertools.product(range(rows), range(columns))):
            yield f"its tiles are not those of {rows} rows and {columns} columns, row by row"
        for tile in self.tiles:
            yield from _illegible(tile.notes)
            if len(tile.notes) > 3:
                yield "a tile has more than three notes"


@dataclass(frozen=True, slots=True)
class Shards(Mechanism):
    """What each rank holds, in groups of ranks (stages of ZeRO, ways to split): ``x.categories`` are the groups.

    Boxes stand group by group, rank by rank, in the order of ``series``, which is that of the stack.
    ``y`` says what is counted, and its unit.
    """

    boxes: tuple[Box, ...]
    NUMBERS: ClassVar[tuple[str, ...]] = ("start", "end", "whole")

    @property
    def parts(self) -> tuple[Box, ...]:
        """The boxes, group by group, rank by rank."""
        return self.boxes

    def ranks(self, group: int) -> int:
        """How many ranks a group has."""
        return 1 + max((box.rank for box in self.boxes if box.group == group), default=-1)

    def wholes(self, group: int) -> dict[str, float]:
        """How large each part is that somebody in a group holds, in the order of the stack."""
        found = {box.kind: box.whole for box in self.boxes if box.group == group}
        return {series.name: found[series.name] for series in self.series if series.name in found}

    def held(self, group: int, rank: int) -> float:
        """What a rank holds in all."""
        own = (box for box in self.boxes if (box.group, box.rank) == (group, rank))
        return math.fsum(box.end - box.start for box in own)

    def _faults(self) -> Iterator[str]:
        order = {series.name: number for number, series in enumerate(self.series)}
        keys = [(box.group, box.rank, order[box.kind]) for box in self.boxes]
        if any(before >= after for before, after in itertools.pairwise(keys)):
            yield "its boxes do not stand in order, each once"
        if {box.group for box in self.boxes} != set(range(len(self.x.categories))):
            yield "its boxes are not those of its groups"
        for box in self.boxes:
            if not 0 <= box.start < box.end <= box.whole < math.inf:
                yield f"a box holds from {box.start!r} to {box.end!r} of {box.whole!r}"
            if box.whole != self.wholes(box.group)[box.kind]:
                yield f"the ranks of group {box.group} do not agree how large {box.kind} is"
        for group in range(len(self.x.categories)):
            if {b.rank for b in self.boxes if b.group == group} != set(range(self.ranks(group))):
                yield f"the ranks of group {group} do not count from 0"


def _illegible(labels: Iterable[str]) -> Iterator[str]:
    for label in labels:
        if len(label) > LONGEST or not label.isprintable():
            yield f"{label[:LONGEST]!r} is no short label"


BY_FIELD: Mapping[str, type[Mechanism]] = {"spans": Lanes, "tiles": Tiles, "boxes": Shards}
"""The three, by the field that a record has of each alone."""


class Mechanisms(Findings):
    """Findings, among them figures that show how something works."""

    def lanes(self, name: str, spans: Collection[Span], rows: Iterable[str | int]) -> None:
        """Spans over time in ``rows``, which are names in the table, or whole numbers."""
        title, x, y, kinds = self._frame(name, spans)
        down = self._categories(name, rows)
        ordered = tuple(sorted(spans, key=lambda span: (span.row, span.start)))
        self._figures[name] = Lanes(name, title, x, _with(y, down), kinds, ordered)

    def tiles(
        self,
        name: str,
        tiles: Collection[Tile],
        rows: Iterable[str | int],
        columns: Iterable[str | int],
    ) -> None:
        """A matrix in blocks; ``rows`` and ``columns`` are names in the table, or whole numbers."""
        title, x, y, kinds = self._frame(name, tiles)
        across, down = self._categories(name, columns), self._categories(name, rows)
        ordered = tuple(sorted(tiles, key=lambda tile: (tile.row, tile.column)))
        self._figures[name] = Tiles(name, title, _with(x, across), _with(y, down), kinds, ordered)

    def shards(self, name: str, boxes: Collection[Box], groups: Iterable[str | int]) -> None:
        """What each rank of the ``groups`` holds, which are names in the table, or whole numbers."""
        title, x, y, kinds = self._frame(name, boxes)
        order = [series.name for series in kinds]
        ordered = sorted(boxes, key=lambda box: (box.group, box.rank, order.index(box.kind)))
        across = self._categories(name, groups)
        self._figures[name] = Shards(name, title, _with(x, across), y, kinds, tuple(ordered))

    def _frame(
        self, name: str, parts: Collection[Part]
    ) -> tuple[Mapping[str, str], Axis, Axis, tuple[Series, ...]]:
        """Title, axes and kinds of a figure of the table, each kind with a part."""
        if name not in self._table.figures:
            raise KeyError(f"the table has no figure {name!r}")
        if name in self._figures:
            raise ValueError(f"the figure {name} is drawn twice")
        frame = self._table.figures[name]
        drawn = {part.kind for part in parts}
        if unknown := sorted(drawn - frame.series.keys()):
            raise KeyError(f"the table has no series {unknown[0]!r} in the figure {name}")
        if missing := [kind for kind in frame.series if kind not in drawn]:
            raise ValueError(f"the figure {name} lacks the series {missing[0]}")
        kinds = (
            Series(kind, self._words(label), (), (), mark, frame.kind)
            for kind, (mark, label) in frame.series.items()
        )
        x, y = (Axis(self._words(each.label), each.unit, each.scale) for each in (frame.x, frame.y))
        return self._words(frame.title), x, y, tuple(kinds)

    def _categories(self, name: str, places: Iterable[str | int]) -> tuple[Category, ...]:
        frame = self._table.figures[name]
        return tuple(Category(str(each), self._place(name, frame, each)) for each in places)


def _with(axis: Axis, categories: tuple[Category, ...]) -> Axis:
    return Axis(axis.label, axis.unit, axis.scale, categories)

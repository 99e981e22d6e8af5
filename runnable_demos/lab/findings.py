"""What a run finds, filled into the demo's table: nothing unknown, nothing twice, nothing left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from runnable_demos.lab import table
from runnable_demos.lab.metrics import (
    LANGUAGES,
    Axis,
    Category,
    Figure,
    Metric,
    Result,
    Series,
    Term,
    Text,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A series before it has words: its name in the table, its points, and terms of its own."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    terms: Mapping[str, Term] = dataclasses.field(default_factory=dict)


class Findings:
    """The values of a run, by the names that the table has.

    ``config`` is that of the run: its fields fill placeholders, and its device says whether
    metrics that only a GPU has are to be found. ``terms`` fill placeholders, too.
    Raises ``KeyError`` for a name that the table lacks, and ``ValueError`` for one that is filled
    twice or left out.
    """

    def __init__(self, measures: str, config: Any, /, **terms: Term) -> None:
        self._table = table.read(measures)
        self._on_gpu = config.device != "cpu"
        parameters = dataclasses.asdict(config)
        if twice := sorted(terms.keys() & parameters.keys()):
            raise ValueError(f"the term {twice[0]} is a parameter already")
        self._own = _sound(terms)
        self._terms = {**parameters, **terms}
        self._metrics: dict[str, Metric] = {}
        self._figures: dict[str, Figure] = {}

    def __setitem__(self, name: str, value: bool | int | float) -> None:
        self._put(name, value)

    def sample(
        self,
        name: str,
        draws: Sequence[float],
        closed_form: float | None = None,
        least: float = 0.0,
    ) -> None:
        """The mean of ``draws``, which are independent, and its standard error.

        Both have six digits, on which all processors agree. ``least`` is the smallest error that
        may be told, where draws that are all alike do not mean that there is no scatter.
        """
        mean, error = fmean(draws), stdev(draws) / len(draws) ** 0.5
        value, error = (float(f"{number:.6g}") for number in (mean, max(error, least)))
        self._put(name, value, error=error, closed_form=closed_form)

    def _put(self, name: str, value: bool | int | float, **more: float | None) -> None:
        if name not in self._table.measures:
            raise KeyError(f"the table has no metric {name!r}")
        if name in self._metrics:
            raise ValueError(f"the metric {name} is found twice")
        measure = self._table.measures[name]
        method = measure.method
        self._metrics[name] = Metric(
            name,
            value,
            measure.unit,
            method.kind,
            self._words(measure.label),
            self._words(method.how),
            method.bound,
            method.reason and self._words(method.reason),
            **more,
        )

    def draw(self, name: str, *lines: Line, places: Iterable[str | int] = ()) -> None:
        """A figure of the table with its lines, in their order.

        ``places`` are those of an axis x without numbers: names in the table, or whole numbers,
        which are their own words. The lines' x count them from 0.
        """
        if name not in self._table.figures:
            raise KeyError(f"the table has no figure {name!r}")
        if name in self._figures:
            raise ValueError(f"the figure {name} is drawn twice")
        frame = self._table.figures[name]
        if unknown := [line.name for line in lines if line.name not in frame.series]:
            raise KeyError(f"the table has no series {unknown[0]!r} in the figure {name}")
        if missing := [s for s in frame.series if s not in {line.name for line in lines}]:
            raise ValueError(f"the figure {name} lacks the series {missing[0]}")
        categories = tuple(Category(str(p), self._place(name, frame, p)) for p in places)
        self._figures[name] = Figure(
            name,
            self._words(frame.title),
            Axis(self._words(frame.x.label), frame.x.unit, frame.x.scale, categories),
            Axis(self._words(frame.y.label), frame.y.unit, frame.y.scale),
            tuple(self._series(frame, line) for line in lines),
        )

    def _place(self, figure: str, frame: table.Frame, place: str | int) -> Text:
        if isinstance(place, int):
            return dict.fromkeys(LANGUAGES, str(place))
        if place not in frame.places:
            raise KeyError(f"the table has no place {place!r} in the figure {figure}")
        return self._words(frame.places[place])

    def _series(self, frame: table.Frame, line: Line) -> Series:
        mark, label = frame.series[line.name]
        return Series(
            line.name,
            table.fill(label, {**self._terms, **_sound(line.terms)}),
            tuple(map(float, line.x)),
            tuple(map(float, line.y)),
            mark,
            frame.kind,
            dict(line.terms),
        )

    def _words(self, text: Text) -> Text:
        return table.fill(text, self._terms)

    def result(self) -> Result:
        """All that was found, in the order of the table."""
        expected = [
            name
            for name, measure in self._table.measures.items()
            if self._on_gpu or not measure.method.only
        ]
        if missing := [name for name in expected if name not in self._metrics]:
            raise ValueError(f"nothing was found for {', '.join(missing)}")
        if undrawn := [name for name in self._table.figures if name not in self._figures]:
            raise ValueError(f"nothing was drawn for {', '.join(undrawn)}")
        return Result(
            tuple(self._metrics[name] for name in self._table.measures if name in self._metrics),
            tuple(self._figures[name] for name in self._table.figures),
            self._own,
        )


def _sound(terms: Mapping[str, Term]) -> dict[str, Term]:
    """The terms, which a record has to hold."""
    for name, value in terms.items():
        endless = isinstance(value, float) and not math.isfinite(value)
        if endless or type(value) not in (bool, int, float, str):
            raise ValueError(f"the term {name} is {value!r}, and should be a number or a text")
    return dict(terms)

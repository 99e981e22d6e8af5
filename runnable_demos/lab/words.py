"""The words of a record, renewed from its demo's file; numbers stay as the run found them.

Standard library only; the demo is read, not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runnable_demos.lab import table
from runnable_demos.lab.discovery import Demo
from runnable_demos.lab.metrics import Axis, Category, Figure, Metric, Record, Series, Term


def renewed(record: Record, demo: Demo) -> Record:
    """``record`` in the words that ``demo`` has today.

    What the demo does not name any more keeps its words; the record is then out of date for
    another reason. Raises ``table.TableError`` where a placeholder has no term in the record.
    """
    terms, result = _terms(record), record.result
    return replace(
        record,
        title=demo.title,
        question=demo.question,
        parameters=tuple(replace(p, help=demo.help.get(p.name, p.help)) for p in record.parameters),
        result=replace(
            result,
            metrics=tuple(_metric(metric, demo.table, terms) for metric in result.metrics),
            figures=tuple(_figure(figure, demo.table, terms) for figure in result.figures),
        ),
    )


def on_gpus(record: Record, demo: Demo) -> dict[str, table.Measure]:
    """What a GPU's run of ``demo`` tells and its ``record`` on the CPU cannot, whose terms fill the words.

    That is what it measures on a GPU alone, and what each device measures for itself: times.
    Raises as ``renewed`` does.
    """
    if demo.gpu is None:
        return {}
    terms, measures = _terms(record), demo.table.measures
    return {
        name: replace(
            measure,
            label=table.fill(measure.label, terms),
            method=replace(measure.method, how=table.fill(measure.method.how, terms)),
        )
        for name, measure in measures.items()
        if measure.method.only == "gpu" or measure.method.kind == "measured"
    }


def _terms(record: Record) -> Mapping[str, Term]:
    settings = {parameter.name: parameter.value for parameter in record.parameters}
    return {**settings, **record.result.terms}


def _metric(metric: Metric, words: table.Table, terms: Mapping[str, Term]) -> Metric:
    measure = words.measures.get(metric.name)
    if measure is None:
        return metric
    reason = measure.method.reason
    return replace(
        metric,
        label=table.fill(measure.label, terms),
        how=table.fill(measure.method.how, terms),
        reason=reason and table.fill(reason, terms) if metric.reason else metric.reason,
    )


def _figure(figure: Figure, words: table.Table, terms: Mapping[str, Term]) -> Figure:
    frame = words.figures.get(figure.name)
    if frame is None:
        return figure

    def axis(before: Axis, ruler: table.Ruler) -> Axis:
        categories = (_category(c, frame.places, terms) for c in before.categories)
        return replace(before, label=table.fill(ruler.label, terms), categories=tuple(categories))

    def series(before: Series) -> Series:
        if before.name not in frame.series:
            return before
        _, label = frame.series[before.name]
        return replace(before, label=table.fill(label, {**terms, **before.terms}))

    return replace(
        figure,
        title=table.fill(frame.title, terms),
        x=axis(figure.x, frame.x),
        y=axis(figure.y, frame.y),
        series=tuple(map(series, figure.series)),
    )


def _category(category: Category, places: Mapping[str, Any], terms: Mapping[str, Term]) -> Category:
    if category.name not in places:
        return category
    return replace(category, label=table.fill(places[category.name], terms))

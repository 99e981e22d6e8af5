"""What keeps a record from being shown, though it can be read: names, words, numbers, its date."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any
from unicodedata import category

from generator.lang import LANGS
from generator.problems import quote
from runnable_demos.lab.metrics import Axis, Figure, Record

LARGEST = 1e100
"""No measurement is larger, and beyond it pages and figures could not reckon with doubles."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NO_WORDS = {"environment", "sources", "terms"}
"""Mappings of a record whose keys are no languages."""


def fault(record: Record) -> str | None:
    """The first thing in ``record`` that no page could show, as a sentence; ``None`` where all is sound."""
    return next(_faults(record), None)


def _faults(record: Record) -> Iterator[str]:
    yield from _bad_names(record)
    yield from _bad_values(record, "")
    for figure in record.result.figures:
        yield from _bad_places(figure)
    try:
        sound = date.fromisoformat(record.recorded).isoformat() == record.recorded
    except ValueError:
        sound = False
    if not sound:
        yield f"{quote(record.recorded)} is no date; a record has one like 2026-01-31"


def _bad_names(record: Record) -> Iterator[str]:
    """Addresses, anchors and commands are made of names, and links name one thing."""
    for what, names in (
        ("demos", [record.demo]),
        ("metrics", [each.name for each in record.result.metrics]),
        ("figures", [each.name for each in record.result.figures]),
        ("parameters", [each.name for each in record.parameters]),
    ):
        for name, count in Counter(names).items():
            if not _NAME.fullmatch(name):
                yield f"{quote(name)} names nothing: names are small letters, digits and underscores"
            if count > 1:
                yield f"{count} {what} are called {quote(name)}"


def _bad_values(value: Any, where: str) -> Iterator[str]:
    """Numbers too large, and words that are lacking in a language, anywhere below ``value``."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in _NO_WORDS:
                yield from _bad_values(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _bad_values(each, f"{where}[{index}]")
    elif isinstance(value, Mapping):
        if set(value) != set(LANGS) or not all(words.strip() for words in value.values()):
            yield f"{where.lstrip('.')} does not have words in {' and '.join(LANGS)} alone"
        elif any(category(c) in ("Cc", "Cs") for words in value.values() for c in words):
            yield f"{where.lstrip('.')} holds a character that nobody can read"
    elif isinstance(value, int | float) and abs(value) > LARGEST:
        yield f"{where.lstrip('.')} is beyond {LARGEST:g}"


def _bad_places(figure: Figure) -> Iterator[str]:
    """On an axis of categories a number counts them, from 0."""
    for series in figure.series:
        axes: tuple[tuple[Axis, tuple[float, ...]], ...] = (
            (figure.x, series.x),
            (figure.y, series.y),
        )
        for axis, numbers in axes:
            places = range(len(axis.categories))
            if axis.categories and any(number not in places for number in numbers):
                yield f"the figure {quote(figure.name)} has a place that is none of its categories"

"""The table at the top of a demo: what it will measure, and in which words that is told.

A demo holds it as a literal text named ``MEASURES``, so that it can be read without importing the
demo. The text is TOML; ``zh`` and ``en`` stand for words in each of ``metrics.LANGUAGES``:

    [[method]]                          # one way to measure, and all that is measured by it
    kind = "exact"
    how = ["zh", "en"]
    bound = 1e-6                        # of kind "bounded" alone, with its reason
    reason = ["zh", "en"]
    only = "gpu"                        # where a run on the CPU does not have it
    [method.metrics]
    peak = ["B", "zh", "en"]            # a metric's name, its unit and its label

    [figure.peak_over_length]
    title = ["zh", "en"]
    kind = "computed"                   # "exact" unless given; a theory is always computed
    x = {label = ["zh", "en"], scale = "log2"}
    y = {label = ["zh", "en"], unit = "B"}
    [figure.peak_over_length.series]
    one = ["measured", "zh", "en"]      # a series' name, its mark and its label
    [figure.peak_over_length.places]
    fp32 = ["zh", "en"]                 # the places of an axis without numbers

Words may hold placeholders, ``{layers}`` or ``{share:.0%}``: parameters of the demo, and the terms
that its run tells. Names, units, kinds, marks and bounds are the demo's promise: a record without
them is out of date. Words are not: ``words`` renews them in a record that exists.
Standard library only.
"""

from __future__ import annotations

import re
import string
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from runnable_demos.lab.metrics import LANGUAGES, Kind, Mark, Scale, Term, Text, Unit

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_FORM = re.compile(r"[<>=^+ ,_#]*\d{0,3}(,|_)?(\.\d{1,3})?[bdeEfFgGnosxX%]?")
"""How a placeholder may say that its value is printed."""
LARGEST = 1e100
LONGEST = 500
"""Characters of words with their placeholders filled."""


class TableError(ValueError):
    """A table that cannot be read; the message is one sentence that names the place in it."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to measure; ``how`` says it in words. The rest is as ``metrics.Metric`` has it."""

    kind: Kind
    how: Text
    bound: float | None = None
    reason: Text | None = None
    only: Literal["", "gpu"] = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric that a run is to find."""

    unit: Unit
    label: Text
    method: Method


@dataclass(frozen=True, slots=True)
class Ruler:
    """An axis before anything is drawn along it."""

    label: Text
    unit: Unit = ""
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Frame:
    """A figure before its run: its axes, and what may be drawn in it."""

    title: Text
    kind: Kind
    x: Ruler
    y: Ruler
    series: Mapping[str, tuple[Mark, Text]]
    places: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """All measures and figures of a demo by name, in the order of its text."""

    measures: Mapping[str, Measure]
    figures: Mapping[str, Frame]

    def promise(self) -> object:
        """What of the table numbers depend on: everything but its words, in plain lists."""
        return [
            sorted(
                [name, m.unit, m.method.kind, m.method.bound, m.method.only]
                for name, m in self.measures.items()
            ),
            sorted(
                [
                    *[name, frame.kind, frame.x.unit, frame.x.scale, frame.y.unit, frame.y.scale],
                    sorted([series, mark] for series, (mark, _) in frame.series.items()),
                    sorted(frame.places),
                ]
                for name, frame in self.figures.items()
            ),
        ]


def fill(text: Text, terms: Mapping[str, Term]) -> Text:
    """``text`` with its placeholders filled. Raises ``TableError`` where one has no term."""
    filled = {}
    for language, words in text.items():
        try:
            said = words.format_map(terms)
        except KeyError as error:
            raise TableError(f"nothing is called {error.args[0]!r}, in “{words}”") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise TableError(f"{error}, in “{words}”") from None
        if not said.strip() or len(said) > LONGEST or _unprintable(said):
            raise TableError(f"this is filled with nothing that can be read: “{words}”")
        filled[language] = said
    return filled


def read(text: str) -> Table:
    """The table in ``text``. Raises ``TableError`` with the first thing that is wrong."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"it is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise TableError(
            "it holds a number of thousands of digits, or is nested too deeply"
        ) from None
    _only(content, {"method", "figure"}, "the table")
    measures: dict[str, Measure] = {}
    for name, measure in _measures(_typed(content.get("method", []), list, "method")):
        if name in measures:
            raise TableError(f"two metrics are called {name}")
        measures[name] = measure
    figures = _typed(content.get("figure", {}), dict, "figure")
    return Table(measures, {_named(name): _frame(name, figures[name]) for name in figures})


def _measures(methods: list[Any]) -> Iterator[tuple[str, Measure]]:
    for number, content in enumerate(methods, 1):
        where = f"method {number}"
        _typed(content, dict, where)
        _only(content, {"kind", "how", "bound", "reason", "only", "metrics"}, where)
        kind = _one_of(Kind, content.get("kind"), f"kind of {where}")
        bounded = {key for key in ("bound", "reason") if key in content}
        if bounded != ({"bound", "reason"} if kind == "bounded" else set()):
            raise TableError(f"{where}: kind 'bounded', and no other, has a bound and a reason")
        method = Method(
            kind,
            _text(content.get("how"), f"how of {where}"),
            _bound(content["bound"], where) if bounded else None,
            _text(content["reason"], f"reason of {where}") if bounded else None,
            "gpu" if _one_of(Literal["", "gpu"], content.get("only", ""), "only") else "",
        )
        for name, row in _typed(content.get("metrics"), dict, f"metrics of {where}").items():
            unit, label = _row(row, name)
            yield _named(name), Measure(_one_of(Unit, unit, f"unit of {name}"), label, method)


def _frame(name: str, content: Any) -> Frame:
    where = f"figure {name}"
    _typed(content, dict, where)
    _only(content, {"title", "kind", "x", "y", "series", "places"}, where)
    series = {}
    for key, row in _typed(content.get("series"), dict, f"series of {where}").items():
        mark, label = _row(row, key)
        series[_named(key)] = (_one_of(Mark, mark, f"mark of {key}"), label)
    places = _typed(content.get("places", {}), dict, f"places of {where}")
    return Frame(
        _text(content.get("title"), f"title of {where}"),
        _one_of(Kind, content.get("kind", "exact"), f"kind of {where}"),
        _ruler(content.get("x"), f"x of {where}"),
        _ruler(content.get("y"), f"y of {where}"),
        series,
        {_named(key): _text(words, f"place {key}") for key, words in places.items()},
    )


def _ruler(content: Any, where: str) -> Ruler:
    _typed(content, dict, where)
    _only(content, {"label", "unit", "scale"}, where)
    return Ruler(
        _text(content.get("label"), f"label of {where}"),
        _one_of(Unit, content.get("unit", ""), f"unit of {where}"),
        _one_of(Scale, content.get("scale", "linear"), f"scale of {where}"),
    )


# --- values --------------------------------------------------------------------------------------


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise TableError(f"{name!r} names nothing: names are like peak_at_64")
    return name


def _only(content: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(content.keys() - known):
        raise TableError(f"{where} has no {unknown[0]!r}; it may have {', '.join(sorted(known))}")


def _typed(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise TableError(f"{where} should be {'a list' if kind is list else 'a table'}")
    return value


def _one_of(kinds: Any, value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in get_args(kinds):
        raise TableError(f"{where} should be one of {', '.join(map(repr, get_args(kinds)))}")
    return value


def _bound(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= LARGEST:
        raise TableError(f"bound of {where} should be a number, from 0 to {LARGEST:g}")
    return float(value)


def _row(row: Any, name: str) -> tuple[Any, Text]:
    """What stands before the words of a row, and the words."""
    if not isinstance(row, list) or len(row) != 1 + len(LANGUAGES):
        raise TableError(f"{name} should be [a word, {', '.join(LANGUAGES)}]")
    return row[0], _text(row[1:], f"label of {name}")


def _text(words: Any, where: str) -> Text:
    """Words in each language, with sound placeholders."""
    if (
        not isinstance(words, list)
        or len(words) != len(LANGUAGES)
        or not all(isinstance(each, str) and each.strip() for each in words)
    ):
        raise TableError(f"{where} should be words in each language: {list(LANGUAGES)}")
    for each in words:
        if _unprintable(each):
            raise TableError(f"{where} holds a character that nobody can read")
        try:
            places = [place for place in string.Formatter().parse(each) if place[1] is not None]
        except ValueError as error:
            raise TableError(f"{where}: {error} (a brace that is one is doubled)") from None
        for _, name, form, conversion in places:
            if not str(name).isidentifier():
                raise TableError(f"{where}: {name!r} is no name of a parameter or a term")
            if conversion or not _FORM.fullmatch(form or ""):
                raise TableError(f"{where}: {name} is to be printed in an unknown way, {form!r}")
    return dict(zip(LANGUAGES, words, strict=True))


def _unprintable(text: str) -> bool:
    """Whether it holds a control character, or half of one."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in text)

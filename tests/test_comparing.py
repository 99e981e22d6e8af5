"""Comparing a new run with its record: whatever a reader can see must be found again."""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from generator.lab.comparing import (
    DRIFT,
    UNSEEN,
    Difference,
    agree,
    differences,
    environment_changes,
    replay,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import (
    Axis,
    Category,
    Figure,
    Kind,
    Metric,
    Parameter,
    Record,
    Result,
    Series,
    Text,
)
from tests.demos.sketched import SKETCHES

TEXT: Text = {"zh": "字", "en": "word"}


def metric(name: str, value: float, kind: Kind = "exact", **rest: Any) -> Metric:
    """A metric whose words do not matter."""
    return Metric(name, value, rest.pop("unit", ""), kind, TEXT, TEXT, **rest)


def bounded(value: float, bound: float = 1e-6) -> Metric:
    """A bounded metric."""
    return metric("error", value, "bounded", bound=bound, reason=TEXT)


def series(*y: float, kind: Kind = "exact") -> Series:
    """A line over 1, 2, 3."""
    x = tuple(float(i) for i in range(1, len(y) + 1))
    return Series("s", TEXT, x, y, kind=kind, terms={"i": 1})


def figure(*lines: Series, name: str = "curve") -> Figure:
    """A figure of these lines."""
    return Figure(name, TEXT, Axis(TEXT), Axis(TEXT, "B", "log2", (Category("one", TEXT),)), lines)


def record(*metrics: Metric, **facts: Any) -> Record:
    """A record of these metrics."""
    parameters = (Parameter("n", facts.pop("n", 1), 0, 9, TEXT),)
    result = Result(metrics, facts.pop("figures", ()), {"share": 0.25})
    environment = facts.pop("environment", {"torch": "2.13.0"})
    sources = {"demo.py": "0" * 64}
    return Record(
        "sample", TEXT, TEXT, "cpu", "full", parameters, result, environment, sources, "2026-11-29"
    )


WHOLE = record(
    metric("count", 3),
    metric("holds", True),
    metric("cases", 200, "computed"),
    metric("rate", 0.25, "sampled", error=0.01, closed_form=0.24),
    bounded(3e-8),
    figures=(figure(series(1.0, 2.5), Series("s", TEXT, (1.0,), (2.0,), "theory")),),
)
"""A record with a value in every field."""

# --- every field ---

Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Every value that a record holds: its path, itself, and the ``Class.field`` that holds it."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            owner = f"{type(value).__name__}.{field.name}"
            for below, leaf, inner in leaves(getattr(value, field.name), (*path, field.name)):
                yield below, leaf, inner or owner
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    elif value is not None:
        yield path, value, ""


def fields_below(kind: Any) -> Iterator[str]:
    """Every ``Class.field`` that a record can have, by its annotations, that holds no more classes."""
    for name, hint in typing.get_type_hints(kind).items():
        inner = [a for a in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(a)]
        if inner:
            for each in inner:
                yield from fields_below(each)
        else:
            yield f"{kind.__name__}.{name}"


def another(value: Any) -> Any:
    """A value that no kind of number may pass for the one given."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "′"
    return type(value)(value * 100 + 1)


def changed(whole: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy of ``whole`` with one leaf changed, as a hand would: no constructor objects."""
    if not path:
        return change(whole)
    at, *rest = path
    if isinstance(whole, tuple):
        items = list(whole)
        items[at] = changed(items[at], tuple(rest), change)  # type: ignore[index]
        return tuple(items)
    if isinstance(whole, dict):
        return {**whole, at: changed(whole[at], tuple(rest), change)}
    result = copy.copy(whole)
    object.__setattr__(result, str(at), changed(getattr(whole, str(at)), tuple(rest), change))
    return result


SEEN = [path for path, _, owner in leaves(WHOLE) if owner.removeprefix("Record.") not in UNSEEN]


def test_the_sample_has_every_field() -> None:
    """A field that is added to a record is tried below, or this test fails."""
    assert {owner for _, _, owner in leaves(WHOLE)} == set(fields_below(Record))


@pytest.mark.parametrize("path", SEEN, ids=lambda path: ".".join(map(str, path)))
def test_verify_says_no_to_every_change(path: Path) -> None:
    """Change any one thing that a reader can see, and it is called a difference, both ways round."""
    edited = changed(WHOLE, path, another)
    assert differences(edited, WHOLE)
    assert differences(WHOLE, edited)


MECHANISMS = record(figures=SKETCHES)
PARTS = [
    (number, name, field.name)
    for number, figure in enumerate(SKETCHES)
    for name in ("spans", "tiles", "boxes")
    if hasattr(figure, name)
    for field in dataclasses.fields(figure.parts[0])
]


def moved(number: int, name: str, field: str) -> Record:
    """``MECHANISMS`` with one field of the last part of a figure changed, as a hand would."""
    path = ("result", "figures", number, name, len(SKETCHES[number].parts) - 1, field)
    value = getattr(SKETCHES[number].parts[-1], field)
    kind = next(each.name for each in SKETCHES[number].series if each.name != value)
    other: Any = {"kind": kind, "notes": ("m = 9",)}.get(field)
    other = other or (value + "′" if isinstance(value, str) else value * 2 + 1)
    return changed(MECHANISMS, path, lambda _: other)


@pytest.mark.parametrize(("number", "name", "field"), PARTS, ids=str)
def test_verify_says_no_to_every_change_of_a_mechanism(number: int, name: str, field: str) -> None:
    """Any field of any part, both ways round; only times of a measured figure are replayed."""
    edited = moved(number, name, field)
    figure = SKETCHES[number]
    replayed = figure.series[0].kind == "measured" and field in ("start", "end")
    for before, after in ((edited, MECHANISMS), (MECHANISMS, edited)):
        found = differences(before, after)
        assert bool(found) != replayed
        assert all(
            each.what == f"figure {figure.name} part {len(figure.parts) - 1}" for each in found
        )


def test_all_that_a_mechanism_shows_is_compared() -> None:
    """Equal ones agree; a part too few, another kind of figure, another word of a kind do not."""
    assert differences(MECHANISMS, copy.deepcopy(MECHANISMS)) == ()
    schedule = SKETCHES[0]
    assert isinstance(schedule, Lanes)
    fewer = dataclasses.replace(schedule, spans=schedule.spans[:-1])
    [found] = differences(MECHANISMS, record(figures=(fewer, *SKETCHES[1:])))
    assert (found.what, found.recorded, found.found) == (
        "figure schedule", "64 parts", "63 parts",
    )  # fmt: skip
    other = dataclasses.replace(SKETCHES[2], name="schedule")
    assert "Lanes" in {
        each.recorded for each in differences(record(figures=(schedule,)), record(figures=(other,)))
    }
    kinds = (dataclasses.replace(schedule.series[0], label=TEXT), *schedule.series[1:])
    renamed = record(figures=(dataclasses.replace(schedule, series=kinds), *SKETCHES[1:]))
    assert {each.what for each in differences(MECHANISMS, renamed)} == {
        "figure schedule series 0 label zh", "figure schedule series 0 label en",
    }  # fmt: skip


def test_what_is_not_compared_is_on_the_list() -> None:
    """The environment, the sources and the day may differ, and nothing else."""
    other = dataclasses.replace(
        WHOLE, environment={"torch": "3"}, sources={"demo.py": "1"}, recorded="2027-01-01"
    )
    assert differences(WHOLE, other) == ()
    assert set(UNSEEN) == {"environment", "sources", "recorded"}


@pytest.mark.parametrize(
    "path", [("result", "metrics"), ("result", "figures"), ("result", "figures", 0, "series")]
)
def test_a_missing_part_is_a_difference(path: Path) -> None:
    """A metric, figure or line that is gone, or was not there before."""
    fewer = changed(WHOLE, path, lambda parts: parts[:-1])
    assert "nothing" in {d.found for d in differences(WHOLE, fewer)}
    assert "nothing" in {d.recorded for d in differences(fewer, WHOLE)}


def test_another_order_is_a_difference() -> None:
    """Tables and pages show metrics and figures in their order."""
    turned = changed(WHOLE, ("result", "metrics"), lambda metrics: metrics[::-1])
    assert [d.what for d in differences(WHOLE, turned)] == ["order"]


# --- what each kind promises ---


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (record(metric("count", 3)), record(metric("count", 3)), ()),
        (record(metric("count", 3)), record(metric("count", 4)), ("count: recorded 3, found 4",)),
        (
            record(metric("count", 1)),
            record(metric("count", True)),
            ("count: recorded 1, found yes",),
        ),
        (
            record(metric("share", 0.5)),
            record(metric("share", 0.5000001)),
            ("share: recorded 0.5, found 0.5000001",),
        ),
        (
            record(metric("cases", 3, "computed")),
            record(metric("cases", 4, "computed")),
            ("cases: recorded 3, found 4",),
        ),
        (
            record(metric("rate", 0.25, "sampled", error=0.01)),
            record(metric("rate", 0.26, "sampled", error=0.01)),
            ("rate: recorded 0.25 ± 0.01, found 0.26 ± 0.01",),
        ),
        (record(bounded(1e-8)), record(bounded(9e-8)), ()),
        (record(bounded(1e-8)), record(bounded(2e-7)), ("error: recorded 1e-08, found 2e-07",)),
        (
            record(bounded(5e-7)),
            record(bounded(2e-6)),
            ("error: recorded at most 1e-06, found 2e-06",),
        ),
        (
            record(bounded(2e-6)),
            record(bounded(5e-7)),
            ("error: recorded 2e-06, above its bound, found 5e-07",),
        ),
        (
            record(bounded(1e-8)),
            record(bounded(1e-8, 1e-5)),
            ("error bound: recorded 1e-06, found 1e-05",),
        ),
        (
            record(metric("time", 1.0, "measured", unit="s")),
            record(metric("time", 2.0, "measured", unit="s")),
            (),
        ),
        (
            record(metric("time", 1.0, "measured", unit="s")),
            record(),
            ("time: recorded 1.0 s, found nothing",),
        ),
        (record(), record(metric("count", 3)), ("count: recorded nothing, found 3",)),
        (
            record(metric("count", 3)),
            record(metric("count", 3, unit="B")),
            ("count unit: recorded nothing, found B",),
        ),
        (record(n=1), record(n=2), ("parameter n: recorded 1, found 2",)),
        (
            record(figures=(figure(series(1.0, 2.0, 3.0)),)),
            record(figures=(figure(series(1.0, 4.0, 6.0)),)),
            ("figure curve series 0 y 1: recorded 2.0, found 4.0 (and 1 more points)",),
        ),
        (
            record(figures=(figure(series(1.0, kind="measured")),)),
            record(figures=(figure(series(9.0, kind="measured")),)),
            (),
        ),
        (
            record(figures=(figure(series(1.0, kind="measured")),)),
            record(figures=(figure(series(1.0, 2.0, kind="measured")),)),
            (
                "figure curve series 0 y: recorded 1 points, found 2 points",
                "figure curve series 0 x 1: recorded nothing, found 2.0",
            ),
        ),
        (
            record(figures=(figure(series(1e-8, kind="bounded")),)),
            record(figures=(figure(series(3e-8, kind="bounded")),)),
            (),
        ),
        (
            record(figures=(figure(),)),
            record(),
            ("figure curve: recorded 0 series, found nothing",),
        ),
    ],
)
def test_differences(before: Record, after: Record, expected: tuple[str, ...]) -> None:
    """Exact, computed and sampled numbers are equal, bounded ones near, measured ones replayed."""
    assert tuple(map(str, differences(before, after))) == expected


@pytest.mark.parametrize(
    ("recorded", "found", "near"),
    [
        (1e-8, 1e-8 * DRIFT, True),
        (1e-8 * DRIFT, 1e-8, True),
        (1e-8, 1.01e-8 * DRIFT, False),
        (1e-8, -1e-8, False),
        (0.0, 0.0, True),
        (0.0, 1e-12, False),
        (1e-12, 0.0, False),
    ],
)
def test_a_bounded_value_moves_within_a_factor(recorded: float, found: float, near: bool) -> None:
    """Rounding may move it by an order of magnitude, up or down; zero is nobody's neighbour."""
    assert agree("bounded", recorded, found) is near


def test_measured_metrics_are_replayed() -> None:
    """A card's time stays that of the record; what can be proven is that of the new run."""
    recorded = record(metric("time", 1.0, "measured"), metric("count", 2))
    found = record(metric("time", 3.0, "measured"), metric("count", 4))
    values = [m.value for m in replay(recorded, found).result.metrics]
    assert values == [1.0, 4]
    assert replay(None, found) == found


def test_another_environment_is_named() -> None:
    """Another version of torch is a reason for a difference, and so it is said."""
    changes = environment_changes(record().environment, {"torch": "2.14.0"})
    assert changes == (Difference("torch", "2.13.0", "2.14.0"),)

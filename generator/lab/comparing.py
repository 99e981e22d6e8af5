"""Where a new run contradicts the record that readers see.

Everything in a record is compared, by its fields, so that a field that is added is compared as well.
Numbers are held to what their kind promises. What is left out stands in ``UNSEEN``, with its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from generator.evidence.values import exact
from runnable_demos.lab.mechanisms import BY_FIELD, Mechanism, Part
from runnable_demos.lab.metrics import Figure, Kind, Metric, Parameter, Record, Result, Series

State = Literal["agrees", "differs", "failed", "recorded"]
"""What becomes of a record when it is made again."""

DRIFT = 10
"""How far a bounded value may move within its bound: rounding differs between processors by a
small factor, and a whole order of magnitude is another algorithm, or another hand."""

UNSEEN: Mapping[str, str] = {
    "environment": "a reason for differences, told beside them",
    "sources": "compared by `check`, which calls the record stale",
    "recorded": "the day of the run, which is not its result",
}
"""Fields of a record that a new run need not repeat, and why."""

_LONGEST = 60
"""Characters of a text that a difference quotes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a new run found otherwise than the record: what, as recorded, and now."""

    what: str
    recorded: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, found {self.found}"


def differences(recorded: Record, found: Record) -> tuple[Difference, ...]:
    """Where ``found`` contradicts ``recorded``, as a reader sees it.

    Exact, computed and sampled numbers are equal, and so is every word. Bounded ones are within the
    recorded bound, and within a factor ``DRIFT`` of what was recorded. Measured ones are replayed,
    and so are not compared.
    """
    return tuple(_differ("", recorded, found))


def _differ(what: str, before: Any, after: Any) -> Iterator[Difference]:
    """Every place below ``what`` where two values differ."""
    if isinstance(before, Metric) and isinstance(after, Metric):
        yield from _value(before, after)
        yield from _fields(what, before, after, {"value"})
    elif isinstance(before, Series) and isinstance(after, Series):
        yield from _points(what, before, after)
        yield from _fields(what, before, after, {"y"})
    elif isinstance(before, Mechanism) and isinstance(after, Mechanism):
        yield from _parts(what, before, after)
        yield from _fields(what, before, after, BY_FIELD)
    elif dataclasses.is_dataclass(before) and type(before) is type(after):
        yield from _fields(what, before, after, UNSEEN if isinstance(before, Record) else ())
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _entries(what, before, after)
    elif isinstance(before, tuple) and isinstance(after, tuple):
        yield from _entries(what, _by_name(before), _by_name(after))
        if before and after and list(_by_name(before)) != list(_by_name(after)):
            yield from _order(what, before, after)
    elif not _same(before, after):
        yield Difference(what, _shown(before), _shown(after))


def _fields(what: str, before: Any, after: Any, without: Any) -> Iterator[Difference]:
    for field in dataclasses.fields(before):
        if field.name not in without:
            place = _place(what, before, field.name)
            yield from _differ(place, getattr(before, field.name), getattr(after, field.name))


def _place(what: str, holder: Any, field: str) -> str:
    """How a field is called: ``count label``, ``parameter n``, ``figure curve series 0 x``."""
    if isinstance(holder, Result) or (isinstance(holder, Record) and field == "result"):
        return what
    if isinstance(holder, Parameter) and field == "value":
        return what
    if isinstance(holder, Record) and field == "parameters":
        return what
    return f"{what} {field}".lstrip()


def _by_name(items: tuple[Any, ...]) -> dict[str, Any]:
    """What a list holds, by the names that metrics, figures and parameters have, or by number."""
    words = {Metric: "", Figure: "figure ", Parameter: "parameter "}

    def name(number: int, item: Any) -> str:
        word = next((w for kind, w in words.items() if isinstance(item, kind)), None)
        return str(number) if word is None else f"{word}{item.name}"

    return {name(number, item): item for number, item in enumerate(items)}


def _entries(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    for key in dict.fromkeys((*before, *after)):
        place = f"{what} {key}".lstrip()
        if key not in after:
            yield Difference(place, _shown(before[key]), "nothing")
        elif key not in before:
            yield Difference(place, "nothing", _shown(after[key]))
        else:
            yield from _differ(place, before[key], after[key])


def _order(what: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> Iterator[Difference]:
    """The same things in another order, which a table or a page shows."""
    names = [list(_by_name(items)) for items in (before, after)]
    if set(names[0]) == set(names[1]):
        yield Difference(f"{what} order".lstrip(), *(_shown(", ".join(each)) for each in names))


def _value(before: Metric, after: Metric) -> Iterator[Difference]:
    """A metric's value, held to what its recorded kind promises."""
    if before.bound is not None and after.value > before.bound:
        yield Difference(before.name, f"at most {before.bound:g}", exact(after))
    elif before.bound is not None and before.value > before.bound:
        yield Difference(before.name, f"{exact(before)}, above its bound", exact(after))
    elif before.kind != after.kind or not agree(before.kind, before.value, after.value):
        yield Difference(before.name, exact(before), exact(after))


def _points(what: str, before: Series, after: Series) -> Iterator[Difference]:
    """The heights of one series: the first that differs, and how many do."""
    if len(before.y) != len(after.y):
        yield Difference(f"{what} y", f"{len(before.y)} points", f"{len(after.y)} points")
        return
    moved = [
        (i, old, new)
        for i, (old, new) in enumerate(zip(before.y, after.y, strict=True))
        if not agree(before.kind, old, new)
    ]
    if moved:
        i, old, new = moved[0]
        more = f" (and {len(moved) - 1} more points)" if len(moved) > 1 else ""
        yield Difference(f"{what} y {i}", f"{old!r}", f"{new!r}{more}")


def _parts(what: str, before: Mechanism, after: Mechanism) -> Iterator[Difference]:
    """The parts of a mechanism: the first that differs, and how many do."""
    if type(before) is not type(after):
        yield Difference(what, type(before).__name__, type(after).__name__)
        return
    if len(before.parts) != len(after.parts):
        yield Difference(what, _shown(before), _shown(after))
        return
    moved = [
        (i, old, new)
        for i, (old, new) in enumerate(zip(before.parts, after.parts, strict=True))
        if not _is_part(before, old, new)
    ]
    if moved:
        i, old, new = moved[0]
        more = f" (and {len(moved) - 1} more parts)" if len(moved) > 1 else ""
        yield Difference(f"{what} part {i}", _shown(old), f"{_shown(new)}{more}")


def _is_part(figure: Mechanism, before: Part, after: Part) -> bool:
    """Whether a part has been found again: its numbers by its kind, all else as it was."""
    kind = figure.kind_of(before)
    return all(
        agree(kind, old, new) if name in figure.NUMBERS else _same(old, new)
        for name, old in dataclasses.asdict(before).items()
        for new in [getattr(after, name)]
    )


def agree(kind: Kind, recorded: float, found: float) -> bool:
    """Whether a number of ``kind`` has been found again."""
    if kind == "measured":
        return True
    if kind == "bounded":
        low, high = sorted((abs(recorded), abs(found)))
        return recorded == found or ((recorded > 0) == (found > 0) and 0 < high <= DRIFT * low)
    return _same(recorded, found)


def _same(before: Any, after: Any) -> bool:
    """Equal, and no number in the place of a truth value."""
    return before == after and isinstance(before, bool) == isinstance(after, bool)


def _shown(value: Any) -> str:
    if isinstance(value, Metric):
        return exact(value)
    if isinstance(value, Parameter):
        return str(value.value)
    if isinstance(value, Mechanism):
        return f"{len(value.parts)} parts"
    if isinstance(value, Figure):
        return f"{len(value.series)} series"
    if isinstance(value, Series):
        return f"{len(value.y)} points"
    if isinstance(value, Part):
        value = " ".join(str(each) for each in dataclasses.astuple(value) if each != "")
    text = "nothing" if value in (None, "") else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def replay(recorded: Record | None, found: Record) -> Record:
    """``found`` with the measured metrics of ``recorded``, by which cards are judged."""
    if recorded is None:
        return found
    kept = {m.name: m for m in recorded.result.metrics if m.kind == "measured"}
    metrics = tuple(
        kept.get(m.name, m) if m.kind == "measured" else m for m in found.result.metrics
    )
    return dataclasses.replace(found, result=dataclasses.replace(found.result, metrics=metrics))


def environment_changes(
    recorded: Mapping[str, str], found: Mapping[str, str]
) -> tuple[Difference, ...]:
    """How the machine and the versions differ from those of the record; a reason, not a fault."""
    return tuple(_entries("", recorded, found))

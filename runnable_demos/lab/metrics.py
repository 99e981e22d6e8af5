"""What a demo measured, and the record of it that the repository keeps.

Standard library only: the generator reads records where torch is not installed.

A *demo* is one file in this folder with a function ``run(config, progress) -> Result``.
A *record* is a result together with all that is needed to repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Text = Mapping[str, str]
"""The same words by language code: ``{"zh": "…", "en": "…"}``."""

LANGUAGES = ("zh", "en")
"""The languages of a demo's words, in the order in which its table has them."""

Kind = Literal["exact", "bounded", "sampled", "measured", "computed"]
"""Where a number comes from, and so how far it can be trusted.

``exact``: bytes, FLOPs, counts, truth values, read off a run of the real thing; the same on each
run with the pinned torch on x86-64, whatever the seed.
``bounded``: an error that stays below ``Metric.bound``; a card prints the bound.
``sampled``: a rate or a mean over random draws; the same on each run with its seed. It carries its
standard error, and a card prints no more digits than that allows.
``measured``: a time, or anything read off a GPU; replayed from the record, never proven by a CPU run.
``computed``: a schedule simulated, a formula evaluated, a model extended from a few layers, or a
setting repeated; the same on each run, and never called measured.
"""

FARTHEST = 5
"""Standard errors that a sampled value may lie off its closed form: beyond, one of the two is wrong."""

Unit = Literal["", "B", "FLOP", "s", "B/param", "B/token", "B/s", "FLOP/s", "token"]
"""The unit of a value; ``""`` for counts, ratios and truth values (0.333 prints as 33.3% or 0.333×)."""

Scale = Literal["linear", "log2", "log10"]
"""How an axis is divided."""

Mark = Literal["theory", "measured", "bar", "step", "area"]
"""How a series is drawn: ``theory`` dashed, ``measured`` with marks, ``bar`` stacked on the bars
before it, ``step`` and ``area`` over time; areas are stacked."""

Term = bool | int | float | str
"""What stands in a word's placeholder."""

DEVICE = r"[a-z0-9]+(?:-[a-z0-9]+)*"
"""A device as file names and claims have it: ``cpu``, ``h200``, ``rtx-4090``."""

Progress = Callable[[float, str], None]
"""Called by a demo with the share that is done (0 to 1) and what it is doing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number, or truth value, that a card may claim.

    ``name`` is snake_case and unique within its demo.
    ``label`` says what it is, ``how`` says how it was measured, both in each language.
    ``bound`` and ``reason`` belong to kind ``bounded``: the value stays at or below ``bound``,
    and ``reason`` says why that bound is the right one.
    ``error`` and ``closed_form`` belong to kind ``sampled``: the standard error of the value, and
    what the value would be over endlessly many draws, where a formula tells. Both are in its unit.
    """

    name: str
    value: bool | int | float
    unit: Unit
    kind: Kind
    label: Text
    how: Text
    bound: float | None = None
    reason: Text | None = None
    error: float | None = None
    closed_form: float | None = None

    def __post_init__(self) -> None:
        has_bound = self.bound is not None or self.reason is not None
        if has_bound != (self.kind == "bounded") or (self.bound is None) != (self.reason is None):
            raise ValueError(f"metric {self.name}: bound and reason belong to kind 'bounded' alone")
        if (self.error is not None) != (self.kind == "sampled"):
            raise ValueError(
                f"metric {self.name}: a standard error belongs to kind 'sampled' alone"
            )
        if self.error is not None and not self.error > 0:
            raise ValueError(f"metric {self.name}: without scatter it is no sample, but exact")
        if self.closed_form is not None and self.kind != "sampled":
            raise ValueError(f"metric {self.name}: a closed form belongs to kind 'sampled' alone")
        if isinstance(self.value, bool) and self.kind not in ("exact", "computed"):
            raise ValueError(f"metric {self.name}: a truth value is exact or computed")


@dataclass(frozen=True, slots=True)
class Category:
    """A place on an axis that is no number."""

    name: str
    label: Text


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a figure; ``categories`` are its places where they are no numbers."""

    label: Text
    unit: Unit = ""
    scale: Scale = "linear"
    categories: tuple[Category, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One line, set of points, or layer of stacked bars.

    ``name`` is that of its words in the demo's table, and ``terms`` are what stands in them beside
    the demo's parameters; several series may share a name.
    ``x`` and ``y`` have the same length; with a categorical axis ``x`` counts from 0.
    ``kind`` says where ``y`` comes from, as that of a metric does: a bounded one wanders with a
    processor's rounding, a measured one is replayed. A ``theory`` is always computed.
    """

    name: str
    label: Text
    x: tuple[float, ...]
    y: tuple[float, ...]
    mark: Mark = "measured"
    kind: Kind = "exact"
    terms: Mapping[str, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mark == "theory":
            object.__setattr__(self, "kind", "computed")
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name}: {len(self.x)} x for {len(self.y)} y")


@dataclass(frozen=True, slots=True)
class Figure:
    """The numbers of one figure; drawing is another module's work."""

    name: str
    title: Text
    x: Axis
    y: Axis
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """All that one run of a demo found; pure data, without torch.

    ``terms`` stand in the placeholders of its words, beside the demo's parameters.
    """

    metrics: tuple[Metric, ...]
    figures: tuple[Figure, ...] = ()
    terms: Mapping[str, Term] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of a demo's configuration, as its users see it."""

    name: str
    value: Term
    minimum: float | None
    maximum: float | None
    help: Text


@dataclass(frozen=True, slots=True)
class Record:
    """A result and how to repeat it: the content of ``evidence/<demo>.<device>.json``.

    ``device`` is ``cpu``, or the short name of a GPU: ``h200``.
    ``sources`` maps each project file that the demo's numbers depend on to its SHA-256.
    ``environment`` holds device, torch and Python versions, platform, threads, seed, dtype.
    ``recorded`` is an ISO date.
    """

    demo: str
    title: Text
    question: Text
    device: str
    size: str
    parameters: tuple[Parameter, ...]
    result: Result
    environment: Mapping[str, str]
    sources: Mapping[str, str]
    recorded: str

    def __post_init__(self) -> None:
        if not re.fullmatch(DEVICE, self.device):
            raise ValueError(f"{self.device!r} is no short name of a device")


def parameter(
    default: Any, help: Text, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """A field of a demo's frozen ``Config``: its default, its meaning and its bounds (inclusive)."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})

"""The recorded runs of a folder → ``Evidence``, and what is wrong with them or with their demos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from generator.cards.model import Device
from generator.evidence import soundness
from generator.problems import Place, Problem
from runnable_demos.lab import discovery, provenance, records, words
from runnable_demos.lab.metrics import Metric, Record
from runnable_demos.lab.table import TableError

WORDS = "evidence-words"
"""The code of a record whose demo says the same in other words today."""

Key = tuple[str, str]
"""A demo and the device of its record."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All sound records by demo and device, which their demo has outgrown, and which are broken.

    ``reworded`` are the records, by file, whose demo says the same in other words today, in these.
    """

    records: Mapping[Key, Record] = field(default_factory=dict)
    stale: frozenset[Key] = frozenset()
    broken: frozenset[Key] = frozenset()
    reworded: Mapping[Path, Record] = field(default_factory=dict)

    def metric(self, demo: str, metric: str, device: Device) -> Metric | None:
        """The metric of that name in the record of ``demo`` on ``device``, if there is one."""
        record = self.records.get((demo, device))
        if record is None:
            return None
        return next((m for m in record.result.metrics if m.name == metric), None)

    @property
    def demos(self) -> frozenset[str]:
        """The demos that have a record on any device."""
        return frozenset(demo for demo, _ in self.records)


def load_evidence(folder: Path, demos: Path) -> tuple[Evidence, list[Problem]]:
    """The records in ``folder``, and what is wrong with them or with their demos in ``demos``.

    A folder that does not exist holds no records. Raises ``OSError`` where it cannot be read.
    """
    found: dict[Key, Record] = {}
    stale: set[Key] = set()
    broken: set[Key] = set()
    reworded: dict[Path, Record] = {}
    problems: list[Problem] = []
    for path in sorted(folder.glob("*.json")):
        record = _load(path, problems)
        if record is None:
            demo, _, device = path.name.removesuffix(".json").rpartition(".")
            broken.add((demo, device))
            continue
        key = (record.demo, record.device)
        found[key] = record
        problem = _staleness(record, path, demos)
        if problem is not None:
            stale.add(key)
            problems.append(problem)
        elif (renewed := _renewed(record, path, demos, problems)) != record:
            reworded[path] = renewed
    return Evidence(found, frozenset(stale), frozenset(broken), reworded), problems


def _load(path: Path, problems: list[Problem]) -> Record | None:
    again = "Record it again: `proofdeck demo run {demo} --record`."
    name = path.name.split(".")[0]
    try:
        record = records.load(path)
    except records.RecordError as error:
        place = Place(str(path))
        if isinstance(error.__context__, json.JSONDecodeError):
            place = Place(str(path), error.__context__.lineno, error.__context__.colno)
        hint = again.format(demo=name)
        problems.append(
            Problem(place, "evidence-corrupt", f"this file is no evidence: {error}", hint)
        )
        return None
    place, hint = Place(str(path)), again.format(demo=record.demo)
    if message := soundness.fault(record):
        problems.append(Problem(place, "evidence-corrupt", message, hint))
        return None
    expected = f"{record.demo}.{record.device}.json"
    if path.name != expected:
        message = f"the file holds the record of `{record.demo}` on {record.device}"
        problems.append(Problem(place, "evidence-name", message, f"Rename it to `{expected}`."))
        return None
    if record.size != "full":
        message = f"the record is of size “{record.size}”, and cards claim what the full size found"
        problems.append(Problem(place, "evidence-size", message, hint))
        return None
    return record


def _staleness(record: Record, path: Path, demos: Path) -> Problem | None:
    """Why the numbers of ``record`` may no longer be those of its demo."""
    code, place = "evidence-stale", Place(str(path))
    severity: Literal["error", "warning"] = "error" if record.device == "cpu" else "warning"
    device = "" if record.device == "cpu" else " --device cuda"
    hint = f"Run it again: `proofdeck demo run {record.demo}{device} --record`."
    try:
        sources = provenance.sources(record.demo, demos)
    except OSError:
        message = f"no demo `{record.demo}` in {demos} can repeat these numbers"
        return Problem(place, code, message, "Bring the demo back, or delete the record.", severity)
    except (SyntaxError, ValueError) as error:
        message = f"the demo `{record.demo}` is not valid Python: {error}"
        return Problem(place, code, message, "Fix the demo, then record it again.", severity)
    changed = sorted(
        name
        for name in sources.keys() | record.sources.keys()
        if sources.get(name) != record.sources.get(name)
    )
    if not changed:
        return None
    message = f"these numbers are older than {', '.join(changed)}"
    return Problem(place, code, message, hint, severity)


def _renewed(record: Record, path: Path, demos: Path, problems: list[Problem]) -> Record:
    """``record`` in the words of its demo as it stands; where they differ, that is a problem."""
    code, place = WORDS, Place(str(path))
    try:
        demo = discovery.named(record.demo, demos)
        renewed = record if demo is None else words.renewed(record, demo)
        if fault := soundness.fault(renewed):
            raise TableError(fault)  # noqa: TRY301 - told as the others are
    except (discovery.DemoError, TableError) as error:
        message = f"the words of `{record.demo}` cannot be renewed: {error}"
        problems.append(Problem(place, code, message, "Fix them, or record the demo again."))
        return record
    if renewed != record:
        message = f"the demo `{record.demo}` says this in other words today"
        problems.append(Problem(place, code, message, "Let `proofdeck refresh` renew the words."))
    return renewed

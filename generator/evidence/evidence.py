"""The recorded runs of a folder → ``Evidence``, and what is wrong with them or with their demos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from generator.cache import NOTHING_KEPT, Cache
from generator.cards.model import Device
from generator.evidence import soundness
from generator.filesystem import unreadable
from generator.problems import Place, Problem
from runnable_demos.lab import discovery, provenance, records, words
from runnable_demos.lab.metrics import Figure, Metric, Record
from runnable_demos.lab.table import Measure, TableError

WORDS = "evidence-words"
"""The code of a record whose demo says the same in other words today."""

Key = tuple[str, str]
"""A demo and the device of its record."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All sound records by demo and device, which their demo has outgrown, and which are broken.

    ``reworded`` are the records, by file, whose demo says the same in other words today, in these.
    ``awaited`` is, by each demo that has a record on the CPU and can be read, what only a GPU's record tells
    and none here does.
    """

    records: Mapping[Key, Record] = field(default_factory=dict)
    stale: frozenset[Key] = frozenset()
    broken: frozenset[Key] = frozenset()
    reworded: Mapping[Path, Record] = field(default_factory=dict)
    awaited: Mapping[str, Mapping[str, Measure]] = field(default_factory=dict)

    def metric(self, demo: str, metric: str, device: Device) -> Metric | None:
        """The metric of that name in the record of ``demo`` on ``device``, if there is one."""
        record = self.records.get((demo, device))
        if record is None:
            return None
        return next((m for m in record.result.metrics if m.name == metric), None)

    def figure(self, demo: str, figure: str, device: Device) -> Figure | None:
        """The figure of that name in the record of ``demo`` on ``device``, if there is one."""
        record = self.records.get((demo, device))
        if record is None:
            return None
        return next((f for f in record.result.figures if f.name == figure), None)

    def recorded_on_gpus(self, demo: str, metric: str) -> tuple[Device, ...]:
        """The GPUs whose records of ``demo`` hold the metric, by name."""
        return tuple(
            sorted(
                device
                for name, device in self.records
                if name == demo and device != "cpu" and self.metric(demo, metric, device)
            )
        )

    @property
    def demos(self) -> frozenset[str]:
        """The demos that have a record on any device."""
        return frozenset(demo for demo, _ in self.records)


def load_evidence(
    folder: Path, demos: Path, cache: Cache = NOTHING_KEPT
) -> tuple[Evidence, list[Problem]]:
    """The records in ``folder``, and what is wrong with them or with their demos in ``demos``.

    A folder that does not exist holds no records. Raises ``OSError`` where it cannot be read.
    """
    found: dict[Key, Record] = {}
    stale: set[Key] = set()
    broken: set[Key] = set()
    reworded: dict[Path, Record] = {}
    problems: list[Problem] = []
    paths = sorted(path for path in _entries(folder) if path.suffix == ".json")
    contents = [(str(path), path.read_bytes()) for path in paths]
    read = lru_cache(partial(_read_code, cache))  # demos share files
    loaded = cache.each("record", contents, lambda index: _load(*contents[index]))
    for path, record in zip(paths, loaded, strict=True):
        if isinstance(record, Problem):
            problems.append(record)
            demo, _, device = path.name.removesuffix(".json").rpartition(".")
            broken.add((demo, device))
            continue
        key = (record.demo, record.device)
        found[key] = record
        problem = _staleness(record, path, demos, read)
        if problem is not None:
            stale.add(key)
            problems.append(problem)
            continue
        renewed, problem = _renewed(record, path, demos, cache)
        if problem is not None:
            problems.append(problem)
        if renewed != record:
            reworded[path] = renewed
    awaited = _awaited(found, demos, cache)
    return Evidence(found, frozenset(stale), frozenset(broken), reworded, awaited), problems


def _awaited(
    found: Mapping[Key, Record], demos: Path, cache: Cache
) -> Mapping[str, Mapping[str, Measure]]:
    """What the demos with a record on the CPU would tell of a GPU, less what a record tells."""
    told = {
        (record.demo, metric.name)
        for record in found.values()
        if record.device != "cpu"
        for metric in record.result.metrics
    }
    awaited = {}
    for (demo, device), record in found.items():
        measures = _on_gpus(record, demos, cache) if device == "cpu" else None
        if measures is not None:
            left = {name: each for name, each in measures.items() if (demo, name) not in told}
            awaited[demo] = left
    return awaited


def _on_gpus(record: Record, demos: Path, cache: Cache) -> Mapping[str, Measure] | None:
    """What a GPU's run of a demo would tell; ``None`` where it cannot be read, which is told with its record."""
    try:
        file = discovery.file_of(record.demo, demos)
        content = file.read_bytes() if file else b""
    except OSError:
        return None
    if file is None:
        return None

    def read() -> Mapping[str, Measure] | None:
        try:
            demo = discovery.parse(content, file)
            return words.on_gpus(record, demo) if demo else None
        except (discovery.DemoError, TableError):
            return None

    return cache.get("on-gpus", (record, str(file), content), read)


def _entries(folder: Path) -> Iterator[Path]:
    """What stands in the folder; nothing where there is none. A glob would not say what it may not read."""
    return folder.iterdir() if folder.exists() else iter(())


def _load(shown: str, content: bytes) -> Record | Problem:
    """The record in a file, or why it is none that counts."""
    again = "Record it again: `proofdeck demo run {demo} --record`."
    name, place = Path(shown).name, Place(shown)
    try:
        record = records.read(content)
    except records.RecordError as error:
        if isinstance(error.__context__, json.JSONDecodeError):
            place = Place(shown, error.__context__.lineno, error.__context__.colno)
        hint = again.format(demo=name.split(".")[0])
        return Problem(place, "evidence-corrupt", f"this file is no evidence: {error}", hint)
    hint = again.format(demo=record.demo)
    if message := soundness.fault(record):
        return Problem(place, "evidence-corrupt", message, hint)
    expected = f"{record.demo}.{record.device}.json"
    if name != expected:
        message = f"the file holds the record of `{record.demo}` on {record.device}"
        return Problem(place, "evidence-name", message, f"Rename it to `{expected}`.")
    if record.size != "full":
        message = f"the record is of size “{record.size}”, and cards claim what the full size found"
        return Problem(place, "evidence-size", message, hint)
    return record


def _staleness(record: Record, path: Path, demos: Path, read: provenance.Read) -> Problem | None:
    """Why the numbers of ``record`` may no longer be those of its demo."""
    code, place = "evidence-stale", Place(str(path))
    severity: Literal["error", "warning"] = "error" if record.device == "cpu" else "warning"
    device = "" if record.device == "cpu" else " --device cuda"
    hint = f"Run it again: `proofdeck demo run {record.demo}{device} --record`."
    try:
        sources = provenance.sources(record.demo, demos, read)
    except (FileNotFoundError, NotADirectoryError):
        message = f"no demo `{record.demo}` in {demos} can repeat these numbers"
        return Problem(place, code, message, "Bring the demo back, or delete the record.", severity)
    except OSError as error:
        return unreadable(error, str(error.filename or demos))
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


def _read_code(cache: Cache, content: bytes, name: str, demo: bool) -> tuple[str, tuple[str, ...]]:
    source = (hashlib.sha256(content).hexdigest(), name, demo)
    return cache.get("code", source, lambda: provenance.read(content, name, demo))


def _renewed(
    record: Record, path: Path, demos: Path, cache: Cache
) -> tuple[Record, Problem | None]:
    """``record`` in the words of its demo as it stands; where they differ, that is a problem."""
    file = discovery.file_of(record.demo, demos)
    if file is None:
        return record, None
    content, place = file.read_bytes(), Place(str(path))

    def renew() -> tuple[Record, Problem | None]:
        try:
            demo = discovery.parse(content, file)
            renewed = words.renewed(record, demo) if demo else record
            if fault := soundness.fault(renewed):
                raise TableError(fault)  # noqa: TRY301 - told as the others are
        except (discovery.DemoError, TableError) as error:
            message = f"the words of `{record.demo}` cannot be renewed: {error}"
            hint = "Fix them, or record the demo again."
            return record, Problem(place, WORDS, message, hint)
        if renewed == record:
            return record, None
        message = f"the demo `{record.demo}` says this in other words today"
        return renewed, Problem(place, WORDS, message, "Let `proofdeck refresh` renew the words.")

    return cache.get("words", (record, str(path), str(file), content), renew)

"""Run demos in processes of their own, and compare what they find with what was recorded.

Nothing here imports torch or a demo: a demo is a process that tells its progress line by line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from runnable_demos import records
from runnable_demos.metrics import Metric, Record

Progress = Callable[[str, float, str], None]
"""Called with a demo's name, the share that is done (0 to 1) and what it is doing."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run that is wanted: a demo, its size and device, and values to change (``key=value``)."""

    demo: str
    size: str = "full"
    device: str = "auto"
    changes: tuple[str, ...] = ()


class RunFailed(Exception):
    """A run that gave no record: one sentence, what to do, the exit code, and a traceback if any."""

    def __init__(self, message: str, hint: str = "", code: int = 3, detail: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
        self.detail = detail


def run(order: Order, demos: Path, progress: Progress) -> Record:
    """The record of one run. Raises ``RunFailed`` where there is none."""
    with tempfile.TemporaryDirectory(prefix="proofdeck-") as folder:
        out = Path(folder) / "record.json"
        command = [sys.executable, "-P", "-m", "runnable_demos", order.demo]
        command += ["--size", order.size, "--device", order.device, "--demos", str(demos)]
        command += ["--out", str(out)]
        for change in order.changes:
            command += ["--set", change]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=noise,
                stdin=subprocess.DEVNULL,
                encoding="utf-8",
                env=environment,
            ) as process,
        ):
            last = _follow(process, order.demo, progress)
            code = process.wait()
            noise.seek(0)
            said = noise.read()
        if code == 0:
            return records.load(out)
        raise _failure(order.demo, code, last, said)


def _follow(process: subprocess.Popen[str], demo: str, progress: Progress) -> Mapping[str, str]:
    """Pass progress on until the process is silent; returns its last other message."""
    last: Mapping[str, str] = {}
    assert process.stdout is not None  # it was asked for
    for line in process.stdout:
        message = json.loads(line)
        if "progress" in message:
            progress(demo, message["progress"], message["message"])
        else:
            last = message
    return last


def _failure(demo: str, code: int, last: Mapping[str, str], said: str) -> RunFailed:
    if "error" in last:
        return RunFailed(last["error"], last["hint"], code, last["detail"])
    if code == -9:
        return RunFailed(
            f"{demo} was killed, most likely because memory ran out", "choose smaller values", 2
        )
    if code < 0:
        return RunFailed(f"{demo} was ended by signal {-code}", detail=said)
    return RunFailed(f"{demo} ended with code {code} and no record", detail=said)


def run_all(
    orders: Sequence[Order],
    demos: Path,
    progress: Progress,
    done: Callable[[str], None],
    workers: int | None = None,
) -> dict[str, Record | RunFailed]:
    """Every order's record, or why there is none, by demo; one process a core at a time."""
    lock = threading.Lock()

    def one(order: Order) -> Record | RunFailed:
        def tell(demo: str, share: float, message: str) -> None:
            with lock:
                progress(demo, share, message)

        try:
            return run(order, demos, tell)
        except (RunFailed, records.RecordError, OSError) as error:
            return error if isinstance(error, RunFailed) else RunFailed(str(error))
        finally:
            with lock:
                done(order.demo)

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        waiting = {order.demo: pool.submit(one, order) for order in orders}
        try:
            return {demo: future.result() for demo, future in waiting.items()}
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# --- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a new run found otherwise than the record: what, as recorded, and now."""

    what: str
    recorded: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, found {self.found}"


def differences(recorded: Record, found: Record) -> tuple[Difference, ...]:
    """Where ``found`` contradicts ``recorded``.

    Exact metrics are equal, bounded ones are within the recorded bound,
    measured ones are replayed and so are not compared.
    """
    before = {metric.name: metric for metric in recorded.result.metrics}
    after = {metric.name: metric for metric in found.result.metrics}
    result = [
        Difference(f"parameter {name}", old, new)
        for name, old, new in _changed(_parameters(recorded), _parameters(found))
    ]
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            result.append(Difference(name, show(before[name]), "nothing"))
        elif name not in before:
            result.append(Difference(name, "nothing", show(after[name])))
        else:
            result += _compare(before[name], after[name])
    drawn_before = {f.name: f"{len(f.series)} series" for f in recorded.result.figures}
    drawn_after = {f.name: f"{len(f.series)} series" for f in found.result.figures}
    result += [
        Difference(f"figure {name}", old, new)
        for name, old, new in _changed(drawn_before, drawn_after)
    ]
    return tuple(result)


def replay(recorded: Record | None, found: Record) -> Record:
    """``found`` with the measured metrics of ``recorded``, by which cards are judged."""
    if recorded is None:
        return found
    kept = {m.name: m for m in recorded.result.metrics if m.kind == "measured"}
    metrics = tuple(
        kept.get(m.name, m) if m.kind == "measured" else m for m in found.result.metrics
    )
    return replace(found, result=replace(found.result, metrics=metrics))


def _compare(before: Metric, after: Metric) -> list[Difference]:
    facts = (before.kind, before.unit), (after.kind, after.unit)
    if facts[0] != facts[1]:
        return [
            Difference(before.name, *(f"{kind} in {unit or 'numbers'}" for kind, unit in facts))
        ]
    if before.kind == "exact" and (before.value, type(before.value)) != (
        after.value,
        type(after.value),
    ):
        return [Difference(before.name, show(before), show(after))]
    if before.bound is not None and not after.value <= before.bound:
        return [Difference(before.name, f"at most {before.bound:g}", show(after))]
    if before.bound != after.bound:
        return [Difference(f"bound of {before.name}", f"{before.bound}", f"{after.bound}")]
    return []


def _parameters(record: Record) -> dict[str, str]:
    return {p.name: str(p.value) for p in record.parameters}


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, before, after) of what is not the same in both."""
    names = dict.fromkeys((*before, *after))
    pairs = ((name, before.get(name, "nothing"), after.get(name, "nothing")) for name in names)
    return [(name, old, new) for name, old, new in pairs if old != new]


def environment_changes(recorded: Record, found: Record) -> tuple[Difference, ...]:
    """How the machine and the versions differ from those of the record; a reason, not a fault."""
    changed = _changed(recorded.environment, found.environment)
    return tuple(Difference(name, old, new) for name, old, new in changed)


def show(metric: Metric) -> str:
    """The value of a metric with its unit, for a terminal."""
    value, unit = metric.value, metric.unit
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return f"{text} {unit}".rstrip()

"""Run demos in processes of their own.

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
from dataclasses import dataclass
from pathlib import Path

from runnable_demos import records
from runnable_demos.metrics import Record

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

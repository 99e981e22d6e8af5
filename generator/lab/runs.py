"""Run demos, and the fences of cards, in processes of their own.

Nothing here imports torch or a demo: a demo is a process that tells its progress line by line.
It stands under a keeper, which ends with it all that it has started, when the run is over and
when this process dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from generator.lab import keeper
from runnable_demos.lab import records
from runnable_demos.lab.metrics import Record

T = TypeVar("T")

Progress = Callable[[str, float, str], None]
"""Called with a demo's name, the share that is done (0 to 1) and what it is doing."""

Note = Callable[[str, str], None]
"""Called with a demo's name and something that its user has to know."""

SECONDS = 600.0
"""How long a run may take, unless told otherwise."""

MOST_BYTES = 64 * 2**20
"""How much a run may write, to either stream."""

LAST_BYTES = 64 * 2**10
"""How much of what it said is kept, to explain its end."""


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


def run(
    order: Order, demos: Path, progress: Progress, note: Note, seconds: float = SECONDS
) -> Record:
    """The record of one run. Raises ``RunFailed`` where there is none within so many seconds."""
    return DemoRun(order, demos, seconds).record(progress, note)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take, and what to do where that is not enough."""

    seconds: float
    written: int
    """Bytes, to both streams together."""
    longer: str
    quieter: str
    smaller: str


class Run:
    """One run of a Python module under a keeper, which another thread may stop."""

    def __init__(self, name: str, arguments: Sequence[str], limits: Limits) -> None:
        self._name = name
        self._command = [sys.executable, "-P", "-m", "generator.lab.keeper"]
        self._command += [sys.executable, "-P", "-m", *arguments]
        self._limits = limits
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: RunFailed | None = None
        self._written = 0
        self._said = bytearray()

    def result(self, progress: Progress, note: Note) -> Mapping[str, Any]:
        """Run it now; its last message. Raises ``RunFailed`` with the reason where there is none."""
        process = self._start()
        assert process.stdout is not None  # it was asked for
        seconds = self._limits.seconds
        late = RunFailed(f"{self._name} did not end within {seconds:g} s", self._limits.longer)
        clock = threading.Timer(seconds, self.stop, [late])
        ear = threading.Thread(target=self._listen, args=[process], daemon=True)
        try:
            clock.start()
            ear.start()
            last = self._follow(process, progress, note)
        finally:
            clock.cancel()
            self._close()
            code = process.wait()
            if code < 0:  # the keeper itself was killed, and could end nothing
                keeper.clear()
            ear.join(1)
            process.stdout.close()
        if last and "error" not in last:
            return last
        raise self._stopped or self._failure(code, last)

    def stop(self, why: RunFailed) -> None:
        """End it for this reason, begun or not."""
        with self._guard:
            self._stopped = self._stopped or why
        self._close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        with self._guard:
            if self._stopped:
                raise self._stopped
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the run
            )
            return self._process

    def _close(self) -> None:
        """Close the keeper's input: it ends everything, and then itself."""
        with self._guard:
            if self._process and self._process.stdin:
                self._process.stdin.close()

    def _count(self, written: int) -> None:
        with self._guard:
            self._written += written
            much = self._written > self._limits.written
        if much:
            most = self._limits.written >> 20
            message = f"{self._name} wrote more than {most} MiB, and was ended"
            self.stop(RunFailed(message, self._limits.quieter))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Keep the end of what goes to standard error."""
        assert process.stderr is not None  # it was asked for
        while piece := os.read(process.stderr.fileno(), 2**16):
            self._said = (self._said + piece)[-LAST_BYTES:]
            self._count(len(piece))
        process.stderr.close()

    def _follow(
        self, process: subprocess.Popen[bytes], progress: Progress, note: Note
    ) -> Mapping[str, Any]:
        """Pass on what the run says until it is silent; returns its result, or its error."""
        assert process.stdout is not None  # it was asked for
        last: Mapping[str, Any] = {}
        while line := process.stdout.readline(self._limits.written):
            self._count(len(line))
            if self._stopped:
                break
            match _message(line):
                case {"progress": int() | float() as share, "message": str(words)} if (
                    0 <= share <= 1
                ):
                    progress(self._name, share, _plain(words))
                case {"note": str(words)}:
                    note(self._name, _plain(words))
                case {"record": str()} as last:
                    break
                case {"printed": str(), "environment": dict()} as last:
                    break
                case {"fault": str(), "hint": str(), "lines": list()} as last:
                    break
                case {"error": str(), "hint": str(), "detail": str(), "code": int()} as last:
                    break
                case _:
                    shown = ascii(line.decode("utf-8", "replace").rstrip("\n"))[1:61]
                    hint = "standard output is the runner's own; print to standard error"
                    raise RunFailed(f"{self._name} wrote what is no message: {shown}", hint)
        return last

    def _failure(self, code: int, last: Mapping[str, Any]) -> RunFailed:
        name = self._name
        if "error" in last:
            detail = _plain(last["detail"], LAST_BYTES)
            return RunFailed(_plain(last["error"]), _plain(last["hint"]), last["code"], detail)
        said = _plain(self._said.decode("utf-8", "replace"), LAST_BYTES)
        signum = -code if code < 0 else code - 128
        if signum == signal.SIGKILL:
            message = f"{name} was killed, most likely because memory ran out"
            return RunFailed(message, self._limits.smaller)
        if signum in set(signal.Signals):
            return RunFailed(f"{name} was ended by {signal.Signals(signum).name}", detail=said)
        return RunFailed(f"{name} ended with code {code} and no record", detail=said)


class DemoRun(Run):
    """One run of a demo."""

    def __init__(self, order: Order, demos: Path, seconds: float) -> None:
        arguments = ["runnable_demos", order.demo, "--size", order.size]
        arguments += ["--device", order.device, "--demos", str(demos)]
        for change in order.changes:
            arguments += ["--set", change]
        limits = Limits(
            seconds,
            MOST_BYTES,
            longer="allow it more: --time-limit SECONDS",
            quieter="a demo tells its progress; it prints no data",
            smaller="free some memory" + (", or choose smaller values" * bool(order.changes)),
        )
        super().__init__(order.demo, arguments, limits)

    def record(self, progress: Progress, note: Note) -> Record:
        """Run it now. Raises ``RunFailed`` with the reason where there is no record."""
        last = self.result(progress, note)
        if "record" not in last:
            raise RunFailed(f"{self._name} gave no record")
        try:
            return records.loads(last["record"])
        except records.RecordError as error:
            raise RunFailed(f"{self._name} gave a broken record: {error}") from None


def _plain(text: str, most: int = 500) -> str:
    """What a demo said, at bounded length and without what would control a terminal."""
    cut = text[: most // 2] + " … " + text[-most // 2 :] if len(text) > most else text
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in cut)


def _message(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # among them bytes that are no UTF-8
        return None


def run_all(
    orders: Sequence[Order],
    demos: Path,
    progress: Progress,
    note: Note,
    done: Callable[[str], None],
    seconds: float = SECONDS,
    workers: int | None = None,
) -> dict[str, Record | RunFailed]:
    """Every order's record, or why there is none, by demo.

    One process a core at a time, and one at a time where a GPU may be used, of which there may be one.
    """
    lock = threading.Lock()
    runs = {order.demo: DemoRun(order, demos, seconds) for order in orders}
    if any(order.device != "cpu" for order in orders):
        workers = 1

    def one(demo: str) -> Record | RunFailed:
        def tell(demo: str, share: float, message: str) -> None:
            with lock:
                progress(demo, share, message)

        def say(demo: str, message: str) -> None:
            with lock:
                note(demo, message)

        try:
            return runs[demo].record(tell, say)
        except (RunFailed, OSError) as error:
            return error if isinstance(error, RunFailed) else RunFailed(str(error))
        finally:
            with lock:
                done(demo)

    return together(runs, one, workers)


def together(
    runs: Mapping[str, Run], one: Callable[[str], T], workers: int | None = None
) -> dict[str, T]:
    """What ``one`` says of each run, by its name, a process a core at a time; all are stopped where that is."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        waiting = {name: pool.submit(one, name) for name in runs}
        try:
            return {name: future.result() for name, future in waiting.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for each in runs.values():
                each.stop(RunFailed("interrupted"))
            raise


def this_gpu() -> str | None:
    """The short name of this machine's GPU, or ``None`` where PyTorch sees none or is missing."""
    asked = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    command = [sys.executable, "-P", "-c", asked]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    name = done.stdout.strip()
    return records.short_name(name) if name and done.returncode == 0 else None

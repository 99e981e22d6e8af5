"""Run one demo in this process and say what it found: ``python -m runnable_demos NAME``.

Standard output carries one JSON object a line and nothing else:

    {"progress": 0.25, "message": "L = 64, k = 8"}     as often as the demo says
    {"note": "…"}                                      what its user has to know
    {"record": "…"}                                    at the end: the text of a record's file
    {"error": "…", "hint": "…", "detail": "…", "code": 3}     in place of it

What a demo prints goes to standard error. Exit codes: 0 done, 2 wrong usage (CUDA where there is
none, or for a demo that gains nothing from it, and chosen values that do not fit in memory),
3 the environment (a package is missing, memory is out) or a demo that crashed.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import fcntl
import importlib
import importlib.util
import json
import math
import os
import platform
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

import runnable_demos
from runnable_demos.lab import discovery, lifetime, provenance, records
from runnable_demos.lab.metrics import FARTHEST, Metric, Parameter, Progress, Record, Result

Note = Callable[[str], None]
"""Called with a sentence that the demo's user has to know."""

USAGE, ENVIRONMENT = 2, 3
_IN_CHECKOUT = (Path(__file__).parents[1] / "constraints.txt").is_file()
_INSTALL = (
    "python -m pip install --constraint constraints.txt --editable '.[{}]'"
    if _IN_CHECKOUT
    else "python -m pip install 'proofdeck[{}]'"
)
INSTALL, INSTALL_HEAVY = _INSTALL.format("lab"), _INSTALL.format("lab,heavy")


class StopRun(Exception):
    """The run cannot go on: one sentence, what to do about it, and the exit code."""

    def __init__(self, code: int, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.detail = detail


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo that ``arguments`` name; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runnable_demos", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--size", default="full", choices=("small", "full"))
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--demos", type=Path, default=Path(__file__).parent)
    options = parser.parse_args(arguments)
    lifetime.end_with(os.getppid())
    lines = _take_stdout()

    def tell(**message: object) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    def progress(share: float, message: str) -> None:
        tell(progress=min(max(0.0, share), 1.0), message=message)

    try:
        record = run(
            options.name,
            options.demos,
            options.size,
            options.device,
            options.changes,
            progress,
            lambda words: tell(note=words),
        )
    except StopRun as stop:
        tell(error=str(stop), hint=stop.hint, detail=stop.detail, code=stop.code)
        return stop.code
    tell(record=records.dumps(record))
    return 0


def _take_stdout() -> TextIO:
    """Standard output for this module alone: what is printed elsewhere goes to standard error."""
    sys.stdout.flush()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


def run(
    name: str,
    folder: Path,
    size: str,
    device: str,
    changes: Sequence[str],
    progress: Progress,
    note: Note,
) -> Record:
    """The record of one run. Raises ``StopRun`` with the reason where there is none."""
    demo = _find(name, folder)
    _need("torch", INSTALL)
    for package in demo.requires:
        _need(package, INSTALL_HEAVY)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that a demo starts
    if device == "cpu":  # Triton, which torch imports, decides at its import whether to interpret
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        import torch  # noqa: PLC0415 - this module tells what is missing before it needs it

        torch.set_num_threads(1)
        if folder.resolve() != Path(__file__).parent.resolve():
            runnable_demos.__path__.insert(0, str(folder.resolve()))
        module = importlib.import_module(f"runnable_demos.{name}")
        config = configure(module.PRESETS[size], changes)
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        device, why = choose_device(device, demo, getattr(config, "ranks", 1), gpus)
        if why:
            note(why)
        if device == "cpu":
            _limit_memory()
        config = dataclasses.replace(config, device=device)
        random.seed(config.seed)
        torch.manual_seed(config.seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(config.seed % 2**32)
        with _gpu_alone(note) if device == "cuda" else nullcontext():
            result = module.run(config, progress)
        _check(result, device)
        gpu = torch.cuda.get_device_name() if device == "cuda" else ""
    except StopRun:
        raise
    except KeyboardInterrupt:
        raise StopRun(ENVIRONMENT, f"{name} was interrupted") from None
    except BaseException as error:
        raise _explain(name, error, chosen=bool(changes)) from error
    return Record(
        demo=name,
        title=demo.title,
        question=demo.question,
        device=records.short_name(gpu) if gpu else "cpu",
        size="custom" if changes else size,
        parameters=describe(config),
        result=result,
        environment=_environment(torch, gpu, config.seed),
        sources=provenance.sources(name, folder),
        recorded=datetime.now(UTC).date().isoformat(),
    )


def _find(name: str, folder: Path) -> discovery.Demo:
    try:
        demos = discovery.discover(folder)
    except (discovery.DemoError, OSError) as error:
        raise StopRun(ENVIRONMENT, str(error)) from None
    if name not in demos:
        raise StopRun(USAGE, f"there is no demo {name!r}", nearest(name, demos))
    return demos[name]


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint that names what is spelt most like ``name``, or all that there is."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def _need(package: str, command: str) -> None:
    if importlib.util.find_spec(package) is None:
        title = {"torch": "PyTorch"}.get(package, package)
        raise StopRun(ENVIRONMENT, f"{title} is not installed", f"install it: {command}")


def choose_device(
    wanted: str, demo: discovery.Demo, ranks: int, gpus: int
) -> tuple[Literal["cpu", "cuda"], str]:
    """Where a demo of so many ranks runs where there are so many GPUs, and why on none of them.

    Raises ``StopRun`` where CUDA was asked for by name and cannot be had.
    """
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        return "cpu", ""
    if demo.gpu is None:
        why = f"{demo.name} gains nothing from a GPU"
    elif not gpus:
        why = "there is no CUDA device"
    elif gpus < ranks:
        why = f"{ranks} ranks need {ranks} CUDA devices, and there {'is' if gpus == 1 else 'are'} {gpus}"
    else:
        return "cuda", ""
    if wanted == "cuda":
        raise StopRun(USAGE, why, "use --device cpu")
    return "cpu", f"{why}: it runs on the CPU"


GPU_LOCK = Path("/tmp") / f"proofdeck-gpu-{os.getuid()}.lock"
"""Outside ``TMPDIR``, which is each run's own."""


@contextmanager
def _gpu_alone(note: Note, path: Path = GPU_LOCK) -> Iterator[None]:
    """Wait until no other run uses a GPU: times and peaks are those of one demo."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("another run uses the GPU: waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _limit_memory() -> None:
    """Let an allocation fail where memory is out, in place of the kernel killing this process."""
    try:
        import resource  # noqa: PLC0415 - POSIX alone

        facts = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(f.split()[1]) * 1024 for f in facts if f.startswith("MemAvailable"))
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard == resource.RLIM_INFINITY or available < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (available, hard))
    except (ImportError, OSError, StopIteration, ValueError):
        return  # no such limit here: the kernel decides


def _explain(name: str, error: BaseException, chosen: bool) -> StopRun:
    """What went wrong; ``chosen``: the user changed the demo's own values."""
    detail = "".join(traceback.format_exception(error))
    text = str(error)
    memory = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")
    if isinstance(error, MemoryError) or any(words in text for words in memory):
        message = f"{name} does not fit in memory at this size"
        if chosen:
            return StopRun(USAGE, message, "choose smaller values")
        return StopRun(ENVIRONMENT, message, "free some memory, or take --size small")
    if isinstance(error, ModuleNotFoundError):
        return StopRun(
            ENVIRONMENT, f"{error.name} is not installed", f"install it: {INSTALL_HEAVY}", detail
        )
    first = text.strip().splitlines()[0] if text.strip() else ""
    return StopRun(ENVIRONMENT, f"{name} crashed: {type(error).__name__}: {first}", detail=detail)


# --- configuration -------------------------------------------------------------------------------


def describe(config: Any) -> tuple[Parameter, ...]:
    """The fields of a demo's configuration, as a record keeps them."""
    return tuple(
        Parameter(
            f.name,
            getattr(config, f.name),
            f.metadata["minimum"],
            f.metadata["maximum"],
            f.metadata["help"],
        )
        for f in dataclasses.fields(config)
    )


def configure(preset: Any, changes: Sequence[str]) -> Any:
    """The preset with ``KEY=VALUE`` changes. Raises ``StopRun`` where one is unknown or wrong."""
    parameters = {p.name: p for p in describe(preset)}
    values: dict[str, bool | int | float | str] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise StopRun(USAGE, f"{change!r} is not KEY=VALUE")
        if key == "device":
            raise StopRun(USAGE, "the device is no value to set", "use --device")
        if key not in parameters:
            raise StopRun(USAGE, f"there is no parameter {key!r}", nearest(key, parameters))
        values[key] = _value(parameters[key], text)
    try:
        return dataclasses.replace(preset, **values)
    except ValueError as error:
        raise StopRun(USAGE, str(error)) from None


def _value(parameter: Parameter, text: str) -> bool | int | float | str:
    """``text`` as a value of ``parameter``, within its bounds."""
    name, default = parameter.name, parameter.value
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise StopRun(USAGE, f"{name} is true or false, not {text!r}")
        return text.lower() == "true"
    if isinstance(default, str):
        return text
    kind = type(default)
    try:
        value = kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise StopRun(USAGE, f"{name} must be {wanted}, not {text!r}") from None
    low, high = parameter.minimum, parameter.maximum
    if (
        not math.isfinite(value)
        or (low is not None and value < low)
        or (high is not None and value > high)
    ):
        raise StopRun(USAGE, f"{name} must be from {low} to {high}, not {text}")
    return value


def _check(result: Result, device: str) -> None:
    """Refuse a result that no record can hold.

    A bound is a promise for the CPU. What a GPU finds beyond it is a finding, and is recorded.
    """
    names = [metric.name for metric in result.metrics]
    for metric in result.metrics:
        if names.count(metric.name) > 1:
            raise ValueError(f"two metrics are called {metric.name}")
        for number in (metric.value, metric.bound, metric.error, metric.closed_form):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"metric {metric.name} is {number}")
        _check_sample(metric)
        exceeded = metric.bound is not None and not metric.value <= metric.bound
        if exceeded and device == "cpu":
            raise ValueError(
                f"metric {metric.name} is {metric.value}, above its bound {metric.bound}"
            )
    for figure in result.figures:
        for series in figure.series:
            if not all(map(math.isfinite, (*series.x, *series.y))):
                raise ValueError(f"figure {figure.name} has a point that is no finite number")


def _check_sample(metric: Metric) -> None:
    """Refuse a sample that contradicts the formula it is held against."""
    if metric.error is None or metric.closed_form is None:
        return
    off = abs(metric.value - metric.closed_form) / metric.error
    if off > FARTHEST:
        raise ValueError(
            f"metric {metric.name} is {metric.value}, {off:.1f} standard errors from "
            f"its closed form {metric.closed_form}"
        )


def _environment(torch: Any, gpu: str, seed: int) -> Mapping[str, str]:
    """What the numbers may depend on beside the sources."""
    facts = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
        "seed": str(seed),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }
    if not gpu:
        return {"device": f"CPU, {torch.backends.cpu.get_cpu_capability()}", **facts}
    driver = Path("/proc/driver/nvidia/version")
    words = driver.read_text().split() if driver.exists() else []
    version = next((word for word in words if word.replace(".", "").isdigit()), "unknown")
    return {
        "device": gpu,
        **facts,
        "cuda": str(torch.version.cuda),
        "driver": version,
    }


if __name__ == "__main__":
    sys.exit(main())

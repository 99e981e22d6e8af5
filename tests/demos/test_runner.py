"""The runner: one demo, one process, one record, and a sentence for each thing that can go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnable_demos.__main__ import USAGE, StopRun, _gpu_alone, choose_device, configure, nearest
from runnable_demos.lab import provenance, records
from runnable_demos.lab.discovery import Demo
from runnable_demos.lab.metrics import parameter
from runnable_demos.lab.table import Table

DEMO = """
from dataclasses import dataclass
import random
import torch
from runnable_demos.lab.findings import Findings
from runnable_demos.lab.metrics import parameter
from runnable_demos.lab.table import Table
TITLE = {"zh": "题", "en": "Title"}
QUESTION = {"zh": "问", "en": "Question"}

MEASURES = '''
[[method]]
kind = "exact"
how = ["字", "word"]
[method.metrics]
bytes = ["B", "字", "word"]
threads = ["", "字", "word"]
torch_draw = ["", "字", "word"]
python_draw = ["", "字", "word"]
'''

@dataclass(frozen=True)
class Config:
    n: int = parameter(4, {"zh": "字", "en": "word"}, 1, 10**15)
    way: str = parameter("run", {"zh": "字", "en": "word"})
    device: str = parameter("cpu", {"zh": "字", "en": "word"})
    seed: int = parameter(7, {"zh": "字", "en": "word"}, 0, 2**31)

PRESETS = {"small": Config(n=2), "full": Config()}

def run(config, progress):
    progress(0.5, "half")
    print("noise")
    if config.way == "crash":
        raise RuntimeError("boom\\nand more")
    if config.way == "import":
        import surely_no_such_package
    value = float("nan") if config.way == "nan" else torch.zeros(config.n).nbytes
    found = Findings(MEASURES, config)
    found["bytes"] = value
    found["threads"] = torch.get_num_threads()
    found["torch_draw"], found["python_draw"] = torch.rand(1).item(), random.random()
    return found.result()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base's own demos: one that works, one that needs a package that nobody has."""
    folder = tmp_path_factory.mktemp("demos")
    (folder / "sample.py").write_text(DEMO, encoding="utf-8")
    needy = 'REQUIRES = ("surely_no_such_package",)\n' + DEMO
    (folder / "needy.py").write_text(needy, encoding="utf-8")
    (folder / "gaining.py").write_text("GPU = 1\n" + DEMO, encoding="utf-8")
    huge = DEMO.replace("parameter(4, ", "parameter(10**14, ")
    (folder / "huge.py").write_text(huge, encoding="utf-8")
    return folder


def run(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the lines on standard output, and standard error."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runnable_demos", *arguments, "--demos", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_run_leaves_a_record(folder: Path) -> None:
    """Progress comes line by line, prints stay out of it, and the record says how to repeat it."""
    code, lines, errors = run(folder, "sample", "--size", "small")
    assert code == 0
    assert lines[0] == {"progress": 0.5, "message": "half"}
    assert "noise" in errors
    record = records.loads(lines[1]["record"])
    values = {metric.name: metric.value for metric in record.result.metrics}
    assert values["bytes"] == 8
    assert values["threads"] == 1
    assert (record.size, record.device) == ("small", "cpu")
    assert [p.value for p in record.parameters] == [2, "run", "cpu", 7]
    assert record.sources == provenance.sources("sample", folder)
    assert {"device", "torch", "python", "platform", "threads", "seed"} <= record.environment.keys()

    code, lines, _ = run(folder, "sample", "--set", "n=3", "--set", "seed=7")
    again = records.loads(lines[-1]["record"])
    draws = {metric.name: metric.value for metric in again.result.metrics}
    assert again.size == "custom"
    assert draws["bytes"] == 12
    assert draws["torch_draw"] == values["torch_draw"]  # both generators are seeded
    assert draws["python_draw"] == values["python_draw"]


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        (["simple"], 2, "there is no demo 'simple'", "did you mean sample?"),
        (["needy"], 3, "surely_no_such_package is not installed", "install it: python -m pip"),
        (["sample", "--set", "m=3"], 2, "there is no parameter 'm'", ""),
        (["sample", "--set", "way=crash"], 3, "sample crashed: RuntimeError: boom", ""),
        (["sample", "--set", "way=nan"], 3, "sample crashed: ValueError: metric bytes is nan", ""),
        (
            ["sample", "--set", "way=import"],
            3,
            "surely_no_such_package is not installed",
            "install",
        ),
        (["sample", "--set", "n=100000000000000"], 2, "sample does not fit in memory", "smaller"),
        (["huge"], 3, "huge does not fit in memory", "--size small"),
        (["gaining", "--device", "cuda"], 2, "there is no CUDA device", "--device cpu"),
        (["sample", "--device", "cuda"], 2, "sample gains nothing from a GPU", "--device cpu"),
    ],
)
def test_each_fault_is_one_sentence(
    folder: Path, arguments: list[str], code: int, error: str, hint: str
) -> None:
    """Faults come as a JSON line with what to do, and never as a traceback."""
    import torch  # noqa: PLC0415 - only to know whether there is a GPU

    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    found, lines, errors = run(folder, *arguments)
    assert found == code
    assert error in lines[-1]["error"]
    assert "\n" not in lines[-1]["error"]
    assert lines[-1]["code"] == code
    assert hint in lines[-1]["hint"]
    assert "Traceback" not in errors


@dataclass(frozen=True)
class Config:
    """A parameter of each type."""

    count: int = parameter(4, {}, 1, 8)
    rate: float = parameter(0.5, {}, 0.0, 1.0)
    flag: bool = parameter(False, {})
    word: str = parameter("a", {})
    device: str = parameter("cpu", {})
    seed: int = parameter(0, {}, 0, 9)

    def __post_init__(self) -> None:
        if self.word == "bad":
            raise ValueError("word may not be bad")


def test_values_are_read_by_type() -> None:
    """Text becomes the type that the parameter has; bounds are inclusive."""
    changes = ["count=8", "rate=1e-1", "flag=True", "word=x=y"]
    assert configure(Config(), changes) == Config(8, 0.1, True, "x=y")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("count", "not KEY=VALUE"),
        ("count=9", "count must be from 1 to 8, not 9"),
        ("count=0", "count must be from 1 to 8, not 0"),
        ("count=2.5", "count must be a whole number"),
        ("rate=nan", "rate must be from 0.0 to 1.0"),
        ("rate=fast", "rate must be a number"),
        ("flag=1", "flag is true or false"),
        ("device=cuda", "the device is no value to set"),
        ("cuont=2", "there is no parameter 'cuont'"),
        ("word=bad", "word may not be bad"),
    ],
)
def test_a_wrong_value_is_refused(change: str, message: str) -> None:
    """Each wrong value is wrong usage, with what is right."""
    with pytest.raises(StopRun, match=message) as stop:
        configure(Config(), [change])
    assert stop.value.code == USAGE


def test_the_nearest_names_are_offered() -> None:
    """A slip of the pen gets the right name; anything else gets all names."""
    assert nearest("cuont", ["count", "rate"]) == "did you mean count?"
    assert nearest("zzz", ["count", "rate"]) == "there are: count, rate"
    assert nearest("zzz", []) == "there are none"


# --- GPUs ---


def demo(gpu: int | None) -> Demo:
    """A demo that gains from a GPU, or not."""
    return Demo("sample", Path("sample.py"), {}, {}, Table({}, {}), {}, (), gpu)


@pytest.mark.parametrize(
    ("wanted", "gpu", "ranks", "gpus", "device", "why"),
    [
        ("cpu", 1, 1, 1, "cpu", ""),
        ("auto", None, 1, 0, "cpu", ""),
        ("auto", 1, 1, 0, "cpu", ""),
        ("auto", None, 1, 8, "cpu", "gains nothing from a GPU"),
        ("auto", 1, 1, 1, "cuda", ""),
        ("cuda", 1, 1, 1, "cuda", ""),
        ("auto", 1, 2, 1, "cpu", "2 ranks need 2 CUDA devices, and there is 1"),
        ("auto", 1, 4, 3, "cpu", "4 ranks need 4 CUDA devices, and there are 3"),
        ("auto", 1, 4, 4, "cuda", ""),
    ],
)
def test_a_gpu_is_taken_where_it_helps_and_suffices(
    wanted: str, gpu: int | None, ranks: int, gpus: int, device: str, why: str
) -> None:
    """``auto`` takes a GPU for a demo that gains from it, one for each rank, and else says why not."""
    found, said = choose_device(wanted, demo(gpu), ranks, gpus)
    assert found == device
    assert (why in said) if why else (said == "")


@pytest.mark.parametrize(
    ("gpu", "ranks", "gpus", "message"),
    [
        (None, 1, 1, "sample gains nothing from a GPU"),
        (None, 1, 0, "sample gains nothing from a GPU"),
        (1, 1, 0, "there is no CUDA device"),
        (1, 2, 1, "2 ranks need 2 CUDA devices, and there is 1"),
    ],
)
def test_cuda_by_name_is_had_or_refused(
    gpu: int | None, ranks: int, gpus: int, message: str
) -> None:
    """Who asks for CUDA by name never gets a CPU's record: it is wrong usage, with what to do."""
    with pytest.raises(StopRun, match=message) as stop:
        choose_device("cuda", demo(gpu), ranks, gpus)
    assert (stop.value.code, stop.value.hint) == (USAGE, "use --device cpu")


FAKE = """
import torch
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_name = lambda *_: "NVIDIA H200"
"""


@pytest.fixture
def faked(tmp_path: Path) -> dict[str, str]:
    """An environment in which PyTorch believes that it has one GPU."""
    (tmp_path / "sitecustomize.py").write_text(FAKE)
    return {"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"}


def test_a_demo_that_never_touches_a_gpu_makes_no_gpu_record(
    folder: Path, faked: dict[str, str]
) -> None:
    """Beside a GPU it runs on the CPU, says so, and its record is a CPU's in every respect."""
    code, lines, errors = run(folder, "sample", "--device", "auto", environment=faked)
    assert code == 0, errors
    assert lines[0] == {"note": "sample gains nothing from a GPU: it runs on the CPU"}
    record = records.loads(lines[-1]["record"])
    assert record.device == "cpu"
    assert record.environment["device"].startswith("CPU")
    assert [p.value for p in record.parameters if p.name == "device"] == ["cpu"]


def test_ranks_without_a_gpu_each_run_on_the_cpu(tmp_path: Path, faked: dict[str, str]) -> None:
    """Two ranks beside one GPU: ``auto`` runs them on the CPU and says so, ``cuda`` is refused."""
    two = DEMO.replace(
        "    way: str",
        '    ranks: int = parameter(2, {"zh": "卡", "en": "ranks"}, 2, 8)\n    way: str',
    )
    (tmp_path / "two.py").write_text("GPU = 1\n" + two, encoding="utf-8")
    code, lines, errors = run(tmp_path, "two", "--device", "auto", environment=faked)
    assert code == 0, errors
    assert "2 ranks need 2 CUDA devices, and there is 1" in lines[0]["note"]
    assert records.loads(lines[-1]["record"]).device == "cpu"
    code, lines, _ = run(tmp_path, "two", "--device", "cuda", environment=faked)
    assert (code, lines[-1]["error"]) == (2, "2 ranks need 2 CUDA devices, and there is 1")


def test_a_bound_that_a_gpu_exceeds_is_recorded(tmp_path: Path, faked: dict[str, str]) -> None:
    """On the CPU the run fails; on a GPU the value is what was found, and stands in its record."""
    bounded = """
[[method]]
kind = "bounded"
how = ["字", "word"]
bound = 0.25
reason = ["字", "word"]
[method.metrics]
error = ["", "字", "word"]
[[method]]
kind = "exact"
"""
    beyond = DEMO.replace('\n[[method]]\nkind = "exact"\n', bounded)
    beyond = beyond.replace('found["bytes"] =', 'found["error"] = 0.5\n    found["bytes"] =')
    (tmp_path / "beyond.py").write_text("GPU = 1\n" + beyond, encoding="utf-8")
    code, lines, errors = run(tmp_path, "beyond", "--device", "auto", environment=faked)
    assert code == 0, errors
    record = records.loads(lines[-1]["record"])
    assert (record.device, record.environment["device"]) == ("h200", "NVIDIA H200")
    assert record.result.metrics[0].value == 0.5
    code, lines, _ = run(tmp_path, "beyond", "--device", "cpu", environment=faked)
    assert code == 3
    assert "metric error is 0.5, above its bound 0.25" in lines[-1]["error"]


def test_one_gpu_runs_one_demo_at_a_time(tmp_path: Path) -> None:
    """A run waits for the end of another that uses the GPU, and says that it does."""
    lock = tmp_path / "lock"
    events: list[str] = []
    begun, waits = threading.Event(), threading.Event()

    def first() -> None:
        with _gpu_alone(events.append, lock):
            begun.set()
            assert waits.wait(30)
            events.append("the first ends")

    def note(words: str) -> None:
        events.append(words)
        waits.set()

    other = threading.Thread(target=first)
    other.start()
    assert begun.wait(30)
    with _gpu_alone(note, lock):
        events.append("the second begins")
    other.join()
    waiting = "another run uses the GPU: waiting for its end"
    assert events == [waiting, "the first ends", "the second begins"]

"""The runner: one demo, one process, one record, and a sentence for each thing that can go wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnable_demos import provenance, records
from runnable_demos.__main__ import USAGE, StopRun, configure, nearest
from runnable_demos.metrics import parameter

DEMO = """
from dataclasses import dataclass
import random
import torch
from runnable_demos.metrics import Metric, Result, parameter
TEXT = {"zh": "字", "en": "word"}
TITLE = {"zh": "题", "en": "Title"}
QUESTION = {"zh": "问", "en": "Question"}

@dataclass(frozen=True)
class Config:
    n: int = parameter(4, TEXT, 1, 10**15)
    way: str = parameter("run", TEXT)
    device: str = parameter("cpu", TEXT)
    seed: int = parameter(7, TEXT, 0, 2**31)

PRESETS = {"small": Config(n=2), "full": Config()}

def run(config, progress):
    progress(0.5, "half")
    print("noise")
    if config.way == "crash":
        raise RuntimeError("boom\\nand more")
    if config.way == "import":
        import surely_no_such_package
    value = float("nan") if config.way == "nan" else torch.zeros(config.n).nbytes
    draws = (torch.rand(1).item(), random.random())
    return Result((
        Metric("bytes", value, "B", "exact", TEXT, TEXT),
        Metric("threads", torch.get_num_threads(), "", "exact", TEXT, TEXT),
        Metric("torch_draw", draws[0], "", "exact", TEXT, TEXT),
        Metric("python_draw", draws[1], "", "exact", TEXT, TEXT),
    ))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base's own demos: one that works, one that needs a package that nobody has."""
    folder = tmp_path_factory.mktemp("demos")
    (folder / "sample.py").write_text(DEMO, encoding="utf-8")
    needy = 'REQUIRES = ("surely_no_such_package",)\n' + DEMO
    (folder / "needy.py").write_text(needy, encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the lines on standard output, and standard error."""
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "runnable_demos", *arguments),
            *("--demos", str(folder), "--out", str(folder / "out.json")),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_run_leaves_a_record(folder: Path) -> None:
    """Progress comes line by line, prints stay out of it, and the record says how to repeat it."""
    code, lines, errors = run(folder, "sample", "--size", "small")
    assert code == 0
    assert lines == [
        {"progress": 0.5, "message": "half"},
        {"record": str(folder / "out.json")},
    ]
    assert "noise" in errors
    record = records.load(folder / "out.json")
    values = {metric.name: metric.value for metric in record.result.metrics}
    assert values["bytes"] == 8
    assert values["threads"] == 1
    assert (record.size, record.device) == ("small", "cpu")
    assert [p.value for p in record.parameters] == [2, "run", "cpu", 7]
    assert record.sources == provenance.sources("sample", folder)
    assert {"device", "torch", "python", "platform", "threads", "seed"} <= record.environment.keys()

    code, _, _ = run(folder, "sample", "--set", "n=3", "--set", "seed=7")
    again = records.load(folder / "out.json")
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
        (["sample", "--device", "cuda"], 2, "there is no CUDA device", "--device cpu"),
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
    assert configure(Config(), "cuda", changes) == Config(8, 0.1, True, "x=y", "cuda")


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
        configure(Config(), "cpu", [change])
    assert stop.value.code == USAGE


def test_the_nearest_names_are_offered() -> None:
    """A slip of the pen gets the right name; anything else gets all names."""
    assert nearest("cuont", ["count", "rate"]) == "did you mean count?"
    assert nearest("zzz", ["count", "rate"]) == "there are: count, rate"
    assert nearest("zzz", []) == "there are none"

"""The laboratory: demos run in processes, are compared with their records, and fail in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runnable_demos.lab import records

TEXT = {"zh": "字", "en": "word"}

DEMO = """
from dataclasses import dataclass
import os
from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.metrics import parameter
TITLE = {"zh": "题", "en": "The title"}
QUESTION = {"zh": "问", "en": "The question"}

MEASURES = '''
[[method]]
kind = "exact"
how = ["字", "word"]
[method.metrics]
count = ["", "字", "word"]
[figure.line]
title = ["字", "word"]
x = {label = ["字", "word"]}
y = {label = ["字", "word"]}
[figure.line.series]
count = ["measured", "字", "word"]
'''

@dataclass(frozen=True)
class Config:
    n: int = parameter(16, {"zh": "字", "en": "word"}, 1, 100)
    end: str = parameter("well", {"zh": "字", "en": "word"})
    device: str = parameter("cpu", {"zh": "字", "en": "word"})
    seed: int = parameter(0, {"zh": "字", "en": "word"}, 0, 9)

PRESETS = {"small": Config(n=4), "full": Config()}

def run(config, progress):
    progress(0.5, "half")
    if config.end == "crash":
        raise RuntimeError("boom")
    if config.end == "kill":
        os.kill(os.getpid(), 9)
    found = Findings(MEASURES, config)
    found["count"] = config.n
    found.draw("line", Line("count", (0, 1), (0, config.n)))
    return found.result()
"""
MODULES = """
modules:
  - id: m
    code: M1
    title: {zh: 模块, en: Module}
    summary: {zh: 模块。, en: A module.}
    topics:
      t: {zh: 主题, en: Topic}
"""


def half(language: str, headings: list[str]) -> str:
    """One language of a card that claims what the sample demo counts."""
    parts = [f"## {heading}\n\n{{}}\n" for heading in headings]
    texts = [
        "[16](claim:sample/count)",
        "- a",
        "b",
        "- c",
        "- d <!-- #d -->",
        "### e <!-- #e -->\n\nf",
    ]
    body = "\n".join(part.format(text) for part, text in zip(parts, texts, strict=True))
    return f"# {language}\n\n{body}"


CARD = (
    """---
id: a-card
title: {zh: 卡, en: Card}
module: m
topic: t
difficulty: easy
updated: 2026-11-29
tags: [x]
---

"""
    + half("中文", ["一句话结论", "核心要义", "推导", "工程权衡", "常见陷阱", "追问"])
    + "\n"
    + half(
        "English",
        ["In one sentence", "Key insights", "Derivation", "Trade-offs", "Pitfalls", "Follow-ups"],
    )
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base with two demos, a card that claims what one of them finds, and no evidence."""
    for name in ("cards", "runnable_demos"):
        (tmp_path / name).mkdir()
    (tmp_path / "cards" / "modules.yml").write_text(MODULES, encoding="utf-8")
    (tmp_path / "cards" / "a-card.md").write_text(CARD, encoding="utf-8")
    for name in ("sample", "second"):
        (tmp_path / "runnable_demos" / f"{name}.py").write_text(DEMO, encoding="utf-8")
    return tmp_path


def proofdeck(
    base: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in ``base``."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from generator.commands import main; main()", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=base,
        env={**os.environ, "COLUMNS": "200", "LANG": "en_GB.UTF-8", **(environment or {})},
    )
    assert "Traceback" not in done.stdout
    return done


def one_error(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line of an error, and that no traceback goes with it."""
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def evidence(base: Path, name: str = "sample") -> Path:
    """Where the record of a demo is kept."""
    return base / "runnable_demos" / "evidence" / f"{name}.cpu.json"


# --- demo list and demo run ---


def test_list_shows_each_demo_and_its_evidence(base: Path) -> None:
    """A demo is missing its evidence, has it, has outgrown it, or it is broken."""

    def states() -> dict[str, str]:
        found = json.loads(proofdeck(base, "demo", "list", "--json").stdout)
        return {each["name"]: each["evidence"]["cpu"]["state"] for each in found}

    assert states() == {"sample": "missing", "second": "missing"}
    assert proofdeck(base, "demo", "run", "sample", "--record").returncode == 0
    assert states() == {"sample": "recorded", "second": "missing"}
    with (base / "runnable_demos" / "sample.py").open("a") as demo:
        demo.write("MORE = 1\n")
    evidence(base, "second").write_text("{")
    assert states() == {"sample": "stale", "second": "broken"}
    listed = proofdeck(base, "demo", "list").stdout
    assert "The title" in listed
    assert "stale" in listed


def test_run_prints_a_table_draws_and_records(base: Path) -> None:
    """One run gives a table, a figure that stands alone, and evidence that keeps its date."""
    done = proofdeck(base, "demo", "run", "sample", "--figure", "line.svg", "--lang", "zh")
    assert done.returncode == 0, done
    assert "题" in done.stdout
    assert "count" in done.stdout
    assert "16" in done.stdout
    assert (base / "line.svg").read_text(encoding="utf-8").startswith("<svg")

    assert proofdeck(base, "demo", "run", "sample", "--record").returncode == 0
    kept = records.load(evidence(base))
    records.save(dataclasses.replace(kept, recorded="2020-02-02", sources={}), evidence(base))
    old = dataclasses.replace(kept, recorded="2020-02-02", sources={})
    evidence(base).write_text(records.dumps(old), encoding="utf-8")
    printed = proofdeck(base, "demo", "run", "sample", "--record", "--json").stdout
    assert records.load(evidence(base)) == dataclasses.replace(kept, recorded="2020-02-02")
    assert records.loads(printed) == records.load(evidence(base))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "smaple"], 2, "there is no demo 'smaple'"),
        (["run", "sample", "--set", "n=101"], 2, "n must be from 1 to 100, not 101"),
        (["run", "sample", "--set", "k=1"], 2, "there is no parameter 'k'"),
        (["run", "sample", "--set", "end=crash"], 3, "sample crashed: RuntimeError: boom"),
        (
            ["run", "sample", "--set", "end=kill"],
            3,
            "sample was killed, most likely because memory",
        ),
        (["run", "sample", "--size", "small", "--record"], 2, "evidence is recorded at full size"),
        (["run", "sample", "--figure", "x.png"], 2, "x.png cannot be written"),
        (["run", "sample", "--figure", "none/x.svg"], 2, "none/x.svg cannot be written"),
        (["run", "sample", "--demos", "none"], 2, "there is no folder none"),
    ],
)
def test_each_fault_of_a_run_is_one_line(
    base: Path, arguments: list[str], code: int, message: str
) -> None:
    """What is asked for and cannot be had is said in one line, with its exit code."""
    done = proofdeck(base, "demo", *arguments)
    if "end=crash" in arguments:  # the demo's own traceback is for its author, and comes first
        assert 'raise RuntimeError("boom")' in done.stderr
        done.stderr = done.stderr[done.stderr.index("error: ") :]
    assert message in one_error(done, code)


def test_a_figure_that_cannot_be_drawn_is_refused_before_the_run(base: Path) -> None:
    """A folder on its path is found out at once, not when the demo has run."""
    (base / "line.svg").mkdir()
    done = proofdeck(base, "demo", "run", "sample", "--set", "end=crash", "--figure", "line.svg")
    assert "line.svg cannot be written" in one_error(done, 2)


@pytest.mark.parametrize("seconds", ["inf", "1e400", "1e12", "nan", "0", "long"])
@pytest.mark.parametrize("command", [["demo", "run", "sample"], ["verify", "sample"]])
def test_a_limit_that_no_clock_can_keep_is_refused(
    base: Path, command: list[str], seconds: str
) -> None:
    """Times without end, or longer than the system's clock can wait, are wrong usage."""
    done = proofdeck(base, *command, "--time-limit", seconds)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "--time-limit" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_demo_is_named(base: Path) -> None:
    """A demo that is no Python is an error of the base, with file and line."""
    (base / "runnable_demos" / "broken.py").write_text("def run(:\n")
    message = one_error(proofdeck(base, "demo", "list"), 1)
    assert "broken.py:1: this file is not valid Python" in message


def test_without_torch_all_but_a_run_works(base: Path) -> None:
    """Where torch is missing, a run says which command installs it; a list needs none."""
    (base / "without").mkdir()
    (base / "without" / "sitecustomize.py").write_text('import sys; sys.modules["torch"] = None\n')
    without = {"PYTHONPATH": str(base / "without")}
    assert proofdeck(base, "demo", "list", environment=without).returncode == 0
    done = proofdeck(base, "demo", "run", "sample", environment=without)
    assert "PyTorch is not installed" in one_error(done, 3)
    assert "hint: install it: python -m pip install" in done.stderr


# --- verify ---


def test_verify_agrees_until_a_value_differs(base: Path) -> None:
    """What was never recorded differs; what was recorded agrees, until its demo finds otherwise."""
    first = proofdeck(base, "verify", "sample")
    assert first.returncode == 1
    assert "evidence: recorded nothing, found a result" in first.stdout
    assert proofdeck(base, "verify", "--record").returncode == 0
    done = proofdeck(base, "verify")
    assert (done.returncode, done.stdout.count("agrees")) == (0, 3), done

    source = base / "runnable_demos" / "sample.py"
    source.write_text(DEMO.replace('"] = config.n', '"] = config.n + 1'), encoding="utf-8")
    report = json.loads((done := proofdeck(base, "verify", "sample", "--json")).stdout)
    assert done.returncode == 1
    assert [(each["demo"], each["state"]) for each in report["demos"]] == [("sample", "differs")]
    change = {"what": "count", "recorded": "16", "found": "17"}
    assert report["demos"][0]["differences"] == [change]
    codes = [problem["code"] for problem in report["problems"]]
    assert codes == ["evidence-stale", "claim-number", "claim-number"]  # in either language


def test_verify_refuses_an_edited_record_and_a_crash(base: Path) -> None:
    """A number changed by hand is an error, and a demo that crashes is the environment's."""
    assert proofdeck(base, "demo", "run", "sample", "--record").returncode == 0
    text = evidence(base).read_text(encoding="utf-8")
    evidence(base).write_text(text.replace('"value": 16', '"value": 17', 1), encoding="utf-8")
    source = base / "runnable_demos" / "sample.py"
    source.write_text(DEMO.replace('"crash"', '"well"'), encoding="utf-8")
    done = proofdeck(base, "verify", "sample")
    assert done.returncode == 3
    assert "edited by hand" in done.stdout
    assert "sample crashed: RuntimeError: boom" in done.stdout


def test_verify_sees_a_point_that_was_moved_with_its_digest_renewed(base: Path) -> None:
    """One height of a figure, changed by a hand that knows how a digest is made."""
    assert proofdeck(base, "demo", "run", "sample", "--record").returncode == 0
    kept = records.load(evidence(base))
    figure = kept.result.figures[0]
    line = figure.series[0]
    moved = dataclasses.replace(line, y=(line.y[0], 5 * line.y[1]))
    forged = dataclasses.replace(figure, series=(moved, *figure.series[1:]))
    result = dataclasses.replace(kept.result, figures=(forged, *kept.result.figures[1:]))
    records.save(dataclasses.replace(kept, result=result), evidence(base))
    done = proofdeck(base, "verify", "sample")
    assert done.returncode == 1
    assert "figure line series 0 y 1: recorded 80.0, found 16.0" in done.stdout


def test_verify_names_a_card_that_cannot_be_read(base: Path) -> None:
    """The numbers of a broken card are not passed over in silence."""
    assert proofdeck(base, "verify", "--record", "sample").returncode == 0
    (base / "cards" / "a-card.md").write_text("no front matter", encoding="utf-8")
    done = proofdeck(base, "verify", "sample")
    assert done.returncode == 1
    assert "a-card.md:1:1" in done.stdout


def test_verify_names_what_it_does_not_know(base: Path) -> None:
    """A demo that is not there is wrong usage."""
    message = one_error(proofdeck(base, "verify", "smaple"), 2)
    assert "there is no demo 'smaple'" in message


def test_verify_says_where_there_is_nothing_to_verify(base: Path) -> None:
    """A folder that was named and holds no demo is wrong usage, not agreement."""
    message = one_error(proofdeck(base, "verify", "--demos", "cards"), 2)
    assert message == "error: there is no demo in cards (--demos)"


def test_verify_without_cards_is_wrong_usage(base: Path) -> None:
    """As ``check`` has it; what was run is recorded all the same."""
    shutil.rmtree(base / "cards")
    done = proofdeck(base, "verify", "sample", "--record")
    assert (done.returncode, "no-folder" in done.stdout) == (2, True)
    assert evidence(base).is_file()
    assert proofdeck(base, "check").returncode == 2


# --- GPUs ---

FAKE = """
import os, torch
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.get_device_name = lambda *_: "NVIDIA GeForce RTX 4090"
torch.cuda.synchronize = lambda *_: None
"""
WATCHED = DEMO.replace(
    '    progress(0.5, "half")',
    """    progress(0.5, "half")
    import pathlib, time
    log = pathlib.Path(os.environ["LOG"])
    with log.open("a") as out: out.write(f"+{config.device} ")
    time.sleep(0.5)
    with log.open("a") as out: out.write("- ")""",
)


@pytest.fixture
def gpu(base: Path) -> dict[str, str]:
    """An environment with one GPU, as PyTorch believes, and three demos of which two gain from it."""
    assert WATCHED != DEMO
    folder = base / "runnable_demos"
    (folder / "sample.py").write_text(WATCHED, encoding="utf-8")
    (folder / "later.py").write_text("GPU = 2\n" + WATCHED, encoding="utf-8")
    (folder / "sooner.py").write_text("GPU = 1\n" + WATCHED, encoding="utf-8")
    (folder / "second.py").unlink()
    (base / "fake").mkdir()
    (base / "fake" / "sitecustomize.py").write_text(FAKE)
    return {"PYTHONPATH": str(base / "fake"), "LOG": str(base / "log")}


def test_one_gpu_is_not_verified_by_two_demos_at_once(base: Path, gpu: dict[str, str]) -> None:
    """``verify --device cuda`` runs those that gain from a GPU, one after another."""
    done = proofdeck(base, "verify", "--device", "cuda", "--record", environment=gpu)
    assert done.returncode == 0, done
    assert (base / "log").read_text() == "+cuda - +cuda - "
    kept = {each.name for each in (base / "runnable_demos" / "evidence").iterdir()}
    assert kept == {"later.rtx-4090.json", "sooner.rtx-4090.json"}


def test_recording_on_a_gpu_goes_on_where_it_was(base: Path, gpu: dict[str, str]) -> None:
    """The most valuable first; what is fresh is skipped, and another GPU's record is not this one's."""
    first = proofdeck(base, "demo", "record-gpu", environment=gpu)
    assert first.returncode == 0, first
    folder = base / "runnable_demos" / "evidence"
    assert first.stdout.splitlines() == [
        "sooner: recorded runnable_demos/evidence/sooner.rtx-4090.json",
        "later: recorded runnable_demos/evidence/later.rtx-4090.json",
    ]
    here = folder / "later.rtx-4090.json"
    there = dataclasses.replace(records.load(here), device="h200")
    records.save(there, folder / "later.h200.json")
    here.unlink()
    again = proofdeck(base, "demo", "record-gpu", environment=gpu)
    assert again.returncode == 0, again
    assert again.stdout.splitlines() == [
        "sooner: fresh",
        "later: recorded runnable_demos/evidence/later.rtx-4090.json",
    ]
    listed = json.loads(proofdeck(base, "demo", "list", "--json").stdout)
    assert {each["name"]: each["gpu"] for each in listed} == {
        "later": 2,
        "sample": None,
        "sooner": 1,
    }
    assert set(listed[0]["evidence"]) == {"cpu", "h200", "rtx-4090"}


def test_recording_on_a_gpu_ends_in_time(base: Path, gpu: dict[str, str]) -> None:
    """What time does not suffice for is left for the next call; a crash is said, and the rest goes on."""
    slow = base / "runnable_demos" / "sooner.py"
    slow.write_text(slow.read_text(encoding="utf-8").replace("sleep(0.5)", "sleep(3600)"))
    done = proofdeck(base, "demo", "record-gpu", "--within", "12", environment=gpu)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0].startswith("sooner: failed: sooner did not end within")
    assert done.stdout.splitlines()[1] == "later: left, since time is up"
    slow.write_text(slow.read_text(encoding="utf-8").replace("time.sleep(3600)", "1 / 0"))
    done = proofdeck(base, "demo", "record-gpu", environment=gpu)
    assert done.returncode == 3
    assert "sooner: failed: sooner crashed: ZeroDivisionError" in done.stdout
    assert "later: recorded" in done.stdout


def test_recording_on_a_gpu_needs_one(base: Path) -> None:
    """Elsewhere it is wrong usage, in one line."""
    assert "there is no CUDA device" in one_error(proofdeck(base, "demo", "record-gpu"), 2)

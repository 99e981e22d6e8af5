"""Runs that are killed, hang or lose themselves: real processes, real signals, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from generator.lab import keeper
from generator.lab import runs as laboratory
from generator.lab.runs import DemoRun, Order, RunFailed
from runnable_demos.lab import records

FAMILY = """
import os, signal, subprocess, sys, time
FOREVER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"

def family(file):
    # This process, a child, one in a session of its own, and an orphan that has forgotten where it is.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run = [sys.executable, "-c", FOREVER]
    child = subprocess.Popen(run)
    apart = subprocess.Popen(run, start_new_session=True)
    middle = "import subprocess, sys; "
    middle += "print(subprocess.Popen(sys.argv[1:], start_new_session=True, env={}, stdout=2).pid)"
    orphan = subprocess.run([sys.executable, "-c", middle, *run], stdout=subprocess.PIPE, check=True)
    pids = [os.getpid(), child.pid, apart.pid, int(orphan.stdout)]
    with open(file + ".new", "w") as out:
        out.write(" ".join(map(str, pids)))
    os.rename(file + ".new", file)
"""
SCRIPT = FAMILY + "family(sys.argv[1])\n"
DEMO = (
    FAMILY
    + """
from dataclasses import dataclass
from runnable_demos.lab.findings import Findings
from runnable_demos.lab.metrics import parameter
TITLE = {"zh": "题", "en": "Title"}
QUESTION = {"zh": "问", "en": "Question"}

MEASURES = '''
[[method]]
kind = "exact"
how = ["字", "word"]
[method.metrics]
one = ["", "字", "word"]
'''

@dataclass(frozen=True)
class Config:
    way: str = parameter("hang", {"zh": "字", "en": "word"})
    file: str = parameter("", {"zh": "字", "en": "word"})
    device: str = parameter("cpu", {"zh": "字", "en": "word"})
    seed: int = parameter(0, {"zh": "字", "en": "word"}, 0, 9)

PRESETS = {"small": Config(way="well"), "full": Config(file=os.environ.get("FAMILY", ""))}

def run(config, progress):
    if config.file:
        family(config.file)
    match config.way:
        case "hang":
            time.sleep(3600)
        case "print":
            while True:
                print("x" * 2**16)
        case "progress":
            while True:
                progress(0.5, "x" * 2**16)
        case "raise":
            raise RuntimeError("\\x1b]0;title\\x07 \\ud800 " + "x" * 10**6)
        case "leave":
            os._exit(0)
        case "fault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "speak" | "number" | "bytes" | "half":
            words = {"speak": b"\\x1b[31mhello\\n", "number": b"5\\n", "bytes": b"\\xff\\n", "half": b'{"record"'}
            for number in map(int, os.listdir("/proc/self/fd")):  # the runner's own way out is among them
                try:
                    if number > 2 and os.readlink(f"/proc/self/fd/{number}").startswith("pipe"):
                        os.write(number, words[config.way])
                except OSError:
                    pass
    found = Findings(MEASURES, config)
    found["one"] = 1
    return found.result()
"""
)
WORKER = (
    FAMILY
    + """
import torch.distributed as dist
from runnable_demos.lab import ranks

def measure(task):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 0:
        family(task["file"])
        with open(task["file"] + ".ranks", "w") as out:
            out.write(" ".join(map(str, pids)))
    time.sleep(3600)

if __name__ == "__main__":
    ranks.work(measure, {"seed": 0, "device": "cpu"})
"""
)
RANKED = DEMO.replace(
    "    if config.file:",
    """    from runnable_demos.lab import ranks
    ranks.launch("worker_of_a_test", 2, {"device": "cpu", "seed": 0, "file": config.file})
    if config.file:""",
)
PATIENCE = 150


def until(what: Callable[[], bool], said: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def alive(pids: list[int]) -> list[int]:
    """Those that still run."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            pass
    return found


def pids(file: Path) -> list[int]:
    """The family that a command or demo has started, once all of it is there."""
    until(file.exists, f"{file} was never written")
    found = [int(each) for each in file.read_text().split()]
    assert alive(found) == found
    return found


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs have their folders; at the end no run may have left one."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)  # which remembers the former one
    yield folder
    monkeypatch.setattr("tempfile.tempdir", None)


def keep(*command: str) -> subprocess.Popen[bytes]:
    """A keeper of ``command``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "generator.lab.keeper", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def outcome(process: subprocess.Popen[bytes]) -> bytes:
    """What a command says until it ends by itself: the keeper's input stays open."""
    assert process.stdout is not None
    said = process.stdout.read()
    process.wait(PATIENCE)
    return said


def family(file: Path, *, then: str = "time.sleep(3600)") -> list[str]:
    """A command that starts a family, writes who they are, and does something."""
    return [sys.executable, "-c", SCRIPT + then, str(file)]


# --- the keeper ---


def test_what_ends_by_itself_leaves_nothing(tmp: Path, tmp_path: Path) -> None:
    """Children that outlive the command are ended; its exit code and output come through."""
    file = tmp_path / "pids"
    then = (
        "import tempfile; tempfile.mkdtemp(); print(os.listdir(tempfile.gettempdir())); sys.exit(7)"
    )
    with keep(*family(file, then=then)) as process:
        said = outcome(process)
    assert process.returncode == 7
    assert said.count(b"tmp") == 1  # the command's temporary folder is its own
    assert alive([int(each) for each in file.read_text().split()]) == []
    assert list(tmp.iterdir()) == []


def test_a_signal_that_ends_the_command_is_its_code(tmp: Path) -> None:
    """As in a shell: 128 and the signal's number."""
    with keep("sh", "-c", "kill -SEGV $$") as process:
        outcome(process)
    assert process.returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize("end", ["close", "SIGTERM", "SIGINT", "SIGHUP"])
def test_all_ends_when_the_keeper_is_told(tmp: Path, tmp_path: Path, end: str) -> None:
    """By its input or by a signal, though the family ignores SIGTERM and is spread over sessions."""
    file = tmp_path / "pids"
    with keep(*family(file)) as process:
        found = pids(file)
        if end == "close":
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.send_signal(signal.Signals[end])
        code = process.wait(PATIENCE)
    assert code == 128 + (signal.SIGKILL if end == "close" else signal.Signals[end])
    assert alive(found) == []
    assert list(tmp.iterdir()) == []


def test_all_ends_when_the_parent_is_killed(tmp: Path, tmp_path: Path) -> None:
    """SIGKILL leaves the parent no word to say; its end of the pipe closes all the same."""
    file = tmp_path / "pids"
    start = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-P', '-m', 'generator.lab.keeper', *sys.argv[1:]],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", start, *family(file)]) as parent:
        found = pids(file)
        parent.kill()
    until(lambda: not alive(found), f"{alive(found)} outlive their grandparent")
    until(lambda: not list(tmp.iterdir()), "the folder is still there")


def test_the_next_run_clears_what_a_killed_keeper_left(tmp: Path, tmp_path: Path) -> None:
    """Of two keepers one is killed: its family and its folder go, those of the living one stay."""
    with keep(*family(tmp_path / "a")) as dead, keep(*family(tmp_path / "b")) as living:
        lost, kept = pids(tmp_path / "a"), pids(tmp_path / "b")
        dead.kill()
        dead.wait()
        assert len(list(tmp.iterdir())) == 2
        with keep(sys.executable, "-c", "") as following:
            outcome(following)
        assert alive(lost[:3]) == []  # the fourth has no sign of whose it was
        assert alive(kept) == kept
        assert len(list(tmp.iterdir())) == 1
        living.terminate()
        living.wait()
    assert alive(kept) == []
    assert list(tmp.iterdir()) == []
    for pid in alive(lost):
        os.kill(pid, signal.SIGKILL)


def test_folders_of_others_are_left_alone(tmp: Path, tmp_path: Path) -> None:
    """A link that is called like a run's folder, and any other folder, stay with what they hold."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    (tmp / f"{keeper.PREFIX}link").symlink_to(tmp_path / "mine")
    (tmp / "proofdeck-notes").mkdir()
    (tmp / f"{keeper.PREFIX}left").mkdir()
    keeper.clear()
    assert (tmp_path / "mine" / "file").read_text() == "kept"
    assert {each.name for each in tmp.iterdir()} == {f"{keeper.PREFIX}link", "proofdeck-notes"}


# --- demo run and verify ---


@pytest.fixture
def base(tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base of two demos that start a family and hang."""
    monkeypatch.setenv("FAMILY", str(tmp_path / "pids"))
    (tmp_path / "cards").mkdir()
    (tmp_path / "runnable_demos").mkdir()
    (tmp_path / "runnable_demos" / "sample.py").write_text(DEMO, encoding="utf-8")
    (tmp_path / "runnable_demos" / "ranked.py").write_text(RANKED, encoding="utf-8")
    (tmp_path / "worker_of_a_test.py").write_text(WORKER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


HEEDING = """
import signal
from generator.commands import main

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
main()
"""
"""The command, which heeds signals though whoever runs the tests may ignore them, as `nohup` and `&` do."""


def proofdeck(base: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, which another process may end."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEEDING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        cwd=base,
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["demo", "run", "sample", "--record"], "SIGINT"),
        (["demo", "run", "sample", "--record"], "SIGTERM"),
        (["demo", "run", "sample", "--record"], "SIGHUP"),
        (["demo", "run", "sample", "--record"], "SIGKILL"),
        (["verify", "sample", "--record"], "SIGINT"),
        (["verify", "sample", "--record"], "SIGTERM"),
        (["verify", "sample", "--record"], "SIGKILL"),
    ],
)
def test_a_killed_command_leaves_nothing(
    base: Path, tmp: Path, command: list[str], name: str
) -> None:
    """No process and no folder; the old evidence is whole; but for SIGKILL one line says what was."""
    file = base / "runnable_demos" / "evidence" / "sample.cpu.json"
    file.parent.mkdir()
    file.write_text("the old evidence")
    number = signal.Signals[name]
    with proofdeck(base, *command) as process:
        found = pids(base / "pids")
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        until(lambda: not alive(found), f"{alive(found)} are left")
        until(lambda: not list(tmp.iterdir()), "a folder is left")
    else:
        assert process.returncode == 128 + number
        assert [line for line in said.splitlines() if line.startswith("error: ")] == [
            f"error: ended by {name}"
        ]
        assert "Traceback" not in said
    assert alive(found) == []
    assert list(tmp.iterdir()) == []
    assert {each.name: each.read_text() for each in file.parent.iterdir()} == {
        file.name: "the old evidence"
    }


def test_ranks_end_with_the_command(base: Path, tmp: Path) -> None:
    """Ranks stand in sessions of their own and may ignore SIGTERM; SIGKILL of the command ends them."""
    with proofdeck(base, "demo", "run", "ranked") as process:
        found = pids(base / "pids")
        until((base / "pids.ranks").exists, "the ranks never met")
        found += pids(base / "pids.ranks")
        process.kill()
        process.communicate()
    until(lambda: not alive(found), f"{alive(found)} are left")
    until(lambda: not list(tmp.iterdir()), "a folder is left")


def test_ranks_end_with_a_runner_that_nobody_keeps(base: Path) -> None:
    """Started by hand and killed, the runner takes its ranks along."""
    command = [sys.executable, "-P", "-m", "runnable_demos", "ranked", "--demos", "runnable_demos"]
    with subprocess.Popen(command, cwd=base, stdout=subprocess.DEVNULL) as process:
        family = pids(base / "pids")
        until((base / "pids.ranks").exists, "the ranks never met")
        found = pids(base / "pids.ranks")
        process.kill()
    until(lambda: not alive(found), f"{alive(found)} are left")
    for pid in alive(family):  # a demo's own children are the keeper's to end
        os.kill(pid, signal.SIGKILL)


def quiet(*_: object) -> None:
    """Progress that nobody watches."""


def fails(base: Path, *changes: str, seconds: float = PATIENCE) -> RunFailed:
    """How a run of the sample demo fails."""
    order = Order("sample", "small", "cpu", changes)
    with pytest.raises(RunFailed) as failed:
        DemoRun(order, base / "runnable_demos", seconds).record(quiet, quiet)
    return failed.value


def test_a_demo_that_hangs_is_ended_in_time(base: Path, tmp: Path) -> None:
    """The limit is said, with the option that raises it; the family is gone."""
    with proofdeck(base, "demo", "run", "sample", "--time-limit", "15") as process:
        found = pids(base / "pids")
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "error: sample did not end within 15 s" in said
    assert "--time-limit SECONDS" in said
    assert alive(found) == []
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("print", "sample wrote more than 1 MiB, and was ended"),
        ("progress", "sample wrote more than 1 MiB, and was ended"),
        ("leave", "sample ended with code 0 and no record"),
        ("fault", "sample was ended by SIGSEGV"),
        ("speak", r"sample wrote what is no message: \x1b[31mhello"),
        ("number", "sample wrote what is no message: 5"),
        ("bytes", r"sample wrote what is no message: \ufffd"),
        ("half", 'sample wrote what is no message: {"record"'),
    ],
)
def test_what_a_demo_writes_is_not_trusted(
    base: Path, tmp: Path, monkeypatch: pytest.MonkeyPatch, way: str, message: str
) -> None:
    """Endless output, words where messages belong, and none at all: each is one clear sentence."""
    monkeypatch.setattr(laboratory, "MOST_BYTES", 2**20)
    failed = fails(base, f"way={way}")
    assert str(failed).startswith(message)
    assert failed.code == 3
    assert list(tmp.iterdir()) == []


def test_what_a_demo_raises_is_shown_and_no_more(base: Path) -> None:
    """An error of a million characters, some of which command a terminal, is a short plain line."""
    failed = fails(base, "way=raise")
    assert failed.code == 3
    assert str(failed).startswith("sample crashed: RuntimeError: �]0;title� � xxx")
    assert len(str(failed)) < 1000
    assert "\x1b" not in failed.detail
    assert len(failed.detail) < 2**17


def test_a_killed_keeper_takes_the_run_along(base: Path, tmp: Path) -> None:
    """The keeper is the one process that nobody keeps: killed, its run ends, and all is cleared."""
    with proofdeck(base, "demo", "run", "sample") as process:
        found = pids(base / "pids")
        (child,) = psutil.Process(process.pid).children()
        child.kill()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "error: sample was killed" in said
    until(lambda: not alive(found[:3]), f"{alive(found[:3])} are left")
    assert list(tmp.iterdir()) == []
    for pid in alive(found):  # it has no sign of whose it was
        os.kill(pid, signal.SIGKILL)


def test_no_room_for_a_folder_is_one_sentence(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A system without a temporary folder that can be written to ends a run in one line."""
    command = [sys.executable, "-P", "-m", "generator.lab.keeper", "true"]
    code = "import sys, tempfile; tempfile.tempdir = sys.argv.pop(1); import runpy; sys.argv[0] = 'k'; "
    code += "runpy.run_module('generator.lab.keeper', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "none"), *command[-1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode == report["code"] == 3
    assert "no temporary folder can be made in" in report["error"]
    assert b"Traceback" not in done.stderr


def test_what_a_killed_recording_left_is_cleared(tmp_path: Path, base: Path) -> None:
    """The half file of a dead process is used up by the next recording of the same demo."""
    made = DemoRun(Order("sample", "small", "cpu", ("file=",)), base / "runnable_demos", PATIENCE)
    record = made.record(quiet, quiet)
    folder = tmp_path / "evidence"
    folder.mkdir()
    path = folder / "sample.cpu.json"
    dies = (
        "import os, sys; from pathlib import Path; from runnable_demos.lab import files\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "files.write(Path(sys.argv[1]), b'half')"
    )
    root = Path(records.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", dies, str(path)], cwd=root, check=False)
    assert done.returncode == -9
    assert [each.name for each in folder.iterdir()] == [".sample.cpu.json.proofdeck"]
    records.save(record, path)
    assert [each.name for each in folder.iterdir()] == ["sample.cpu.json"]

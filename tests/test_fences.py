"""Fences that are run: what they print is recorded, compared and shown; what they may not do is stopped."""

from __future__ import annotations

import contextlib
import hashlib
import html
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import typer

from generator import checks
from generator.cards.model import Card, Fence
from generator.cards.parse import parse
from generator.commands.shared.outputs import sound
from generator.edition import edition as editions
from generator.evidence import fence_records
from generator.evidence.fence_records import FenceRecord, FenceRecords, Printout
from generator.evidence.verdicts import DRAFTABLE
from generator.exporters import handbook, vault
from generator.lab import fences
from generator.lab.laboratory import of_base
from generator.lab.verify import conclude
from generator.library import library
from generator.problems import Place, Problem
from runnable_demos.lab import records

BASE = Path(__file__).parent / "library"
CARD = (BASE / "cards/numerics/kahan-sum.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```python run\n.*?```\n", re.DOTALL)
FIRST = CARD.splitlines().index("```python run") + 2
"""The row of the card in which its fence's first line stands."""


def with_fence(*codes: str, language: str = "python run") -> str:
    """The card of the small base with these fences in the place of its own, in both halves."""
    text = "\n".join(f"```{language}\n{code}\n```\n" for code in codes)
    return SHOWN.sub(lambda _: text, CARD)


def card(*codes: str) -> Card:
    """That card, read."""
    found, problems = parse(with_fence(*codes), "cards/numerics/kahan-sum.md")
    assert found
    assert not problems
    return found


def printout(code: str, output: str = "") -> Printout:
    """A record of that code."""
    return Printout(Fence(Place(""), code).digest, output, {"python": "3"}, "2026-11-30")


def recorded(folder: Path, *printed: Printout, card: str = "kahan-sum") -> Path:
    """Write the record of a card's fences into a folder of evidence."""
    path = folder / "cards" / f"{card}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(records.dumps(FenceRecord(card, printed)), encoding="utf-8")
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The small base."""
    shutil.copytree(BASE, tmp_path / "base")
    return tmp_path / "base"


def proofdeck(base: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in ``base``."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from generator.commands import main; main()", *arguments],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=base,
        env={**os.environ, "COLUMNS": "200", "LANG": "en_GB.UTF-8"},
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def of_card(base: Path, *codes: str) -> None:
    """Give the card of the base these fences."""
    (base / "cards/numerics/kahan-sum.md").write_text(with_fence(*codes), encoding="utf-8")


# --- what is a fence that is run -----------------------------------------------------------------


def test_a_fence_is_run_where_it_says_so() -> None:
    """``python run`` and nothing else; what is not run has no record to miss."""
    for language, count in (("python run", 1), ("python  run", 1), ("python", 0), ("", 0)):
        found, problems = parse(with_fence("x = 1", language=language), "kahan-sum.md")
        assert found
        assert (len(found.fences), problems) == (count, [])


@pytest.mark.parametrize("language", ["py run", "python run fast", "run python", "python RUN"])
def test_what_is_nearly_run_is_named(language: str) -> None:
    """In both halves, at the code: it would be taken for proven."""
    found, problems = parse(with_fence("x = 1", language=language), "kahan-sum.md")
    assert found
    assert not found.fences
    assert [each.code for each in problems] == ["fence-form"] * 2
    assert problems[0].place.line == FIRST


def test_both_halves_have_one_fence_and_one_run() -> None:
    """It is known by the digest of its text, without blank lines at its end, and stands where it stands first."""
    found = card("print(1)\n\nprint(2)", "print(3)")
    assert [each.code for each in found.fences] == ["print(1)\n\nprint(2)\n", "print(3)\n"]
    assert found.fences[0].place == Place("cards/numerics/kahan-sum.md", FIRST, 1)
    assert found.fences[1].digest == hashlib.sha256(b"print(3)\n").hexdigest()
    first = SHOWN.findall(CARD)[0]
    spaced, _ = parse(CARD.replace(first, first[:-4] + "\n\n```\n", 1), "kahan-sum.md")
    assert spaced
    assert len(spaced.fences) == 1


def test_a_fence_may_not_be_endless() -> None:
    """A demo is what is longer, and the process is given no such text."""
    found, problems = parse(with_fence("x = 1\n" * 3000), "kahan-sum.md")
    assert found
    assert not found.fences
    assert {each.code for each in problems} == {"fence-long"}


def test_a_fence_in_a_list_has_the_rows_of_the_card(tmp_path: Path) -> None:
    """Its code begins in the column of the list's text, and its error has the row in which it stands."""
    inner = textwrap.indent("```python run\nx = 1\n1 / 0\n```", "  ").lstrip()
    text = SHOWN.sub(lambda _: f"- see\n\n  {inner}\n", CARD)
    found, problems = parse(text, "kahan-sum.md")
    assert found
    assert not problems
    [fence] = found.fences
    assert fence.code == "x = 1\n1 / 0\n"
    rows = text.splitlines()
    assert rows[fence.place.line - 1][fence.place.column - 1 :] == "x = 1"
    problem = fences.FenceRun(fence, 60).printout()
    assert isinstance(problem, Problem)
    assert rows[problem.place.line - 1].strip() == "1 / 0"


# --- what a run gives ----------------------------------------------------------------------------


def ran(code: str, seconds: float = 60) -> Printout | Problem:
    """What a fence printed, or why it was stopped."""
    return fences.FenceRun(Fence(Place("card.md", 10), code + "\n"), seconds).printout()


def test_what_is_printed_is_what_is_computed() -> None:
    """A digest that this test computes itself; one thread, no GPU, versions told, and the same at each run."""
    code = """
        import hashlib, os, torch
        print(hashlib.sha256(bytes(range(256))).hexdigest())
        print(torch.get_num_threads(), torch.cuda.is_available(), __name__)
        x = torch.arange(10.0, requires_grad=True)
        (x * x).sum().backward()
        print(x.grad.tolist()[-1], hash("proof"), os.path.realpath("."), sep="\\n", end="")
    """
    found = ran(textwrap.dedent(code).strip())
    assert isinstance(found, Printout), found
    first, second, third, hashed, folder = found.output.split("\n")
    assert first == hashlib.sha256(bytes(range(256))).hexdigest()
    assert (second, third) == ("1 False __main__", "18.0")
    assert folder.rpartition("/")[2].startswith("proofdeck-run-")
    assert not Path(folder).exists()
    assert found.environment["python"] == platform.python_version()
    assert found.environment["torch"] == importlib.metadata.version("torch")
    again = ran('print(hash("proof"))')
    assert isinstance(again, Printout)
    assert again.output == f"{hashed}\n"


GOOD = {
    "own folder": "import os, shutil, tempfile\nwith tempfile.TemporaryDirectory() as inner:\n"
    "    open(f'{inner}/x', 'w').write('1')\n    os.mkdir(f'{inner}/y')\n"
    "open('a', 'w').write('1')\nos.rename('a', 'b')\nos.remove('b')\nprint(os.listdir())",
    "nowhere": "import os\nopen(os.devnull, 'w').write('1')\nprint([])",
    "an end": "import sys\nprint([])\nsys.exit()\nprint(1)",
    "dataclasses": "from dataclasses import dataclass, field\n@dataclass\nclass A:\n"
    "    x: 'list[int]' = field(default_factory=list)\nimport copy, pickle\n"
    "print(pickle.loads(pickle.dumps(copy.copy(A()))).x)",
    "a thread": "import threading\nt = threading.Thread(target=print, args=[[]])\nt.start()\nt.join()",
    "a source": "import inspect\ndef f():\n    return 1\n"
    "print([] if 'return 1' in inspect.getsource(f) else 1)",
    "standard error": "import os, sys\nprint(1, file=sys.stderr)\nos.write(1, b'2')\nprint([])",
    "annotations": "def f(x: int): pass\nprint([] if f.__annotations__['x'] is int else 1)",
    "an atexit": "import atexit\natexit.register(print, 'late')\nprint([])",
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_fence_may_do(name: str) -> None:
    """It has a folder of its own, and is a module like another; only what it prints is taken down."""
    found = ran(GOOD[name])
    assert isinstance(found, Printout), found
    assert found.output == "[]\n"


# --- hostile fences ------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which runs have theirs: nothing is left in it, and nobody that has it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            assert not process.environ().get("TMPDIR", "").startswith(str(folder)), process


SWALLOWED = "try:\n    {}\nexcept BaseException:\n    pass\nprint('went on')"

FORKS = {
    "fork": "import os\nif os.fork() == 0:\n    import time; time.sleep(3600)",
    "subprocess": "import subprocess\nsubprocess.Popen(['sleep', '3600'])",
    "shell": "import os\nos.system('sleep 3600 &')",
    "exec": "import os\nos.execvp('sleep', ['sleep', '3600'])",
    "spawn": "import multiprocessing\ncontext = multiprocessing.get_context('spawn')\n"
    "context.Process(target=print).start()",
}


@pytest.mark.parametrize("name", FORKS)
def test_a_fence_that_starts_a_process_is_stopped(name: str, alone: Path) -> None:
    """At the line that does so."""
    problem = ran(FORKS[name])
    assert isinstance(problem, Problem), problem
    line = FORKS[name].splitlines().index(problem.message.split("`")[1]) + 10
    assert (problem.code, problem.place) == ("fence-failed", Place("card.md", line))
    assert problem.message.startswith("this fence starts a process, in `")
    assert problem.hint.endswith(".")


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own fork is called by its name")
def test_a_process_that_the_hook_does_not_see_does_not_stay(alone: Path) -> None:
    """C code forks unnoticed, as ``docs/architecture.md`` says; the keeper ends what it started."""
    code = "import ctypes, time\nif ctypes.CDLL(None).fork() == 0:\n    time.sleep(3600)\nprint(1)"
    found = ran(code)
    assert isinstance(found, Printout)
    assert found.output == "1\n"


WRITES = {
    "a file": "open({0!r}, 'w')",
    "more of one": "open({1!r}, 'a').write('more')",
    "by its number": "import os; os.open({0!r}, os.O_CREAT | os.O_RDWR)",
    "by its path": "import pathlib; pathlib.Path({0!r}).write_text('x')",
    "a folder": "import os; os.makedirs({0!r})",
    "away": "import os; os.remove({1!r})",
    "a move": "import os; open('x', 'w').close(); os.replace('x', {0!r})",
    "a link": "import os; os.symlink('x', {0!r})",
    "through a link": "import os; os.symlink({1!r}, 'x'); open('x', 'w')",
    "upwards": "open('../x', 'w')",
    "rights": "import os; os.chmod({1!r}, 0)",
    "a tree": "import shutil; shutil.rmtree({2!r})",
    "a copy": "import shutil; shutil.copy(__import__('os').__file__, {0!r})",
    "a database": "import sqlite3; sqlite3.connect({0!r})",
}


@pytest.mark.parametrize("name", WRITES)
def test_a_fence_that_writes_elsewhere_is_stopped(name: str, alone: Path, tmp_path: Path) -> None:
    """Nothing there has changed, and what the fence catches does not let it go on."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    new, old = folder / "new", folder / "old"
    old.write_text("as it was")
    code = WRITES[name].format(str(new), str(old), str(folder))
    problem = ran(SWALLOWED.format(code))
    assert isinstance(problem, Problem), problem
    assert problem.message.startswith("this fence writes outside of its own folder: ")
    assert problem.place.line == 11
    assert [(each.name, each.read_text()) for each in folder.iterdir()] == [("old", "as it was")]
    assert old.stat().st_mode & 0o400


@pytest.mark.parametrize("way", ["socket.create_connection(({host!r}, {port}))", "socket.socket()"])
def test_a_fence_that_opens_a_socket_is_stopped(way: str, alone: Path) -> None:
    """Nobody calls where this test listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        host, port = server.getsockname()
        call = way.format(host=host, port=port)
        problem = ran("import socket\n" + SWALLOWED.format(call))
        with pytest.raises(TimeoutError):
            server.accept()
    assert isinstance(problem, Problem)
    assert problem.message == f"this fence opens a socket, in `{call}`"
    assert problem.place.line == 12


HANGS = {
    "a loop": "while True: pass",
    "a sleep": "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)",
    "in C": "sum(range(10**15))",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_fence_that_hangs_is_stopped(name: str, alone: Path) -> None:
    """After the time that it is given, and the hint says how to give it more."""
    problem = ran(HANGS[name], seconds=1.5)
    assert isinstance(problem, Problem)
    assert problem.message == "this fence did not end within 1.5 s"
    assert problem.place == Place("card.md", 10)
    assert "--fence-limit" in problem.hint


def test_a_fence_that_prints_without_end_is_stopped(alone: Path) -> None:
    """64 KiB are printed, one byte more is too much; so is a megabyte around ``print``."""
    most = fence_records.MOST_PRINTED
    found = ran(f"print('x' * {most}, end='')")
    assert isinstance(found, Printout)
    assert found.output == "x" * most
    for code in (f"print('x' * {most})", "while True: print('好' * 1000)"):
        problem = ran(code)
        assert isinstance(problem, Problem)
        assert problem.message.startswith("this fence prints more than 64 KiB, in `")
    around = ran("import os\nwhile True: os.write(2, b'x' * 2**16)")
    assert isinstance(around, Problem)
    assert around.message == "this fence wrote more than 1 MiB, and was ended"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits the data of a process")
def test_a_fence_that_takes_too_much_memory_is_stopped(alone: Path) -> None:
    """Four GiB are too much, though the machine has more; some hundred MiB are not."""
    problem = ran("a = bytearray(300 << 20)\nb = bytearray(4 << 30)")
    assert isinstance(problem, Problem)
    assert (
        problem.message == "this fence takes more than 4 GiB of memory, in `b = bytearray(4 << 30)`"
    )
    assert problem.place.line == 11


def test_an_error_is_told_at_the_line_of_the_card(alone: Path) -> None:
    """The fence's own lines alone: what it called, and from where, and none of a library."""
    code = "import json\ndef f(n):\n    return json.loads(n)\n\nf('[')"
    problem = ran(code)
    assert isinstance(problem, Problem)
    assert problem.place == Place("card.md", 12)
    assert problem.message == (
        "this fence raises JSONDecodeError: Expecting value: line 1 column 2 (char 1), "
        "in `return json.loads(n)`, called from line 14"
    )
    assert "without an error" in problem.hint


ENDS = {
    "x = (": ("raises SyntaxError: '(' was never closed", 10),
    "\n\nassert 1 == 2": ("raises AssertionError, in `assert 1 == 2`", 12),
    "raise SystemExit(3)": ("raises SystemExit: 3", 10),
    "def f(): f()\nf()": ("raises RecursionError: maximum recursion depth exceeded", 10),
    "import os\nos._exit(0)": ("ended with code 0 and no record", 10),
    "import os\nos.write(2, b'a\\nthe reason\\n')\nos._exit(5)": (
        "ended with code 5 and no record; it last said `the reason`",
        10,
    ),
    "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)": ("was ended by SIGSEGV", 10),
    "raise ValueError('\\x1b[31m' + 'x' * 10**7)": ("raises ValueError: \\x1b[31mxxx", 10),
    "import nothing_like_it": ("raises ModuleNotFoundError", 10),
    "import generator.cards": ("imports `generator.cards`", 10),
    "import runnable_demos.lab.measure": ("imports `runnable_demos.lab.measure`", 10),
    "print('\\x1b[31mred')": ("prints what would steer a terminal", 10),
    "import sys\nsys.stdout.buffer.write(b'\\xff')": ("prints bytes that are no UTF-8", 10),
}


@pytest.mark.parametrize("code", ENDS)
def test_every_end_is_one_clear_line(code: str, alone: Path) -> None:
    """Bounded, with a place and a hint, without control characters."""
    said, line = ENDS[code]
    problem = ran(code)
    assert isinstance(problem, Problem)
    assert problem.message.startswith(f"this fence {said}")
    assert len(problem.message) < 600
    assert problem.place.line == line
    assert problem.hint
    assert str(problem).replace("\n", "").isprintable()


def test_a_run_that_is_interrupted_leaves_nothing(alone: Path) -> None:
    """Whoever asked stops it, and the fence is gone."""
    run = fences.FenceRun(Fence(Place("card.md"), "import time\ntime.sleep(3600)\n"), 60)
    threading.Timer(1, run.stop, [fences.RunFailed("interrupted")]).start()
    problem = run.printout()
    assert isinstance(problem, Problem)
    assert problem.message == "interrupted"


# --- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "kept", "said"),
    [
        (["a"], [], [("fence-unrecorded", FIRST)]),
        (["a"], ["a"], []),
        (["a"], ["b"], [("fence-stale", FIRST)]),
        (["a", "b"], ["a", "c"], [("fence-stale", FIRST + 4)]),
        (["a", "b"], ["c"], [("fence-stale", FIRST), ("fence-unrecorded", FIRST + 4)]),
        (["a", "b"], ["b", "a"], []),
        (["a"], ["a", "b"], [("fence-gone", 1)]),
        ([], ["a"], [("fence-gone", 1)]),
    ],
)
def test_records_are_held_against_the_code_that_stands(
    codes: list[str], kept: list[str], said: list[tuple[str, int]], base: Path
) -> None:
    """Code without a record; code that has changed; a record whose code is gone. Each with the command."""
    of_card(base, *codes)
    evidence = base / "runnable_demos" / "evidence"
    recorded(evidence, *(printout(f"{each}\n") for each in kept))
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert [(each.code, each.place.line) for each in problems] == said
    for each in problems:
        assert each.severity == ("warning" if each.code == "fence-gone" else "error")
        if codes:
            assert "`proofdeck verify kahan-sum --record`" in each.hint


def test_a_record_of_no_card_is_named(base: Path) -> None:
    """As a warning, in its file."""
    path = recorded(base / "runnable_demos" / "evidence", printout("a\n"), card="gone")
    _, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert [(each.code, each.severity, each.place.path) for each in problems] == [
        ("fence-gone", "warning", str(path))
    ]


BROKEN = {
    "edited by hand": lambda text: text.replace("1000.000000000159", "1000.000000000000"),
    "cut": lambda text: text[:100],
    "not JSON": lambda _: "[",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_was_edited_is_refused(name: str, base: Path) -> None:
    """It is named once, and nothing of it is shown."""
    path = base / "runnable_demos/evidence/cards/kahan-sum.json"
    path.write_text(BROKEN[name](path.read_text(encoding="utf-8")), encoding="utf-8")
    found, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert [(each.code, each.place.path) for each in problems] == [("evidence-corrupt", str(path))]
    assert "verify kahan-sum --record" in problems[0].hint
    assert found
    assert found.fences.printed("kahan-sum", found.cards["kahan-sum"].fences[0]) is None


GOOD_PRINTOUT = printout("a\n", "fine\n")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (FenceRecord("Not An Id", ()), "is no card's id"),
        (FenceRecord("a", (GOOD_PRINTOUT, GOOD_PRINTOUT)), "not told apart"),
        (FenceRecord("a", (replace(GOOD_PRINTOUT, digest="../x"),)), "not told apart"),
        (FenceRecord("a", (replace(GOOD_PRINTOUT, recorded="today"),)), "is no date"),
        (FenceRecord("a", (replace(GOOD_PRINTOUT, output="\x1b[2J"),)), "steer a terminal"),
        (FenceRecord("a", (replace(GOOD_PRINTOUT, output="\u202e"),)), "steer a terminal"),
        (FenceRecord("a", (replace(GOOD_PRINTOUT, output="x" * 70_000),)), "more than 64 KiB"),
    ],
)
def test_what_no_page_can_show_is_no_record(record: FenceRecord, said: str) -> None:
    """Though its digest is right."""
    assert said in (fence_records.fault(record) or "")
    assert fence_records.fault(FenceRecord("a", (GOOD_PRINTOUT,))) is None


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Text in every script, quotes and tabs, and a last line without an end."""
    made = printout("a\n", 'é"\\\t好\n\n  x')
    recorded(tmp_path, made)
    found, problems = fence_records.load(tmp_path)
    assert not problems
    assert found.records["kahan-sum"].fences == (made,)


def test_the_programs_own_evidence_is_no_other_bases(base: Path) -> None:
    """A base without demos has proofdeck's, and none of what the fences of proofdeck's cards printed."""
    shutil.rmtree(base / "runnable_demos")
    packaged = library.PACKAGED_DEMOS
    found, problems = library.load(base / "cards", demos=packaged)
    assert found
    assert not found.fences.records
    assert not [each for each in problems if each.code == "fence-gone"]
    assert of_base(base / "cards", None, None).load_fences() == (FenceRecords(), [])


# --- verify --------------------------------------------------------------------------------------


def outcome(
    found: Printout | Problem, before: FenceRecords, recorded: bool = False
) -> fences.FenceOutcome:
    """What became of the one fence of a card."""
    of = card("print(1)")
    [one] = fences.judged([of], {of.fences[0]: found}, before, recorded=recorded)
    return one


def test_a_run_is_held_against_its_record() -> None:
    """It agrees to the letter, or differs in a line that is named, or failed, or had no record."""
    printed = printout("print(1)\n", "1\n2\n")
    before = FenceRecords(records={"kahan-sum": FenceRecord("kahan-sum", (printed,))})
    assert outcome(printed, before).state == "agrees"
    elsewhere = outcome(replace(printed, environment={"python": "4"}), before)
    assert (elsewhere.state, str(elsewhere.environment[0])) == (
        "agrees",
        "python: recorded 3, found 4",
    )
    for output, said in (
        ("1\n3\n", "in line 2 this fence prints `3`, and `2` is recorded"),
        ("1\n", "in line 2 this fence prints an empty line, and `2` is recorded"),
        ("1\n2", "in line 3 this fence prints nothing, and an empty line is recorded"),
        ("1\n2 \n", "in line 2 this fence prints `2 `, and `2` is recorded"),
        ("1\n2\n3\n", "in line 3 this fence prints `3`, and an empty line is recorded"),
    ):
        other = outcome(replace(printed, output=output), before)
        assert other.state == "differs"
        assert other.problem
        assert (other.problem.code, other.problem.message) == ("fence-differs", said)
        assert outcome(replace(printed, output=output), before, recorded=True).state == "recorded"
    unknown = outcome(printed, FenceRecords())
    assert unknown.problem
    assert (unknown.state, unknown.problem.code) == ("differs", "fence-unrecorded")
    failed = outcome(Problem(Place("x"), "fence-failed", "m", "h"), before, recorded=True)
    assert failed.state == "failed"


def test_what_is_recorded_keeps_its_day_and_what_failed_its_output(tmp_path: Path) -> None:
    """A record that would say the same is the same file; one whose code is gone is left out."""
    of = card("a", "b")
    old = [printout("a\n", "1\n"), printout("b\n", "2\n"), printout("c\n", "3\n")]
    path = recorded(tmp_path, *old)
    before, _ = fence_records.load(tmp_path)
    today = replace(old[0], recorded="2027-01-01")
    failed = Problem(Place("x"), "fence-failed", "m", "h")
    fences.record([of], dict(zip(of.fences, (today, failed), strict=True)), before)
    assert records.read_as(FenceRecord, path.read_bytes()).fences == tuple(old[:2])
    changed = replace(today, output="4\n")
    fences.record([of], {of.fences[0]: changed}, before)
    assert records.read_as(FenceRecord, path.read_bytes()).fences == (changed, old[1])


def test_verify_records_and_compares(base: Path) -> None:
    """From code that nobody has run to code that prints something else at each run."""
    of_card(base, "import time\nprint(1)\nprint(time.time_ns())")
    missing = proofdeck(base, "verify", "kahan-sum")
    assert missing.returncode == 1
    assert f"kahan-sum.md:{FIRST}:1: fence-stale" in missing.stdout
    kept = proofdeck(base, "verify", "kahan-sum", "--record")
    assert (kept.returncode, kept.stdout) == (0, f"recorded  kahan-sum:{FIRST}\n1 recorded\n")
    assert checks.load(base / "cards", demos=base / "runnable_demos")[1] == []
    other = proofdeck(base, "verify", "kahan-sum", "--json")
    assert other.returncode == 1
    said = json.loads(other.stdout)
    assert said["fences"] == [{"card": "kahan-sum", "line": FIRST, "state": "differs"}]
    [problem] = said["problems"]
    assert problem["code"] == "fence-differs"
    assert "in line 2 this fence prints" in problem["message"]

    path = base / "runnable_demos/evidence/cards/kahan-sum.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"1', '"2', 1), encoding="utf-8")
    edited = proofdeck(base, "verify", "kahan-sum")
    assert edited.returncode == 1
    assert "evidence-corrupt" in edited.stdout
    assert proofdeck(base, "verify", "kahan-sum", "--record").returncode == 0
    assert checks.load(base / "cards", demos=base / "runnable_demos")[1] == []


def test_verify_says_why_a_fence_was_stopped(base: Path) -> None:
    """With the limit that was given; a card is named like a demo, and what is neither is not known."""
    of_card(base, "while True: pass")
    done = proofdeck(base, "verify", "kahan-sum", "--fence-limit", "1.5", "--record")
    assert done.returncode == 1
    assert f"  failed  kahan-sum:{FIRST}" in done.stdout
    assert "fence-failed this fence did not end within 1.5 s" in done.stdout
    unknown = proofdeck(base, "verify", "kahan-sums")
    assert unknown.returncode == 2
    assert "Did you mean `kahan-sum`?" in unknown.stderr


def test_every_fence_is_run_where_no_name_is_given(base: Path) -> None:
    """Named demos leave the fences alone, and so does the evidence of a GPU."""
    cards = [card("a")]
    assert fences.chosen(cards, (), "cpu") == (cards[0],)
    assert fences.chosen(cards, ("kahan-sum",), "cpu") == (cards[0],)
    assert fences.chosen(cards, ("float_sums",), "cpu") == ()
    assert fences.chosen(cards, (), "cuda") == ()
    lab = of_base(base / "cards", None, None)
    before, _ = lab.load()
    (lab.evidence / "cards/kahan-sum.json").write_text("{")
    for named, codes in ((True, []), (False, ["evidence-corrupt"])):
        verdict = conclude(lab, base / "cards", {}, before, named=named)
        assert [each.code for each in verdict.problems] == codes


def test_nothing_but_verify_runs_a_fence(base: Path) -> None:
    """What would leave a file behind leaves none when its card is checked, rendered and exported."""
    left = base / "left"
    of_card(base, f"open({str(left)!r}, 'w')")
    recorded(base / "runnable_demos/evidence", printout(f"open({str(left)!r}, 'w')\n"))
    found, problems = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    assert problems == []
    edition = editions.bind(found, base / "runnable_demos")
    handbook.make(edition)
    vault.export(edition, base / "vault")
    assert not left.exists()


# --- what is shown -------------------------------------------------------------------------------

PRE = re.compile(r'<pre lang="" tabindex="0"><code>(.*?)</code></pre>', re.DOTALL)


@pytest.mark.parametrize("output", ["<script>alert(1)</script> &lt; \"'\n\n  好\n", "x"])
def test_both_halves_show_what_was_printed(output: str, base: Path) -> None:
    """To the letter, with no markup of its own, on the page and in the vault."""
    of_card(base, "print(1)")
    recorded(base / "runnable_demos/evidence", printout("print(1)\n", f"{output}```\n"))
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    edition = editions.bind(found)
    sections = edition.rendered(found.cards["kahan-sum"]).sections
    for lang, label in (("zh", "它打印"), ("en", "It prints")):
        shown = sections[lang]["tradeoffs"].html
        [text] = PRE.findall(shown)
        assert html.unescape(text) == f"{output}```"
        assert "<" not in text
        assert f'<p class="pd-prints">{label}</p>' in shown
    note = dict(vault._notes(edition))["Cards/kahan-sum.md"]
    assert note.count(f"````text\n{output}```\n````") == 2
    assert "\n它打印：\n" in note
    assert "\nIt prints:\n" in note


@pytest.mark.parametrize(
    ("kept", "zh", "en"),
    [("", "什么也不打印", "prints nothing"), (None, "过期", "Stale: ")],
)
def test_silence_and_a_draft_are_told(kept: str | None, zh: str, en: str, base: Path) -> None:
    """A fence that prints nothing says so; one that has not been run as it stands shows no old output."""
    of_card(base, "x = 1")
    old = printout("x = 2\n", "an old output\n") if kept is None else printout("x = 1\n", kept)
    recorded(base / "runnable_demos/evidence", old)
    found, _ = checks.load(base / "cards", demos=base / "runnable_demos")
    assert found
    edition = editions.bind(found)
    sections = edition.rendered(found.cards["kahan-sum"]).sections
    note = dict(vault._notes(edition))["Cards/kahan-sum.md"]
    for lang, said in (("zh", zh), ("en", en)):
        shown = sections[lang]["tradeoffs"].html
        assert said in shown
        assert not PRE.findall(shown)
        assert said in note
    assert "an old output" not in note


def test_a_draft_is_built_and_a_build_is_not(base: Path) -> None:
    """Stale code, and code that was never run, keep a base from being built but as a draft."""
    of_card(base, "x = 3", "x = 4")
    demos, out = base / "runnable_demos", base / "dist"
    with pytest.raises(typer.Exit):
        sound(base / "cards", demos, None, out)
    assert sound(base / "cards", demos, None, out, DRAFTABLE)
    of_card(base, "x = 3\n" * 5000)
    with pytest.raises(typer.Exit):
        sound(base / "cards", demos, None, out, DRAFTABLE)

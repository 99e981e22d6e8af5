"""Work on all cores: the answers are those of one process, whatever becomes of the others."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import workers

ROOT = Path(__file__).parents[1]


def alone(program: str) -> str:
    """What a program prints in a process without threads, where others may be forked from it."""
    before = "import os, sys\nfrom generator import workers\nworkers._cores = lambda: 3\n"
    run = subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stderr == ""
    return run.stdout


def test_each_thing_is_done_once_and_in_its_place() -> None:
    """Answers stand in the order of the things, and three processes have shared the work."""
    said = alone("""
        found = workers.spread(lambda n: (n * n, os.getpid()), range(100))
        print([square for square, _ in found] == [n * n for n in range(100)])
        print(len({process for _, process in found}), found[0][1] == os.getpid())
    """)
    assert said.split() == ["True", "3", "True"]


@settings(max_examples=20)
@given(st.lists(st.integers(), max_size=40))
def test_one_process_gives_the_same(things: list[int]) -> None:
    """However many things there are, the answers are those of a loop."""
    assert workers.spread(str, things) == [str(thing) for thing in things]


def test_few_things_start_no_process() -> None:
    """A second process is not worth its start for a handful."""
    said = alone("""
        print({process for process in workers.spread(lambda _: os.getpid(), range(15))} == {os.getpid()})
    """)
    assert said.split() == ["True"]


def test_a_thread_keeps_the_work_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a thread runs, which a forked process would lack, nothing is forked."""
    monkeypatch.setattr(workers, "_cores", lambda: 3)
    begun, done = threading.Event(), threading.Event()
    # Of such a thread `threading` knows nothing.
    _thread.start_new_thread(lambda: (begun.set(), done.wait()), ())
    begun.wait()
    try:
        assert set(workers.spread(lambda _: os.getpid(), range(100))) == {os.getpid()}
    finally:
        done.set()


def test_an_error_is_raised_as_from_one_process() -> None:
    """Whichever share fails, the error is the work's own, with nothing else printed."""
    for bad in (0, 1, 99):
        said = alone(f"""
            try:
                workers.spread(lambda n: 1 // (n - {bad}), range(100))
            except ZeroDivisionError as error:
                print(error)
        """)
        assert "by zero" in said


def test_a_process_that_dies_costs_time_alone() -> None:
    """A share whose process was killed is done here."""
    said = alone("""
        me = os.getpid()
        def work(n):
            if n == 50 and os.getpid() != me:
                os.kill(os.getpid(), 9)
            return n
        print(workers.spread(work, range(100)) == list(range(100)))
    """)
    assert said.split() == ["True"]


def test_work_within_work_stays_where_it_is() -> None:
    """What is made in a forked process forks no more."""
    said = alone("""
        def inner(n):
            return sum(workers.spread(lambda m: n * m, range(40)))
        print(workers.spread(inner, range(40)) == [n * 780 for n in range(40)])
    """)
    assert said.split() == ["True"]


def test_jobs_run_side_by_side_and_are_named_as_they_start() -> None:
    """Two jobs that wait for each other both end; a third begins when one has."""
    said = alone("""
        import pathlib, tempfile, time
        folder = pathlib.Path(tempfile.mkdtemp())
        workers._cores = lambda: 2
        def job(own, other):
            (folder / own).touch()
            end = time.monotonic() + 60
            while not (folder / other).exists() and time.monotonic() < end:
                time.sleep(0.01)
            (folder / f"{own}-{(folder / other).exists()}-{os.getpid() != me}").touch()
        me = os.getpid()
        jobs = {"a": lambda: job("a", "b"), "b": lambda: job("b", "a"), "c": lambda: job("c", "a")}
        workers.side_by_side(jobs, lambda name: print(name, len(list(folder.glob("*-*"))) > 0))
        print(sorted(path.name for path in folder.glob("*-*")))
    """)
    assert said.splitlines() == [
        "a False",
        "b False",
        "c True",
        "['a-True-True', 'b-True-True', 'c-True-True']",
    ]


def test_a_job_may_spread_its_own_work() -> None:
    """A process that does one of few jobs forks for the many things in it."""
    said = alone("""
        def job():
            print(len(set(workers.spread(lambda _: os.getpid(), range(100)))), flush=True)
        workers.side_by_side({"a": job, "b": lambda: None}, lambda _: None)
    """)
    assert said.split() == ["3"]


def test_a_job_that_dies_is_done_again_here() -> None:
    """What became of a killed process's work is made good by this one, once."""
    said = alone("""
        me = os.getpid()
        def job():
            if os.getpid() != me:
                os.kill(os.getpid(), 9)
            print("done")
        workers.side_by_side({"a": job, "b": lambda: None}, lambda _: None)
    """)
    assert said.split() == ["done"]


def test_when_a_job_fails_no_other_runs_on() -> None:
    """The error is the job's own; what ran beside it has ended, and writes nothing afterwards."""
    said = alone("""
        import pathlib, tempfile, time
        folder = pathlib.Path(tempfile.mkdtemp())
        def fail():
            while not (folder / "begun").exists():
                time.sleep(0.01)
            1 / 0
        def last():
            (folder / "begun").write_text(str(os.getpid()))
            time.sleep(600)
        try:
            workers.side_by_side({"last": last, "fail": fail}, lambda _: None)
        except ZeroDivisionError as error:
            print(error)
        try:
            os.kill(int((folder / "begun").read_text()), 0)
        except ProcessLookupError:
            print("ended")
    """)
    assert said.splitlines() == ["division by zero", "ended"]


def test_who_is_no_longer_heard_ends() -> None:
    """What has made more than a pipe holds does not wait for ever for a process that was killed."""
    said = alone("""
        import signal, time
        def work(n):
            if os.getppid() == me:  # the share of the process that is killed
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)
            return b"x" * 2**20
        me = os.getpid()
        if os.fork() == 0:
            workers.spread(work, range(100))
        print("killed" if os.WIFSIGNALED(os.wait()[1]) else "not killed")
    """)  # returns when nobody holds its output any more
    assert said.split() == ["killed"]


def test_jobs_follow_each_other_where_nothing_can_be_forked() -> None:
    """With one core, each job is done here, in their order."""
    said = alone("""
        workers._cores = lambda: 1
        me, done = os.getpid(), []
        jobs = {name: lambda name=name: done.append((name, os.getpid() == me)) for name in "cab"}
        workers.side_by_side(jobs, done.append)
        print(done)
    """)
    assert said.strip() == "['c', ('c', True), 'a', ('a', True), 'b', ('b', True)]"

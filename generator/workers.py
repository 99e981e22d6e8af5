"""The same work for many things, or different works, on as many cores as there are."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, current_process, get_all_start_methods, get_context
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

FEW = 8
"""Things for which a second process is not worth its start, where little is to be done for each."""


def spread(work: Callable[[T], R], things: Sequence[T], few: int = FEW) -> list[R]:
    """``[work(thing) for thing in things]``; each core takes its share in a process forked from this one.

    For ``few`` things no process is worth its start.

    What ``work`` returns is pickled on its way here. A share whose process fails or dies is done
    here, so that errors are raised as if there were one process. Where processes cannot be forked
    safely (no ``fork``, or threads that run) there is one.
    """
    cores = min(_cores(), len(things) // few) if _may_fork() else 1
    if cores < 2:
        return [work(thing) for thing in things]
    others = [_fork(work, things[core::cores], daemon=True) for core in range(1, cores)]
    found = [[work(thing) for thing in things[::cores]]]
    for core, (here, process) in enumerate(others, 1):
        received = _received(here)
        if received is None:
            received = [work(thing) for thing in things[core::cores]]
        found.append(received)
        process.join()
    return [found[index % cores][index // cores] for index in range(len(things))]


def side_by_side(jobs: Mapping[str, Callable[[], None]], starting: Callable[[str], None]) -> None:
    """Do all ``jobs``, whose work is on the disk; ``starting`` is told the name of each.

    As many run at once as there are cores, each in a process forked from this one; where none can be
    forked safely, one after another. What a process began and failed in is done again here, so that
    errors are raised as if there were one process. When this returns or raises, no job runs.
    """
    cores = min(_cores(), len(jobs)) if _may_fork() else 1
    waiting = deque(jobs)
    if cores < 2:
        for name in waiting:
            starting(name)
            jobs[name]()
        return
    running: dict[connection.Connection, tuple[str, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                name = waiting.popleft()
                starting(name)
                # No daemon, which might not fork for its own work.
                here, process = _fork(lambda job: job(), [jobs[name]], daemon=False)
                running[here] = name, process
            ended = connection.wait(list(running))
            for here in [each for each in running if each in ended]:
                name, process = running[here]
                received = _received(here)
                process.join()
                del running[here]
                if received is None:
                    jobs[name]()
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _fork(
    work: Callable[[T], R], share: Sequence[T], *, daemon: bool
) -> tuple[connection.Connection, BaseProcess]:
    """Another process that does a share of the work, and where it is heard from."""
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(here, there, work, share), daemon=daemon)
    process.start()
    there.close()
    return here, process


def _received(here: connection.Connection) -> list[Any] | None:
    """What another process has made; ``None`` where it failed or died, which it does without a word."""
    try:
        found: list[Any] = here.recv()
    except (EOFError, OSError):
        return None
    return found


def _send(
    here: connection.Connection,
    there: connection.Connection,
    work: Callable[[T], R],
    share: Sequence[T],
) -> None:
    """What another process does: its share, without a word where it fails.

    It ends at once, as what this process would do at its end is not the other's to do.
    """
    here.close()  # else, with nobody left who reads, it would wait for itself to do so
    try:
        there.send([work(thing) for thing in share])
    finally:
        os._exit(0)


def _may_fork() -> bool:
    able = "fork" in get_all_start_methods() and sys.platform != "darwin"  # whose libraries mind
    inner = current_process().daemon  # which may have no processes of its own
    return able and not inner and len(sys._current_frames()) == 1  # threads, whoever started them


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The same work for many things, on as many cores as there are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing import connection, current_process, get_all_start_methods, get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

FEW = 8
"""Things for which a second process is not worth its start."""


def spread(work: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """``[work(thing) for thing in things]``; each core takes its share in a process forked from this one.

    What ``work`` returns is pickled on its way here. A share whose process fails or dies is done
    here, so that errors are raised as if there were one process. Where processes cannot be forked
    safely (no ``fork``, or threads that run) there is one.
    """
    cores = min(_cores(), len(things) // FEW) if _may_fork() else 1
    if cores < 2:
        return [work(thing) for thing in things]
    context = get_context("fork")
    others = []
    for core in range(1, cores):
        here, there = context.Pipe(duplex=False)
        share = things[core::cores]
        process = context.Process(target=_send, args=(there, work, share), daemon=True)
        process.start()
        there.close()
        others.append((core, here, process))
    found: list[list[R]] = [[] for _ in range(cores)]
    found[0] = [work(thing) for thing in things[::cores]]
    for core, here, process in others:
        try:
            found[core] = here.recv()
        except (EOFError, OSError):
            found[core] = [work(thing) for thing in things[core::cores]]
        process.join()
    return [found[index % cores][index // cores] for index in range(len(things))]


def _send(there: connection.Connection, work: Callable[[T], R], share: Sequence[T]) -> None:
    """What another process does: its share, without a word where it fails.

    It ends at once, as what this process would do at its end is not the other's to do.
    """
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

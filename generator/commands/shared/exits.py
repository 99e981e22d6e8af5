"""How a command ends: with an exit code, and a sentence where it is not 0."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.text import Text

from generator.filesystem import ENVIRONMENT_CODES, USAGE_CODES
from generator.lab.laboratory import Unavailable
from generator.lab.runs import RunFailed
from generator.problems import Problem
from generator.terminal import ERR
from runnable_demos.lab.discovery import DemoError

WRONG, USAGE, ENVIRONMENT = 1, 2, 3
"""Errors in the cards or the evidence; wrong usage; a fault of disk, permission or machine."""


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stop(code: int, message: str, hint: str = "") -> NoReturn:
    """End with a sentence and what to do, on the error stream."""
    ERR.print(Text.assemble(("error:", "red"), f" {message}"), soft_wrap=True)
    if hint:
        ERR.print(Text(f"  hint: {hint}"), soft_wrap=True)
    raise typer.Exit(code)


def exit_code(problems: Iterable[Problem]) -> int:
    """What the problems amount to; warnings amount to nothing."""
    codes = {problem.code for problem in problems if problem.severity == "error"}
    if codes & ENVIRONMENT_CODES:
        return ENVIRONMENT
    if codes & USAGE_CODES:
        return USAGE
    return WRONG if codes else 0


@contextmanager
def explained() -> Iterator[None]:
    """End with a sentence where the laboratory cannot do what it is asked for."""
    try:
        yield
    except Unavailable as error:
        stop(USAGE, str(error), error.hint)
    except DemoError as error:
        stop(WRONG, str(error))
    except RunFailed as failed:
        show_traceback(failed)
        stop(failed.code, str(failed), failed.hint)


def show_traceback(failed: RunFailed) -> None:
    """Print a crashed demo's own traceback, which is for its author; it has one or not."""
    if failed.detail:
        ERR.print(Text(failed.detail.rstrip()), style="dim", soft_wrap=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the command in order, with a line and 128 + their number."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers are the main thread's
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    try:
        yield
    except Interrupted as by:
        name = signal.Signals(by.number).name
        hint = "the demos that ran have ended, too, and what they had not recorded is as it was"
        stop(128 + by.number, f"ended by {name}", hint)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise Interrupted(number)

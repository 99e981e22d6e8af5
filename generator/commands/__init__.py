"""``proofdeck``: the commands, one a file of this folder, found by discovery.

A command is a module with its ``NAME`` (``build``, or ``demo run`` for one of a group), its
``PLACE`` in the list of ``--help`` and a function ``command``: thin, it reads its arguments, calls
what does the work and prints what came of it. What several commands need stands in ``shared``.

Exit codes: 0 fine, 1 errors in the cards or the evidence, 2 wrong usage,
3 the environment (disk, permission).
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import Annotated, Protocol, cast

import typer

from generator.commands.shared.exits import ENVIRONMENT
from generator.problems import printable
from generator.terminal import echo

GROUPS = {"demo": "List and run the demos."}
"""What the first words of two-word commands stand for."""


class Command(Protocol):
    """One command."""

    NAME: str
    PLACE: int
    command: Callable[..., None]


def discover() -> list[Command]:
    """Every command, in the order of the help."""
    names = [each.name for each in iter_modules(__path__) if not each.ispkg]
    found = [cast(Command, import_module(f"{__name__}.{name}")) for name in names]
    return sorted(found, key=lambda each: (each.PLACE, each.NAME))


def app() -> typer.Typer:
    """The whole command line."""
    program = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    program.callback()(_program)
    groups = {name: typer.Typer(help=help, no_args_is_help=True) for name, help in GROUPS.items()}
    for name, group in groups.items():
        program.add_typer(group, name=name)
    for each in discover():
        first, _, second = each.NAME.partition(" ")
        (groups[first] if second else program).command(second or first)(each.command)
    return program


def _version(asked: bool) -> None:
    if asked:
        echo(f"proofdeck {metadata.version('proofdeck')}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
    ] = False,
) -> None:
    """Compile bilingual study cards whose every number is proven by a run."""


def main() -> None:
    """Run the command line; a fault of disk or permission ends in one line, not in a traceback."""
    # A base is millions of objects that live until the end: looking for rubbish among them would be half the time.
    gc.set_threshold(100_000, 50, 100)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 still gets its text
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        _let_go_of_output()
        sys.exit(0)
    except OSError as error:
        _let_go_of_output()
        # A copy that fails names what it read first; a full disk is where it wrote.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        name = (error.filename2 if full else None) or error.filename
        name = name or (
            "standard output" if full else None
        )  # every file that is written has a name
        what = ": ".join(str(part) for part in (name, error.strerror) if part)
        echo(f"error: {printable(what or str(error))}", err=True)
        sys.exit(ENVIRONMENT)


def _let_go_of_output() -> None:
    """Nothing more can be printed: keep the interpreter from trying to at its end."""
    with suppress(OSError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Progress bars of demos that run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from generator.terminal import ERR


class Bars(AbstractContextManager["Bars"]):
    """A progress bar for each demo that runs, and one for all where there are several."""

    def __init__(self, names: Iterable[str], quiet: bool = False) -> None:
        names = list(names)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[message]}[/dim]"),
            console=ERR,
            disable=quiet or not ERR.is_terminal,
            transient=True,
        )
        self._all: TaskID | None = None
        if len(names) > 1:
            self._all = self._bars.add_task("all", total=len(names), message="")
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def progress(self, name: str, share: float, message: str) -> None:
        """Show what a demo says."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=1.0, message="")
        self._bars.update(self._tasks[name], completed=share, message=escape(message))

    def note(self, name: str, message: str) -> None:
        """Say what the demo's user has to know."""
        self._bars.console.print(f"note: {escape(name)}: {escape(message)}", soft_wrap=True)

    def done(self, name: str) -> None:
        """A demo has ended."""
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        if self._all is not None:
            self._bars.advance(self._all)

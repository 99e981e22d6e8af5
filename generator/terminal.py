"""The only way to the terminal: texts of cards, records, demos and file names do not steer it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
import typer
from rich.segment import Segment

from generator.problems import visible


class Console(rich.console.Console):
    """A console that writes its own colours, and shows other control characters as text."""

    def render(self, *args: Any, **kwargs: Any) -> Iterable[Segment]:
        """What is printed, piece by piece."""
        for segment in super().render(*args, **kwargs):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


OUT = Console(highlight=False)
ERR = Console(stderr=True, highlight=False)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text, or JSON."""
    typer.echo(visible(text), err=err, nl=nl)

"""``proofdeck new``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from generator.authoring import new_card
from generator.commands.shared.base import show
from generator.commands.shared.exits import USAGE, exit_code, stop
from generator.commands.shared.options import CARDS, CardsOption
from generator.terminal import echo

NAME = "new"
PLACE = 6


def command(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its id, for ever: kebab-case.")],
    module: Annotated[str, typer.Option(help="A module of modules.yml.")],
    topic: Annotated[str, typer.Option(help="A topic of that module.")],
    cards: CardsOption = CARDS,
) -> None:
    """Write a new card with everything in it that a program can know."""
    try:
        written = new_card.write(cards, name, module, topic, datetime.now(UTC).date())
    except new_card.NewCardError as error:
        stop(USAGE, str(error), error.hint)
    if isinstance(written, list):
        show(written)
        raise typer.Exit(exit_code(written))
    echo(f"wrote {written}\nproofdeck check names the places that wait for you")

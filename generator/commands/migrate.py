"""``proofdeck migrate``."""

from __future__ import annotations

from pathlib import Path

import typer

from generator.authoring import migrate
from generator.commands.shared.base import cache_beside, counted, show
from generator.commands.shared.exits import exit_code
from generator.commands.shared.options import CARDS, CardsOption, JsonOption
from generator.library import library
from generator.problems import Problem, json_text
from generator.terminal import echo

NAME = "migrate"
PLACE = 7


def command(cards: CardsOption = CARDS, as_json: JsonOption = False) -> None:
    """Bring a base into format 2 as far as a program can, and say what each card still needs."""
    contents, found = library.read(cards, cache=cache_beside(cards))
    plan, unread = library.read_syllabus(cards)
    problems, written, left = list(unread), None, []
    if plan:
        result = migrate.write(plan)
        problems += [result] if isinstance(result, Problem) else []
        written = result if isinstance(result, Path) else None
    if contents:
        left = migrate.remaining({card.path: card for card in contents.cards})
        # What keeps a card from being read keeps the program from saying what it lacks.
        broken = contents.broken
        problems += [problem for problem in found if Path(problem.place.path).stem in broken]
    else:
        problems = sorted({*problems, *found})
    if as_json:
        name = str(written) if written else None
        echo(json_text({"written": name, "remaining": left, "problems": problems}))
    else:
        if written:
            echo(f"{written}: `{migrate.FORMAT}` written")
        for card in left:
            echo("\n  - ".join([f"{card.path} still needs", *card.lacks]))
        show(problems)
        echo(f"{counted(len(left), 'card')} to be converted by hand")
    raise typer.Exit(exit_code(problems))

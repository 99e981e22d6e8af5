"""``proofdeck check``."""

from __future__ import annotations

import typer

from generator.commands.shared.base import cache_beside, load, show, summary
from generator.commands.shared.exits import exit_code
from generator.commands.shared.options import (
    CARDS,
    CardsOption,
    DemosOption,
    EvidenceOption,
    JsonOption,
)
from generator.problems import json_text
from generator.terminal import echo

NAME = "check"
PLACE = 2


def command(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find every problem of the cards and the evidence, each with its place and how to fix it."""
    found, problems = load(cards, demos, evidence)
    cache_beside(cards).prune()
    if as_json:
        echo(json_text(problems))
    else:
        show(problems)
        summary(found, problems)
    raise typer.Exit(exit_code(problems))

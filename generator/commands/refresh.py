"""``proofdeck refresh``."""

from __future__ import annotations

from pathlib import Path

import typer

from generator.authoring import refresh
from generator.commands.shared.base import counted, load, show
from generator.commands.shared.exits import exit_code
from generator.commands.shared.options import (
    CARDS,
    CardsOption,
    DemosOption,
    EvidenceOption,
    JsonOption,
)
from generator.evidence.evidence import WORDS
from generator.filesystem import ENVIRONMENT_CODES
from generator.lab import laboratory
from generator.problems import json_text
from generator.terminal import echo

NAME = "refresh"
PLACE = 3


def command(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrite the cards' numbers from evidence and public facts, and the evidence's words from the demos."""
    found, problems = load(cards, demos, evidence)
    changes: list[refresh.Change] = []
    reworded: list[Path] = []
    if found:
        changes, rest = refresh.refresh(found.cards, found.evidence, found.facts)
        if not laboratory.of_base(cards, demos, evidence).packaged:
            reworded = refresh.reword(found.evidence)
        # What may not be read was not refreshed; all else that is wrong is for ``check`` to say.
        passed_over = [p for p in problems if p.code in ENVIRONMENT_CODES]
        left = [p for p in problems if p.code == WORDS and Path(p.place.path) not in reworded]
        problems = sorted([*passed_over, *left, *rest])
    if as_json:
        words = [str(path) for path in reworded]
        echo(json_text({"changes": changes, "reworded": words, "problems": problems}))
    else:
        for change in changes:
            echo(f"{change.place}: {change.before} → {change.after}")
        for path in reworded:
            echo(f"{path}: words renewed")
        show(problems)
        echo(f"{counted(len(changes), 'number')} rewritten")
    raise typer.Exit(exit_code(problems))

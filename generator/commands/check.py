"""``proofdeck check``."""

from __future__ import annotations

from typing import Any

import typer

from generator.cache import Cache
from generator.commands.shared.base import cache_beside, load, show, summary
from generator.commands.shared.exits import exit_code
from generator.commands.shared.options import (
    CARDS,
    CardsOption,
    DemosOption,
    EvidenceOption,
    JsonOption,
)
from generator.library import shares
from generator.library.library import Library
from generator.library.shares import KINDS, Shares
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
    cache = cache_beside(cards)
    if as_json:
        echo(
            json_text({"problems": problems, "numbers": _numbers(found, cache) if found else None})
        )
    else:
        show(problems)
        summary(found, problems)
    cache.prune()
    raise typer.Exit(exit_code(problems))


def _numbers(library: Library, cache: Cache) -> dict[str, Any]:
    """What stands behind the numbers of all cards, and of each, as ``shares`` defines it."""
    cards = shares.of_cards(library, cache)
    return {
        "all": _told(Shares.together(cards.values())),
        "cards": {name: _told(each) for name, each in cards.items()},
    }


def _told(found: Shares) -> dict[str, int | float]:
    """How many numbers there are, the share that is backed, and the share of each kind."""
    parts = {"backed": found.backed} | {kind: found.of(kind) for kind in KINDS}
    return {"count": found.total} | {name: round(float(each), 4) for name, each in parts.items()}

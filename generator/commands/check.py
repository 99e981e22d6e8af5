"""``proofdeck check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from generator.cache import Cache
from generator.commands.shared import explaining
from generator.commands.shared.base import cache_beside, load, show, summary
from generator.commands.shared.exits import USAGE, exit_code, stop
from generator.commands.shared.options import (
    CARDS,
    CardsOption,
    DemosOption,
    EvidenceOption,
    JsonOption,
)
from generator.library import explanations, shares
from generator.library.library import Library
from generator.library.shares import KINDS, Shares
from generator.names import suggest
from generator.problems import Problem, json_text, quote
from generator.terminal import echo

NAME = "check"
PLACE = 2


ExplainOption = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="CARD",
        help="Print what each link of this card leads to, for a review, instead of the problems.",
        show_default=False,
    ),
]


def command(
    cards: CardsOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    explain: ExplainOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find every problem of the cards and the evidence, each with its place and how to fix it."""
    found, problems = load(cards, demos, evidence)
    if explain is not None:
        _explain(explain, found, problems, as_json=as_json)
        return
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


def _explain(name: str, found: Library | None, problems: list[Problem], *, as_json: bool) -> None:
    """Print what each link of the card called ``name`` leads to; end where there is no such card."""
    card = found.cards.get(name) if found else None
    if found is None or card is None:
        own = [each for each in problems if found is None or Path(each.place.path).stem == name]
        show(own)
        if code := exit_code(own):
            stop(code, f"the card {quote(name)} cannot be read", "Fix the errors above.")
        former = (
            {old: each.id for each in found.cards.values() for old in each.formerly}
            if found
            else {}
        )
        now = former.get(name)
        hint = f"It is now `{now}`." if now else suggest(name, found.cards if found else ())
        stop(USAGE, f"there is no card {quote(name)}", hint)
    explained = explanations.of_card(card, found)
    if as_json:
        echo(json_text(explaining.data(name, explained)))
    else:
        explaining.show(explained)


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

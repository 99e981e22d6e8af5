"""A base, and each of its cards, is in the newest format."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Place, Problem, Severity

CODE = "format"
SEVERITY: Severity = "warning"
SENTENCE = (
    "`modules.yml` says `format: 2`, and each card has the `question` and the sections of that format; "
    "the rules of the new sections hold for cards that do."
)

SHOWN = 5
"""Cards that the warning names."""


def check(base: Base) -> Iterator[Problem]:
    """One problem for a base of format 1, and one for all cards that are still in it."""
    syllabus = base.contents.syllabus
    if syllabus.format == 1:
        message = "the base is in format 1"
        hint = "Run `proofdeck migrate`: it writes what a program can know, and says what remains."
        yield Problem(Place(syllabus.path), f"{CODE}-base", message, hint, SEVERITY)
        return
    if left := [card.id for card in base.cards if not card.converted]:
        named = ", ".join(left[:SHOWN]) + (", …" if len(left) > SHOWN else "")
        message = f"{len(left)} of {len(base.cards)} cards are not yet in format 2: {named}"
        hint = "`proofdeck migrate` says what each still needs."
        place = syllabus.places["format"]
        yield Problem(place, f"{CODE}-cards", message, hint, SEVERITY)

"""A learning path reads no card before one that it stands on."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "path-order"
SEVERITY: Severity = "error"
SENTENCE = (
    "On a learning path each card comes behind those of its prerequisites that are on the path."
)
NEVER_SILENT = "a path in another order leads through what its reader cannot follow yet"


def check(base: Base) -> Iterator[Problem]:
    """Each prerequisite that a path reads behind the card that needs it."""
    syllabus, cards = base.contents.syllabus, base.library.cards
    for number, path in enumerate(syllabus.paths):
        for index, name in enumerate(path.cards):
            for needed in cards[name].prerequisites if name in cards else ():
                if needed in path.cards[index + 1 :]:
                    yield Problem(
                        syllabus.places[f"paths.{number}.cards.{index}"],
                        CODE,
                        f"the path `{path.id}` reads `{name}` before `{needed}`, on which it stands",
                        f"Move `{name}` behind `{needed}`, or take that out of the card's `prerequisites`.",
                        SEVERITY,
                    )

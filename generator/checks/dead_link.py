"""Links and learning paths lead to cards, and to follow-ups, pitfalls and points that exist."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import CardLink
from generator.checks import Base
from generator.names import suggest
from generator.problems import Problem, Severity

CODE = "dead-link"
SEVERITY: Severity = "error"
SENTENCE = (
    "A `card:` link and each step of a learning path lead to a card, written or planned; behind `#` "
    "stands one of its follow-ups, pitfalls or points."
)
NEVER_SILENT = "a reader who follows it arrives nowhere"


def check(base: Base) -> Iterator[Problem]:
    """Each link, and each step of a path, that leads nowhere."""
    for card in base.cards:
        for link in card.links():
            if isinstance(link, CardLink):
                yield from _link(link, base)
    yield from _paths(base)


def _link(link: CardLink, base: Base) -> Iterator[Problem]:
    target = base.library.cards.get(link.card)
    if link.card not in base.known:
        message = f"the link leads to `{link.card}`, which is no card"
        yield Problem(link.place, CODE, message, base.meant(link.card), SEVERITY)
    elif target and link.anchor and link.anchor not in (anchors := target.item_ids):
        message = f"`{link.card}` has no follow-up, pitfall or point `{link.anchor}`"
        yield Problem(link.place, CODE, message, suggest(link.anchor, anchors), SEVERITY)


def _paths(base: Base) -> Iterator[Problem]:
    syllabus = base.contents.syllabus
    for number, path in enumerate(syllabus.paths):
        for index, name in enumerate(path.cards):
            if name not in base.known:
                place = syllabus.places[f"paths.{number}.cards.{index}"]
                message = f"the path `{path.id}` names `{name}`, which is no card"
                yield Problem(place, CODE, message, suggest(name, base.known), SEVERITY)

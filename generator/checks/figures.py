"""Every figure is one that its run drew, and stands once."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import Card, FigureLink
from generator.checks import Base
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "figure"
SEVERITY: Severity = "error"
SENTENCE = "A figure, `![caption](figure:demo/name)`, is one of its demo's record, and a language shows it once."
NEVER_SILENT = "a figure that no run drew cannot be shown"


def check(base: Base) -> Iterator[Problem]:
    """What the evidence says against each figure, by codes such as ``figure-name``.

    A broken record is one problem, and is named where it lies: not again by each of its figures.
    """
    for card in base.cards:
        for link in card.figures():
            found = base.library.drawn[link]
            if isinstance(found, Problem) and (link.demo, link.device) not in base.evidence.broken:
                yield found
        yield from _repeated(card)


def _repeated(card: Card) -> Iterator[Problem]:
    """Each figure that a language shows again: the evidence leads to one place."""
    for lang in LANGS:
        seen: dict[tuple[str, str, str], FigureLink] = {}
        for section in card.sections[lang].values():
            for link in section.figures:
                first = seen.setdefault((link.demo, link.figure, link.device), link)
                if first is not link:
                    message = f"the figure `{link.figure}` stands here again, first in line {first.place.line}"
                    hint = "Keep it where it teaches most; say elsewhere which one is meant."
                    yield Problem(link.place, "figure-twice", message, hint, SEVERITY)

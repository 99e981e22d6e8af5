"""A source can be opened where it is cited."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.model import Citation
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "source-place"
SEVERITY: Severity = "error"
SENTENCE = (
    "A source has an `https` link and a place in the work: a section, table, figure, page, file or "
    "symbol; so has each citation of it."
)

_NOWHERE = re.compile(
    r"\W*|(?:the )?(?:whole |entire |full )?(?:paper|article|work|text|book|document(?:ation)?|page)|"
    r"website|passim|everywhere|throughout|various|n/?a|tbd|全文|论文|文档|各处|官网",
    re.IGNORECASE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each source without one of the two, and each citation that names no place."""
    hint = 'Write the section, table, file or symbol: `where: "§4.1"`, or `(source:KEY "§4.1")`.'
    for card in reading.cards:
        for key, source in card.sources.items():
            if not source.url.startswith("https://"):
                place = card.places.get(f"sources.{key}.url", source.place)
                message = f"the link of `{key}` is not `https`"
                yield Problem(place, CODE, message, "Link to the work's own page.", SEVERITY)
            if _NOWHERE.fullmatch(source.where.strip()):
                place = card.places.get(f"sources.{key}.where", source.place)
                message = f"“{source.where}” is no place in `{key}`"
                yield Problem(place, CODE, message, hint, SEVERITY)
        for link in card.links():
            if isinstance(link, Citation) and link.source in card.sources:
                declared = card.sources[link.source].where
                if link.where != declared and _NOWHERE.fullmatch(link.where.strip()):
                    message = f"“{link.where}” is no place in `{link.source}`"
                    yield Problem(link.place, CODE, message, hint, SEVERITY)

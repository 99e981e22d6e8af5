"""The spoken answer can be spoken."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import Section, place_of
from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Place, Problem, Severity

CODE = "spoken-form"
SEVERITY: Severity = "error"
SENTENCE = "What is said in thirty seconds holds no formula, no code and no table."

_UNSPEAKABLE = {
    "math_inline": "a formula",
    "math_block": "a formula",
    "code_inline": "code",
    "code_block": "code",
    "fence": "code",
    "table_open": "a table",
}


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each formula, piece of code and table in a spoken answer."""
    for card in reading.cards:
        for lang in LANGS:
            if section := card.sections[lang].get("spoken"):
                for what, place in _found(section):
                    message = f"{what} stands in the spoken answer"
                    hint = "Say it in words that a mouth can say; symbols and tables stand further below."
                    yield Problem(place, CODE, message, hint, SEVERITY)


def _found(section: Section) -> Iterator[tuple[str, Place]]:
    for token in section.tokens:
        for each in (token, *(token.children or ())):
            if what := _UNSPEAKABLE.get(each.type):
                yield what, place_of(each)

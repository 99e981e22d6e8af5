"""Cards say what the glossary says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from generator.cards.glossary import Glossary, Mention, Term
from generator.cards.model import Card
from generator.cards.prose import Piece
from generator.checks import Base, Reading
from generator.checks.spoken_length import COUNTED, UNITS
from generator.lang import LANGS, Lang
from generator.problems import Place, Problem, Severity

CODE = "term"
SEVERITY: Severity = "error"
SENTENCE = (
    "Titles, questions and texts say what `glossary.yml` says, and no form that it lists as `never`; "
    "code, formulas and what stands in quotation marks are other people's words. "
    "The `card` of a term exists, and its meaning has at most 60 汉字 or 30 words."
)

LONGEST: Mapping[Lang, int] = {"zh": 60, "en": 30}
"""What a meaning may have; a Latin word within 汉字 counts as one."""
_QUOTED = re.compile(r"“[^“”]*”|\"[^\"]*\"|「[^「」]*」")


def check(base: Base) -> Iterator[Problem]:
    """Each form on a card that is never said, and each entry of the glossary that does not hold."""
    glossary = base.contents.glossary
    if not glossary.terms:
        return
    for found in base.of_cards(
        "terms", lambda cards: [*_on_cards(cards, glossary)], glossary.digest
    ):
        yield from found
    for term in glossary.terms.values():
        yield from _entry(term, base, glossary)


def _entry(term: Term, base: Base, glossary: Glossary) -> Iterator[Problem]:
    if term.card and term.card not in base.known:
        message = f"the term `{term.id}` names `{term.card}`, which is no card"
        place = glossary.places[f"{term.id}.card"]
        yield Problem(place, f"{CODE}-card", message, base.meant(term.card), SEVERITY)
    for lang in LANGS:
        means, place = term.means[lang], glossary.places[f"{term.id}.means.{lang}"]
        count = len(COUNTED[lang].findall(means))
        if count > LONGEST[lang]:
            message = f"the meaning of `{term.id}` has {count} {UNITS[lang]}, and {LONGEST[lang]} are enough"
            hint = "Say in one sentence what it is; its card says the rest."
            yield Problem(place, f"{CODE}-length", message, hint, SEVERITY)
        yield from (_told(slip, means, lang, place) for slip in _slips(means, lang, glossary))


def _on_cards(reading: Reading, glossary: Glossary) -> Iterator[Problem]:
    for card in reading.cards:
        for key, text, lang in _named(card):
            for slip in _slips(text, lang, glossary):
                yield _told(slip, text, lang, card.places[f"{key}.{lang}"])
    for passage in reading.passages:
        flat = passage.flat(_words)
        for slip in _slips(flat.text, passage.lang, glossary):
            yield _told(slip, flat.text, passage.lang, flat.place(slip.start))


def _named(card: Card) -> Iterator[tuple[str, str, Lang]]:
    """Title and question, with their keys; other wordings and aliases are how people ask."""
    for lang in LANGS:
        yield "title", card.title[lang], lang
        if card.question:
            yield "question", card.question[lang], lang


def _slips(text: str, lang: Lang, glossary: Glossary) -> Iterator[Mention]:
    """Each form in a text that is never said, outside of quotation marks."""
    quoted = [found.span() for found in _QUOTED.finditer(text)]
    for mention in glossary.mentions(text, lang):
        if not mention.said and not any(start <= mention.start < end for start, end in quoted):
            yield mention


def _told(slip: Mention, text: str, lang: Lang, place: Place) -> Problem:
    message = f"“{text[slip.start : slip.end]}” is never said for `{slip.term.id}`"
    hint = f"Write “{slip.term.name[lang]}”; in quotation marks it is somebody else's word."
    return Problem(place, CODE, message, hint, SEVERITY)


def _words(piece: Piece) -> str:
    return piece.text if piece.kind in {"text", "break"} else "\ufffc"

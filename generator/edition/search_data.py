"""What the search dialog searches: every card, and every part of it in both languages, as plain text.

The index itself is made in the reader's browser (``site_overrides/scripts/search.js``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from generator.cards.model import Card, Section
from generator.edition.edition import Edition
from generator.lang import LANGS, Lang
from generator.render.plain_text import plain_text

Proof = Literal["proven", "computed", "measured", "stale", "none"]
Part = list[Any]
"""``[card's index, section, anchor, language, heading, text]``: a list, for there are thousands."""


def search_data(edition: Edition) -> dict[str, Any]:
    """The data of the search, ready for JSON: ``search.json`` on the site, inline in the handbook.

    ``modules``: id and title; ``cards``: id, title, aliases (its question and other wordings of it
    and what the glossary calls the term that it explains among them), module, difficulty, tags, proof;
    ``terms``: of each term all that people write for it;
    ``parts``: see ``Part``. The anchor is the section's name, or the id of a
    follow-up, pitfall or point.
    """
    found = edition.each("search", lambda card: (_card(card, edition), _parts(card)))
    return {
        "modules": [
            {"id": module.id, "title": dict(module.title)}
            for module in edition.library.modules.values()
        ],
        "cards": [_with_terms(card, edition) for card, _ in found],
        "terms": [list(term.forms) for term in edition.library.glossary.terms.values()],
        "parts": [[index, *part] for index, (_, parts) in enumerate(found) for part in parts],
    }


def _with_terms(card: dict[str, Any], edition: Edition) -> dict[str, Any]:
    """A card that is also found by the words for the terms that it explains."""
    terms = [t for t in edition.library.glossary.terms.values() if t.card == card["id"]]
    aliases = {
        lang: list(dict.fromkeys([*own, *(form for term in terms for form in term.said(lang))]))
        for lang, own in card["aliases"].items()
    }
    return {**card, "aliases": aliases}


def proof(card: Card, edition: Edition) -> Proof:
    """How far the numbers of a card are proven: the weakest of them decides.

    ``computed``: all are recomputed, and some are no readings of a run but computed or sampled.
    """
    states = {verdict.state for verdict in edition.verdicts(card)}
    if not states:
        return "none"
    if "stale" in states:
        return "stale"
    if "measured" in states:
        return "measured"
    return "computed" if states & {"computed", "sampled"} else "proven"


def _card(card: Card, edition: Edition) -> dict[str, Any]:
    return {
        "id": card.id,
        "title": dict(card.title),
        "aliases": {lang: _names(card, lang) for lang in LANGS},
        "module": card.module,
        "difficulty": card.difficulty,
        "tags": list(card.tags),
        "proof": proof(card, edition),
    }


def _names(card: Card, lang: Lang) -> list[str]:
    """What a card is asked for by, besides its title."""
    question = [card.question[lang]] if card.question else []
    return [*card.aliases.get(lang, ()), *question, *card.asked[lang]]


def _parts(card: Card) -> list[Part]:
    """The parts of a card, each still without the card's index."""
    return [
        part
        for lang in LANGS
        for section in card.sections[lang].values()
        for part in _section(section, lang)
    ]


def _section(section: Section, lang: Lang) -> Iterator[Part]:
    if not section.items:
        yield [section.name, section.name, lang, "", plain_text(section.tokens)]
    for item in section.items:
        yield [section.name, item.id, lang, plain_text(item.title), plain_text(item.body)]

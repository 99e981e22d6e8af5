"""What there is to study: follow-ups, pitfalls and proven numbers, each with an identity that lasts.

The texts of follow-ups and pitfalls are not repeated here: the page takes them from the card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from generator.cards.model import Card, Claim
from generator.edition.edition import Edition
from generator.evidence.quantities import MULTIPLIERS, SYMBOLS, QuantityError, read
from generator.lang import LANGS, Lang, SectionName
from generator.render.plain_text import plain_label, plain_text

KINDS: Mapping[SectionName, str] = {"followups": "followup", "pitfalls": "pitfall"}
ASKED = ("proven", "sampled", "computed")
"""States of the numbers that are worth knowing by heart: no bounds, and no one machine's seconds."""

_QUOTED = re.compile(r"“[^”]+”|\"[^\"]+\"|「[^」]+」")
_CLAUSE = re.compile(r".+?(?:[。：；！？]|[.:;!?](?=\s|$))")


def study_data(edition: Edition) -> dict[str, Any]:
    """The data of study mode, ready for JSON: ``study.json`` on the site, inline in the handbook.

    ``items``: ``id`` (``card#item``, or ``card#demo-metric`` for a number), ``kind``
    (``followup``, ``pitfall``, ``number``), ``card``, and what is asked in plain words (``ask``).
    A number also carries the demo's title (``of``), how it was measured (``how``), the id of its
    row of evidence, the answer as printed in each language (``text``), its ``value`` and
    ``tolerance`` in ``unit``, and the worth of its printed unit (``factor``).
    ``cards``, ``modules`` and ``paths`` serve the filters, and the day on which a card's text changed last
    tells what a reader has answered from another; ``successors`` maps ids that cards had to
    those that they have, so that schedules move; ``units`` maps each spelling of a unit
    to the unit of metrics and its worth, ``multipliers`` words such as 万.
    """
    return {
        "modules": [
            {"id": module.id, "title": dict(module.title)}
            for module in edition.library.modules.values()
        ],
        "paths": [
            {"id": path.id, "title": dict(path.title), "cards": list(path.cards)}
            for path in edition.library.paths
        ],
        "cards": {
            card.id: {
                "title": dict(card.title),
                "module": card.module,
                "tags": list(card.tags),
                "updated": card.updated.isoformat(),
            }
            for card in edition.library.cards.values()
        },
        "successors": {
            former: card.id for card in edition.library.cards.values() for former in card.formerly
        },
        "items": [
            item
            for items in edition.each("study", lambda card: list(_items(card, edition)))
            for item in items
        ],
        "units": {name: [unit, float(worth)] for name, (unit, worth) in SYMBOLS.items()},
        "multipliers": dict(MULTIPLIERS),
    }


def _items(card: Card, edition: Edition) -> Iterator[dict[str, Any]]:
    for section, kind in KINDS.items():
        halves = {lang: card.sections[lang][section].items for lang in LANGS}
        for index, item in enumerate(halves[LANGS[0]]):
            ask = {
                lang: plain_text(items[index].title) or lead(plain_text(items[index].body))
                for lang, items in halves.items()
            }
            yield {"id": f"{card.id}#{item.id}", "kind": kind, "card": card.id, "ask": ask}
    yield from _numbers(card, edition)


def lead(text: str) -> str:
    """What a pitfall begins with: the quotation that it refutes, or its first clause."""
    match = _QUOTED.match(text) or _CLAUSE.match(text)
    return match[0] if match else text


def _numbers(card: Card, edition: Edition) -> Iterator[dict[str, Any]]:
    """Each number of a card that a run found again, once, as its first claim in each language prints it."""
    found: dict[str, dict[str, Any]] = {}
    for lang in LANGS:
        for claim in _claims(card, lang):
            verdict = edition.verdict(claim)
            if verdict is None or verdict.state not in ASKED:
                continue
            try:
                printed = read(claim.text)
            except QuantityError:  # a truth value, which nobody can type
                continue
            name = f"{card.id}#{claim.demo}-{claim.metric}"
            item = found.setdefault(
                name,
                {
                    "id": name,
                    "kind": "number",
                    "card": card.id,
                    "ask": dict(verdict.metric.label),
                    "of": dict(verdict.record.title),
                    "how": dict(verdict.metric.how),
                    "evidence": f"ev-{claim.demo}-{claim.metric}",
                    "text": {},
                    "unit": printed.unit,
                    "value": float(printed.value),
                    "tolerance": 0.0,
                    "factor": float(printed.factor),
                },
            )
            item["text"].setdefault(lang, plain_label(claim.text))
            item["tolerance"] = max(item["tolerance"], float(printed.step) / 2)
    yield from found.values()


def _claims(card: Card, lang: Lang) -> Iterator[Claim]:
    for section in card.sections[lang].values():
        yield from (link for link in section.links if isinstance(link, Claim))

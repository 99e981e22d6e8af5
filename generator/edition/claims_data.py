"""Every claim of a base for programs: ``claims.json``, which says what each card prints and what proves it.

Its form is described in ``docs/programs.md``; a change that breaks readers of it is a new ``VERSION``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from generator.cards.model import Card, Claim
from generator.edition.edition import Edition, printed
from generator.edition.pages import SiteAddresses
from generator.lang import HTML_LANG, LANGS
from generator.render.html import evidence_anchor

VERSION = 1


def claims_data(edition: Edition, root: str = "") -> dict[str, Any]:
    """The claims in reading order, ready for JSON; ``root`` is the site's address, where it has one."""
    found = edition.each("claims", lambda card: list(_claims(edition, card)))
    claims = [claim for of_card in found for claim in of_card]
    return {
        "format": "proofdeck-claims",
        "version": VERSION,
        "site": root,
        "claims": [{**claim, "evidence": f"{root}{claim['evidence']}"} for claim in claims],
    }


def _claims(edition: Edition, card: Card) -> Iterator[dict[str, Any]]:
    for lang in LANGS:
        for section in card.sections[lang].values():
            for link in section.links:
                if isinstance(link, Claim):
                    yield {
                        "card": card.id,
                        "language": HTML_LANG[lang],
                        "section": section.name,
                        **_claim(edition, card, link),
                    }


def _claim(edition: Edition, card: Card, claim: Claim) -> dict[str, Any]:
    verdict = edition.verdict(claim)
    said: dict[str, Any] = {
        "text": printed(claim),
        "demo": claim.demo,
        "metric": claim.metric,
        "state": edition.state(claim),
    }
    if verdict:
        metric, record = verdict.metric, verdict.record
        said |= {
            "value": metric.value,
            "unit": metric.unit,
            "kind": metric.kind,
            "bound": metric.bound,
            "error": metric.error,
            "label": {HTML_LANG[each]: metric.label[each] for each in LANGS},
            "device": record.device,
            "recorded": record.recorded,
        }
    anchor = evidence_anchor(claim.demo, claim.metric, claim.device)
    return {**said, "evidence": SiteAddresses("").card(card.id, anchor)}

"""The site before a builder puts its theme around it: its pages, and every other file by its address."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from string import punctuation
from urllib.parse import quote, urlsplit

from generator.cache import Cache
from generator.cards import addresses
from generator.cards.model import Card, Module
from generator.edition import assets, pages, pictures
from generator.edition.card_text import card_texts
from generator.edition.claims_data import claims_data
from generator.edition.edition import Edition
from generator.edition.feed import feed
from generator.edition.llms import llms
from generator.edition.pages import Page
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.tex import font as math_font

_TAUGHT = (f"{addresses.DEMOS}/", f"{addresses.DOCUMENTS}/")
"""Where formulas stand that are in no card."""


@dataclass(frozen=True)
class Website:
    """The pages by their source path in a builder, and every other file by its address.

    ``texts`` are for programs: Markdown, which a builder must be kept from taking for pages, and what names it.
    ``cache`` is for what a builder makes of a page.
    """

    pages: Mapping[str, Page]
    files: Mapping[str, bytes]
    texts: Mapping[str, bytes]
    cache: Cache

    @property
    def navigation(self) -> Mapping[str, Page]:
        """The pages of the navigation, by their source path."""
        return {path: page for path, page in self.pages.items() if page.in_navigation}

    @property
    def documents(self) -> Mapping[str, Page]:
        """The documents that are no cards, by their source path."""
        return {path: page for path, page in self.pages.items() if page.is_document}

    def ways(self) -> list[dict[str, object]]:
        """Where one can go from a page that is not there: the navigation, and every card."""
        return [
            {"address": page.address or ".", "title": dict(page.title), "card": card}
            for page in self.pages.values()
            for card in [page.address[6:-1] if page.address.startswith("cards/") else ""]
            if card or page.in_navigation
        ]


def website(edition: Edition, site_url: str, report_url: str = "") -> Website:
    """All pages and files of the site, which will stand at ``site_url``."""
    made = {f"{page.address}index.md": page for page in pages.pages(edition, report_url)}
    whole = "" if is_local(site_url) else site_url
    return Website(made, dict(_files(edition, whole, made)), _texts(edition, whole), edition.cache)


def _texts(edition: Edition, site: str) -> Mapping[str, bytes]:
    return {**dict(card_texts(edition, site)), "llms.txt": llms(edition, site).encode()}


def _files(edition: Edition, site: str, made: Mapping[str, Page]) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {
        "search.json": _json(search_data(edition)),
        "study.json": _json(study_data(edition)),
        "favicon.svg": assets.FAVICON.read_bytes(),
        "social.png": edition.cache.get("social card", None, social_card),
        "robots.txt": _robots(site).encode(),
        "claims.json": _json(claims_data(edition, site)),
    }
    if site:
        files["feed.xml"] = feed(edition, site)
    files |= assets.bundles()
    for module in edition.library.modules.values():
        if cards := edition.cards_of(module):
            files[f"{module.id}/cards.json"] = _json(_contents(module, cards))
    for name in assets.LIBRARIES:
        files[f"vendor/{name}"] = assets.vendor(name).read_bytes()
    taught = math_font.characters(
        page.body for page in made.values() if page.address.startswith(_TAUGHT)
    )
    files[f"vendor/{assets.FONT}"] = font(edition, taught)
    files |= pictures.files(edition)
    for address, html in pages.redirects(edition):
        files[address] = html.encode()
    return files


def _contents(module: Module, cards: Sequence[Card]) -> dict[str, object]:
    """The cards of a module by topic: what a script lists beside each, so that no page has to."""
    return {
        "title": dict(module.title),
        "topics": [
            {
                "title": dict(topic.title),
                "cards": [
                    {"id": card.id, "title": dict(card.title)}
                    for card in cards
                    if card.topic == topic.id
                ],
            }
            for topic in module.topics.values()
            if any(card.topic == topic.id for card in cards)
        ],
    }


def font(edition: Edition, more: frozenset[str] = frozenset()) -> bytes:
    """The math font with the characters of the cards' formulas, and ``more``."""
    used = edition.formula_characters | more
    return edition.cache.get("font", sorted(used), lambda: assets.font(used))


def _robots(site: str) -> str:
    everyone = "User-agent: *\nAllow: /\n"
    address = quote(f"{site}sitemap.xml", safe=punctuation)  # on one line
    return f"{everyone}Sitemap: {address}\n" if site else everyone


def is_local(address: str) -> bool:
    """Whether an address means this machine alone, as that of a preview does."""
    return urlsplit(address).hostname in {None, "localhost", "127.0.0.1"}


def _json(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def social_card() -> bytes:
    """The picture that other sites show beside a link: 1200 × 630 pixels."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="#fbfaf7")
    figure.text(0.08, 0.62, "Proofdeck", fontsize=64, weight="bold", color="#21242a")
    figure.text(0.08, 0.46, "Every number runs, or names its source.", fontsize=30, color="#0a6656")
    figure.text(0.08, 0.22, "Interview cards for ML engineers", fontsize=24, color="#5b6068")
    figure.text(0.08, 0.13, "Chinese and English, side by side", fontsize=24, color="#5b6068")
    figure.text(0.80, 0.40, "\u2713", fontsize=150, color="#0a6656")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()

"""The handbook: every card in one file that opens from a disk without a network.

It carries the styles, scripts and data of the site. Nothing in it is fetched: browsers refuse to
load neighbours of a file that was opened from a disk.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from generator.cards import addresses
from generator.edition import assets, pages
from generator.edition.edition import Edition
from generator.edition.search_data import search_data
from generator.edition.study_data import study_data
from generator.edition.website import font
from generator.graph import drawing as graph
from generator.lang import Text
from generator.render.markup import in_script, policy, vouched

NAME = "handbook"
TITLE: Text = {"zh": "离线手册", "en": "offline handbook"}
DEFAULT = True
ENTRY = "handbook.html"


@dataclass(frozen=True, slots=True)
class HandbookAddresses:
    """Where things are in the one document, seen from the card ``own``."""

    own: str = ""

    def home(self) -> str:
        """The top."""
        return "#top"

    def module(self, module: str) -> str:
        """A module in the contents."""
        return f"#module-{module}"

    def path(self, path: str = "") -> str:
        """A learning path in the contents."""
        return f"#path-{path}"

    def quick(self) -> str:
        """Where a round of a few questions begins."""
        return "#study"

    def card(self, card: str, anchor: str = "") -> str:
        """A card, or a place in it."""
        return f"#{card}--{anchor}" if anchor else f"#card-{card}"

    def term(self, term: str) -> str:
        """A term in the glossary."""
        return f"#{addresses.term(term)}"

    def name(self, anchor: str) -> str:
        """Anchors carry their card's id, since all cards share the document."""
        return f"{self.own}--{anchor}"


def export(edition: Edition, out: Path) -> None:
    """Write the file ``out``."""
    out.write_bytes(make(edition).encode())


def make(edition: Edition) -> str:
    """The whole document."""
    articles = edition.each(
        "article in a handbook",
        lambda card: pages.article(edition, card, HandbookAddresses(card.id), handbook=True),
    )
    styles = [path for path in assets.styles() if path.name not in assets.SITE_ONLY]
    early = in_script(assets.early_script())
    libraries = [assets.vendor(name).read_text(encoding="utf-8") for name in assets.LIBRARIES]
    own = [assets.script(path) for path in assets.scripts() if path.name not in assets.SITE_ONLY]
    scripts = [in_script(text) for text in (*libraries, assets.words_script(), *own)]
    return pages.rendered(
        "handbook.html",
        edition=edition,
        about=pages.ABOUT,
        opening=pages.opened(edition, HandbookAddresses, handbook=True),
        updated=max((card.updated for card in edition.library.cards.values()), default=None),
        favicon=base64.b64encode(assets.FAVICON.read_bytes()).decode(),
        font=base64.b64encode(font(edition)).decode(),
        policy=policy([early, *scripts], alone=True),
        early=early,
        styles=vouched("\n".join(assets.style(path) for path in styles), "ours"),
        graph=graph.graph_page(edition.graph, edition.library, HandbookAddresses().card),
        at=HandbookAddresses(),
        handbook=True,
        articles=articles,
        search=in_script(_json(search_data(edition))),
        study=in_script(_json(study_data(edition))),
        scripts=scripts,
    )


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

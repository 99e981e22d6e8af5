"""Documents that are no cards, as HTML: those about the program, and the lesson of each demo."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import urlsplit

import yaml

from generator.documents import program
from generator.documents.document import Document
from generator.edition import assets
from generator.edition.edition import Edition
from generator.lang import LANGS
from generator.library.library import PACKAGED_DEMOS
from generator.render.documents import Extensions, Press, RenderedDocument
from generator.render.html import evidence_anchor

SET_UP = "set-up"
"""The document that each demo's page shows before its command."""


class Addresses(Protocol):
    """Where the pages are to which a document may lead."""

    def card(self, card: str, anchor: str = "") -> str:
        """The address of a card, or of a place on it."""

    def demo(self, demo: str) -> str:
        """The page of a demo."""

    def document(self, name: str, anchor: str = "") -> str:
        """The page of a document, or a place on it."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The documents that stand on one page, and the demo whose page it is."""

    documents: tuple[Document, ...]
    at: Addresses
    demo: str = ""


def rendered(edition: Edition, sheets: Sequence[Sheet]) -> list[tuple[RenderedDocument, ...]]:
    """The documents of each page as HTML; kept, and made on all cores."""
    places = _digest(sorted(edition.library.cards), sorted(edition.shown_demos))
    sources = [
        (sheet.documents, repr(sheet.at), sheet.demo, places, extensions(), _shown(edition, sheet))
        for sheet in sheets
    ]
    return edition.cache.each("document", sources, lambda at: _rendered(edition, sheets[at]))


def _rendered(edition: Edition, sheet: Sheet) -> tuple[RenderedDocument, ...]:
    press = Press(
        extensions(), _sources(edition, sheet), lambda href: _address(edition, sheet, href)
    )
    return tuple(press.document(document) for document in sheet.documents)


def _address(edition: Edition, sheet: Sheet, href: str) -> str | None:
    """Where a link of a document leads from its page; ``None`` where it leads to nothing that is there."""
    link, at = urlsplit(href), sheet.at
    found: str | None = None
    if link.scheme in ("http", "https", "mailto") or href.startswith("#"):
        found = href
    elif link.scheme == "card" and link.path in edition.library.cards:
        found = at.card(link.path, link.fragment)
    elif link.scheme == "demo" and link.path in edition.shown_demos:
        found = at.demo(link.path)
    elif link.scheme == "metric" and edition.library.evidence.metric(sheet.demo, link.path, "cpu"):
        found = "#" + evidence_anchor(sheet.demo, link.path, "cpu")
    elif not link.scheme and (name := _DOCUMENT.fullmatch(PurePosixPath(link.path).name)):
        found = at.document(name[1], link.fragment) if name[1] in program.NAMES else None
    return found


_DOCUMENT = re.compile(rf"([a-z-]+)\.(?:{'|'.join(LANGS)})\.md")


def _shown(edition: Edition, sheet: Sheet) -> Hashable:
    """The text of each source file of which a document shows a part."""
    names = {
        listing.included[0]
        for document in sheet.documents
        for listing in document.listings()
        if listing.included
    }
    folder = _sources(edition, sheet)
    return tuple((folder / name).read_text(encoding="utf-8") for name in sorted(names))


def _sources(edition: Edition, sheet: Sheet) -> Path:
    """Where the source is of which a page shows parts: among the base's demos, or the program's own."""
    return edition.demos if sheet.demo and edition.demos else PACKAGED_DEMOS


def _digest(*told: object) -> str:
    return hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).hexdigest()


@cache
def extensions() -> Extensions:
    """What ``mkdocs.yml`` extends Markdown by."""
    text = assets.SITE_CONFIG.read_text(encoding="utf-8").replace("!ENV ", "")
    found: list[str | Mapping[str, Mapping[str, object]]]
    found = yaml.safe_load(text)["markdown_extensions"]
    settings: dict[str, Mapping[str, object]] = {}
    for each in found:
        settings |= {each: {}} if isinstance(each, str) else each
    return Extensions(tuple(settings), settings)

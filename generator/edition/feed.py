"""The cards that changed last, as an Atom feed: ``feed.xml``.

Its addresses have to be whole, so a site that was not told its own has none.
"""

from __future__ import annotations

from datetime import date
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from generator.cards.model import Card
from generator.edition.edition import Edition
from generator.edition.pages import ABOUT, answer, card_address
from generator.lang import HTML_LANG, LANGS, Text, on_one_line

NEWEST = 50
"""Entries: what a reader may have missed, not the whole base."""


def feed(edition: Edition, site: str) -> bytes:
    """The feed of the site at the address ``site``."""
    made = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(made, "id", site)
    _add(made, "title", "Proofdeck")
    _add(made, "subtitle", on_one_line(ABOUT))
    _add(made, "updated", _moment(edition.updated))
    SubElement(made, "link", rel="self", type="application/atom+xml", href=f"{site}feed.xml")
    SubElement(made, "link", rel="alternate", type="text/html", href=site)
    _add(SubElement(made, "author"), "name", "Proofdeck")
    cards = edition.library.cards.values()  # their order breaks ties, since the sort is stable
    for card in sorted(cards, key=lambda card: card.updated, reverse=True)[:NEWEST]:
        _entry(SubElement(made, "entry"), card, site)
    indent(made)
    text = tostring(made, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _entry(made: Element, card: Card, site: str) -> None:
    """A card: its address is its identity, since ids of cards do not change."""
    address = f"{site}{card_address(card.id)}"
    _add(made, "id", address)
    _add(made, "title", on_one_line(card.title))
    _add(made, "updated", _moment(card.updated))
    SubElement(made, "link", rel="alternate", type="text/html", href=address)
    source = address.removesuffix("/") + ".md"
    SubElement(made, "link", rel="alternate", type="text/markdown", href=source)
    for tag in card.tags:
        SubElement(made, "category", term=tag)
    summary = SubElement(made, "summary", type="xhtml")
    both = SubElement(summary, "div", xmlns="http://www.w3.org/1999/xhtml")
    said: list[Text] = [card.question] if card.question else []
    said.append({lang: answer(card, lang) for lang in LANGS})
    for text in said:
        for lang in LANGS:
            SubElement(both, "p", {"xml:lang": HTML_LANG[lang]}).text = text[lang]


def _add(made: Element, name: str, text: str) -> None:
    SubElement(made, name).text = text


def _moment(day: date) -> str:
    """Cards know the day of a change, and Atom asks for a moment of it."""
    return f"{day.isoformat()}T00:00:00Z"

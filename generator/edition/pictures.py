"""Figures as files of the site: a page loads one when it comes into sight, and of the four of a figure the one that shows.

Drawn into the page, figures were half of a card's weight. The handbook, which may load nothing, keeps them inside.
An SVG in an ``<img>`` takes its colour scheme from the page around it, so each file carries both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from markupsafe import Markup

from generator.cards.addresses import FIGURES
from generator.edition import assets
from generator.edition.edition import Edition
from generator.render.markup import template
from runnable_demos.lab.metrics import Figure, Record

_LABEL = re.compile(r' aria-label="([^"]*)"')
_SIZE = re.compile(r' width="([\d.]+)" height="([\d.]+)"')


def picture(edition: Edition, record: Record, figure: Figure, lang: str, root: str) -> Markup:
    """The images of a figure, for a wide screen and for a narrow one; ``root`` leads to the top of the site."""
    drawn = edition.drawings[record.demo, record.device, figure.name, lang]
    names = _names(record.demo, record.device, figure.name, lang)
    label = _LABEL.search(drawn[0])
    assert label is not None  # every drawing says in words what it shows
    images = [
        (f"{root}{name}", *size.groups())
        for name, svg in zip(names, drawn, strict=True)
        if (size := _SIZE.search(svg))
    ]
    return template("picture.html", {"images": images, "alternative": unescape(label[1])})


def files(edition: Edition) -> Iterator[tuple[str, bytes]]:
    """Every drawing by its address."""
    style = f"<style>svg {{ {assets.figure_colours()} }}</style>"
    for key in edition.drawings:
        for name, svg in zip(_names(*key), edition.drawn(key, "f"), strict=True):
            head, body = svg.split("\n", 1)  # the page has said what it shows
            yield name, f"{_LABEL.sub('', head)}\n{style}\n{body}".encode()


def _names(demo: str, device: str, figure: str, lang: str) -> tuple[str, str]:
    name = f"{FIGURES}/{demo}-{device}-{figure}-{lang}"
    return f"{name}.svg", f"{name}-narrow.svg"

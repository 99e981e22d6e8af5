"""Figures as files of the site: a page loads one when it comes into sight, and of a figure's four the one that shows.

Drawn into the page, figures were half of a card's weight. The handbook, which may load nothing, keeps them inside.
An SVG in an ``<img>`` takes its colour scheme from the page around it, so each file carries both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

from markupsafe import Markup

from generator.cards.addresses import FIGURES
from generator.edition import assets
from generator.edition.edition import FIGURE_IDS, Edition
from generator.edition.figure_table import is_long, table_file
from generator.render.markup import template
from runnable_demos.lab.metrics import Figure, Record

Key = tuple[str, str, str, str]
"""Demo, device, figure and language."""
_LABEL = re.compile(r' aria-label="([^"]*)"')
_STYLE = re.compile(r' style="([^"]*)"')
_INK = re.compile(r"var\((--pd-fig-\w+), #\w+\)")
_SIZE = re.compile(r' width="([\d.]+)" height="([\d.]+)"')


@dataclass(frozen=True, slots=True)
class Drawing:
    """One drawing of a figure: its file's address from the root, its size, and what it shows in words."""

    address: str
    width: str
    height: str
    alternative: str


def about(edition: Edition, key: Key, *, narrow: bool = False) -> Drawing:
    """The drawing for a wide screen, or for a narrow one; ``key`` is one of ``Edition.drawings``."""
    svg = edition.drawings[key][narrow]
    size, label = _SIZE.search(svg), _LABEL.search(svg)
    assert size and label  # each drawing has both
    return Drawing(_names(*key)[narrow], size[1], size[2], unescape(label[1]))


def picture(edition: Edition, record: Record, figure: Figure, lang: str, root: str) -> Markup:
    """The images of a figure, for a wide screen and for a narrow one; ``root`` leads to the top of the site."""
    key = (record.demo, record.device, figure.name, lang)
    drawings = [about(edition, key), about(edition, key, narrow=True)]
    return template("picture.html", {"drawings": drawings, "root": root})


def table_address(record: Record, figure: Figure) -> str:
    """The file with a figure's numbers, from the root; nothing where a page has room for them."""
    name = f"{FIGURES}/{record.demo}-{record.device}-{figure.name}.csv"
    return name if is_long(figure) else ""


def files(edition: Edition) -> Iterator[tuple[str, bytes]]:
    """Every drawing, and every long table, by its address."""
    for record in edition.claimed():
        for figure in record.result.figures:
            if name := table_address(record, figure):
                yield name, table_file(figure).encode()
    colours = f"svg {{ {assets.figure_colours()} }}"
    for key in edition.drawings:
        for name, svg in zip(_names(*key), edition.drawings[key], strict=True):
            head, body = svg.replace(FIGURE_IDS, "f").split("\n", 1)
            body, rules = _classed(body)
            style = f"<style>{colours}\n{rules}</style>"
            alone = _LABEL.sub("", head)  # the page has said what it shows
            yield name, f"{alone}\n{style}\n{body}".encode()


def _classed(body: str) -> tuple[str, str]:
    """The parts of a drawing with each style said once, as the rule of a class, and those rules."""
    styles = {text: f"s{number}" for number, text in enumerate(dict.fromkeys(_STYLE.findall(body)))}
    rules = "\n".join(f".{name} {{ {text} }}" for text, name in styles.items())
    classed = _STYLE.sub(lambda match: f' class="{styles[match[1]]}"', body)
    return classed, unescape(_INK.sub(r"var(\1)", rules))


def _names(demo: str, device: str, figure: str, lang: str) -> tuple[str, str]:
    name = f"{FIGURES}/{demo}-{device}-{figure}-{lang}"
    return f"{name}.svg", f"{name}-narrow.svg"

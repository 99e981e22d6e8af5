"""A document as HTML: Python-Markdown with the extensions that ``mkdocs.yml`` names, and nothing unchecked.

Raw HTML is text like any other, formulas are drawn as those of cards, and what the extensions have made
goes through a sieve of its own: a lesson comes from whoever wrote the base.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markupsafe import Markup

from generator.documents.document import Document, Listing, Row, Section
from generator.lang import HTML_LANG, LANGS, Lang, Text
from generator.line_ends import close_up
from generator.render.html import cleaner
from generator.render.markup import vouched
from generator.tex.mathml import mathml

Resolve = Callable[[str], str | None]
"""Where a link leads from the page on which it stands; ``None`` where the page cannot lead there."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """What Markdown is extended by: names, and the settings of each."""

    names: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """Prose in each language, and beside or below it the code, or the live part of that name."""

    prose: Mapping[Lang, Markup]
    code: Markup
    part: str


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """A section with its rows as HTML."""

    id: str
    title: Text
    rows: tuple[RenderedRow, ...]

    @property
    def said(self) -> bool:
        """Whether it says anything beside its live parts."""
        return any(row.code or any(row.prose.values()) for row in self.rows)


@dataclass(frozen=True, slots=True)
class RenderedDocument:
    """A document as HTML fragments."""

    title: Text
    lead: Mapping[Lang, Markup]
    sections: tuple[RenderedSection, ...]


class Press:
    """Turns the documents of one page into HTML; ``sources`` is where the code is that they show."""

    def __init__(self, extensions: Extensions, sources: Path, resolve: Resolve) -> None:
        settings = {name: dict(found) for name, found in extensions.settings.items()}
        settings.setdefault("pymdownx.snippets", {})["base_path"] = [str(sources)]
        # One for the page, so that it numbers the tabs of all texts in one row.
        self._markdown = Markdown(extensions=list(extensions.names), extension_configs=settings)
        self._markdown.preprocessors.deregister("html_block")
        self._markdown.inlinePatterns.deregister("html")
        self._markdown.treeprocessors.register(_Links(resolve), "links", 0)

    def document(self, document: Document) -> RenderedDocument:
        """All of a document."""
        return RenderedDocument(
            document.title,
            {lang: self._html(document.lead[lang], lang) for lang in LANGS},
            tuple(self._section(section) for section in document.sections),
        )

    def _section(self, section: Section) -> RenderedSection:
        return RenderedSection(section.id, section.title, tuple(map(self._row, section.rows)))

    def _row(self, row: Row) -> RenderedRow:
        prose = {lang: self._html(row.prose[lang], lang) for lang in LANGS}
        code = self._html(_fenced(row.listing)) if row.listing else Markup()
        return RenderedRow(prose, code, row.part)

    def _html(self, text: str, lang: Lang | None = None) -> Markup:
        html = _FORMULA.sub(_formula, self._markdown.convert(text))
        pieces = _CODE.split(html)
        pieces[::2] = [_LINE_END.sub(_line_end, piece) for piece in pieces[::2]]
        html = "".join(pieces).replace("<pre>", '<pre lang="" tabindex="0">')
        if lang == "en":
            html = _CHINESE.sub(_marked, html)
        html = html.replace("<table>", '<div class="pd-scroll" tabindex="0"><table>')
        html = html.replace("</table>", "</table></div>")
        return vouched(_CLEANER.clean(html), "sanitised")


class _Links:
    """Gives each link its address on the page; one that leads nowhere there becomes plain text."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def run(self, root: Element) -> None:
        """What Python-Markdown asks of whoever changes its tree."""
        for link in root.iter("a"):
            address = self._resolve(unescape(link.get("href", "")))
            if address is None:
                link.tag = "span"
                link.attrib.clear()
            else:
                link.set("href", address)


def _fenced(listing: Listing) -> str:
    """A listing as a fence, which names its file where it shows a part of one."""
    title = f' title="{listing.included[0]}"' if listing.included else ""
    marks = "`" * 12  # more than any code holds
    return f"{marks}{listing.info}{title}\n{listing.code}\n{marks}"


_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def _formula(found: re.Match[str]) -> str:
    display = found["tag"] == "div"
    drawn = mathml(unescape(found["tex"]).strip(), display=display)
    return f'<div class="pd-math">{drawn}</div>' if display else drawn


_CODE = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
_TAGS = r"(?:<[^<>]*>)*"
_LINE_END = re.compile(
    rf"(?P<before>[^<>\n]{{1,8}})(?P<end>{_TAGS})\n(?={_TAGS}(?P<after>[^<>\n]{{1,8}}))"
)


def _line_end(found: re.Match[str]) -> str:
    """A line's end is worth nothing between 汉字, and else a space."""
    end = "" if close_up(found["before"], found["after"]) else "\n"
    return f"{found['before']}{found['end']}{end}"


_CHINESE = re.compile(
    r"<(?:pre|code)\b.*?</(?:pre|code)>|<[^>]*>|(?P<words>[\u4e00-\u9fff](?:[^<>\n]*[\u4e00-\u9fff])?)",
    re.DOTALL,
)


def _marked(found: re.Match[str]) -> str:
    """Chinese words in an English text, for who listens; tags and code stay as they are."""
    words = found["words"]
    return f'<span lang="{HTML_LANG["zh"]}">{words}</span>' if words else found[0]


_CLEANER = cleaner(
    {
        "dd": set(),
        "details": {"class", "open"},
        "div": {"data-tabs"},
        "dl": set(),
        "dt": set(),
        "input": {"checked", "id", "name", "type"},
        "label": {"for"},
        "ol": {"class"},
        "span": {"lang"},
        "summary": set(),
        "ul": {"class"},
    }
)

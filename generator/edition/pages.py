"""The pages of a site: their addresses, titles, descriptions, contents and bodies.

A body is finished HTML. MkDocs, Zensical or another builder only puts its theme around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial

from markupsafe import Markup

from generator import lang, words
from generator.cache import Later
from generator.cards import addresses
from generator.cards.model import Card
from generator.documents import program
from generator.documents.lessons import without_marks
from generator.edition import documents
from generator.edition.edition import Edition, input_rows, line
from generator.edition.figure_table import figure_rows, part_rows
from generator.edition.opening import opening
from generator.edition.pictures import picture, table_address
from generator.edition.proportions import parts, percent, told
from generator.evidence import calc
from generator.graph import drawing as graph
from generator.lang import LANGS, Lang, Text
from generator.library.shares import Shares
from generator.render.documents import RenderedSection
from generator.render.html import (
    Addresses,
    awaited_anchor,
    calculation_anchor,
    fact_anchor,
    figure_anchor,
    illustrated,
    localise,
    source,
)
from generator.render.markup import in_script, policy, template
from generator.render.plain_text import plain_text
from runnable_demos.lab.metrics import Figure, Record

ABOUT = words.phrase("home.about")
NEWEST = 6
QUICK = 5
"""Questions of a round that needs no choosing."""


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry of a page's table of contents."""

    anchor: str
    title: Text


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the site; ``address`` is its folder from the root, ``""`` or ``"cards/lora/"``."""

    address: str
    title: Text
    description: Text
    content: Later[Markup]
    updated: date
    headings: tuple[Heading, ...] = ()
    in_navigation: bool = False
    is_document: bool = False

    @property
    def body(self) -> Markup:
        """What stands on the page, which a builder need not read where it has kept the page."""
        return self.content.get()

    @property
    def digest(self) -> str:
        """SHA-256 of all that the page's looks depend on."""
        return hashlib.sha256(repr(self).encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(frozen=True, slots=True)
class SiteAddresses:
    """Where things are, seen from the page at ``address``."""

    address: str
    report_url: str = ""

    def root(self) -> str:
        """What leads to the top of the site; nothing at the top."""
        return "../" * self.address.count("/")

    def to(self, target: str) -> str:
        """The page at an address from the root."""
        return f"{self.root()}{target}" or "./"

    def home(self) -> str:
        """The home page."""
        return self.to("")

    def module(self, module: str) -> str:
        """A module's page."""
        return self.to(f"{module}/")

    def path(self, path: str = "") -> str:
        """A learning path's page, or that of all paths."""
        return self.to(f"{addresses.PATHS}/{path}/" if path else f"{addresses.PATHS}/")

    def card(self, card: str, anchor: str = "") -> str:
        """A card's page, or a place on it."""
        return self.to(card_address(card)) + (f"#{anchor}" if anchor else "")

    def quick(self) -> str:
        """A round of a few questions, which begins at once."""
        return self.to(f"study/?round={QUICK}")

    def demo(self, demo: str) -> str:
        """The page with a demo's source."""
        return self.to(f"{addresses.DEMOS}/{demo}/")

    def document(self, name: str, anchor: str = "") -> str:
        """The page of a document that is no card, or a place on it; that of them all without a name."""
        page = f"{addresses.DOCUMENTS}/{name}/" if name else f"{addresses.DOCUMENTS}/"
        return self.to(page) + (f"#{anchor}" if anchor else "")

    def term(self, term: str) -> str:
        """A term on the page of the glossary."""
        return self.to(f"glossary/#{addresses.term(term)}")

    def report(self, card: Card | None = None) -> str:
        """Where to report an error, on ``card`` where one is named."""
        if self.report_url:
            name, file = (card.id, card_file(card)) if card else ("", "")
            return self.report_url.replace("{card}", name).replace("{path}", file)
        return self.to(f"report/?card={card.id}" if card else "report/")

    def name(self, anchor: str) -> str:
        """Anchors are their own ids: a card has a page to itself."""
        return anchor


def card_address(card: str) -> str:
    """The address of a card's page, from its id alone."""
    return f"{addresses.CARDS}/{card}/"


def card_file(card: Card) -> str:
    """Where a card's text stands below the folder of cards, on any machine."""
    return f"{card.module}/{card.id}.md"


def pages(edition: Edition, report_url: str = "") -> Iterator[Page]:
    """Every page of the site: home first, cards in reading order."""
    sites = partial(SiteAddresses, report_url=report_url)
    library = edition.library
    yield _page(
        "home.html",
        edition,
        sites(""),
        lang.PAGE_TITLES["home"],
        ABOUT,
        in_navigation=True,
        newest=_newest(edition),
        opening=opened(edition, lambda _: sites("")),
    )
    for module in library.modules.values():
        if edition.cards_of(module):
            yield _page(
                "module.html",
                edition,
                sites(f"{module.id}/"),
                module.title,
                module.summary,
                headings=[
                    Heading(topic.id, topic.title)
                    for topic in module.topics.values()
                    if any(card.topic == topic.id for card in edition.cards_of(module))
                ],
                in_navigation=True,
                module=module,
            )
    if library.paths:
        yield _page(
            "paths.html",
            edition,
            sites(f"{addresses.PATHS}/"),
            lang.PAGE_TITLES["paths"],
            words.phrase("path.lead"),
            in_navigation=True,
        )
    at = sites("graph/")
    yield _page(
        "graph.html",
        edition,
        at,
        lang.PAGE_TITLES["graph"],
        lang.PAGE_TITLES["graph"],
        in_navigation=True,
        graph=graph.graph_page(edition.graph, library, at.card),
    )
    yield _page(
        "study.html",
        edition,
        sites("study/"),
        lang.PAGE_TITLES["study"],
        lang.PAGE_TITLES["study"],
        in_navigation=True,
    )
    if edition.terms:
        yield _page(
            "glossary.html",
            edition,
            sites("glossary/"),
            lang.PAGE_TITLES["glossary"],
            words.phrase("glossary.lead"),
            in_navigation=True,
        )
    yield from _document_pages(edition, sites)
    for path in library.paths:
        yield _page(
            "path.html",
            edition,
            sites(f"{addresses.PATHS}/{path.id}/"),
            path.title,
            path.summary,
            path=path,
        )
    _ = edition.drawings  # once, before several processes take their share of the articles
    contents = edition.later(
        "article", lambda card: article(edition, card, sites(card_address(card.id))), report_url
    )
    for card, content in zip(library.cards.values(), contents, strict=True):
        yield _card_page(card, content)
    yield from _demo_pages(edition, sites)
    yield _page(
        "report.html",
        edition,
        sites("report/"),
        lang.PAGE_TITLES["report"],
        lang.PAGE_TITLES["report"],
    )


def _card_page(card: Card, content: Later[Markup]) -> Page:
    """The page of one card; its description is its one-sentence answer."""
    headings = [Heading(name, lang.SECTION_HEADINGS[name]) for name in card.sections[LANGS[0]]]
    headings += [Heading(name, lang.PAGE_TITLES[name]) for name in addresses.EXTRA_ANCHORS]
    return Page(
        card_address(card.id),
        card.title,
        {each: answer(card, each) for each in LANGS},
        content,
        card.updated,
        tuple(headings),
    )


def article(edition: Edition, card: Card, at: Addresses, *, handbook: bool = False) -> Markup:
    """A card's article: head, sections, evidence and connections, for a page of its own or the handbook."""
    evidence = edition.library.evidence

    def shown(html: Markup, language: Lang) -> Markup:
        def draw(demo: str, device: str, name: str) -> tuple[str, Markup]:
            figure = evidence.figure(demo, name, device)
            assert figure is not None  # a fragment asks for none that is not drawn
            record = evidence.records[demo, device]
            drawing = drawn(edition, record, figure, language, at)
            return at.name(figure_anchor(demo, name, device, language)), drawing

        return illustrated(localise(html, at), draw)

    return rendered(
        "card.html",
        edition=edition,
        card=card,
        at=at,
        handbook=handbook,
        shown=shown,
        awaited_anchor=awaited_anchor,
        figure_anchor=figure_anchor,
        neighbourhood=graph.neighbourhood(card, edition.library, at.card),
    )


def drawn(edition: Edition, record: Record, figure: Figure, language: str, at: Addresses) -> Markup:
    """A figure: images on the site, which has files for them; drawn into a document that stands alone."""
    if isinstance(at, SiteAddresses):
        return picture(edition, record, figure, language, at.root())
    return edition.figure(record, figure, language, at.name(""))


def opened(edition: Edition, own: Callable[[str], Addresses], *, handbook: bool = False) -> Markup:
    """What the base opens with; ``own`` tells where things are, seen from the card's text in this place."""
    found = opening(edition)
    if found is None:
        return Markup()
    at = own(found.card.id)
    return rendered("opening.html", edition=edition, opening=found, at=at, handbook=handbook)


def answer(card: Card, language: Lang) -> str:
    """The one-sentence answer in plain words."""
    return plain_text(card.sections[language]["answer"].tokens)


def report_form(card: Card | None = None) -> str:
    """What a report of an error holds, begun for one card."""
    about = f"{card.id} ({card_file(card)}, {card.updated})" if card else ""
    return f"card: {about}\nwhat it says: \nwhat is true, and how you know: "


def redirects(edition: Edition) -> Iterator[tuple[str, str]]:
    """Addresses that cards and documents had before, and the pages that stand there now."""
    moved = [
        (card_address(former), card_address(card.id), card.title)
        for card in edition.library.cards.values()
        for former in card.formerly
    ]
    for document in program.documents():
        if former := addresses.FORMER_DOCUMENTS.get(document.name):
            moved.append((former, f"{addresses.DOCUMENTS}/{document.name}/", document.title))
    script = in_script(_REDIRECT)
    for former, now, title in moved:
        here = SiteAddresses(former).to(now)
        values = {"title": title, "here": here, "script": script}
        yield f"{former}index.html", rendered("redirect.html", **values, policy=policy([script]))


_REDIRECT = 'location.replace(document.querySelector("a").href + location.search + location.hash)'
"""Carries the place on the page along, which a refresh would lose."""


# --- templates -----------------------------------------------------------------------------------


def _page(
    name: str,
    edition: Edition,
    at: SiteAddresses,
    title: Text,
    description: Text,
    *,
    headings: Iterable[Heading] = (),
    in_navigation: bool = False,
    is_document: bool = False,
    **values: object,
) -> Page:
    body = rendered(name, edition=edition, at=at, **values)
    content = Later(hashlib.sha256(body.encode()).hexdigest(), lambda: body)
    where = (in_navigation, is_document)
    return Page(at.address, title, description, content, edition.updated, tuple(headings), *where)


def _newest(edition: Edition) -> list[Card]:
    # Reading order breaks ties, since the sort is stable.
    return sorted(edition.library.cards.values(), key=lambda card: card.updated, reverse=True)[
        :NEWEST
    ]


def _document_pages(edition: Edition, sites: Callable[[str], SiteAddresses]) -> Iterator[Page]:
    """The documents about the program, behind a page that lists them and the lessons of the demos."""
    texts = program.documents()
    places = [sites(f"{addresses.DOCUMENTS}/{text.name}/") for text in texts]
    sheets = [documents.Sheet((text,), at) for text, at in zip(texts, places, strict=True)]
    made = [page for (page,) in documents.rendered(edition, sheets)]
    yield _page(
        "documents.html",
        edition,
        sites(f"{addresses.DOCUMENTS}/"),
        lang.PAGE_TITLES["documents"],
        words.phrase("documents.lead"),
        headings=[
            Heading("program", words.phrase("documents.program")),
            *(
                [Heading("lessons", words.phrase("documents.lessons"))]
                if edition.shown_demos
                else []
            ),
        ],
        is_document=True,
        documents={text.name: page for text, page in zip(texts, made, strict=True)},
    )
    for at, document in zip(places, made, strict=True):
        shown = [(section, _live(section, edition, at)) for section in document.sections]
        kept = [(section, parts) for section, parts in shown if section.said or any(parts.values())]
        yield _page(
            "document.html",
            edition,
            at,
            document.title,
            {each: str(document.lead[each].striptags()) for each in LANGS},
            headings=[Heading(section.id, section.title) for section, _ in kept],
            is_document=True,
            document=document,
            sections=kept,
        )


def _live(section: RenderedSection, edition: Edition, at: SiteAddresses) -> Mapping[str, Markup]:
    """The live parts of a section by their names; what has nothing to show is empty."""
    return {
        row.part: rendered(
            f"live/{row.part}.html",
            edition=edition,
            at=at,
            shares=Shares.together(edition.shares.values()),
        )
        for row in section.rows
        if row.part
    }


def _demo_pages(edition: Edition, sites: Callable[[str], SiteAddresses]) -> Iterator[Page]:
    """A page for each demo that a card rests on: what it found, how to run it, its lesson, its source."""
    demos = edition.shown_demos
    texts = [_source(edition, demo) for demo in demos]
    listings = edition.cache.each("listing", texts, lambda index: source(texts[index], "python"))
    (set_up,) = (text for text in program.documents() if text.name == documents.SET_UP)
    lessons = edition.library.lessons if edition.demos else {}  # they show its source
    places = [sites(f"{addresses.DEMOS}/{demo}/") for demo in demos]
    sheets = [
        documents.Sheet((set_up, lessons[demo]) if demo in lessons else (set_up,), at, demo)
        for demo, at in zip(demos, places, strict=True)
    ]
    made = documents.rendered(edition, sheets)
    for (demo, cards), listing, at, (before, *lesson) in zip(
        demos.items(), listings, places, made, strict=True
    ):
        panels = edition.whole_panels[demo]
        taught = lesson[0].sections if lesson else ()
        yield _page(
            "demo.html",
            edition,
            at,
            panels[0].record.title,
            panels[0].record.question,
            headings=[
                Heading("found", words.phrase("demo.found")),
                Heading("run", words.phrase("demo.run")),
                *(Heading(section.id, section.title) for section in taught),
                *([Heading("source", words.phrase("demo.source"))] if listing else []),
            ],
            of_demo=True,
            figure_anchor=figure_anchor,
            awaited_anchor=awaited_anchor,
            record=panels[0].record,
            panels=panels,
            set_up=before.sections[0],
            lesson=taught,
            cards=cards,
            source=listing,
        )


def _source(edition: Edition, demo: str) -> str:
    file = edition.demos / f"{demo}.py" if edition.demos else None
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return without_marks(text)


def rendered(template_name: str, **values: object) -> Markup:
    """One of the shared templates; an exporter's own page is made this way."""
    return template(template_name, {**_HELPERS, **values})


_HELPERS: Mapping[str, object] = {
    "answer": answer,
    "card_file": card_file,
    "calculation_anchor": calculation_anchor,
    "drawn": drawn,
    "fact_anchor": fact_anchor,
    "figure_rows": figure_rows,
    "part_rows": part_rows,
    "parts": parts,
    "percent": percent,
    "handbook": False,
    "of_demo": False,
    "input_rows": input_rows,
    "line": line,
    "localise": localise,
    "report_form": report_form,
    "table_address": table_address,
    "term_anchor": addresses.term,
    "told": told,
    "quick": QUICK,
    "worth": calc.show,
}
"""What templates ask of a card while they write."""

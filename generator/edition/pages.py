"""The pages of a site: their addresses, titles, descriptions, contents and bodies.

A body is finished HTML. MkDocs, Zensical or another builder only puts its theme around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

from markupsafe import Markup

from generator import lang, words
from generator.cache import Later
from generator.cards import addresses
from generator.cards.model import Card
from generator.edition.edition import Edition, input_row, line, printed
from generator.edition.figure_table import figure_rows, part_rows
from generator.edition.pictures import picture, table_address
from generator.edition.proportions import parts, percent, told
from generator.evidence import calc
from generator.graph import drawing as graph
from generator.lang import LANGS, Lang, Text
from generator.library.shares import Shares
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
PROMISE = words.phrase("about.promise")
ABOUT_HEADINGS = words.group("about_headings")
NEWEST = 6
TOP_CLAIMS = 3
"""What a card proves, on its module's page."""


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

    def _to(self, target: str) -> str:
        return f"{self.root()}{target}" or "./"

    def home(self) -> str:
        """The home page."""
        return self._to("")

    def module(self, module: str) -> str:
        """A module's page."""
        return self._to(f"{module}/")

    def path(self, path: str) -> str:
        """A learning path's page."""
        return self._to(f"{addresses.PATHS}/{path}/")

    def card(self, card: str, anchor: str = "") -> str:
        """A card's page, or a place on it."""
        return self._to(card_address(card)) + (f"#{anchor}" if anchor else "")

    def demo(self, demo: str) -> str:
        """The page with a demo's source."""
        return self._to(f"{addresses.DEMOS}/{demo}/")

    def term(self, term: str) -> str:
        """A term on the page of the glossary."""
        return self._to(f"glossary/#{addresses.term(term)}")

    def report(self, card: Card | None = None) -> str:
        """Where to report an error, on ``card`` where one is named."""
        if self.report_url:
            name, file = (card.id, card_file(card)) if card else ("", "")
            return self.report_url.replace("{card}", name).replace("{path}", file)
        return self._to(f"report/?card={card.id}" if card else "report/")

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
        about=ABOUT,
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
    shares = Shares.together(edition.shares.values())
    yield _page(
        "about.html",
        edition,
        sites("about/"),
        lang.PAGE_TITLES["about"],
        PROMISE,
        headings=[
            Heading(anchor, title)
            for anchor, title in ABOUT_HEADINGS.items()
            if shares.total or anchor != "shares"
        ],
        in_navigation=True,
        titles_of=ABOUT_HEADINGS,
        states=edition.states,
        shares=shares,
    )
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


def answer(card: Card, language: Lang) -> str:
    """The one-sentence answer in plain words."""
    return plain_text(card.sections[language]["answer"].tokens)


def top_claims(edition: Edition, card: Card) -> Sequence[Text]:
    """The first things that a card proves, each with the number as the card prints it."""
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for language in LANGS:
        for claim in card.claims_in(language):
            verdict = edition.verdict(claim)
            if verdict and verdict.state in ("proven", "bounded"):
                metric, line = (
                    verdict.metric,
                    lines.setdefault((claim.demo, claim.metric, claim.device), {}),
                )
                number = (
                    words.phrase("numbers.colon")[language]
                    + ("≤ " if metric.reason else "")
                    + printed(claim)
                )
                said = metric.label[language] + ("" if metric.value is True else number)
                line.setdefault(language, said)
    return [line for line in lines.values() if len(line) == len(LANGS)][:TOP_CLAIMS]


def report_form(card: Card | None = None) -> str:
    """What a report of an error holds, begun for one card."""
    about = f"{card.id} ({card_file(card)}, {card.updated})" if card else ""
    return f"card: {about}\nwhat it says: \nwhat is true, and how you know: "


def redirects(edition: Edition) -> Iterator[tuple[str, str]]:
    """Addresses that cards had before, and the pages that stand there now."""
    for card in edition.library.cards.values():
        for former in card.formerly:
            here = SiteAddresses(card_address(former)).card(card.id)
            script = in_script(_REDIRECT)
            values = {"title": card.title, "here": here, "script": script}
            yield (
                card_address(former) + "index.html",
                rendered("redirect.html", **values, policy=policy([script])),
            )


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
    **values: object,
) -> Page:
    body = rendered(name, edition=edition, at=at, **values)
    content = Later(hashlib.sha256(body.encode()).hexdigest(), lambda: body)
    return Page(
        at.address, title, description, content, edition.updated, tuple(headings), in_navigation
    )


def _newest(edition: Edition) -> list[Card]:
    # Reading order breaks ties, since the sort is stable.
    return sorted(edition.library.cards.values(), key=lambda card: card.updated, reverse=True)[
        :NEWEST
    ]


def _demo_pages(edition: Edition, sites: Callable[[str], SiteAddresses]) -> Iterator[Page]:
    """A page with the source of each demo that a card rests on."""
    using: dict[str, list[Card]] = {}
    for card in edition.library.cards.values():
        for demo in edition.demos_of(card):
            using.setdefault(demo, []).append(card)
    demos = sorted(edition.library.evidence.demos & using.keys())
    texts = [_source(edition, demo) for demo in demos]
    listings = edition.cache.each("listing", texts, lambda index: source(texts[index], "python"))
    for demo, listing in zip(demos, listings, strict=True):
        record = next(
            r for (name, _), r in edition.library.evidence.records.items() if name == demo
        )
        yield _page(
            "demo.html",
            edition,
            sites(f"{addresses.DEMOS}/{demo}/"),
            record.title,
            record.question,
            record=record,
            cards=using.get(demo, []),
            source=listing,
        )


def _source(edition: Edition, demo: str) -> str:
    file = edition.demos / f"{demo}.py" if edition.demos else None
    return file.read_text(encoding="utf-8") if file and file.is_file() else ""


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
    "input_row": input_row,
    "line": line,
    "report_form": report_form,
    "table_address": table_address,
    "term_anchor": addresses.term,
    "told": told,
    "top_claims": top_claims,
    "worth": calc.show,
}
"""What templates ask of a card while they write."""

"""A card's tokens → HTML, once a card; every output places the same fragments.

Addresses differ from output to output (a site has a page a card, a handbook one page in all), so
fragments carry two schemes of their own, which ``localise`` turns into what an output needs:

- ``card:ID`` and ``card:ID#ANCHOR`` lead to another card,
- ``own:ANCHOR`` leads to a place in the same card,
- ``term:ID`` leads to a term in the glossary.

Drawings are as large as a card's text, and carry ids: ``illustrated`` puts each over its caption.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from types import MappingProxyType
from typing import Protocol

import nh3
from markdown_it.token import Token
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from generator import words
from generator.cards import fences
from generator.cards.glossary import Mention, Term
from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Citation,
    Claim,
    Fact,
    Fence,
    FigureLink,
    Given,
    Item,
    Link,
    Param,
    Section,
    WebLink,
)
from generator.evidence.derived import Derived
from generator.evidence.facts import PublicFact
from generator.evidence.settings import Setting
from generator.lang import CALLOUT_LABELS, LANGS, Lang, SectionName, Text
from generator.line_ends import line_end
from generator.render.markup import vouched
from generator.render.printed import caption
from generator.tex.mathml import mathml
from runnable_demos.lab.table import Measure


class Resolver(Protocol):
    """What a link needs to know of the library, without knowing the library."""

    def verdict(self, claim: Claim) -> str:
        """What the evidence says of a claim: ``proven``, ``measured``, … ."""

    def fact(self, link: Fact) -> PublicFact | None:
        """The public fact that a link states; ``None`` where it cannot stand, as in a draft."""

    def setting(self, link: Param) -> Setting | None:
        """The setting of a run that a link states; ``None`` where it cannot stand."""

    def derived(self, link: Calc) -> Derived | None:
        """What a number follows from; ``None`` where it does not."""

    def awaited(self, link: Awaited) -> Measure | None:
        """What a GPU is to measure for a link; ``None`` where it cannot stand."""

    def is_drawn(self, link: FigureLink) -> bool:
        """Whether there is such a figure; in a draft there may be none."""

    def printed(self, card: Card, fence: Fence) -> str | None:
        """What a fence of a card printed when it was run; ``None`` where it was not, as in a draft."""

    def is_written(self, card: str) -> bool:
        """Whether a card exists; a link to a planned one is plain text."""

    def mentions(self, text: str, lang: Lang) -> Iterable[Mention]:
        """The terms of the glossary in a text, from left to right."""


@dataclass(frozen=True, slots=True)
class RenderedItem:
    """A follow-up, a pitfall or a point: ``title`` is inline HTML, ``body`` blocks."""

    id: str
    title: Markup
    body: Markup


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """One section in one language: ``items`` holds its follow-ups, pitfalls or points, ``html`` all else."""

    html: Markup
    items: tuple[RenderedItem, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedCard:
    """All sections of a card as HTML fragments, in both languages."""

    card: Card
    sections: Mapping[Lang, Mapping[SectionName, RenderedSection]]


def render(card: Card, resolver: Resolver) -> RenderedCard:
    """Turn each section of ``card`` into sanitised HTML."""
    return RenderedCard(
        card,
        {
            lang: {
                name: _section(section, card, lang, resolver)
                for name, section in card.sections[lang].items()
            }
            for lang in LANGS
        },
    )


class Addresses(Protocol):
    """Where things stand in one output, seen from one card in it."""

    def card(self, card: str, anchor: str = "") -> str:
        """The address of a card, or of a place in it."""

    def name(self, anchor: str) -> str:
        """The id that a place of this card has in the document."""

    def term(self, term: str) -> str:
        """The address of a term in the glossary."""


def localise(html: Markup, addresses: Addresses) -> Markup:
    """Give a fragment the addresses of one output."""

    def address(match: re.Match[str]) -> str:
        scheme, target = match[1], unescape(match[2])
        if scheme == "own":
            found = "#" + addresses.name(target)
        elif scheme == "term":
            found = addresses.term(target)
        else:
            name, _, anchor = target.partition("#")
            found = addresses.card(name, anchor)
        return f'href="{escape(found)}"'

    return vouched(_OWN_SCHEMES.sub(address, html), "addressed")


_OWN_SCHEMES = re.compile(r'href="(card|own|term):([^"]*)"')


def illustrated(html: Markup, draw: Callable[[str, str, str], tuple[str, Markup]]) -> Markup:
    """Put its drawing over the caption of each figure.

    ``draw`` is given a demo, a device and the name of a figure, and gives the id and the drawing.
    """

    def figure(match: re.Match[str]) -> str:
        name, drawing = draw(*unescape(match[1]).split("/"))
        return f'<figure class="pd-figure" id="{escape(name)}">{drawing}'

    return vouched(_FIGURE.sub(figure, html), "drawn")


_FIGURE = re.compile(r'<figure class="pd-figure" data-figure="([^"]*)">')


def figure_anchor(demo: str, figure: str, device: str, lang: Lang) -> str:
    """The id of a figure in the text of a card in one language."""
    return f"fig-{demo}-{figure}-" + ("" if device == "cpu" else f"{device}-") + lang


def evidence_anchor(demo: str, metric: str, device: str) -> str:
    """The id of a metric's row in the evidence panel of a card."""
    return f"ev-{demo}-{metric}" + ("" if device == "cpu" else f"-{device}")


def setting_anchor(demo: str, name: str) -> str:
    """The anchor of a setting of a run, in the panel of its demo."""
    return f"ev--set-{demo}-{name}"


def awaited_anchor(demo: str) -> str:
    """The anchor of what a demo has not told of a GPU, in its panel."""
    return f"ev--gpu-{demo}"


def calculation_anchor(found: Derived) -> str:
    """The anchor of a calculation in the evidence of its card."""
    return f"ev--calc-{found.id}"


def fact_anchor(fact: PublicFact) -> str:
    """The anchor of a public fact in the evidence of its card."""
    return f"ev--fact-{fact.entry}-{fact.key}"


def fact_about(fact: PublicFact) -> Text:
    """What a public fact is: of what, and its key in words."""
    return words.fill(words.phrase("card.fact"), name=fact.name, label=fact.label)


def fact_title(fact: PublicFact) -> Text:
    """What a public fact is, and where it stands, in one line."""
    source, day = fact.source, fact.as_of.isoformat()
    line = words.phrase("card.fact_source")
    return words.fill(line, fact=fact_about(fact), title=source.title, where=source.where, day=day)


# --- sections ------------------------------------------------------------------------------------


def _section(section: Section, card: Card, lang: Lang, resolver: Resolver) -> RenderedSection:
    writer = _Writer(card, lang, resolver)
    # A group of pitfalls has its heading in both languages, from the table of words.
    headed = _LISTS | {"heading_open"} if card.converted else _LISTS
    listed = section.name in {"pitfalls", "points"}
    tokens: Iterable[Token] = section.tokens
    if listed:
        tokens = _without(headed, tokens)
    elif section.name == "intuition":
        tokens = _figures_first(tokens)
    return RenderedSection(
        writer.blocks(tokens), tuple(_item(item, writer) for item in section.items)
    )


def _item(item: Item, writer: _Writer) -> RenderedItem:
    return RenderedItem(item.id, writer.title(item.title), writer.blocks(item.body))


def _without(blocks: Collection[str], tokens: Iterable[Token]) -> Iterator[Token]:
    """What stands around the items of a section, which are in its lists, and around their headings."""
    inside = False
    for token in tokens:
        inside = inside or (token.level == 0 and token.type in blocks)
        if not inside:
            yield token
        if token.level == 0 and token.nesting < 0:
            inside = False


def _figures_first(tokens: Iterable[Token]) -> Iterable[Token]:
    """The picture that shows how something works is met before the words about it."""
    figures: list[Token] = []
    others: list[Token] = []
    inside = False
    for token in tokens:
        inside = inside or token.type == "figure_open"
        (figures if inside else others).append(token)
        inside = inside and token.type != "figure_close"
    return [*figures, *others]


_LISTS = {"bullet_list_open", "ordered_list_open"}


_WITHOUT_TERMS = {
    f"{block}_{end}" for block in ("heading", "th", "figure", "link") for end in ("open", "close")
}
"""Within these no term is marked: they are titles, or lead somewhere already."""


class _Writer:
    """Walks tokens and writes HTML; one section of a card in one language.

    Each term of the glossary leads there where it stands first, ``told`` being those that did; ``within``
    counts what is open of that in which none does.
    """

    def __init__(self, card: Card, lang: Lang, resolver: Resolver) -> None:
        self.card, self.lang, self.resolver = card, lang, resolver
        self.closing: list[str] = []
        self.told: set[str] = set()
        self.within = 0

    def blocks(self, tokens: Iterable[Token]) -> Markup:
        """Sanitised HTML of ``tokens``."""
        return sanitised("".join(self._token(token) for token in tokens))

    def title(self, tokens: Iterable[Token]) -> Markup:
        """Sanitised HTML of a title, in which no term is marked."""
        self.within += 1
        html = self.blocks(tokens)
        self.within -= 1
        return html

    def _token(self, token: Token) -> str:
        if token.type in _WITHOUT_TERMS:
            self.within += token.nesting
        if token.type == "inline":
            return self._inline(token.children or ())
        method: Callable[[Token], str] | None = getattr(self, f"_{token.type}", None)
        if method:
            return method(token)
        if token.hidden or not token.tag:
            return ""
        if token.nesting < 0:
            return f"</{token.tag}>"
        attributes = "".join(f' {k}="{escape(str(v))}"' for k, v in token.attrs.items())
        return f"<{token.tag}{attributes}>"

    def _inline(self, children: Sequence[Token]) -> str:
        return "".join(
            line_end(children, index) if child.type == "softbreak" else self._token(child)
            for index, child in enumerate(children)
        )

    def _text(self, token: Token) -> str:
        text = token.content
        return escape(text, quote=False) if self.within else "".join(self._with_terms(text))

    def _with_terms(self, text: str) -> Iterator[str]:
        at = 0
        for start, end, term, said in self.resolver.mentions(text, self.lang):
            if said and term.id not in self.told:
                self.told.add(term.id)
                yield escape(text[at:start], quote=False)
                yield self._term(term, text[start:end])
                at = end
        yield escape(text[at:], quote=False)

    def _term(self, term: Term, written: str) -> str:
        names = dict.fromkeys([term.name[self.lang], *term.name.values()])
        name, means = escape(" · ".join(names)), escape(term.means[self.lang])
        address, text = escape(f"term:{term.id}"), escape(written, quote=False)
        return f'<a class="pd-term" data-term="{name}" title="{means}" href="{address}">{text}</a>'

    def _code_inline(self, token: Token) -> str:
        return f"<code>{escape(token.content, quote=False)}</code>"

    def _math_inline(self, token: Token) -> str:
        return mathml(token.content)

    def _math_block(self, token: Token) -> str:
        return f'<div class="pd-math">{mathml(token.content, display=True)}</div>'

    def _fence(self, token: Token) -> str:
        listing = code(token.content, token.info.split()[0] if token.info.strip() else "")
        run = fences.fence(token)
        return listing + self._printed(run) if run else listing

    def _printed(self, fence: Fence) -> str:
        """What a fence printed, below it; it is in no language of the reader's."""
        output = self.resolver.printed(self.card, fence)
        said = f'<p class="pd-prints">{escape(caption(output)[self.lang])}</p>'
        if not output:
            return said
        text = escape(output.removesuffix("\n"), quote=False)
        return f'<div class="pd-printed">{said}<pre lang="" tabindex="0"><code>{text}</code></pre></div>'

    def _code_block(self, token: Token) -> str:
        return code(token.content, "")

    def _table_open(self, _: Token) -> str:
        return '<div class="pd-scroll" tabindex="0"><table>'

    def _table_close(self, _: Token) -> str:
        return "</table></div>"

    def _figure_open(self, token: Token) -> str:
        link = token.meta["figure"]
        if not self.resolver.is_drawn(link):
            return '<figure class="pd-figure"><figcaption class="pd-doubtful">'
        key = escape(f"{link.demo}/{link.device}/{link.figure}")
        return f'<figure class="pd-figure" data-figure="{key}"><figcaption>'

    def _figure_close(self, _: Token) -> str:
        return "</figcaption></figure>"

    def _th_open(self, token: Token) -> str:
        return _cell("th", token)

    def _td_open(self, token: Token) -> str:
        return _cell("td", token)

    def _alert_open(self, token: Token) -> str:
        kind = token.meta["kind"]
        label = CALLOUT_LABELS[kind][self.lang]
        return f'<div class="pd-callout" data-kind="{kind}"><p class="pd-callout-title">{label}</p>'

    def _alert_close(self, _: Token) -> str:
        return "</div>"

    def _link_open(self, token: Token) -> str:
        opening, closing = self._link(token.meta["link"])
        self.closing.append(closing)
        return opening

    def _link_close(self, _: Token) -> str:
        return self.closing.pop()

    def _link(self, link: Link) -> tuple[str, str]:
        match link:
            case Claim() | Param() | Calc():
                tags = self._number(link)
            case Fact():
                tags = self._fact(link)
            case Citation():
                tags = self._citation(link)
            case Given():
                tags = '<span class="pd-given">', "</span>"
            case Awaited():
                tags = self._awaited(link)
            case CardLink():
                tags = self._card_link(link)
            case WebLink():
                tags = f'<a href="{escape(link.url)}">', "</a>"
        return tags

    def _citation(self, link: Citation) -> tuple[str, str]:
        source = self.card.sources[link.source]
        title, key = escape(f"{source.title}, {link.where or source.where}"), escape(link.source)
        opening = (
            f'<a class="pd-cite" data-source="{key}" title="{title}" href="{escape(source.url)}">'
        )
        return opening, "</a>"

    def _number(self, link: Claim | Param | Calc) -> tuple[str, str]:
        """A number that leads to its proof on the same card; one that cannot stand is shown as doubtful."""
        match link:
            case Claim():
                state = self.resolver.verdict(link)
                anchor = evidence_anchor(link.demo, link.metric, link.device)
            case Param():
                setting = self.resolver.setting(link)
                if setting is None:
                    return _DOUBTFUL
                state = "stale" if setting.stale else "setting"
                anchor = setting_anchor(link.demo, link.name)
            case Calc():
                derived = self.resolver.derived(link)
                if derived is None:
                    return _DOUBTFUL
                state, anchor = derived.state, calculation_anchor(derived)
        own = escape(f"own:{anchor}")
        return f'<a class="pd-claim" data-verdict="{state}" href="{own}">', "</a>"

    def _fact(self, link: Fact) -> tuple[str, str]:
        fact = self.resolver.fact(link)
        if fact is None:
            return _DOUBTFUL
        title, address = escape(fact_title(fact)[self.lang]), escape(fact.source.url)
        return f'<a class="pd-fact" title="{title}" href="{address}">', "</a>"

    def _awaited(self, link: Awaited) -> tuple[str, str]:
        """Words that lead to the command by which a GPU makes the number."""
        measure = self.resolver.awaited(link)
        if measure is None:
            return _DOUBTFUL
        title, own = escape(measure.label[self.lang]), escape(f"own:{awaited_anchor(link.demo)}")
        return f'<a class="pd-awaited" title="{title}" href="{own}">', "</a>"

    def _card_link(self, link: CardLink) -> tuple[str, str]:
        if not self.resolver.is_written(link.card):
            return '<span class="pd-planned">', "</span>"
        anchor = f"#{link.anchor}" if link.anchor else ""
        return f'<a href="{escape(f"card:{link.card}{anchor}")}">', "</a>"


_DOUBTFUL = ('<span class="pd-doubtful">', "</span>")


def _cell(tag: str, token: Token) -> str:
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{tag} align="{align}">' if align else f"<{tag}>"


_LIKE_TEXT = re.compile(r'<span class="[nw]">([^<]*)</span>')
"""A name or space in a listing: each third mark of it, and styled as what stands unmarked."""


def source(text: str, language: str) -> Markup:
    """A listing that stands by itself."""
    return sanitised(code(text, language))


def code(text: str, language: str) -> str:
    """Highlighted code, not yet sanitised; plain where the language is unknown."""
    try:
        lexer = get_lexer_by_name(language)
        inner = _LIKE_TEXT.sub(r"\1", highlight(text, lexer, HtmlFormatter(nowrap=True)))
    except ClassNotFound:
        inner = escape(text, quote=False)
    return f'<pre class="highlight" tabindex="0"><code>{inner}</code></pre>'


# --- sanitising ----------------------------------------------------------------------------------

_MATHML = {
    "math", "menclose", "merror", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded",
    "mphantom", "mprescripts", "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle", "msub",
    "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "none",
}  # fmt: skip
_HTML = {
    "a", "blockquote", "br", "code", "del", "div", "em", "figcaption", "figure", "h3", "h4", "h5",
    "h6", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_MATH_ATTRIBUTES = {
    "accent", "accentunder", "class", "columnspacing", "depth", "dir", "display", "displaystyle",
    "fence", "form", "height", "largeop", "linethickness", "lspace", "mathbackground",
    "mathcolor", "mathsize", "mathvariant", "maxsize", "minsize", "movablelimits", "notation",
    "rowspacing",
    "rspace", "scriptlevel", "separator", "stretchy", "style", "symmetric", "voffset", "width",
}  # fmt: skip
_ATTRIBUTES = {
    **dict.fromkeys(_MATHML, _MATH_ATTRIBUTES),
    "a": {"href", "title", "class", "data-verdict", "data-source", "data-term"},
    "div": {"class", "data-kind", "tabindex"},
    "figcaption": {"class"},
    "figure": {"class", "data-figure"},
    "ol": {"start"},
    "p": {"class"},
    "pre": {"class", "lang", "tabindex"},
    "span": {"class"},
    "td": {"align"},
    "th": {"align"},
}
_STYLES = {
    "border", "border-bottom", "border-left", "border-right", "border-top", "justify-items",
    "padding-left", "padding-right", "text-align", "width", "white-space", "color",
}  # fmt: skip


def cleaner(more: Mapping[str, set[str]] = MappingProxyType({})) -> nh3.Cleaner:
    """What lets through only what a card can say, and ``more`` elements with these attributes."""
    return nh3.Cleaner(
        tags=_HTML | _MATHML | more.keys(),
        attributes={
            tag: _ATTRIBUTES.get(tag, set()) | more.get(tag, set())
            for tag in _ATTRIBUTES.keys() | more.keys()
        },
        filter_style_properties=_STYLES,
        url_schemes={"http", "https", "mailto", "card", "own", "term"},
        link_rel=None,
    )


_CLEANER = cleaner()


def sanitised(html: str) -> Markup:
    """``html`` without anything that a card cannot say: the parser lets none of it through."""
    return vouched(_CLEANER.clean(html), "sanitised")

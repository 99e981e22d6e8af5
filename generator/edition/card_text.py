"""A card as Markdown for programs and language models, at its page's address with ``.md``.

It is rendered, not the card's source: links are addresses, a number leads to the evidence that proves it and says
in its title how, figures are images with what they show in words, and what proves the card stands at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from generator import words
from generator.cards.addresses import card_text
from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Citation,
    Claim,
    Fact,
    FigureLink,
    Given,
    Item,
    Link,
    Param,
    WebLink,
)
from generator.edition import pictures
from generator.edition.edition import DemoPanel, Edition
from generator.edition.pages import SiteAddresses
from generator.evidence import calc, values
from generator.lang import (
    FREQUENCY_LABELS,
    KIND_LABELS,
    LANGS,
    LANGUAGE_HEADINGS,
    LEVEL_LABELS,
    PAGE_TITLES,
    SECTION_HEADINGS,
    STATE_LABELS,
    Lang,
    Text,
    on_one_line,
)
from generator.render.html import (
    awaited_anchor,
    calculation_anchor,
    evidence_anchor,
    fact_about,
    fact_title,
    setting_anchor,
)
from generator.render.obsidian import JOINER, Writer, escaped, paragraph, titled

UP = "../"
"""From the folder of cards to the top of a site that was not told its address."""


def card_texts(edition: Edition, site: str) -> Iterator[tuple[str, bytes]]:
    """The Markdown of every card by its address; ``site`` is where the site will stand, or nothing."""
    texts = edition.each("text", lambda card: _CardText(edition, card, site or UP).text(), site)
    for card, text in zip(edition.library.cards.values(), texts, strict=True):
        yield card_text(card.id), text.encode()


@dataclass(frozen=True)
class _CardText:
    edition: Edition
    card: Card
    root: str

    def text(self) -> str:
        """The whole of it."""
        card, module = self.card, self.edition.library.modules[self.card.module]
        parts = [
            f"# {escaped(on_one_line(card.title))}",
            *(f"> {escaped(words.phrase('programs.proof')[lang])}" for lang in LANGS),
            f"<{self._address(card.id)}> · {escaped(on_one_line(module.title))} · {card.difficulty} · {card.updated}",
        ]
        for lang in LANGS:
            parts += [f"## {LANGUAGE_HEADINGS[lang]}", *self._half(lang)]
        parts += [f"## {on_one_line(PAGE_TITLES['evidence'])}", *self._evidence()]
        return "\n\n".join(parts).replace(JOINER, "") + "\n"

    def _address(self, card: str, anchor: str = "") -> str:
        return self.root + SiteAddresses("").card(card, anchor)

    def _half(self, lang: Lang) -> Iterator[str]:
        writer = _Writer(
            lang,
            lambda link, label, table: self._link(link, label, lang, table=table),
            lambda link: self._figure(link, lang),
            lambda name: name,
            lambda fence: self.edition.printed(self.card, fence),
        )
        if self.card.question:
            yield paragraph(self.card.question[lang])
        for name, section in self.card.sections[lang].items():
            yield f"### {SECTION_HEADINGS[name][lang]}"
            if section.tokens and name != "points":
                yield writer.blocks(section.tokens)
                continue
            for item in section.items:
                yield f"#### {_face(item, writer)}"
                yield writer.blocks(item.body)

    def _figure(self, link: FigureLink, lang: Lang) -> str:
        if not self.edition.is_drawn(link):
            return ""
        wide = pictures.about(self.edition, (link.demo, link.device, link.figure, lang))
        return f"![{escaped(wide.alternative)}]({self.root}{wide.address})"

    # Links

    def _link(self, found: Link, label: str, lang: Lang, *, table: bool) -> str:
        match found:
            case CardLink():
                written = found.card in self.edition.library.cards
                return titled(label, self._address(found.card, found.anchor)) if written else label
            case Citation():
                source = self.card.sources[found.source]
                place = f"{source.title}, {found.where or source.where}"
                return titled(label, source.url, place, table=table)
            case WebLink():
                return titled(label, found.url)
            case Given():
                return label
        address, title = self._proof(found, lang)
        shown = titled(label, address, title, table=table)
        return f"~~{shown}~~" if isinstance(found, Claim) and found.refuted else shown

    def _proof(self, found: Claim | Param | Calc | Fact | Awaited, lang: Lang) -> tuple[str, str]:
        """Where a number is proven, and how in words; what cannot stand, as in a draft, is stale."""
        edition, stale = self.edition, STATE_LABELS["stale"][lang]
        colon = words.phrase("numbers.colon")[lang]
        anchor, title = "evidence", stale
        match found:
            case Claim():
                anchor = evidence_anchor(found.demo, found.metric, found.device)
                if verdict := edition.verdict(found):
                    metric, record = verdict.metric, verdict.record
                    title = (
                        f"{STATE_LABELS[verdict.state][lang]}{colon}{metric.label[lang]}{colon}{values.exact(metric)} "
                        f"({record.device}, {record.recorded})"
                    )
            case Param():
                anchor = setting_anchor(found.demo, found.name)
                if setting := edition.setting(found):
                    parameter = setting.parameter
                    label = words.phrase("panel.setting")[lang]
                    title = f"{label}{colon}{parameter.help[lang]}{colon}{parameter.value}"
            case Calc():
                if derived := edition.derived(found):
                    anchor = calculation_anchor(derived)
                    title = (
                        f"{derived.expression} = {derived.substituted} = {calc.show(derived.value)}"
                    )
            case Fact():
                if fact := edition.fact(found):
                    return fact.source.url, fact_title(fact)[lang]
            case Awaited():
                if measure := edition.awaited(found):
                    anchor, title = awaited_anchor(found.demo), measure.label[lang]
        return self._address(self.card.id, anchor), title

    # Evidence

    def _evidence(self) -> Iterator[str]:
        for panel in self.edition.panels(self.card):
            yield from _run(panel)
        if derivations := self.edition.derivations(self.card):
            yield f"### {on_one_line(words.phrase('card.arithmetic'))}"
            yield _list(
                f"{escaped(calc.show(each.value))} = `{each.expression}` = {escaped(each.substituted)}"
                for each in derivations
            )
        if facts := self.edition.facts(self.card):
            yield f"### {on_one_line(words.phrase('card.facts'))}"
            yield _list(
                f"{escaped(each.shown)}: {_both(fact_about(each))}; "
                f"{titled(escaped(each.source.title), each.source.url)}, {escaped(each.source.where)}"
                for each in facts
            )
        if self.card.sources:
            yield f"### {on_one_line(words.phrase('card.sources'))}"
            yield _list(
                f"{titled(escaped(each.title), each.url)}, {escaped(each.where)}"
                for each in self.card.sources.values()
            )


class _Writer(Writer):
    """Markdown that everybody reads: no block ids, and headings below those of sections."""

    def _heading(self, token: Token, inner: Sequence[Token]) -> str:
        return "#" + super()._heading(token, inner)

    def _named(self, item: str) -> str:  # noqa: ARG002 - a list's item has no address of its own
        return ""


def _face(item: Item, writer: Writer) -> str:
    """What an item is called: its question, or its level among the points."""
    lang = writer.lang
    face = writer.line(item.title) or (LEVEL_LABELS[item.level][lang] if item.level else item.id)
    return f"{face} · {FREQUENCY_LABELS[item.frequency][lang]}" if item.frequency else face


def _run(panel: DemoPanel) -> Iterator[str]:
    record = panel.record
    yield f"### {_both(record.title)}"
    yield paragraph(on_one_line(record.question))
    yield f"`{panel.command}` · {record.device} · {record.recorded}"
    found = [
        f"{_both(row.value)}: {_both(row.metric.label)}; {_both(row.metric.how)} "
        f"({_both(KIND_LABELS[row.metric.kind])})"
        for row in panel.rows
    ]
    found += [f"{escaped(row.value)}: {_both(row.parameter.help)}" for row in panel.settings]
    if found:
        yield _list(found)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _both(text: Text) -> str:
    return escaped(on_one_line(text))

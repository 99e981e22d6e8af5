"""What each link of a card leads to, for whoever reviews the card: in words, with values and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

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
    Link,
    Param,
    WebLink,
    at_device,
)
from generator.evidence import calc, derived, settings, values
from generator.evidence.derived import Derived, Ground
from generator.evidence.facts import PublicFact
from generator.evidence.settings import Setting
from generator.evidence.verdicts import Verdict
from generator.lang import LANGS, Lang, Text
from generator.library.library import Library
from generator.names import suggest
from generator.problems import Place, Problem
from runnable_demos.lab.metrics import Figure, Record

Said = Mapping[str, str | Text]
"""What is said of a link, by what it is (``label``, ``method``, ``value``), in each language or once."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One link, or figure, of a card: where it stands, what it prints, where it leads, and what is there.

    ``state`` is that of the number (``proven``, ``follows``, ``assumed``, …), ``unresolved`` where the link does not
    hold; ``fault`` and ``hint`` then say why, and what to do.
    """

    place: Place
    lang: Lang
    printed: str
    target: str
    state: str
    said: Said
    fault: str = ""
    hint: str = ""


def of_card(card: Card, library: Library) -> list[Explanation]:
    """Each link and figure of ``card``, in the order of the file. What leads nowhere says so."""
    links = [(lang, link) for lang in LANGS for link in card.links_in(lang)]
    figures = [
        (lang, figure)
        for lang in LANGS
        for section in card.sections[lang].values()
        for figure in section.figures
    ]
    found = [_link(lang, link, card, library) for lang, link in links]
    found += [_figure(lang, figure, library) for lang, figure in figures]
    return sorted(found, key=lambda each: each.place)


def _link(lang: Lang, link: Link, card: Card, library: Library) -> Explanation:
    said = dict(_said(link, card, library))
    target, found = _target(link), _found(link, library)
    if isinstance(found, Problem):
        wrong = found.message, found.hint
        return Explanation(link.place, lang, link.text, target, "unresolved", said, *wrong)
    return Explanation(link.place, lang, link.text, target, found, said)


def _figure(lang: Lang, link: FigureLink, library: Library) -> Explanation:
    target = f"figure:{link.demo}/{link.figure}{at_device(link.device)}"
    found = library.drawn[link]
    if isinstance(found, Problem):
        wrong = found.message, found.hint
        return Explanation(link.place, lang, "", target, "unresolved", {}, *wrong)
    record = library.evidence.records[link.demo, link.device]
    said: Said = {"label": found.title, "kind": _shape(found), "run": _run(record)}
    return Explanation(link.place, lang, "", target, "drawn", said)


def _target(link: Link) -> str:
    """Where ``link`` leads, as cards write it."""
    match link:
        case Claim():
            scheme = "wrong" if link.refuted else "claim"
            target = f"{scheme}:{link.demo}/{link.metric}{at_device(link.device)}"
        case Param():
            target = f"param:{link.demo}/{link.name}"
        case Fact():
            target = f"fact:{link.entry}/{link.key}"
        case Calc():
            target = "calc:"
        case Citation():
            target = f"source:{link.source}"
        case Given():
            target = "given:"
        case Awaited():
            target = f"gpu:{link.demo}/{link.metric}"
        case CardLink():
            target = f"card:{link.card}" + (f"#{link.anchor}" if link.anchor else "")
        case WebLink():
            target = link.url
    return target


def _found(link: Link, library: Library) -> str | Problem:
    """The state of what ``link`` leads to, or why it leads nowhere."""
    if isinstance(link, CardLink):
        return _card_state(link, library)
    if isinstance(link, Awaited):
        measure = library.awaited[link]
        return measure if isinstance(measure, Problem) else "awaited"
    match None if isinstance(link, WebLink) else library.proof(link):
        case Problem() as problem:
            return problem
        case Verdict(state=state) | Derived(state=state):
            return state
        case found:
            return _STATES[type(found)]


_STATES: Mapping[type, str] = {
    PublicFact: "cited",
    Citation: "cited",
    Given: "assumed",
    Setting: "set",
    type(None): "web",
}


def _card_state(link: CardLink, library: Library) -> str | Problem:
    planned = {each.id for module in library.modules.values() for each in module.planned}
    if there := library.cards.get(link.card):
        if not link.anchor or link.anchor in there.item_ids:
            return "written"
        message = f"`{link.card}` has no follow-up, pitfall or point `{link.anchor}`"
        return Problem(link.place, "dead-link", message, suggest(link.anchor, there.item_ids))
    if link.card in planned:
        return "planned"
    hint = suggest(link.card, planned.union(library.cards))
    return Problem(link.place, "dead-link", f"there is no card `{link.card}`", hint)


# --- what is said --------------------------------------------------------------------------------


def _said(link: Link, card: Card, library: Library) -> Iterator[tuple[str, str | Text]]:
    """All that can be said of what ``link`` names, whether or not it prints the right number."""
    match link:
        case Claim():
            yield from _metric(link, library)
        case Param():
            if setting := settings.find(link.demo, link.name, library.evidence):
                yield "label", setting.parameter.help
                yield "value", str(setting.parameter.value)
                yield "run", _run(setting.record)
        case Fact():
            if fact := library.facts.find(link):
                yield from _fact(fact)
        case Calc():
            yield "expression", link.expression
            found = derived.derive(link, Ground.of(card, library.evidence, library.facts))
            if isinstance(found, Derived):
                yield from _calculated(found)
        case Citation():
            if source := card.sources.get(link.source):
                yield "work", source.title
                yield "address", source.url
            yield "place", link.where
        case CardLink():
            if there := library.cards.get(link.card):
                yield "title", there.title
        case Awaited():
            yield from _measure(link, library)


def _measure(link: Awaited, library: Library) -> Iterator[tuple[str, Text]]:
    if measure := library.evidence.awaited.get(link.demo, {}).get(link.metric):
        yield "label", measure.label
        yield "method", measure.method.how


def _calculated(found: Derived) -> Iterator[tuple[str, str]]:
    for step in found.steps()[:-1]:
        yield "part", f"{step.expression} = {step.substituted} = {calc.show(step.value)}"
    yield "with values", found.substituted
    yield "result", calc.show(found.value)


def _metric(link: Claim, library: Library) -> Iterator[tuple[str, str | Text]]:
    metric = library.evidence.metric(link.demo, link.metric, link.device)
    if metric is None:
        return
    yield "label", metric.label
    yield "method", metric.how
    if metric.reason:
        yield "bound", metric.reason
    yield "kind", metric.kind
    shown = values.shown(metric)
    yield "value", shown if len(set(shown.values())) > 1 else shown[LANGS[0]]
    yield "run", _run(library.evidence.records[link.demo, link.device])


def _fact(fact: PublicFact) -> Iterator[tuple[str, str | Text]]:
    yield "label", {lang: f"{fact.name[lang]}: {fact.label[lang]}" for lang in LANGS}
    yield "value", fact.shown
    if fact.derived:
        yield "follows from", fact.derived
    yield "source", f"{fact.source.title}, {fact.source.where}"
    yield "address", fact.source.url
    yield "as of", fact.as_of.isoformat()
    yield "opened", _opened(fact.source.opened)


def _opened(day: date | None) -> str:
    return day.isoformat() if day else "not opened: only a quotation of it was read"


def _run(record: Record) -> str:
    return f"{record.device}, recorded {record.recorded}"


def _shape(figure: Figure) -> str:
    return type(figure).__name__.lower()

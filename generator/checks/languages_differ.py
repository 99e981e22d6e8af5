"""Both languages carry the same substance, section by section."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from generator.cards.model import (
    Awaited,
    Calc,
    Citation,
    Claim,
    Fact,
    Given,
    Item,
    Link,
    Param,
    Section,
    at_device,
    place_of,
)
from generator.cards.prose import blocks
from generator.checks import Reading
from generator.evidence.quantities import QuantityError, read
from generator.lang import LANGS, LANGUAGE_HEADINGS, SECTION_HEADINGS, Lang
from generator.problems import Place, Problem, Severity

CODE = "languages-differ"
SEVERITY: Severity = "error"
SENTENCE = (
    "Both languages have, in each section, the same claims, settings, public facts, calculations, citations, assumed "
    "quantities, figures, display formulas, code blocks, headings and callouts, and the same follow-ups, pitfalls and "
    "points in one order, with the same words in their comments."
)


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that must stand in both languages: what it is, what it is called, where it is."""

    key: Hashable
    name: str
    place: Place


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each thing that stands in one language alone, where it stands."""
    for card in reading.cards:
        for name in card.sections[LANGS[0]]:
            halves = {lang: card.sections[lang][name] for lang in LANGS}
            first, *others = LANGS
            for other in others:
                yield from _compare(halves[first], halves[other])


def _compare(one: Section, other: Section) -> Iterator[Problem]:
    for collect in (_links, _figures, _formulas, _code, _layout):
        here, there = list(collect(one)), list(collect(other))
        yield from _alone(here, there, other)
        yield from _alone(there, here, one)
    yield from _items(one, other)


def _alone(here: Iterable[Thing], there: Iterable[Thing], section: Section) -> Iterator[Problem]:
    """What is here more often than there, in the half of ``section``."""
    missing = Counter(thing.key for thing in here)
    missing.subtract(thing.key for thing in there)
    for thing in here:
        if missing[thing.key] > 0:
            missing[thing.key] -= 1
            yield _missing(thing.name, thing.place, section)


def _missing(name: str, place: Place, section: Section) -> Problem:
    message = f"{name} is missing from {_called(section)} (line {section.place.line})"
    hint = "Say it in both languages, or in neither."
    return Problem(place, CODE, message, hint, SEVERITY)


def _called(section: Section) -> str:
    return f"“{LANGUAGE_HEADINGS[section.lang]} · {SECTION_HEADINGS[section.name][section.lang]}”"


def _links(section: Section) -> Iterator[Thing]:
    """What numbers lead to, each once: how often a language repeats it is a matter of style."""
    seen = set()
    for link in section.links:
        key, name = _named(link)
        if name and key not in seen:
            seen.add(key)
            yield Thing(key, name, link.place)


def _named(link: Link) -> tuple[Hashable, str]:
    """What is the same in both languages of a link, and what it is called; nothing where they may differ."""
    match link:
        case Claim():
            scheme = "wrong" if link.refuted else "claim"
            name = f"the claim `{scheme}:{link.demo}/{link.metric}{at_device(link.device)}`"
        case Param():
            name = f"the setting `param:{link.demo}/{link.name}`"
        case Fact():
            name = f"the fact `fact:{link.entry}/{link.key}`"
        case Calc():
            name = f"the calculation `{link.expression}`"
        case Citation():
            name = f'the citation `source:{link.source} "{link.where}"`'
        case Given():
            return _assumed(link)
        case Awaited():
            name = f"the number of a GPU `gpu:{link.demo}/{link.metric}`"
        case _:
            name = ""
    return name, name


def _assumed(link: Given) -> tuple[Hashable, str]:
    try:
        quantity = read(link.text)
    except QuantityError:  # words, or what is counted: each language has its own
        return "", ""
    return (quantity.value, quantity.unit), f"the assumed “{link.text}”"


def _figures(section: Section) -> Iterator[Thing]:
    for link in section.figures:
        name = f"the figure `figure:{link.demo}/{link.figure}{at_device(link.device)}`"
        yield Thing((link.demo, link.figure, link.device), name, link.place)


_TEXT = re.compile(r"\\text\w*\s*\{[^{}]*\}")
_SPACES = re.compile(r"\s+")


def _formulas(section: Section) -> Iterator[Thing]:
    """Display formulas; words within them are the language's own."""
    for token in blocks(section):
        if token.type == "math_block":
            key = _SPACES.sub(" ", _TEXT.sub("", token.content)).strip()
            first = len(token.content) - len(token.content.lstrip())
            yield Thing(key, "this display formula", place_of(token, first))


def _code(section: Section) -> Iterator[Thing]:
    for token in blocks(section):
        if token.type in {"fence", "code_block"}:
            key = (token.info.strip(), token.content.rstrip())
            yield Thing(key, "this code block", place_of(token))


def _layout(section: Section) -> Iterator[Thing]:
    for token in blocks(section):
        if token.type == "heading_open":
            yield Thing(token.tag, "a heading like this one", place_of(token))
        elif token.type == "alert_open":
            kind = token.meta["kind"]
            yield Thing(kind, f"a callout `[!{kind}]`", place_of(token))


def _items(one: Section, other: Section) -> Iterator[Problem]:
    """Follow-ups, pitfalls and points, known by their ids."""
    orders: dict[Lang, list[str]] = {each.lang: [i.id for i in each.items] for each in (one, other)}
    for section, against in ((one, other), (other, one)):
        for item in section.items:
            if item.id and item.id not in orders[against.lang]:
                yield _missing(f"`#{item.id}`", item.place, against)
    shared = set(orders[one.lang]) & set(orders[other.lang])
    here = [item for item in other.items if item.id in shared]
    there = [name for name in orders[one.lang] if name in shared]
    for item, name in zip(here, there, strict=False):
        if item.id != name:
            message = f"`#{item.id}` stands where {_called(one)} has `#{name}`"
            hint = "Put follow-ups, pitfalls and points in one order: side by side they pair by their ids."
            yield Problem(item.place, CODE, message, hint, SEVERITY)
            return
    said = {item.id: _said(item) for item in one.items}
    for item in here:
        if _said(item) != said[item.id]:
            message = f"`#{item.id}` is {_said(item)}, and {said[item.id]} in {_called(one)}"
            hint = "Say the same of it in both languages."
            yield Problem(item.place, CODE, message, hint, SEVERITY)


def _said(item: Item) -> str:
    """What an item's comment says besides its id, or the heading that a pitfall stands below."""
    words = (item.frequency, item.group, item.level, item.asks and f"asks={item.asks}")
    return " ".join(f"`{word}`" for word in words if word) or "of no kind"

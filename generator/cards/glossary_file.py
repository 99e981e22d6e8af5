"""``glossary.yml``: the terms of a base as people write them, and the words that make a numeral a name.

An entry of ``terms`` is ``id: {term: {zh, en}, means: {zh, en}, variants, never, card}``; ``naming`` is a list
of words. A base need not have the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from generator.cards import yaml_document
from generator.cards.front_matter import Id, Strict, TextLists, Texts, Words, once, validate
from generator.cards.glossary import Glossary, Term, folded
from generator.lang import LANGS
from generator.lines import Lines
from generator.names import is_id, why_no_id
from generator.problems import Place, Problem

FILE_NAME = "glossary.yml"

_FORMS: Mapping[str, str] = {
    "terms": "terms by id: `token: {term: {zh: token, en: token}, means: {zh: …, en: …}, never: {zh: [词元]}}`",
    "naming": "a list of words behind which a numeral is a name, such as `[Table, 表, Llama]`",
    "term": "what the term is called in each language, such as `{zh: 激活检查点, en: activation checkpointing}`",
    "means": "its meaning in one plain sentence in each language: `{zh: …, en: …}`",
    "variants": "lists of other words for it by language, slang too: `{zh: [重计算], en: [gckpt]}`",
    "never": "lists of words by language that no card says for it: `{zh: [词元]}`",
    "card": "the id of the card that explains it",
}


class _File(Strict):
    terms: dict[str, Any] = Field(default_factory=dict)
    naming: Annotated[list[Words], AfterValidator(once)] = Field(default_factory=list)


class _Entry(Strict):
    term: Texts
    means: Texts
    variants: TextLists = Field(default_factory=dict)
    never: TextLists = Field(default_factory=dict)
    card: Id | None = None


def read(text: str, path: str) -> tuple[Glossary, list[Problem]]:
    """The glossary in a file, and what is wrong with it; a term with a fault is left out."""
    lines = Lines(path, text)
    document = yaml_document.read(lines)
    problems = [*lines.problems, *document.problems]
    if document.value is None and document.problems:
        return Glossary(), sorted(problems)
    values, found = validate(_File, document.value or {}, document.places, lines.at(0), _FORMS)
    given = document.value.get("terms") if isinstance(document.value, dict) else None
    reading = _Reading(document.places)
    entries = (given if isinstance(given, dict) else {}).items()
    terms = {name: term for name, value in entries if (term := reading.term(name, value))}
    naming = tuple(values.naming) if isinstance(values, _File) else ()
    places = {name.removeprefix("terms."): place for name, place in document.places.items()}
    problems += [*found, *reading.problems, *reading.doubles(terms)]
    return Glossary(terms, naming, places), sorted(problems)


@dataclass
class _Reading:
    """The terms being read."""

    places: Mapping[str, Place]
    problems: list[Problem] = field(default_factory=list)

    def term(self, name: str, value: Any) -> Term | None:
        """One term; nothing where it has a fault."""
        at = f"terms.{name}"
        if not is_id(name):
            hint = "Write a name in kebab-case, such as `all-gather`."
            message = f"`{name}` {why_no_id(name)}"
            self.problems.append(Problem(self.places[at], "bad-id", message, hint))
        inner = {
            path.removeprefix(f"{at}."): place
            for path, place in self.places.items()
            if path.startswith(f"{at}.")
        }
        entry, found = validate(_Entry, value, inner, self.places[at], _FORMS)
        self.problems += found
        if not isinstance(entry, _Entry) or not is_id(name):
            return None
        return Term(
            id=name,
            name=dict(entry.term),
            means=dict(entry.means),
            variants={lang: tuple(forms) for lang, forms in entry.variants.items()},
            never={lang: tuple(forms) for lang, forms in entry.never.items()},
            card=entry.card,
        )

    def doubles(self, terms: Mapping[str, Term]) -> Iterator[Problem]:
        """Each form that stands a second time in its language: for another term, or for the same."""
        for lang in LANGS:
            first: dict[str, tuple[str, Place]] = {}
            for term in terms.values():
                for form, path in _written(term, lang):
                    place = self.places[f"terms.{term.id}.{path}"]
                    other, before = first.setdefault(folded(form), (term.id, place))
                    if before != place:
                        message = f"`{form}` stands for `{other}` already, in line {before.line}"
                        hint = "Keep it in one place: a form has one meaning, and is said or never said."
                        yield Problem(place, "duplicate-entry", message, hint)


def _written(term: Term, lang: str) -> Iterator[tuple[str, str]]:
    """Every form of a term in a language, with its path in the entry."""
    yield term.name[lang], f"term.{lang}"
    for part, lists in (("variants", term.variants), ("never", term.never)):
        for index, form in enumerate(lists.get(lang, ())):
            yield form, f"{part}.{lang}.{index}"

"""``modules.yml``: the modules with their topics and planned cards, and the learning paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from generator.cards import addresses, yaml_document
from generator.cards.front_matter import Id, Ids, Strict, Texts, validate
from generator.cards.model import LearningPath, Module, PlannedCard, Topic
from generator.lines import Lines
from generator.problems import Place, Problem

FILE_NAME = "modules.yml"

_FORMS: Mapping[str, str] = {
    "format": "`2`, the format of the cards",
    "modules": "a list of modules: `- {id: llm, code: M5, title: {zh: …, en: …}, "
    "summary: {zh: …, en: …}, topics: {fine-tuning: {zh: …, en: …}}, planned: […]}`",
    "paths": "a list of paths: `- {id: first-interview, title: {zh: …, en: …}, "
    "summary: {zh: …, en: …}, cards: [big-o]}`",
}


class _Planned(Strict):
    id: Id
    title: Texts


class _Module(Strict):
    id: Id
    code: Annotated[str, StringConstraints(pattern=r"^[A-Z]\d{1,3}$")]
    title: Texts
    summary: Texts
    topics: dict[Id, Texts] = Field(default_factory=dict)
    planned: list[_Planned] = Field(default_factory=list)


class _Path(Strict):
    id: Id
    title: Texts
    summary: Texts
    cards: Ids


class _Syllabus(Strict):
    format: Literal[1, 2] = 1
    modules: list[_Module]
    paths: list[_Path] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Syllabus:
    """The modules by id, in their order, and the learning paths.

    ``format`` is that of the base: in format 2 its cards are, or are to be, in format 2; ``path`` is the file.
    """

    modules: Mapping[str, Module]
    paths: tuple[LearningPath, ...]
    places: Mapping[str, Place]
    format: Literal[1, 2] = 1
    path: str = FILE_NAME


def read(text: str, path: str) -> tuple[Syllabus | None, list[Problem]]:
    """Read ``modules.yml``; the syllabus is ``None`` where it cannot be used."""
    lines = Lines(path, text)
    document = yaml_document.read(lines)
    problems = [*lines.problems, *document.problems]
    if document.value is None and document.problems:
        return None, sorted(problems)
    values, found = validate(_Syllabus, document.value or {}, document.places, lines.at(0), _FORMS)
    problems += found
    if not isinstance(values, _Syllabus):
        return None, sorted(problems)
    problems += _doubles(values, document.places)
    problems += _reserved(values, document.places)
    modules = {
        entry.id: Module(
            id=entry.id,
            code=entry.code,
            title=entry.title,
            summary=entry.summary,
            topics={key: Topic(key, title) for key, title in entry.topics.items()},
            planned=tuple(PlannedCard(card.id, card.title) for card in entry.planned),
        )
        for entry in values.modules
    }
    paths = tuple(
        LearningPath(entry.id, entry.title, entry.summary, tuple(entry.cards))
        for entry in values.paths
    )
    return Syllabus(modules, paths, document.places, values.format, path), sorted(problems)


def _reserved(values: _Syllabus, places: Mapping[str, Place]) -> Iterator[Problem]:
    """Modules and topics that would take the address of something else."""
    for number, module in enumerate(values.modules):
        if module.id in addresses.TAKEN:
            yield Problem(
                places[f"modules.{number}.id"],
                "reserved-id",
                f"the site has a page, folder or file of its own called `{module.id}`",
                "Give the module another id, and its folder with it.",
            )
        if addresses.PLANNED in module.topics:
            yield Problem(
                places[f"modules.{number}.topics.{addresses.PLANNED}"],
                "reserved-id",
                f"a module's page has a part of its own called `{addresses.PLANNED}`",
                "Give the topic another id.",
            )


def _doubles(values: _Syllabus, places: Mapping[str, Place]) -> Iterator[Problem]:
    named: list[tuple[str, str, str]] = []
    for number, module in enumerate(values.modules):
        named.append(("module id", module.id, f"modules.{number}.id"))
        named.append(("code", module.code, f"modules.{number}.code"))
        for index, card in enumerate(module.planned):
            named.append(("planned card", card.id, f"modules.{number}.planned.{index}.id"))
    for number, path in enumerate(values.paths):
        named.append(("path id", path.id, f"paths.{number}.id"))
    first: dict[tuple[str, str], Place] = {}
    for noun, name, where in named:
        if before := first.get((noun, name)):
            yield Problem(
                places[where],
                "duplicate-id",
                f"the {noun} `{name}` is taken in line {before.line}",
                "Give each its own.",
            )
        first.setdefault((noun, name), places[where])

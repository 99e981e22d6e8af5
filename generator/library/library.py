"""A folder of cards → ``Library``: every card, what leads to it and from it, and the evidence."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from generator import filesystem
from generator.cache import NOTHING_KEPT, Cache
from generator.cards import glossary_file, parse, syllabus
from generator.cards.glossary import Glossary
from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Claim,
    Fact,
    FigureLink,
    LearningPath,
    Module,
    Param,
)
from generator.cards.syllabus import Syllabus
from generator.documents import lessons
from generator.documents.document import Document
from generator.evidence import awaited, derived, fact_file, facts, fence_records, settings
from generator.evidence.derived import Derived, Ground
from generator.evidence.evidence import Evidence, load_evidence
from generator.evidence.facts import Facts, PublicFact
from generator.evidence.fence_records import FenceRecords
from generator.evidence.numerals import NAMING, Proof
from generator.evidence.settings import Setting
from generator.evidence.verdicts import Verdict, drawn, judge
from generator.problems import Place, Problem
from runnable_demos.lab import discovery
from runnable_demos.lab.metrics import Figure
from runnable_demos.lab.table import Measure

PACKAGED_DEMOS = discovery.PACKAGED
"""The demos and the evidence that come with the program: those of every base without its own."""


def own_demos(cards: Path) -> Path | None:
    """The demos of the base in ``cards``: they stand beside it, if it has any."""
    demos = Path(os.path.normpath(cards / ".." / "runnable_demos"))
    return demos if demos.is_dir() else None


@dataclass(frozen=True)
class Contents:
    """What was read of a base, before it is put together.

    Of the ``cards`` several may have one id. ``broken`` are the ids of those that could not be
    parsed, so that links to them are no faults.
    """

    root: Path
    syllabus: Syllabus
    cards: tuple[Card, ...]
    broken: frozenset[str]
    evidence: Evidence
    facts: Facts = field(default_factory=Facts)
    fences: FenceRecords = field(default_factory=FenceRecords)
    glossary: Glossary = field(default_factory=Glossary)
    lessons: Mapping[str, Document] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A whole base; what does not hold in it is for the checks to say.

    ``modules`` stand in their order, with the planned cards that are not yet written.
    ``cards`` stand in reading order: no card before its prerequisites, then by module and id.
    ``unlocks`` maps a card to those that name it as a prerequisite,
    ``backlinks`` to those whose text or ``related`` links to it; both in reading order.
    """

    root: Path
    modules: Mapping[str, Module]
    paths: tuple[LearningPath, ...]
    cards: Mapping[str, Card]
    unlocks: Mapping[str, tuple[str, ...]]
    backlinks: Mapping[str, tuple[str, ...]]
    evidence: Evidence
    facts: Facts
    fences: FenceRecords
    glossary: Glossary
    lessons: Mapping[str, Document]

    @cached_property
    def judged(self) -> Mapping[Claim, Verdict | Problem]:
        """What the evidence says of each claim of the base, judged once for all who ask."""
        return {
            claim: judge(claim, self.evidence)
            for card in self.cards.values()
            for claim in card.claims()
        }

    @cached_property
    def settings(self) -> Mapping[Param, Setting | Problem]:
        """The setting of a run that each such link of the base states, judged once for all who ask."""
        return {
            link: settings.judge(link, self.evidence)
            for card in self.cards.values()
            for link in card.params()
        }

    @cached_property
    def derived(self) -> Mapping[Calc, Derived | Problem]:
        """What each number follows from that a card calculates, judged once for all who ask."""
        return {
            link: derived.judge(link, ground)
            for card in self.cards.values()
            for ground in [Ground.of(card, self.evidence, self.facts)]
            for link in card.calcs()
        }

    @cached_property
    def awaited(self) -> Mapping[Awaited, Measure | Problem]:
        """What a GPU is to measure for each such link of the base, judged once for all who ask."""
        return {
            link: awaited.judge(link, self.evidence)
            for card in self.cards.values()
            for link in card.awaited()
        }

    @cached_property
    def drawn(self) -> Mapping[FigureLink, Figure | Problem]:
        """The figure that each such link of the base places, looked up once for all who ask."""
        return {
            link: drawn(link, self.evidence)
            for card in self.cards.values()
            for link in card.figures()
        }

    @cached_property
    def stated(self) -> Mapping[Fact, PublicFact | Problem]:
        """The public fact that each such link of the base states, judged once for all who ask."""
        return {
            link: facts.judge(link, self.facts)
            for card in self.cards.values()
            for link in card.facts()
        }

    @property
    def naming(self) -> frozenset[str]:
        """The words behind which a numeral is a name."""
        return NAMING.union(self.glossary.naming)

    def proof(self, link: Proof) -> Verdict | Setting | PublicFact | Derived | Proof | Problem:
        """What stands behind a number that is linked, or why nothing does; a citation stands for itself."""
        match link:
            case Claim():
                return self.judged[link]
            case Param():
                return self.settings[link]
            case Fact():
                return self.stated[link]
            case Calc():
                return self.derived[link]
        return link


def load(
    cards: Path,
    *,
    demos: Path | None = None,
    evidence: Path | None = None,
    cache: Cache = NOTHING_KEPT,
) -> tuple[Library | None, list[Problem]]:
    """The base in ``cards``, unchecked, and what cannot be read of it; the rest is as in ``read``."""
    contents, problems = read(cards, demos=demos, evidence=evidence, cache=cache)
    return (assemble(contents) if contents else None), problems


# --- reading -------------------------------------------------------------------------------------


def read(
    cards: Path,
    *,
    demos: Path | None = None,
    evidence: Path | None = None,
    cache: Cache = NOTHING_KEPT,
) -> tuple[Contents | None, list[Problem]]:
    """Read the base in ``cards``: as much of it as stands, and what cannot be read, sorted.

    ``evidence`` is ``demos / "evidence"`` unless given; without both no number is proven.
    Cards and records that the ``cache`` has are not parsed again.
    The contents are ``None`` where there is no syllabus or not a single card to speak of.
    """
    shown = cards.as_posix()
    plan, problems = read_syllabus(cards)
    if filesystem.as_folder(cards, shown):
        return None, problems
    files, found = filesystem.find_cards(cards, shown)
    problems += found
    parsed: list[Card] = []
    broken: set[str] = set()
    for (file, _), (card, found) in zip(files, _cards(files, cache), strict=True):
        problems += found
        if card:
            parsed.append(card)
        else:
            broken.add(file.stem)
    if not files:
        problems.append(_empty(shown))
    records, found = _evidence(demos, evidence, cache)
    public, wrong = _facts(cards, cache)
    printed, unsound = _fences(cards, demos, evidence)
    terms, amiss = _glossary(cards, cache)
    taught, untaught = lessons.load(demos) if demos else ({}, [])
    problems = sorted({*problems, *found, *wrong, *unsound, *amiss, *untaught})
    if plan is None or not parsed:
        return None, problems
    known = (records, public, printed, terms, taught)
    return Contents(cards, plan, tuple(parsed), frozenset(broken), *known), problems


def read_syllabus(cards: Path) -> tuple[Syllabus | None, list[Problem]]:
    """The ``modules.yml`` of a base; ``None`` where there is no folder or no usable file."""
    shown = cards.as_posix()
    if problem := filesystem.as_folder(cards, shown):
        return None, [problem]
    name = f"{shown}/{syllabus.FILE_NAME}"
    text = filesystem.read_text(cards / syllabus.FILE_NAME, name)
    if isinstance(text, str):
        return syllabus.read(text, name)
    if text.code == "no-file":
        text = replace(
            text,
            code="no-modules",
            message=f"a base needs a `{syllabus.FILE_NAME}`, and this one has none",
            hint="Write `modules: [{id: llm, code: M1, title: {zh: …, en: …}, summary: …}]` in it.",
        )
    return None, [text]


def _cards(
    files: Sequence[tuple[Path, str]], cache: Cache
) -> list[tuple[Card | None, list[Problem]]]:
    """What is read of each file, which is shown by its name."""
    texts = [(filesystem.read_text(file, name), name) for file, name in files]

    def read_one(index: int) -> tuple[Card | None, list[Problem]]:
        text, name = texts[index]
        return parse.parse(text, name) if isinstance(text, str) else (None, [text])

    return cache.each("card", texts, read_one)


def _evidence(
    demos: Path | None, evidence: Path | None, cache: Cache
) -> tuple[Evidence, list[Problem]]:
    folder = evidence or (demos / "evidence" if demos else None)
    if folder is None:
        return Evidence(), []
    try:
        return load_evidence(folder, demos or folder.parent, cache)
    except OSError as error:
        return Evidence(), [filesystem.unreadable(error, str(error.filename or folder))]


def _fences(
    cards: Path, demos: Path | None, evidence: Path | None
) -> tuple[FenceRecords, list[Problem]]:
    """What the fences of the base printed; the program's own evidence holds that of its own cards alone."""
    folder = evidence or (demos / "evidence" if demos else None)
    if folder is None or (_is_packaged(folder.parent) and not _is_packaged(own_demos(cards))):
        return FenceRecords(), []
    try:
        return fence_records.load(folder)
    except OSError as error:
        return FenceRecords(), [filesystem.unreadable(error, str(error.filename or folder))]


def _is_packaged(demos: Path | None) -> bool:
    return demos is not None and demos.resolve() == PACKAGED_DEMOS.resolve()


def _facts(cards: Path, cache: Cache) -> tuple[Facts, list[Problem]]:
    """The facts that come with the program, extended by those of the base."""
    name = f"{cards.as_posix()}/{fact_file.FILE_NAME}"
    own = filesystem.read_text(cards / fact_file.FILE_NAME, name)
    texts = [(own, name)]
    if fact_file.PACKAGED:
        packaged = str(fact_file.PACKAGED)
        texts.insert(0, (filesystem.read_text(fact_file.PACKAGED, packaged), packaged))
    found, problems = Facts(), []
    for text, shown in texts if texts[0][0] != own else texts[-1:]:
        if isinstance(text, str):
            more, wrong = cache.get("facts", (text, shown), partial(fact_file.read, text, shown))
        elif text.code == "no-file":
            continue
        else:
            more, wrong = Facts(whole=False), [text]
        found = found.extended(more)
        problems += wrong
    return found, problems


def _glossary(cards: Path, cache: Cache) -> tuple[Glossary, list[Problem]]:
    """The terms of the base; none where it has no such file."""
    name = f"{cards.as_posix()}/{glossary_file.FILE_NAME}"
    text = filesystem.read_text(cards / glossary_file.FILE_NAME, name)
    if isinstance(text, str):
        return cache.get("glossary", (text, name), partial(glossary_file.read, text, name))
    return Glossary(), [] if text.code == "no-file" else [text]


def _empty(shown: str) -> Problem:
    return Problem(
        Place(shown),
        "no-cards",
        "there is not a single card here",
        "Write the first: `proofdeck new ID --module MODULE --topic TOPIC`.",
    )


# --- the graph -----------------------------------------------------------------------------------


def assemble(contents: Contents) -> Library:
    """The graph of the cards; of those with one id, the first by its path counts."""
    ordered = sorted(contents.cards, key=lambda card: (card.id, card.path))
    by_id = {card.id: card for card in reversed(ordered)}
    modules = {
        key: replace(module, planned=tuple(p for p in module.planned if p.id not in by_id))
        for key, module in contents.syllabus.modules.items()
    }
    cards = _reading_order(by_id, modules)
    return Library(
        root=contents.root,
        modules=modules,
        paths=contents.syllabus.paths,
        cards=cards,
        unlocks=_inverted({card.id: card.prerequisites for card in cards.values()}),
        backlinks=_inverted({card.id: tuple(_named(card)) for card in cards.values()}),
        evidence=contents.evidence,
        facts=contents.facts,
        fences=contents.fences,
        glossary=contents.glossary,
        lessons=contents.lessons,
    )


def _reading_order(by_id: Mapping[str, Card], modules: Mapping[str, Module]) -> dict[str, Card]:
    """No card before its prerequisites, else by module and id; a cycle's cards come last."""
    rank = {module: index for index, module in enumerate(modules)}

    def key(card: Card) -> tuple[int, str]:
        return rank.get(card.module, len(rank)), card.id

    sorter = TopologicalSorter(
        {name: by_id.keys() & card.prerequisites for name, card in by_id.items()}
    )
    with suppress(CycleError):  # what a cycle does not hold up is sorted all the same
        sorter.prepare()
    ready: list[tuple[int, str]] = []
    order: dict[str, Card] = {}
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, key(by_id[name]))
        _, first = heapq.heappop(ready)
        order[first] = by_id[first]
        sorter.done(first)
    circular = sorted((by_id[name] for name in by_id.keys() - order.keys()), key=key)
    return order | {card.id: card for card in circular}


def _named(card: Card) -> Iterator[str]:
    yield from card.related
    yield from (link.card for link in card.links() if isinstance(link, CardLink))


def _inverted(edges: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Who names a card, in the order of those who do; a card that names itself does not count."""
    result: dict[str, list[str]] = {}
    for name, targets in edges.items():
        for target in dict.fromkeys(targets):
            if target != name:
                result.setdefault(target, []).append(name)
    return {target: tuple(names) for target, names in result.items()}

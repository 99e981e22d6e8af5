"""A folder of cards → ``Library``: every card, what leads to it and from it, and the evidence."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import runnable_demos
from generator import checks, filesystem
from generator.cards import addresses, parse, syllabus
from generator.cards.model import Card, CardLink, Claim, LearningPath, Module
from generator.cards.syllabus import Syllabus
from generator.evidence.evidence import Evidence, load_evidence
from generator.evidence.verdicts import Verdict, judge
from generator.lang import LANGS
from generator.names import suggest
from generator.problems import Place, Problem

PACKAGED_DEMOS = Path(runnable_demos.__file__).parent
"""The demos and the evidence that come with the program: those of every base without its own."""


def own_demos(cards: Path) -> Path | None:
    """The demos of the base in ``cards``: they stand beside it, if it has any."""
    demos = Path(os.path.normpath(cards / ".." / "runnable_demos"))
    return demos if demos.is_dir() else None


@dataclass(frozen=True)
class Library:
    """A whole base, validated; what does not hold is among the problems that came with it.

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

    @cached_property
    def judged(self) -> Mapping[Claim, Verdict | Problem]:
        """What the evidence says of each claim of the base, judged once for all who ask."""
        return {
            claim: judge(claim, self.evidence)
            for card in self.cards.values()
            for claim in card.claims()
        }


def load(
    cards: Path, *, demos: Path | None = None, evidence: Path | None = None
) -> tuple[Library | None, list[Problem]]:
    """Read the base in ``cards``: as much of it as stands, and every problem, sorted.

    Parsing, the graph, the evidence and all checks have their say in one run.
    ``evidence`` is ``demos / "evidence"`` unless given; without both no number is proven.
    The library is ``None`` where there is no syllabus or not a single card to speak of.
    """
    shown = cards.as_posix()
    plan, problems = read_syllabus(cards)
    if filesystem.as_folder(cards, shown):
        return None, problems
    files, found = filesystem.find_cards(cards, shown)
    problems += found
    parsed: list[Card] = []
    broken: set[str] = set()
    for file, name in files:
        card, found = _card(file, name)
        problems += found
        if card:
            parsed.append(card)
        else:
            broken.add(file.stem)
    if not files:
        problems.append(_empty(shown))
    records, found = _evidence(demos, evidence)
    problems += found
    if plan is None or not parsed:
        return None, sorted(set(problems))
    library, found = assemble(cards, plan, parsed, records, broken)
    return library, sorted({*problems, *found, *checks.run(library)})


def assemble(
    root: Path,
    plan: Syllabus,
    parsed: Iterable[Card],
    evidence: Evidence,
    broken: Iterable[str] = (),
) -> tuple[Library, list[Problem]]:
    """The graph of the parsed cards, and what is wrong with it.

    ``broken`` names cards that exist but could not be parsed, so that links to them are no faults.
    """
    ordered = sorted(parsed, key=lambda card: (card.id, card.path))
    by_id = {card.id: card for card in reversed(ordered)}
    modules = {
        key: replace(module, planned=tuple(p for p in module.planned if p.id not in by_id))
        for key, module in plan.modules.items()
    }
    planned = {card.id for module in modules.values() for card in module.planned}
    known = {*by_id, *planned, *broken}
    cards = _reading_order(by_id, modules)
    library = Library(
        root=root,
        modules=modules,
        paths=plan.paths,
        cards=cards,
        unlocks=_inverted({card.id: card.prerequisites for card in cards.values()}),
        backlinks=_inverted({card.id: tuple(_named(card)) for card in cards.values()}),
        evidence=evidence,
    )
    problems = [
        *_same_ids(ordered),
        *_former_ids(cards, known),
        *syllabus.unknown_cards(plan, known),
        *_cycles(cards),
    ]
    formerly = {former: card.id for card in cards.values() for former in card.formerly}
    for card in cards.values():
        problems += _home(card, plan.modules, root)
        problems += _home_note(card)
        problems += _colliding_items(card)
        problems += _dead_links(card, cards, known, formerly)
    return library, problems


# --- reading -------------------------------------------------------------------------------------


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


def _card(file: Path, name: str) -> tuple[Card | None, list[Problem]]:
    text = filesystem.read_text(file, name)
    return parse.parse(text, name) if isinstance(text, str) else (None, [text])


def _evidence(demos: Path | None, evidence: Path | None) -> tuple[Evidence, list[Problem]]:
    folder = evidence or (demos / "evidence" if demos else None)
    if folder is None:
        return Evidence(), []
    try:
        return load_evidence(folder, demos or folder.parent)
    except OSError as error:
        return Evidence(), [filesystem.unreadable(error, str(error.filename or folder))]


def _empty(shown: str) -> Problem:
    return Problem(
        Place(shown),
        "no-cards",
        "there is not a single card here",
        "Write the first: `proofdeck new ID --module MODULE --topic TOPIC`.",
    )


# --- the graph -----------------------------------------------------------------------------------


def _reading_order(by_id: Mapping[str, Card], modules: Mapping[str, Module]) -> dict[str, Card]:
    """No card before its prerequisites, else by module and id; a cycle's cards come last."""
    rank = {module: index for index, module in enumerate(modules)}

    def key(card: Card) -> tuple[int, str]:
        return rank.get(card.module, len(rank)), card.id

    waiting = {name: set(card.prerequisites) & by_id.keys() for name, card in by_id.items()}
    unlocks = _inverted({name: tuple(needed) for name, needed in waiting.items()})
    ready = [key(by_id[name]) for name, needed in waiting.items() if not needed]
    heapq.heapify(ready)
    order: dict[str, Card] = {}
    while ready:
        _, name = heapq.heappop(ready)
        order[name] = by_id[name]
        for later in unlocks.get(name, ()):
            waiting[later].discard(name)
            if not waiting[later]:
                heapq.heappush(ready, key(by_id[later]))
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


def _same_ids(ordered: Iterable[Card]) -> Iterator[Problem]:
    first: dict[str, Card] = {}
    for card in ordered:
        other = first.setdefault(card.id, card)
        if other is not card:
            yield Problem(
                card.places["id"],
                "duplicate-id",
                f"the id `{card.id}` is taken by {other.places['id']}",
                "Give each card an id of its own.",
            )


def _former_ids(cards: Mapping[str, Card], known: set[str]) -> Iterator[Problem]:
    claimed: dict[str, Place] = {}
    for card in sorted(cards.values(), key=lambda card: card.path):
        for index, former in enumerate(card.formerly):
            place = card.places[f"formerly.{index}"]
            if former == card.id:
                continue
            if former in known:
                message = f"`{former}` is the id of another card, so it cannot lead here"
            elif former in claimed:
                message = f"`{former}` leads elsewhere already, by {claimed[former]}"
            else:
                claimed[former] = place
                continue
            yield Problem(place, "former-id", message, "Remove it from one of the two.")


def _home(card: Card, modules: Mapping[str, Module], root: Path) -> Iterator[Problem]:
    """A card stands in the folder of its module, which has its topic."""
    module = modules.get(card.module)
    if module is None:
        message = f"there is no module `{card.module}`"
        hint = suggest(card.module, modules)
        yield Problem(card.places["module"], "unknown-module", message, hint)
        return
    folder = Path(card.path).relative_to(root).parent.as_posix()
    if folder != card.module:
        yield Problem(
            card.places["module"],
            "wrong-folder",
            f"the module is `{card.module}`, and the file stands in `{folder}/` of the base",
            f"Move the file into `{card.module}/`, or change its module.",
        )
    if card.topic not in module.topics:
        message = f"the module `{card.module}` has no topic `{card.topic}`"
        hint = suggest(card.topic, module.topics)
        yield Problem(card.places["topic"], "unknown-topic", message, hint)


def _home_note(card: Card) -> Iterator[Problem]:
    if card.id == addresses.HOME_NOTE.lower():
        message = f"the vault's first note is called {addresses.HOME_NOTE}"
        yield Problem(card.places["id"], "reserved-id", message, "Give the card another id.")


def _colliding_items(card: Card) -> Iterator[Problem]:
    """Follow-ups and pitfalls whose id something else on the page or in the note has."""
    for half in card.sections.values():
        items = [item for section in half.values() for item in section.items]
        blocks = {
            addresses.block(item.id, language): item.id for item in items for language in LANGS[1:]
        }
        for item in items:
            if item.id in addresses.CARD_ANCHORS or item.id.startswith(addresses.PREFIXES):
                message = f"the id `{item.id}` is taken by a part of the card's page"
            elif item.id in blocks:
                message = f"the id `{item.id}` is what `{blocks[item.id]}` is called in its other language"
            else:
                continue
            yield Problem(
                item.place, "reserved-id", message, "Choose another, the same in both languages."
            )


def _dead_links(
    card: Card, cards: Mapping[str, Card], known: set[str], formerly: Mapping[str, str]
) -> Iterator[Problem]:
    def nearest(name: str) -> str:
        return f"It is now `{formerly[name]}`." if name in formerly else suggest(name, known)

    for key, code in (("prerequisites", "dead-prerequisite"), ("related", "dead-related")):
        for index, name in enumerate(getattr(card, key)):
            if name not in known:
                message = f"`{key}` names `{name}`, which is no card"
                yield Problem(card.places[f"{key}.{index}"], code, message, nearest(name))
    for link in card.links():
        if not isinstance(link, CardLink):
            continue
        if link.card not in known:
            message = f"the link leads to `{link.card}`, which is no card"
            yield Problem(link.place, "dead-link", message, nearest(link.card))
        elif link.anchor and link.card in cards:
            anchors = _anchors(cards[link.card])
            if link.anchor not in anchors:
                message = f"`{link.card}` has no follow-up or pitfall `{link.anchor}`"
                yield Problem(link.place, "dead-link", message, suggest(link.anchor, anchors))


def _anchors(card: Card) -> set[str]:
    return {
        item.id
        for half in card.sections.values()
        for section in half.values()
        for item in section.items
    }


def _cycles(cards: Mapping[str, Card]) -> Iterator[Problem]:
    """Each prerequisite that closes a circle, found by depth-first search without recursion."""
    done: set[str] = set()
    for start in sorted(cards):
        trail: list[str] = []
        stack: list[Iterator[tuple[int, str]]] = []
        entered, name = start not in done, start
        while entered or stack:
            if entered:
                trail.append(name)
                stack.append(iter(enumerate(cards[name].prerequisites)))
                entered = False
            index, name = next(stack[-1], (0, ""))
            if not name:
                stack.pop()
                done.add(trail.pop())
            elif name in trail and name != trail[-1]:
                circle = [*trail[trail.index(name) :], name]
                yield Problem(
                    cards[trail[-1]].places[f"prerequisites.{index}"],
                    "cycle",
                    "prerequisites run in a circle: " + " → ".join(circle),
                    "Decide which card comes first, and remove the other prerequisite.",
                )
            elif name in cards and name not in done and name not in trail:
                entered = True

"""An Obsidian vault: a note a card with both languages in it, notes for modules and paths, a canvas, a base.

Notes of cards are called by their ids, so that a reader's own links outlive a change of title;
other notes have a capital letter and a space in their names, which no id has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import yaml

from generator import words
from generator.cards import addresses
from generator.cards.model import (
    Awaited,
    Calc,
    Card,
    CardLink,
    Citation,
    Claim,
    Device,
    Fact,
    FigureLink,
    Given,
    Item,
    LearningPath,
    Link,
    Module,
    Param,
    WebLink,
)
from generator.edition.edition import DemoPanel, Edition, input_row
from generator.evidence import calc
from generator.evidence.derived import Derived, Input
from generator.evidence.facts import PublicFact
from generator.evidence.verdicts import State
from generator.graph import drawing as graph
from generator.lang import (
    DIFFICULTY_LABELS,
    FREQUENCY_LABELS,
    KIND_LABELS,
    LANGS,
    LANGUAGE_HEADINGS,
    LEVEL_LABELS,
    LEVEL_MARKS,
    PAGE_TITLES,
    RED_FLAG,
    SECTION_HEADINGS,
    STATE_LABELS,
    STATE_MARKS,
    Lang,
    Text,
    on_one_line,
)
from generator.render.html import fact_about, fact_title
from generator.render.obsidian import (
    Writer,
    block_id,
    callout,
    escaped,
    inert,
    link,
    paragraph,
    row,
    titled,
    url,
    value,
    wikilink,
    with_block_id,
)
from runnable_demos.lab.metrics import Figure, Record

NAME = "vault"
TITLE: Text = {"zh": "Obsidian 库", "en": "Obsidian vault"}
DEFAULT = True
HOME = f"{addresses.HOME_NOTE}.md"
ENTRY = f"{NAME}/{HOME}"
CARDS, FIGURES = "Cards", "Figures"
CANVAS, BASE = "Prerequisites.canvas", "Cards.base"
GLOSSARY = f"{addresses.HOME_NOTE} glossary"

_OWN = words.group("vault")
"""What notes say that no page does."""

CANVAS_SCALE = 2
"""Cards on a canvas show their text, so they are larger than in the graph of the site."""


def export(edition: Edition, out: Path) -> None:
    """Write the vault into ``out``."""
    for name, text in _notes(edition):
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(inert(text).encode())


def _notes(edition: Edition) -> Iterator[tuple[str, str]]:
    yield HOME, _home(edition)
    for module in edition.library.modules.values():
        if edition.cards_of(module):
            yield f"{_module_note(module)}.md", _module(edition, module)
    for path in edition.library.paths:
        yield f"{_path_note(path)}.md", _path(edition, path)
    if edition.terms:
        yield f"{GLOSSARY}.md", _glossary(edition)
    notes = edition.each("note", lambda card: _CardNote(edition, card).text())
    for card, note in zip(edition.library.cards.values(), notes, strict=True):
        yield f"{CARDS}/{card.id}.md", note
    yield CANVAS, _canvas(edition)
    yield BASE, _base()
    for record in edition.claimed():
        for figure in record.result.figures:
            for lang in LANGS:
                name = _figure_file(record.demo, figure.name, record.device, lang)
                yield name, edition.figure_file(record, figure, lang)


def _figure_file(demo: str, figure: str, device: Device, lang: Lang) -> str:
    return f"{FIGURES}/{block_id(demo, figure, _other_device(device), lang)}.svg"


def _other_device(device: Device) -> str:
    return "" if device == "cpu" else device


def _embedded(demo: str, figure: str, device: Device, lang: Lang) -> str:
    return f"![[{_figure_file(demo, figure, device, lang).removeprefix(f'{FIGURES}/')}]]"


def _module_note(module: Module) -> str:
    return f"{module.code} {module.id}"


def _path_note(path: LearningPath) -> str:
    return f"Path {path.id}"


def _cell(text: Text) -> str:
    """A text in both languages in a cell of a table, one below the other."""
    return "<br>".join(dict.fromkeys(escaped(text[lang], table=True) for lang in LANGS))


def _properties(values: Mapping[str, str | int | date | Sequence[str]]) -> str:
    """A note's properties: flat, with lists as lists and links as quoted text."""
    shown = {
        name: value(each)
        if isinstance(each, str)
        else [value(entry) for entry in each]
        if isinstance(each, Sequence)
        else each
        for name, each in values.items()
    }
    text = yaml.safe_dump(shown, allow_unicode=True, sort_keys=False, width=math.inf)
    return f"---\n{text}---"


def _card_link(edition: Edition, name: str, *, table: bool = False) -> str:
    """A link to a card; a planned one is its title."""
    title = escaped(on_one_line(edition.title_of(name)), table=table)
    if name in edition.library.cards:
        return link(name, "", title, table=table)
    return f"{title} ({on_one_line(words.phrase('common.planned'))})"


# --- cards ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CardNote:
    edition: Edition
    card: Card

    def text(self) -> str:
        """The whole note."""
        parts = [self._front_matter()]
        for lang in LANGS:
            parts += [f"# {LANGUAGE_HEADINGS[lang]}", *self._half(lang)]
        parts += [f"# {on_one_line(PAGE_TITLES['evidence'])}", *self._evidence()]
        parts += [f"# {on_one_line(PAGE_TITLES['connections'])}", *self._connections()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _front_matter(self) -> str:
        card = self.card
        aliases = [*card.title.values(), *(each for own in card.aliases.values() for each in own)]
        asked = [*card.question.values()] if card.question else []
        asked += [each for own in card.asked.values() for each in own]
        return _properties(
            {
                "title": on_one_line(card.title),
                **({"question": on_one_line(card.question)} if card.question else {}),
                "aliases": list(dict.fromkeys([*aliases, *asked])),
                "tags": list(card.tags),
                "cssclasses": ["proofdeck"],
                "module": wikilink(_module_note(self._home), on_one_line(self._home.title)),
                "topic": on_one_line(self._home.topics[card.topic].title),
                "difficulty": card.difficulty,
                **({"frequency": card.frequency} if card.frequency else {}),
                "updated": card.updated,
                "proven": self.edition.proven(card),
                **{
                    state: count
                    for state, count in self.edition.tally(card).items()
                    if state not in ("proven", "bounded")
                },
                "prerequisites": self._links(card.prerequisites),
                "related": self._links(card.related),
            }
        )

    @property
    def _home(self) -> Module:
        return self.edition.library.modules[self.card.module]

    def _links(self, names: Iterable[str]) -> list[str]:
        return [
            wikilink(name, on_one_line(self.edition.title_of(name)))
            for name in names
            if name in self.edition.library.cards
        ]

    def _half(self, lang: Lang) -> Iterator[str]:
        def figure(link: FigureLink) -> str:
            if not self.edition.is_drawn(link):
                return ""
            return _embedded(link.demo, link.figure, link.device, lang)

        writer = Writer(
            lang,
            self._link_writer(lang),
            figure,
            lambda name: addresses.block(name, lang),
            lambda fence: self.edition.printed(self.card, fence),
        )
        if self.card.question:
            yield callout("question", escaped(self.card.question[lang]), "")
        for name, section in self.card.sections[lang].items():
            yield f"## {SECTION_HEADINGS[name][lang]}"
            if name == "points":
                yield from (self._point(item, writer) for item in section.items)
                continue
            if section.tokens:
                yield writer.blocks(section.tokens)
                continue
            for item in section.items:
                face, back = writer.line(item.title), writer.blocks(item.body)
                if item.frequency:
                    face += f" · {FREQUENCY_LABELS[item.frequency][lang]}"
                block = callout("question", face, back, folded=True)
                yield with_block_id(block, addresses.block(item.id, lang))

    def _point(self, item: Item, writer: Writer) -> str:
        """What an interviewer listens for, folded: its level is the face."""
        lang = writer.lang
        kind = "failure" if item.level == RED_FLAG else "success"
        face = SECTION_HEADINGS["points"][lang]
        if item.level:
            face = f"{LEVEL_MARKS[item.level]} {LEVEL_LABELS[item.level][lang]}"
        back = writer.blocks(item.body)
        if item.asks:
            target = f"#^{addresses.block(item.asks, lang)}"
            back += f"\n\n{link('', target, words.phrase('points.asks')[lang])}"
        block = callout(kind, face, back, folded=True)
        return with_block_id(block, addresses.block(item.id, lang))

    def _link_writer(self, lang: Lang) -> _LinkWriter:
        return _LinkWriter(self.edition, self.card, lang)

    def _evidence(self) -> Iterator[str]:
        for panel in self.edition.panels(self.card):
            record = panel.record
            yield f"## {escaped(on_one_line(record.title))}"
            yield paragraph(on_one_line(record.question))
            if panel.stale:
                yield callout(
                    "warning",
                    on_one_line(_OWN["stale"]),
                    on_one_line(_OWN["stale_why"]),
                )
            for figure in panel.figures:
                if figure.name in panel.placed:
                    yield paragraph(on_one_line(figure.title)) + "\n" + self._places(record, figure)
                    continue
                for lang in LANGS:
                    image = _embedded(record.demo, figure.name, record.device, lang)
                    yield f"{image}\n*{escaped(figure.title[lang])}*"
            yield self._run(record)
            yield f"```sh\n{panel.command}\n```"
            if panel.awaited:
                yield from _awaited(panel)
            if panel.rows or panel.settings:
                yield with_block_id(_metrics(panel), _evidence_id(record.demo, record.device))
        if refutations := list(self.edition.refutations(self.card)):
            yield f"## {on_one_line(words.phrase('card.refutations'))}"
            yield "\n".join(
                [
                    row(
                        [
                            on_one_line(words.phrase("card.said")),
                            on_one_line(words.phrase("card.found")),
                            on_one_line(words.phrase("common.what")),
                        ]
                    ),
                    row(["---"] * 3),
                    *(
                        row([_cell(each.said), _cell(each.found), _cell(each.about)])
                        for each in refutations
                    ),
                ]
            )
        if derivations := self.edition.derivations(self.card):
            yield f"## {on_one_line(words.phrase('card.arithmetic'))}"
            yield with_block_id(_arithmetic(derivations), _CALCULATIONS)
        if facts := self.edition.facts(self.card):
            yield f"## {on_one_line(words.phrase('card.facts'))}"
            yield _facts(facts)
        if self.card.sources:
            yield f"## {on_one_line(words.phrase('card.sources'))}"
            yield "\n".join(
                f"- [{escaped(source.title)}](<{url(source.url)}>), {escaped(source.where)}"
                for source in self.card.sources.values()
            )

    def _places(self, record: Record, figure: Figure) -> str:
        """Links to the sections in which a figure stands."""
        wanted = (record.demo, figure.name, record.device)
        places = [
            wikilink(f"#{LANGUAGE_HEADINGS[lang]}#{heading}", heading)
            for lang, half in self.card.sections.items()
            for name, section in half.items()
            for link in section.figures
            if (link.demo, link.figure, link.device) == wanted
            for heading in [SECTION_HEADINGS[name][lang]]
        ]
        return f"{on_one_line(words.phrase('panel.placed'))} {', '.join(places)}"

    def _run(self, record: Record) -> str:
        environment = record.environment
        facts = [
            (on_one_line(_OWN["device"]), record.device.upper()),
            ("PyTorch", environment.get("torch", "")),
            ("Python", environment.get("python", "")),
            (on_one_line(_OWN["recorded"]), record.recorded),
        ]
        return "\n".join(f"- {name}: {escaped(found)}" for name, found in facts if found)

    def _connections(self) -> Iterator[str]:
        library, card = self.edition.library, self.card
        groups = [
            (on_one_line(words.phrase("card.prerequisites")), card.prerequisites),
            (on_one_line(words.phrase("card.unlocks")), library.unlocks.get(card.id, ())),
            (on_one_line(words.phrase("card.related")), card.related),
            (on_one_line(words.phrase("card.backlinks")), library.backlinks.get(card.id, ())),
        ]
        lines = [
            f"- {label}: " + "; ".join(_card_link(self.edition, name) for name in names)
            for label, names in groups
            if names
        ]
        for path in library.paths:
            if later := self.edition.next_in(path, card.id):
                here = link(_path_note(path), "", escaped(on_one_line(path.title)))
                lines.append(f"- {here} → {_card_link(self.edition, later.id)}")
        yield "\n".join(lines)


_MARKS = {state: mark for state, mark in STATE_MARKS.items() if state != "proven"}
_CALCULATIONS = block_id("ev", "calculations")


def _arithmetic(derivations: Iterable[Derived]) -> str:
    heads = [
        on_one_line(words.phrase("panel.value")),
        on_one_line(words.phrase("card.expression")),
        on_one_line(words.phrase("card.inputs")),
    ]
    rows = [
        row(
            [
                escaped(calc.show(each.value), table=True),
                f"`{each.expression}`<br>= {escaped(each.substituted, table=True)}",
                "<br>".join(map(_input, each.inputs)),
            ]
        )
        for each in derivations
    ]
    return "\n".join([row(heads), row(["---:", "---", "---"]), *rows])


def _input(each: Input) -> str:
    shown = input_row(each)
    about = _cell(shown.about or words.phrase("card.assumed"))
    return f"{escaped(shown.value, table=True)} {about} `{shown.name}`"


def _facts(facts: Iterable[PublicFact]) -> str:
    heads = [
        on_one_line(words.phrase("panel.value")),
        on_one_line(words.phrase("common.what")),
        on_one_line(words.phrase("card.source")),
        on_one_line(words.phrase("card.as_of")),
    ]
    rows = [
        row(
            [
                escaped(fact.shown, table=True),
                _cell(fact_about(fact)) + (f"<br>{_derivation(fact)}" if fact.derived else ""),
                f"[{escaped(fact.source.title, table=True)}](<{url(fact.source.url)}>), "
                f"{escaped(fact.source.where, table=True)} ({_opened(fact)})",
                fact.as_of.isoformat(),
            ]
        )
        for fact in facts
    ]
    return "\n".join([row(heads), row(["---:", "---", "---", "---"]), *rows])


def _derivation(fact: PublicFact) -> str:
    return escaped(f"{fact.key} = {fact.derived}", table=True)


def _opened(fact: PublicFact) -> str:
    """Whether somebody has read the place that a fact names."""
    if fact.source.opened is None:
        return on_one_line(words.phrase("card.not_opened"))
    day = fact.source.opened.isoformat()
    return on_one_line(words.fill(words.phrase("card.opened"), day=day))


def _evidence_id(demo: str, device: str) -> str:
    return block_id("ev", demo, "" if device == "cpu" else device)


def _metrics(panel: DemoPanel) -> str:
    heads = [
        on_one_line(words.phrase("panel.value")),
        on_one_line(words.phrase("common.what")),
        on_one_line(words.phrase("panel.how")),
        on_one_line(words.phrase("panel.kind")),
    ]
    rows = [
        row(
            [
                _cell(each.value),
                _cell(each.metric.label),
                _cell(each.metric.how),
                _cell(KIND_LABELS[each.metric.kind]),
            ]
        )
        for each in panel.rows
    ]
    rows += [
        row(
            [
                escaped(each.value, table=True),
                _cell(each.parameter.help),
                on_one_line(words.phrase("panel.set")),
                on_one_line(words.phrase("panel.setting")),
            ]
        )
        for each in panel.settings
    ]
    return "\n".join([row(heads), row(["---:", "---", "---", "---"]), *rows])


def _awaited_id(demo: str) -> str:
    return block_id("gpu", demo)


def _awaited(panel: DemoPanel) -> Iterator[str]:
    """What no GPU has told yet, and the command that makes it."""
    head = paragraph(on_one_line(words.phrase("panel.awaited")))
    yield with_block_id(head, _awaited_id(panel.record.demo))
    yield "\n".join(f"- {escaped(on_one_line(each.label))}" for each in panel.awaited.values())
    yield f"```sh\n{panel.gpu_command}\n```"


@dataclass(frozen=True)
class _LinkWriter:
    """Writes the links of one language of a card, see ``obsidian.LinkWriter``."""

    edition: Edition
    card: Card
    lang: Lang

    def __call__(self, found: Link, label: str, table: bool) -> str:
        match found:
            case Claim() | Param() | Calc():
                shown = self._number(found, label, table)
            case CardLink():
                shown = self._card_link(found, label, table)
            case Fact():
                shown = self._fact(found, label, table)
            case Citation():
                source = self.card.sources[found.source]
                title = f"{source.title}, {found.where or source.where}"
                shown = titled(label, source.url, title, table=table)
            case Given():
                shown = label
            case Awaited():
                shown = self._awaited(found, label, table)
            case WebLink():
                shown = f"[{label}](<{url(found.url)}>)"
        return shown

    def _awaited(self, found: Awaited, label: str, table: bool) -> str:
        if self.edition.awaited(found) is None:
            return label + STATE_MARKS["stale"]
        return link("", f"#^{_awaited_id(found.demo)}", label, table=table)

    def _fact(self, found: Fact, label: str, table: bool) -> str:
        fact = self.edition.fact(found)
        if fact is None:
            return label + STATE_MARKS["stale"]
        return titled(label, fact.source.url, fact_title(fact)[self.lang], table=table)

    def _number(self, found: Claim | Param | Calc, label: str, table: bool) -> str:
        """A number that leads to its proof in the same note."""
        state, target = self._proof(found)
        if not target:
            return label + STATE_MARKS["stale"]
        shown = link("", f"#^{target}", label, table=table)
        # A tick behind every other word would say nothing: what has no mark is proven.
        return f"~~{shown}~~" if state == "refuted" else shown + _MARKS.get(state, "")

    def _proof(self, found: Claim | Param | Calc) -> tuple[str, str]:
        """The state of a number, and the block of its proof; none where it cannot stand."""
        match found:
            case Claim():
                return self.edition.state(found), _evidence_id(found.demo, found.device)
            case Param():
                setting = self.edition.setting(found)
                state = "stale" if setting and setting.stale else "setting"
                return state, _evidence_id(found.demo, "cpu") if setting else ""
            case Calc():
                derived = self.edition.derived(found)
                return (derived.state, _CALCULATIONS) if derived else ("stale", "")

    def _card_link(self, found: CardLink, label: str, table: bool) -> str:
        if found.card not in self.edition.library.cards:
            return label
        block = f"#^{addresses.block(found.anchor, self.lang)}" if found.anchor else ""
        return link(found.card, block, label, table=table)


# --- other notes ---------------------------------------------------------------------------------


def _home(edition: Edition) -> str:
    counts = edition.counts
    lines = [
        f"# {on_one_line(words.phrase('home.title'))}",
        "\n".join(
            [
                f"- {on_one_line(_OWN['cards'])}: {counts['cards']}",
                *(
                    f"- {_state(state)}: {count}"
                    for state, count in edition.tally(*edition.library.cards.values()).items()
                ),
                f"- {on_one_line(_OWN['demos'])}: {counts['demos']}",
                f"- {on_one_line(_OWN['works'])}: {counts['sources']}",
            ]
        ),
    ]
    if edition.library.paths:
        lines += [
            f"## {on_one_line(words.phrase('home.paths'))}",
            "\n".join(
                f"- {link(_path_note(path), '', escaped(on_one_line(path.title)))}"
                for path in edition.library.paths
            ),
        ]
    lines += [f"## {on_one_line(_OWN['modules'])}", "\n".join(_module_lines(edition))]
    if edition.terms:
        lines.append(f"- {wikilink(GLOSSARY, on_one_line(PAGE_TITLES['glossary']))}")
    lines += [f"![[{BASE}]]", f"- [[{CANVAS}]]"]
    return "\n\n".join(lines) + "\n"


def _state(state: State) -> str:
    """What became of a number, with the mark that a note sets behind it."""
    mark = "" if state in ("proven", "refuted") else f" {STATE_MARKS[state]}"
    return on_one_line(STATE_LABELS[state]) + mark


def _module_lines(edition: Edition) -> Iterator[str]:
    for module in edition.library.modules.values():
        number = len(edition.cards_of(module))
        name = escaped(f"{module.code} {on_one_line(module.title)}")
        if number:
            yield f"- {link(_module_note(module), '', name)}: {number}"
        else:
            yield f"- {name} ({on_one_line(words.phrase('common.planned'))})"


def _module(edition: Edition, module: Module) -> str:
    parts = [
        _properties(
            {
                "title": on_one_line(module.title),
                "aliases": list(dict.fromkeys(module.title.values())),
            }
        ),
        "\n\n".join(paragraph(module.summary[lang]) for lang in LANGS),
    ]
    heads = [
        on_one_line(words.phrase("common.card")),
        on_one_line(words.phrase("module.difficulty")),
        on_one_line(_OWN["proven"]),
    ]
    for topic in module.topics.values():
        cards = [card for card in edition.cards_of(module) if card.topic == topic.id]
        if cards:
            rows = [
                row(
                    [
                        _card_link(edition, card.id, table=True),
                        on_one_line(DIFFICULTY_LABELS[card.difficulty]),
                        str(edition.proven(card)),
                    ]
                )
                for card in cards
            ]
            table = "\n".join([row(heads), row(["---", "---", "---:"]), *rows])
            parts += [f"## {escaped(on_one_line(topic.title))}", table]
    if module.planned:
        parts += [
            f"## {on_one_line(words.phrase('module.planned'))}",
            "\n".join(f"- {paragraph(on_one_line(card.title))}" for card in module.planned),
        ]
    return "\n\n".join(parts) + "\n"


def _path(edition: Edition, path: LearningPath) -> str:
    parts = [
        _properties(
            {"title": on_one_line(path.title), "aliases": list(dict.fromkeys(path.title.values()))}
        ),
        "\n\n".join(paragraph(path.summary[lang]) for lang in LANGS),
        "\n".join(
            f"{n}. {_card_link(edition, name)}" for n, name in enumerate(path.cards, start=1)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _glossary(edition: Edition) -> str:
    """Each term with its meaning in both languages, what else it is called, and its card."""
    title = PAGE_TITLES["glossary"]
    parts = [
        _properties({"title": on_one_line(title), "aliases": list(dict.fromkeys(title.values()))}),
        "\n\n".join(paragraph(words.phrase("glossary.lead")[lang]) for lang in LANGS),
    ]
    for term in edition.terms:
        parts.append(f"## {escaped(on_one_line(term.name))}")
        parts += [paragraph(term.means[lang]) for lang in LANGS]
        lines = []
        if term.others:
            also = on_one_line(words.phrase("glossary.also"))
            others = " · ".join(form for _, form in term.others)
            lines.append(f"- {also}: {escaped(others)}")
        if term.card:
            lines.append(f"- {_card_link(edition, term.card)}")
        parts += ["\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"


# --- canvas and base -----------------------------------------------------------------------------


def _canvas(edition: Edition) -> str:
    """The graph of prerequisites as JSON Canvas 1.0: modules as groups, cards as files."""
    placed = edition.graph

    def frame(x: float, y: float, width: float, height: float) -> dict[str, int]:
        sides = {"x": x, "y": y, "width": width, "height": height}
        return {name: round(side * CANVAS_SCALE) for name, side in sides.items()}

    # What comes first lies below.
    nodes: list[dict[str, object]] = [
        {
            "id": f"module:{box.module.id}",  # no card is called so
            "type": "group",
            **frame(box.x, box.y, box.width, box.height),
            "label": f"{box.module.code} {on_one_line(box.module.title)}",
        }
        for box in placed.boxes
    ]
    for node in placed.nodes.values():
        what = (
            {"type": "file", "file": f"{CARDS}/{node.id}.md"}
            if node.card
            else {"type": "text", "text": paragraph(on_one_line(node.title))}
        )
        size = frame(node.x, node.y, graph.NODE_WIDTH, node.height)
        nodes.append({"id": node.id, **what, **size})
    edges = [
        {
            "id": f"{before}--{after}",
            "fromNode": before,
            "fromSide": "right",
            "toNode": after,
            "toSide": "left",
        }
        for after, card in edition.library.cards.items()
        for before in dict.fromkeys(card.prerequisites)
        if before in placed.nodes
    ]
    return json.dumps({"nodes": nodes, "edges": edges}, ensure_ascii=False, indent=1) + "\n"


def _base() -> str:
    """A table of all cards, and one a level, as an Obsidian base."""
    names = {
        "title": on_one_line(words.phrase("common.card")),
        "module": on_one_line(_OWN["module"]),
        "topic": on_one_line(_OWN["topic"]),
        "difficulty": on_one_line(words.phrase("module.difficulty")),
        "proven": on_one_line(_OWN["proven"]),
        "updated": on_one_line(_OWN["updated"]),
    }
    columns = ["file.name", *(f"note.{name}" for name in names)]
    base = {
        "filters": {"and": [f'file.inFolder("{CARDS}")']},
        "properties": {f"note.{name}": {"displayName": shown} for name, shown in names.items()},
        "views": [
            {
                "type": "table",
                "name": on_one_line(_OWN["by_topic"]),
                "groupBy": {"property": "note.topic", "direction": "ASC"},
                "order": list(columns),
            },
            *(
                {
                    "type": "table",
                    "name": on_one_line(label),
                    "filters": {"and": [f'note.difficulty == "{level}"']},
                    "order": list(columns),
                }
                for level, label in DIFFICULTY_LABELS.items()
            ),
        ],
    }
    return yaml.safe_dump(base, allow_unicode=True, sort_keys=False, width=1000)

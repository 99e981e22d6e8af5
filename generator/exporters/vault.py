"""An Obsidian vault: a note a card with both languages in it, notes for modules and paths, a canvas, a base.

Notes of cards are called by their ids, so that a reader's own links outlive a change of title;
other notes have a capital letter and a space in their names, which no id has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from generator import addresses, graph
from generator.book import Book, DemoPanel
from generator.lang import (
    DIFFICULTY_LABELS,
    KIND_LABELS,
    LANGS,
    LANGUAGE_HEADINGS,
    PAGE_TITLES,
    SECTION_HEADINGS,
    Lang,
    Text,
    on_one_line,
)
from generator.model import Card, CardLink, Citation, Claim, Given, LearningPath, Link, Module
from generator.obsidian import (
    Writer,
    block_id,
    callout,
    escaped,
    is_plain,
    row,
    wikilink,
    with_block_id,
)
from runnable_demos import figures
from runnable_demos.metrics import Record

NAME = "vault"
HOME = f"{addresses.HOME_NOTE}.md"
ENTRY = f"{NAME}/{HOME}"
CARDS, FIGURES = "Cards", "Figures"
CANVAS, BASE = "Prerequisites.canvas", "Cards.base"

CANVAS_SCALE = 2
"""Cards on a canvas show their text, so they are larger than in the graph of the site."""


def export(book: Book, out: Path, demos: Path | None) -> None:  # noqa: ARG001 - sources stay outside
    """Write the vault into ``out``."""
    for name, text in _notes(book):
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")


def _notes(book: Book) -> Iterator[tuple[str, str]]:
    yield HOME, _home(book)
    for module in book.library.modules.values():
        if book.cards_of(module):
            yield f"{_module_note(module)}.md", _module(book, module)
    for path in book.library.paths:
        yield f"{_path_note(path)}.md", _path(book, path)
    for card in book.library.cards.values():
        yield f"{CARDS}/{card.id}.md", _CardNote(book, card).text()
    yield CANVAS, _canvas(book)
    yield BASE, _base()
    for record in _claimed(book):
        for figure in record.result.figures:
            for lang in LANGS:
                name = _figure_file(record, figure.name, lang)
                yield name, figures.as_file(book.figure(record, figure, lang, "f"))


def _claimed(book: Book) -> Iterable[Record]:
    """Each record that a card rests on, once."""
    found = {
        (panel.record.demo, panel.record.device): panel.record
        for card in book.library.cards.values()
        for panel in book.panels(card)
    }
    return found.values()


def _figure_file(record: Record, figure: str, lang: Lang) -> str:
    return f"{FIGURES}/{block_id(record.demo, figure, _other_device(record), lang)}.svg"


def _other_device(record: Record) -> str:
    return "" if record.device == "cpu" else record.device


def _module_note(module: Module) -> str:
    return f"{module.code} {module.id}"


def _path_note(path: LearningPath) -> str:
    return f"Path {path.id}"


def _say(zh: str, en: str) -> str:
    return on_one_line({"zh": zh, "en": en})


def _cell(text: Text) -> str:
    """A text in both languages in a cell of a table, one below the other."""
    return "<br>".join(dict.fromkeys(escaped(text[lang], table=True) for lang in LANGS))


def _properties(values: Mapping[str, object]) -> str:
    """A note's properties: flat, with lists as lists and links as quoted text."""
    text = yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1000)
    return f"---\n{text}---"


def _card_link(book: Book, name: str, *, table: bool = False) -> str:
    """A link to a card; a planned one is its title."""
    title = on_one_line(book.title_of(name))
    if name in book.library.cards:
        return wikilink(name, title, table=table)
    return f"{escaped(title, table=table)} ({_say('待写', 'planned')})"


# --- cards ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CardNote:
    book: Book
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
        return _properties(
            {
                "title": on_one_line(card.title),
                "aliases": list(dict.fromkeys(aliases)),
                "tags": list(card.tags),
                "cssclasses": ["proofdeck"],
                "module": wikilink(_module_note(self._home), on_one_line(self._home.title)),
                "topic": on_one_line(self._home.topics[card.topic].title),
                "difficulty": card.difficulty,
                "updated": card.updated,
                "proven": self.book.proven(card),
                "prerequisites": self._links(card.prerequisites),
                "related": self._links(card.related),
            }
        )

    @property
    def _home(self) -> Module:
        return self.book.library.modules[self.card.module]

    def _links(self, names: Iterable[str]) -> list[str]:
        return [
            wikilink(name, on_one_line(self.book.title_of(name)))
            for name in names
            if name in self.book.library.cards
        ]

    def _half(self, lang: Lang) -> Iterator[str]:
        writer = Writer(lang, self._link_writer(lang), lambda name: addresses.block(name, lang))
        for name, section in self.card.sections[lang].items():
            yield f"## {SECTION_HEADINGS[name][lang]}"
            if section.tokens:
                yield writer.blocks(section.tokens)
                continue
            for item in section.items:
                face, back = writer.line(item.title), writer.blocks(item.body)
                block = callout("question", face, back, folded=True)
                yield with_block_id(block, addresses.block(item.id, lang))

    def _link_writer(self, lang: Lang) -> _LinkWriter:
        return _LinkWriter(self.book, self.card, lang)

    def _evidence(self) -> Iterator[str]:
        for panel in self.book.panels(self.card):
            record = panel.record
            yield f"## {on_one_line(record.title)}"
            yield escaped(on_one_line(record.question))
            if panel.stale:
                yield callout(
                    "warning",
                    _say("证据过期", "Stale evidence"),
                    _say("代码在记录之后改过。", "The code has changed since this record."),
                )
            for figure in record.result.figures:
                for lang in LANGS:
                    name = _figure_file(record, figure.name, lang).removeprefix(f"{FIGURES}/")
                    yield f"![[{name}]]\n*{escaped(figure.title[lang])}*"
            yield self._run(record)
            yield f"```sh\n{panel.command}\n```"
            yield with_block_id(_metrics(panel), _evidence_id(record.demo, record.device))
        if refutations := list(self.book.refutations(self.card)):
            yield f"## {_say('说法与实测', 'What is said, and what is measured')}"
            yield "\n".join(
                [
                    row([_say("有人说", "Said"), _say("实测", "Measured"), _say("是什么", "What")]),
                    row(["---"] * 3),
                    *(
                        row([_cell(each.said), _cell(each.measured), _cell(each.about)])
                        for each in refutations
                    ),
                ]
            )
        if self.card.sources:
            yield f"## {_say('文献', 'Sources')}"
            yield "\n".join(
                f"- [{escaped(source.title)}](<{source.url}>), {escaped(source.where)}"
                for source in self.card.sources.values()
            )

    def _run(self, record: Record) -> str:
        environment = record.environment
        facts = [
            (_say("设备", "device"), record.device.upper()),
            ("PyTorch", environment.get("torch", "")),
            ("Python", environment.get("python", "")),
            (_say("记录于", "recorded"), record.recorded),
        ]
        return "\n".join(f"- {name}: {escaped(value)}" for name, value in facts if value)

    def _connections(self) -> Iterator[str]:
        library, card = self.book.library, self.card
        groups = [
            (_say("先读", "Read first"), card.prerequisites),
            (_say("之后可读", "Unlocks"), library.unlocks.get(card.id, ())),
            (_say("相关", "Related"), card.related),
            (_say("提到这张卡的", "Mentioned by"), library.backlinks.get(card.id, ())),
        ]
        lines = [
            f"- {label}: " + "; ".join(_card_link(self.book, name) for name in names)
            for label, names in groups
            if names
        ]
        for path in library.paths:
            if later := self.book.next_in(path, card.id):
                here = wikilink(_path_note(path), on_one_line(path.title))
                lines.append(f"- {here} → {_card_link(self.book, later.id)}")
        yield "\n".join(lines)


def _evidence_id(demo: str, device: str) -> str:
    return block_id("ev", demo, "" if device == "cpu" else device)


def _metrics(panel: DemoPanel) -> str:
    heads = [
        _say("数值", "Value"),
        _say("是什么", "What"),
        _say("怎样测的", "How"),
        _say("类别", "Kind"),
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
    return "\n".join([row(heads), row(["---:", "---", "---", "---"]), *rows])


@dataclass(frozen=True)
class _LinkWriter:
    """Writes the links of one language of a card, see ``obsidian.LinkWriter``."""

    book: Book
    card: Card
    lang: Lang

    def __call__(self, link: Link, label: str, table: bool) -> str:
        match link:
            case Claim():
                target = f"#^{_evidence_id(link.demo, link.device)}"
                shown = _to("", target, label, table=table)
                return f"~~{shown}~~" if link.refuted else shown
            case CardLink():
                if link.card not in self.book.library.cards:
                    return label
                anchor = f"#^{addresses.block(link.anchor, self.lang)}" if link.anchor else ""
                return _to(link.card, anchor, label, table=table)
            case Citation():
                source = self.card.sources[link.source]
                title = f"{source.title}, {link.where or source.where}".replace('"', "'")
                return f'[{label}](<{source.url}> "{escaped(title, table=table)}")'
            case Given():
                return label
            case _:
                return f"[{label}](<{link.url}>)"


def _to(note: str, anchor: str, label: str, *, table: bool) -> str:
    """A link within the vault: a wikilink, unless its label holds a formula or other markup."""
    if is_plain(label):
        return wikilink(note + anchor, label, table=table)
    file = f"{note}.md" if note else ""
    return f"[{label}]({file}{anchor})"


# --- other notes ---------------------------------------------------------------------------------


def _home(book: Book) -> str:
    counts = book.counts
    lines = [
        f"# {_say('每个数字都跑得出来', 'Every number runs')}",
        "\n".join(
            [
                f"- {_say('卡片', 'cards')}: {counts['cards']}",
                f"- {_say('有证明的数字', 'numbers proven')}: {counts['proven']}",
                f"- {_say('演示', 'demos')}: {counts['demos']}",
                f"- {_say('文献', 'works cited')}: {counts['sources']}",
            ]
        ),
    ]
    if book.library.paths:
        lines += [
            f"## {_say('从哪里开始', 'Where to begin')}",
            "\n".join(
                f"- {wikilink(_path_note(path), on_one_line(path.title))}"
                for path in book.library.paths
            ),
        ]
    lines += [f"## {_say('模块', 'Modules')}", "\n".join(_module_lines(book))]
    lines += [f"![[{BASE}]]", f"- [[{CANVAS}]]"]
    return "\n\n".join(lines) + "\n"


def _module_lines(book: Book) -> Iterator[str]:
    for module in book.library.modules.values():
        number = len(book.cards_of(module))
        name = f"{module.code} {on_one_line(module.title)}"
        if number:
            yield f"- {wikilink(_module_note(module), name)}: {number}"
        else:
            yield f"- {escaped(name)} ({_say('待写', 'planned')})"


def _module(book: Book, module: Module) -> str:
    parts = [
        _properties(
            {
                "title": on_one_line(module.title),
                "aliases": list(dict.fromkeys(module.title.values())),
            }
        ),
        "\n\n".join(escaped(module.summary[lang]) for lang in LANGS),
    ]
    heads = [_say("卡片", "Card"), _say("难度", "Level"), _say("有证明的数字", "Numbers proven")]
    for topic in module.topics.values():
        cards = [card for card in book.cards_of(module) if card.topic == topic.id]
        if cards:
            rows = [
                row(
                    [
                        _card_link(book, card.id, table=True),
                        on_one_line(DIFFICULTY_LABELS[card.difficulty]),
                        str(book.proven(card)),
                    ]
                )
                for card in cards
            ]
            table = "\n".join([row(heads), row(["---", "---", "---:"]), *rows])
            parts += [f"## {on_one_line(topic.title)}", table]
    if module.planned:
        parts += [
            f"## {_say('待写', 'Planned')}",
            "\n".join(f"- {escaped(on_one_line(card.title))}" for card in module.planned),
        ]
    return "\n\n".join(parts) + "\n"


def _path(book: Book, path: LearningPath) -> str:
    parts = [
        _properties(
            {"title": on_one_line(path.title), "aliases": list(dict.fromkeys(path.title.values()))}
        ),
        "\n\n".join(escaped(path.summary[lang]) for lang in LANGS),
        "\n".join(f"{n}. {_card_link(book, name)}" for n, name in enumerate(path.cards, start=1)),
    ]
    return "\n\n".join(parts) + "\n"


# --- canvas and base -----------------------------------------------------------------------------


def _canvas(book: Book) -> str:
    """The graph of prerequisites as JSON Canvas 1.0: modules as groups, cards as files."""
    placed = graph.place(book.library)

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
            else {"type": "text", "text": escaped(on_one_line(node.title))}
        )
        size = frame(node.x, node.y, graph.NODE_WIDTH, graph.NODE_HEIGHT)
        nodes.append({"id": node.id, **what, **size})
    edges = [
        {
            "id": f"{before}--{after}",
            "fromNode": before,
            "fromSide": "right",
            "toNode": after,
            "toSide": "left",
        }
        for after, card in book.library.cards.items()
        for before in dict.fromkeys(card.prerequisites)
        if before in placed.nodes
    ]
    return json.dumps({"nodes": nodes, "edges": edges}, ensure_ascii=False, indent=1) + "\n"


def _base() -> str:
    """A table of all cards, and one a level, as an Obsidian base."""
    names = {
        "title": _say("卡片", "Card"),
        "module": _say("模块", "Module"),
        "topic": _say("主题", "Topic"),
        "difficulty": _say("难度", "Level"),
        "proven": _say("有证明的数字", "Numbers proven"),
        "updated": _say("更新于", "Updated"),
    }
    columns = ["file.name", *(f"note.{name}" for name in names)]
    base = {
        "filters": {"and": [f'file.inFolder("{CARDS}")']},
        "properties": {f"note.{name}": {"displayName": shown} for name, shown in names.items()},
        "views": [
            {
                "type": "table",
                "name": _say("按主题", "By topic"),
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

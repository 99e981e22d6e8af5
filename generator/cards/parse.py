"""One card's text → ``Card`` or problems. Pure: nothing but the text and its path goes in.

Every place counts from the top of the file. A card is returned as soon as its frame stands
(front matter and both languages with all sections), so that later checks can add their problems
to the ones found here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TypeVar

from markdown_it.token import Token

from generator.cards import fences, front_matter, links, markdown
from generator.cards.front_matter import FrontMatter
from generator.cards.model import (
    Card,
    Citation,
    Item,
    Link,
    Section,
    Source,
    Tokens,
    place_of,
)
from generator.lang import (
    LANGS,
    LANGUAGE_HEADINGS,
    SECTION_HEADINGS,
    SECTION_NAMES,
    Lang,
    SectionName,
)
from generator.lines import Lines
from generator.names import is_id, suggest, why_no_id
from generator.problems import Place, Problem

Name = TypeVar("Name", bound=str)

_COMMENTS = re.compile(r"\s*(?:<!--(?:(?!-->).)*-->\s*)+", re.DOTALL)
_FILL: Mapping[SectionName, str] = {
    "answer": "Answer in one sentence: at most 60 汉字 or 45 words.",
    "insights": "List at most four things that have to be understood.",
    "derivation": "State the assumptions, then derive each step.",
    "tradeoffs": "Say what it costs, when to use it, and where the advice turns wrong.",
    "pitfalls": "List wrong answers and what is true: `- Text. <!-- #short-id -->`.",
    "followups": "Ask and answer three to five questions: `### Question <!-- #short-id -->`.",
}
_ITEM_ID = re.compile(r"<!--\s*#(\S*)\s*-->")


def parse(text: str, path: str) -> tuple[Card | None, list[Problem]]:
    """Parse the card that stands at ``path``, whose file name without its suffix is its id.

    The card is ``None`` where its frame is broken; problems are sorted by place.
    """
    lines = Lines(path, text)
    reading = front_matter.read(lines)
    if isinstance(reading, Problem):
        return None, sorted([*lines.problems, reading])
    tokens, found = markdown.parse(lines, reading.body)
    body = _Body(lines, reading.values, [*lines.problems, *reading.problems, *found])
    halves = body.halves(body.resolved(tokens))
    card = None
    if reading.values:
        whole = all(len(half) == len(SECTION_NAMES) for half in halves.values())
        body.problems += _identity(reading.values, reading.places, path)
        if whole:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            card = _card(reading.values, reading.places, halves, path, digest)
            body.problems += _unused(card)
            sections = (section for half in card.sections.values() for section in half.values())
            run, found = fences.of_sections(sections)
            card = replace(card, fences=run)
            body.problems += found
    return card, sorted(body.problems)


@dataclass
class _Body:
    """What stands behind the front matter, on its way from tokens to sections."""

    lines: Lines
    values: FrontMatter | None
    problems: list[Problem]
    ids: dict[int, list[tuple[str, Place]]] = field(default_factory=dict)
    """The ids in comments, by row, until the follow-up or pitfall in that row takes them."""

    def report(self, place: Place, code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(place, code, message, hint))

    def resolved(self, tokens: Iterable[Token]) -> list[Token]:
        """The tokens without HTML, with every link resolved."""
        kept: list[Token] = []
        for token in tokens:
            if token.type == "html_block":
                self._html(token)
                continue
            if token.type == "inline":
                token.children = self._children(token.children or [])
            kept.append(token)
        return kept

    def _children(self, children: list[Token]) -> list[Token]:
        kept: list[Token] = []
        for token in children:
            if token.type == "html_inline":
                self._html(token)
            elif token.type == "image":
                self.report(
                    place_of(token),
                    "image",
                    "cards hold no images",
                    "Let a demo draw it: its figures follow the data, the language, light and dark.",
                )
            else:
                if token.type == "link_open":
                    token.meta["link"] = self._link(token)
                kept.append(token)
        if len(kept) < len(children) and kept and kept[-1].type == "text":
            kept[-1].content = kept[-1].content.rstrip()
            kept = kept if kept[-1].content else kept[:-1]
        return kept

    def _html(self, token: Token) -> None:
        """Take the ids out of comments; anything else that is HTML is a problem."""
        if not _COMMENTS.fullmatch(token.content):
            self._refuse_html(token)
        for found in _ITEM_ID.finditer(token.content):
            place = place_of(token, found.start())
            self.ids.setdefault(place.line - 1, []).append((found.group(1), place))

    def _refuse_html(self, token: Token) -> None:
        text = token.content.strip()
        if not text.startswith("<!--"):
            message = f"raw HTML is not read: `{text.splitlines()[0][:60]}`"
            hint = "Say it in Markdown; write `\\<` for a less-than sign."
        elif "-->" in text:
            message = "what stands on the line of a comment is not read as Markdown"
            hint = "Give the comment a line of its own, or put it at the end of the line."
        else:
            message, hint = "the comment that begins here never ends", "End it with `-->`."
        self.report(
            place_of(token, len(token.content) - len(token.content.lstrip())),
            "raw-html",
            message,
            hint,
        )

    def _link(self, token: Token) -> Link:
        link, found = links.read(token, self.values.sources if self.values else None)
        self.problems += found
        return link

    # Headings

    def halves(self, tokens: list[Token]) -> dict[Lang, dict[SectionName, Section]]:
        """The sections of each language, as far as they are there."""
        languages = _split(tokens, "h1")
        self._stray(languages.before, "before the first language")
        names: dict[str, Lang] = {LANGUAGE_HEADINGS[lang]: lang for lang in LANGS}
        parts = self._named(languages.parts, names, "#")
        halves: dict[Lang, dict[SectionName, Section]] = {lang: {} for lang in LANGS}
        for lang, part in parts.items():
            halves[lang] = self._half(lang, part)
        for lang in LANGS:
            if lang not in parts:
                self.report(
                    self.lines.at(len(self.lines.rows)),
                    "missing-language",
                    f"the card has no half `# {LANGUAGE_HEADINGS[lang]}`",
                    "Both languages stand in one file, with the same six sections.",
                )
        for found in self.ids.values():
            for name, place in found:
                self.report(
                    place,
                    "stray-id",
                    f"the id `{name}` belongs to nothing",
                    "An id stands in the heading of a follow-up or at the end of a pitfall.",
                )
        return halves

    def _half(self, lang: Lang, half: _Part) -> dict[SectionName, Section]:
        split = _split(half.tokens, "h2")
        self._stray(split.before, "before the first section")
        names = {SECTION_HEADINGS[name][lang]: name for name in SECTION_NAMES}
        parts = self._named(split.parts, names, "##")
        for name in SECTION_NAMES:
            if name not in parts:
                heading = SECTION_HEADINGS[name][lang]
                self.report(
                    half.place,
                    "missing-section",
                    f"`# {LANGUAGE_HEADINGS[lang]}` has no section `## {heading}`",
                    f"Add `## {heading}`: {_order(names)}.",
                )
        taken: dict[str, Place] = {}
        return {name: self._section(name, lang, part, taken) for name, part in parts.items()}

    def _named(
        self, parts: Iterable[_Part], names: Mapping[str, Name], marks: str
    ) -> dict[Name, _Part]:
        """The parts by what their headings name: each once, in order, and no other."""
        known: dict[Name, _Part] = {}
        order = list(names.values())
        for part in parts:
            name = names.get(part.title)
            if name is None:
                self.report(
                    part.place,
                    "unknown-heading",
                    f"`{marks} {part.title}` is none of the headings that stand here",
                    _suggest_heading(part.title, names),
                )
            elif name in known:
                self.report(
                    part.place,
                    "duplicate-heading",
                    f"`{marks} {part.title}` stands here again, first in line {known[name].place.line}",
                    "Keep one of the two.",
                )
            else:
                if known and order.index(name) < max(map(order.index, known)):
                    self.report(
                        part.place,
                        "heading-order",
                        f"`{marks} {part.title}` stands too late",
                        f"The order is {_order(names)}.",
                    )
                known[name] = part
        return known

    def _stray(self, tokens: Iterable[Token], where: str) -> None:
        for token in tokens:
            if token.map:
                self.report(
                    place_of(token),
                    "stray-text",
                    f"text stands {where}",
                    "Move it into a section, or into a comment `<!-- … -->`.",
                )
                return

    # Sections

    def _section(
        self, name: SectionName, lang: Lang, part: _Part, taken: dict[str, Place]
    ) -> Section:
        tokens = part.tokens
        items: tuple[Item, ...] = ()
        if name == "followups":
            split = _split(tokens, "h3")
            self._stray(split.before, "before the first follow-up")
            items = tuple(self._followup(each, taken) for each in split.parts)
        elif name == "pitfalls":
            items = tuple(self._pitfalls(tokens, taken))
        if not tokens or (name in {"followups", "pitfalls"} and not items):
            self.report(part.place, "empty-section", f"`## {part.title}` is empty", _FILL[name])
        return Section(
            name=name,
            lang=lang,
            place=part.place,
            tokens=Tokens() if name == "followups" else Tokens(tokens),
            items=items,
            links=_links(tokens),
        )

    def _followup(self, part: _Part, taken: dict[str, Place]) -> Item:
        title = part.heading[1]
        name = self._item_id(part.heading[0], taken, "follow-up", "### Question <!-- #short-id -->")
        if not title.children:
            self.report(
                part.place, "empty-item", "this follow-up asks nothing", "Write a question."
            )
        if not part.tokens:
            self.report(
                part.place,
                "empty-item",
                "this follow-up is not answered",
                "Answer it below, or link to the card that does: `[text](card:ID)`.",
            )
        tokens = tuple(part.tokens)
        return Item(name, part.place, Tokens([title]), Tokens(tokens), _links([title, *tokens]))

    def _pitfalls(self, tokens: Sequence[Token], taken: dict[str, Place]) -> Iterator[Item]:
        opened = 0
        for index, token in enumerate(tokens):
            if token.level != 1:
                continue
            if token.type == "list_item_open":
                opened = index
            elif token.type == "list_item_close":
                first = tokens[opened]
                name = self._item_id(first, taken, "pitfall", "- Text. <!-- #short-id -->")
                first.meta["item"] = name
                body = tuple(tokens[opened + 1 : index])
                if not any(each.children or each.content for each in body):
                    self.report(
                        place_of(first),
                        "empty-item",
                        "this pitfall says nothing",
                        _FILL["pitfalls"],
                    )
                yield Item(name, place_of(first), Tokens(), Tokens(body), _links(body))

    def _item_id(self, token: Token, taken: dict[str, Place], noun: str, form: str) -> str:
        """The id in a comment in the token's rows; nothing where there is none."""
        first, end = token.map or (0, 0)
        found = [each for row in range(first, end) for each in self.ids.pop(row, ())]
        if not found:
            self.report(
                place_of(token),
                "missing-item-id",
                f"this {noun} has no id",
                f"Write `{form}`, the same id in both languages; it stays when the text changes.",
            )
            return ""
        (name, place), *more = found
        for other, elsewhere in more:
            message = f"this {noun} has a second id, `{other}`"
            self.report(elsewhere, "stray-id", message, "Keep one of the two.")
        if not is_id(name):
            self.report(place, "bad-id", f"`{name}` {why_no_id(name)}", f"Write `{form}`.")
        elif name in taken:
            self.report(
                place,
                "duplicate-item-id",
                f"the id `{name}` is taken in line {taken[name].line}",
                "Give each follow-up and pitfall of a language an id of its own.",
            )
        taken.setdefault(name, place)
        return name


@dataclass(frozen=True)
class _Part:
    """A heading and what stands below it."""

    heading: tuple[Token, Token]
    tokens: Sequence[Token]

    @property
    def title(self) -> str:
        return "".join(token.content for token in self.heading[1].children or []).strip()

    @property
    def place(self) -> Place:
        return place_of(self.heading[0])


@dataclass(frozen=True)
class _Split:
    """What stands before the first heading of a level, and the parts below each."""

    before: Sequence[Token]
    parts: Sequence[_Part]


def _split(tokens: Sequence[Token], tag: str) -> _Split:
    starts = [
        index
        for index, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == tag and token.level == 0
    ]
    return _Split(
        tokens[: starts[0]] if starts else tokens,
        [
            _Part((tokens[start], tokens[start + 1]), tokens[start + 3 : end])
            for start, end in pairwise([*starts, len(tokens)])
        ],
    )


def _links(tokens: Iterable[Token]) -> tuple[Link, ...]:
    return tuple(
        child.meta["link"]
        for token in tokens
        for child in token.children or ()
        if child.type == "link_open"
    )


def _order(headings: Iterable[str]) -> str:
    return ", ".join(headings)


def _suggest_heading(title: str, names: Mapping[str, str]) -> str:
    for headings in SECTION_HEADINGS.values():
        for lang, heading in headings.items():
            if heading == title and heading not in names:
                return (
                    f"This is a heading of `# {LANGUAGE_HEADINGS[lang]}`. {suggest(title, names)}"
                )
    return suggest(title, names)


def _identity(values: FrontMatter, places: Mapping[str, Place], path: str) -> Iterator[Problem]:
    """The card's id is its file's name, and it does not refer to itself."""
    stem = PurePath(path).stem
    if values.id != stem:
        yield Problem(
            places["id"],
            "id-not-file-name",
            f"the id is `{values.id}` and the file is called `{PurePath(path).name}`",
            f"Rename the file to `{values.id}.md`; an id stays, since links and schedules hold it.",
        )
    for key in ("prerequisites", "related", "formerly"):
        named: list[str] = getattr(values, key)
        if values.id in named:
            yield Problem(
                places[f"{key}.{named.index(values.id)}"],
                "self-reference",
                f"the card names itself in `{key}`",
                "Remove it.",
            )


def _unused(card: Card) -> Iterator[Problem]:
    cited = {link.source for link in card.links() if isinstance(link, Citation)}
    for key, source in card.sources.items():
        if key not in cited:
            yield Problem(
                source.place,
                "unused-source",
                f"the source `{key}` is never cited",
                f"Cite it, `[text](source:{key})`, or remove it.",
                "warning",
            )


def _card(
    values: FrontMatter,
    places: Mapping[str, Place],
    halves: Mapping[Lang, Mapping[SectionName, Section]],
    path: str,
    digest: str,
) -> Card:
    return Card(
        id=values.id,
        path=path,
        title=dict(values.title),
        module=values.module,
        topic=values.topic,
        difficulty=values.difficulty,
        updated=values.updated,
        tags=tuple(values.tags),
        aliases={lang: tuple(values.aliases.get(lang, ())) for lang in LANGS},
        prerequisites=tuple(values.prerequisites),
        related=tuple(values.related),
        formerly=tuple(values.formerly),
        sources={
            key: Source(key, places[f"sources.{key}"], each.title, each.url, each.where)
            for key, each in values.sources.items()
        },
        silenced=dict(values.silenced),
        places=places,
        sections={
            lang: {name: half[name] for name in SECTION_NAMES} for lang, half in halves.items()
        },
        digest=digest,
    )

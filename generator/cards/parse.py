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
from generator.cards.markdown import Definition
from generator.cards.model import (
    Card,
    Citation,
    FigureLink,
    Item,
    Link,
    Scenario,
    Section,
    Source,
    Tokens,
    place_of,
)
from generator.lang import (
    FREQUENCIES,
    LANGS,
    LANGUAGE_HEADINGS,
    LEVELS,
    OLD_SECTIONS,
    OPTIONAL_SECTIONS,
    PITFALL_GROUPS,
    PITFALL_HEADINGS,
    SECTION_HEADINGS,
    SECTION_NAMES,
    Lang,
    Level,
    PitfallGroup,
    SectionName,
)
from generator.lines import Lines
from generator.names import is_id, suggest, why_no_id
from generator.problems import Place, Problem

Name = TypeVar("Name", bound=str)

_COMMENTS = re.compile(r"\s*(?:<!--(?:(?!-->).)*-->\s*)+", re.DOTALL)
_FILL: Mapping[SectionName, str] = {
    "answer": "Answer in one sentence: at most 60 汉字 or 45 words.",
    "spoken": "Write what a person says aloud in thirty seconds.",
    "intuition": "Give one everyday picture, and the sentence where it breaks.",
    "insights": "List at most four things that have to be understood.",
    "example": "Work the question out for a real model on real hardware, line by line.",
    "derivation": "State the assumptions, then derive each step.",
    "code": "Write the lines that do the thing and assert it against a reference, or drop the section.",
    "tradeoffs": "Say what it costs, when to use it, and where the advice turns wrong.",
    "pitfalls": "List wrong answers and what is true: `- Text. <!-- #short-id -->`.",
    "followups": "Ask and answer what comes next: `### Question <!-- #short-id often -->`.",
    "points": "List what can be ticked, and red flags: `- Text. <!-- #short-id pass -->`.",
}
_FOLLOWUP_FORM = "### Question <!-- #short-id often -->"
_POINT_FORM = "- Text. <!-- #short-id strong asks=followup-id -->"
_PITFALL_FORM = "- Text. <!-- #short-id -->"
_LISTS = {"bullet_list_open", "ordered_list_open"}
_MARK = re.compile(r"<!--\s*#(?!\s+[^\s-])(.*?)-->", re.DOTALL)
"""What follows the mark of an id at once: the id and words. Behind a space stands a note."""
_ASKS = "asks="


def parse(text: str, path: str) -> tuple[Card | None, list[Problem]]:
    """Parse the card that stands at ``path``, whose file name without its suffix is its id.

    The card is ``None`` where its frame is broken; problems are sorted by place.
    """
    lines = Lines(path, text)
    reading = front_matter.read(lines)
    if isinstance(reading, Problem):
        return None, sorted([*lines.problems, reading])
    tokens, definitions, found = markdown.parse(lines, reading.body)
    body = _Body(lines, reading.values, [*lines.problems, *reading.problems, *found])
    body.converted = (
        reading.values.question is not None if reading.values else "question" in reading.places
    )
    halves = body.halves(body.resolved(tokens))
    card = None
    if reading.values:
        whole = all(half.keys() >= body.required for half in halves.values())
        body.problems += _identity(reading.values, reading.places, path)
        if whole:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            card = _card(reading.values, reading.places, halves, path, digest)
            body.problems += _unused(card)
            sections = (section for half in card.sections.values() for section in half.values())
            run, found = fences.of_sections(sections)
            card = replace(card, fences=run, definitions=_calculations(definitions))
            body.problems += found
    return card, sorted(body.problems)


@dataclass(frozen=True)
class _Mark:
    """``<!-- #id word key=word -->``: an item's id, and what else the comment says, each with its place."""

    name: str
    place: Place
    words: tuple[tuple[str, Place], ...] = ()


@dataclass
class _Body:
    """What stands behind the front matter, on its way from tokens to sections."""

    lines: Lines
    values: FrontMatter | None
    problems: list[Problem]
    converted: bool = False
    """Whether the card is in format 2."""
    required: frozenset[SectionName] = frozenset()
    """The sections that each language must have."""
    marks: dict[int, list[_Mark]] = field(default_factory=dict)
    """The marks in comments, by row, until the item in that row takes them."""

    def report(self, place: Place, code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(place, code, message, hint))

    def resolved(self, tokens: Iterable[Token]) -> list[Token]:
        """The tokens without HTML, with every link resolved."""
        kept: list[Token] = []
        tokens = list(tokens)
        for index, token in enumerate(tokens):
            if token.type == "figure_open":
                self._figure(*tokens[index : index + 3])
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
                self._refuse_image(token)
            else:
                if token.type == "link_open":
                    token.meta["link"] = self._link(token)
                kept.append(token)
        if len(kept) < len(children) and kept and kept[-1].type == "text":
            kept[-1].content = kept[-1].content.rstrip()
            kept = kept if kept[-1].content else kept[:-1]
        return kept

    def _figure(self, opening: Token, inline: Token, closing: Token) -> None:
        """Say which figure it is; what names none is a paragraph with the words of the caption."""
        link, found = links.figure(opening, inline.content)
        self.problems += found
        if link:
            opening.meta["figure"] = link
        else:
            opening.type, closing.type = "paragraph_open", "paragraph_close"
            opening.tag = closing.tag = "p"

    def _refuse_image(self, token: Token) -> None:
        if str(token.attrs["src"]).startswith("figure:"):
            message = "a figure stands alone in its paragraph"
            hint = "Put blank lines before and behind it."
        else:
            message = "cards hold no images"
            hint = (
                "Let a demo draw it, and place it with `![caption](figure:DEMO/FIGURE)`: "
                "it follows the data, the language, light and dark."
            )
        self.report(place_of(token), "image", message, hint)

    def _html(self, token: Token) -> None:
        """Take the ids out of comments; anything else that is HTML is a problem."""
        if not _COMMENTS.fullmatch(token.content):
            self._refuse_html(token)
        for found in _MARK.finditer(token.content):
            parts = [
                (part[0], place_of(token, found.start(1) + part.start()))
                for part in re.finditer(r"\S+", found[1])
            ]
            place = place_of(token, found.start())
            mark = _Mark(parts[0][0] if parts else "", place, tuple(parts[1:]))
            self.marks.setdefault(place.line - 1, []).append(mark)

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
        self.required = self._required(parts)
        halves: dict[Lang, dict[SectionName, Section]] = {lang: {} for lang in LANGS}
        for lang, part in parts.items():
            halves[lang] = self._half(lang, part)
        for lang in LANGS:
            if lang not in parts:
                self.report(
                    self.lines.at(len(self.lines.rows)),
                    "missing-language",
                    f"the card has no half `# {LANGUAGE_HEADINGS[lang]}`",
                    "Both languages stand in one file, with the same sections.",
                )
        for mark in (mark for row in self.marks.values() for mark in row):
            self.report(
                mark.place,
                "stray-id",
                f"the id `{mark.name}` belongs to nothing",
                "An id stands in the heading of a follow-up, or at the end of a pitfall or a point.",
            )
        return halves

    @property
    def sections(self) -> tuple[SectionName, ...]:
        """The sections that the card may have."""
        return SECTION_NAMES if self.converted else OLD_SECTIONS

    def _required(self, halves: Mapping[Lang, _Part]) -> frozenset[SectionName]:
        """The sections that each language must have: an optional one, too, where one has it."""
        titles = {
            part.title for half in halves.values() for part in _split(half.tokens, "h2").parts
        }
        return frozenset(
            name
            for name in self.sections
            if name not in OPTIONAL_SECTIONS or titles & set(SECTION_HEADINGS[name].values())
        )

    def _half(self, lang: Lang, half: _Part) -> dict[SectionName, Section]:
        split = _split(half.tokens, "h2")
        self._stray(split.before, "before the first section")
        names = {SECTION_HEADINGS[name][lang]: name for name in self.sections}
        parts = self._named(split.parts, names, "##")
        for name in self.sections:
            if name in self.required and name not in parts:
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
                    self._suggest_heading(part.title, names),
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

    def _suggest_heading(self, title: str, names: Mapping[str, str]) -> str:
        for section, headings in SECTION_HEADINGS.items():
            for lang, heading in headings.items():
                if heading == title and heading not in names:
                    if section not in self.sections:
                        return "Only a card that has a `question` in its front matter has this section."
                    return f"This is a heading of `# {LANGUAGE_HEADINGS[lang]}`. {suggest(title, names)}"
        return suggest(title, names)

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
        items: list[Item] = []
        if name == "followups":
            split = _split(tokens, "h3")
            self._stray(split.before, "before the first follow-up")
            items += (self._followup(each, taken) for each in split.parts)
        elif name == "pitfalls" and self.converted:
            items += self._groups(lang, part, taken)
        elif name == "pitfalls":
            items += (self._pitfall(each, taken, None) for each in _bullets(tokens))
        elif name == "points":
            self._listed(tokens)
            items += (self._point(each, taken) for each in _bullets(tokens))
        if not tokens or (name in {"followups", "pitfalls", "points"} and not items):
            self.report(part.place, "empty-section", f"`## {part.title}` is empty", _FILL[name])
        return Section(
            name=name,
            lang=lang,
            place=part.place,
            tokens=Tokens() if name == "followups" else Tokens(tokens),
            items=tuple(items),
            links=_links(tokens),
            figures=_figures(tokens),
        )

    def _followup(self, part: _Part, taken: dict[str, Place]) -> Item:
        title = part.heading[1]
        mark = self._mark(part.heading[0], taken, "follow-up", _FOLLOWUP_FORM)
        frequency = self._word(mark, FREQUENCIES, "follow-up", _FOLLOWUP_FORM)
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
        return Item(
            mark.name if mark else "",
            part.place,
            Tokens([title]),
            Tokens(tokens),
            _links([title, *tokens]),
            frequency=frequency,
        )

    def _groups(self, lang: Lang, section: _Part, taken: dict[str, Place]) -> Iterator[Item]:
        """The pitfalls below the headings that say where they are met."""
        split = _split(section.tokens, "h3")
        names = {PITFALL_HEADINGS[group][lang]: group for group in PITFALL_GROUPS}
        if section.tokens:
            self._stray(split.before, f"before {', '.join(f'`### {name}`' for name in names)}")
            parts = self._named(split.parts, names, "###")
            for heading, group in names.items():
                if group not in parts:
                    message = f"`## {section.title}` has no heading `### {heading}`"
                    hint = f"Sort the pitfalls below {_order(names)}."
                    self.report(section.place, "missing-heading", message, hint)
            for group, part in parts.items():
                self._listed(part.tokens)
                items = [self._pitfall(each, taken, group) for each in _bullets(part.tokens)]
                if not items:
                    message = f"`### {part.title}` is empty"
                    self.report(part.place, "empty-section", message, _FILL["pitfalls"])
                yield from items

    def _listed(self, tokens: Sequence[Token]) -> None:
        """Nothing but lists stands here."""
        top = [token for token in tokens if token.level == 0 and token.map]
        for token in top:
            if token.type not in _LISTS:
                message, hint = "text stands outside of the list", "Make it an item, or move it."
                self.report(place_of(token), "stray-text", message, hint)
                return

    def _pitfall(
        self, bullet: _Bullet, taken: dict[str, Place], group: PitfallGroup | None
    ) -> Item:
        mark = self._mark(bullet.opening, taken, "pitfall", _PITFALL_FORM)
        self._word(mark, (), "pitfall", _PITFALL_FORM)
        return self._bullet(bullet, mark, "pitfall", group=group)

    def _point(self, bullet: _Bullet, taken: dict[str, Place]) -> Item:
        mark = self._mark(bullet.opening, taken, "point", _POINT_FORM)
        asks = None
        if mark and (asked := [each for each in mark.words if each[0].startswith(_ASKS)]):
            asks = asked[0][0].removeprefix(_ASKS)
            rest = tuple(each for each in mark.words if each != asked[0])
            mark = _Mark(mark.name, mark.place, rest)
        level = self._word(mark, LEVELS, "point", _POINT_FORM)
        return self._bullet(bullet, mark, "point", level=level, asks=asks)

    def _bullet(
        self,
        bullet: _Bullet,
        mark: _Mark | None,
        noun: str,
        *,
        group: PitfallGroup | None = None,
        level: Level | None = None,
        asks: str | None = None,
    ) -> Item:
        opening, body = bullet.opening, bullet.body
        opening.meta["item"] = name = mark.name if mark else ""
        place = place_of(opening)
        if not any(each.children or each.content for each in body):
            fill = _FILL["pitfalls" if noun == "pitfall" else "points"]
            self.report(place, "empty-item", f"this {noun} says nothing", fill)
        return Item(
            name,
            place,
            Tokens(),
            Tokens(body),
            _links(body),
            group=group,
            level=level,
            asks=asks,
        )

    def _mark(self, token: Token, taken: dict[str, Place], noun: str, form: str) -> _Mark | None:
        """The mark in a comment in the token's rows, if there is one."""
        first, end = token.map or (0, 0)
        found = [each for row in range(first, end) for each in self.marks.pop(row, ())]
        if not found:
            self.report(
                place_of(token),
                "missing-item-id",
                f"this {noun} has no id",
                f"Write `{form}`, the same id in both languages; it stays when the text changes.",
            )
            return None
        mark, *more = found
        for other in more:
            message = f"this {noun} has a second id, `{other.name}`"
            self.report(other.place, "stray-id", message, "Keep one of the two.")
        if not is_id(mark.name):
            message = f"`{mark.name}` {why_no_id(mark.name)}"
            self.report(mark.place, "bad-id", message, f"Write `{form}`.")
        elif mark.name in taken:
            self.report(
                mark.place,
                "duplicate-item-id",
                f"the id `{mark.name}` is taken in line {taken[mark.name].line}",
                "Give each follow-up, pitfall and point of a language an id of its own.",
            )
        taken.setdefault(mark.name, mark.place)
        return mark

    def _word(
        self, mark: _Mark | None, known: tuple[Name, ...], noun: str, form: str
    ) -> Name | None:
        """The one of the known words that a mark says; a card in format 2 must say one."""
        if mark is None:
            return None
        said: list[Name] = []
        for word, place in mark.words:
            name = next((each for each in known if each == word), None)
            if name is None:
                hint = f"{suggest(word, known)} Write `{form}`." if known else f"Write `{form}`."
                message = f"`{word}` says nothing of a {noun}"
                self.report(place, "unknown-word", message, hint)
            elif said:
                message = f"`{word}` stands beside `{said[0]}`"
                self.report(place, "unknown-word", message, "Keep one of the two.")
            else:
                said.append(name)
        if known and not mark.words and self.converted:
            message = f"the comment of this {noun} says only its id"
            hint = f"Write `{form}`: {', '.join(f'`{each}`' for each in known)}."
            self.report(mark.place, "missing-word", message, hint)
        return said[0] if said else None


@dataclass(frozen=True)
class _Bullet:
    """An item of a list, and what stands in it."""

    opening: Token
    body: tuple[Token, ...]


def _bullets(tokens: Sequence[Token]) -> Iterator[_Bullet]:
    """The items of the lists that stand in no other block."""
    opened = 0
    for index, token in enumerate(tokens):
        if token.level != 1:
            continue
        if token.type == "list_item_open":
            opened = index
        elif token.type == "list_item_close":
            yield _Bullet(tokens[opened], tuple(tokens[opened + 1 : index]))


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


def _figures(tokens: Iterable[Token]) -> tuple[FigureLink, ...]:
    return tuple(token.meta["figure"] for token in tokens if token.type == "figure_open")


def _order(headings: Iterable[str]) -> str:
    return ", ".join(headings)


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


def _calculations(definitions: Mapping[str, Definition]) -> Mapping[str, str]:
    """Those that expressions may name, each with its own expression."""
    return {
        label: " ".join(each.title.split())
        for label, each in definitions.items()
        if each.href == "calc:"
    }


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
        question=dict(values.question) if values.question else None,
        asked={lang: tuple(values.asked.get(lang, ())) for lang in LANGS},
        frequency=values.frequency,
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
        scenario=Scenario(**values.scenario.model_dump()),
        silenced=dict(values.silenced),
        places=places,
        sections={
            lang: {name: half[name] for name in SECTION_NAMES if name in half}
            for lang, half in halves.items()
        },
        digest=digest,
    )

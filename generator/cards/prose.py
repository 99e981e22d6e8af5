"""What a card says in words: its paragraphs as pieces of text, math and code, with their places.

The checks read cards through this module, so that each of them sees the same words
and can say where in the file a character stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from markdown_it.token import Token

from generator.cards.model import Card, Link, Section, place_of
from generator.lang import LANGS, Lang, SectionName
from generator.problems import Place

Kind = Literal["text", "math", "code", "break"]
Role = Literal["paragraph", "heading", "cell", "title"]

_KINDS: dict[str, Kind] = {
    "text": "text",
    "math_inline": "math",
    "code_inline": "code",
    "softbreak": "break",
    "hardbreak": "break",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a passage: words, a formula, code or a line's end, and the link it stands in."""

    kind: Kind
    text: str
    token: Token
    link: Link | None


@dataclass(frozen=True, slots=True)
class Passage:
    """What is read in one go: a paragraph, a heading, a table's cell, the line of a list item.

    ``raw`` is its Markdown. ``title`` is the role of a follow-up's question.
    """

    card: Card
    lang: Lang
    section: SectionName
    role: Role
    raw: str
    pieces: tuple[Piece, ...]
    place: Place

    def flat(self, show: Callable[[Piece], str | None]) -> Flat:
        """The pieces joined as ``show`` shows each; those for which it gives nothing are left out.

        What is shown as long as it is written keeps its places to the column,
        formulas and code also with the marks that bound them.
        """
        text, starts, origins, pieces = "", [], [], []
        for piece in self.pieces:
            shown = show(piece)
            if shown:
                starts.append(len(text))
                origins.append(len(text) + (piece.kind in {"math", "code"} and shown[0] in "$`"))
                pieces.append(piece)
                text += shown
        return Flat(text, tuple(starts), tuple(origins), tuple(pieces))


@dataclass(frozen=True, slots=True)
class Flat:
    """A passage as one string, and where its characters stand."""

    text: str
    starts: tuple[int, ...]
    origins: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def piece(self, index: int) -> Piece:
        """The piece that the character at ``index`` comes from."""
        return self.pieces[bisect_right(self.starts, index) - 1]

    def place(self, index: int) -> Place:
        """Where the character at ``index`` stands in the file."""
        at = bisect_right(self.starts, index) - 1
        piece = self.pieces[at]
        return place_of(piece.token, min(index - self.origins[at], len(piece.text)))


def passages(card: Card) -> Iterator[Passage]:
    """Every passage of the card, language by language, in the order of the file."""
    for lang in LANGS:
        for section in card.sections[lang].values():
            yield from of_section(card, section)


def of_section(card: Card, section: Section) -> Iterator[Passage]:
    """Every passage of one section of a card in one language."""
    if section.tokens:
        yield from _passages(card, section, section.tokens)
        return
    for item in section.items:
        yield from _passages(card, section, item.title, "title")
        yield from _passages(card, section, item.body)


def blocks(section: Section) -> Iterator[Token]:
    """Every block token of a section, those of its follow-ups included."""
    yield from section.tokens
    if not section.tokens:
        for item in section.items:
            yield from item.title
            yield from item.body


def formulas(card: Card) -> Iterator[Token]:
    """Every math token of the card, in the order of the file."""
    for lang in LANGS:
        for section in card.sections[lang].values():
            for token in blocks(section):
                if token.type == "math_block":
                    yield token
                for child in token.children or ():
                    if child.type == "math_inline":
                        yield child


_ROLES: dict[str, Role] = {"heading_open": "heading", "th_open": "cell", "td_open": "cell"}


def _passages(
    card: Card, section: Section, tokens: Iterable[Token], role: Role | None = None
) -> Iterator[Passage]:
    before = ""
    for token in tokens:
        if token.type == "inline":
            pieces = tuple(_pieces(token.children or ()))
            own = role or _ROLES.get(before, "paragraph")
            where = (card, section.lang, section.name)
            yield Passage(*where, own, token.content, pieces, place_of(token))
        before = token.type


def _pieces(children: Iterable[Token]) -> Iterator[Piece]:
    link: Link | None = None
    for token in children:
        if token.type == "link_open":
            link = token.meta["link"]
        elif token.type == "link_close":
            link = None
        elif kind := _KINDS.get(token.type):
            yield Piece(kind, "\n" if kind == "break" else token.content, token, link)

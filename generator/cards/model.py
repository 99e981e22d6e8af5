"""What a card is, after parsing: frozen data that every later step only reads.

Text keeps its Markdown tokens (markdown-it-py), never its source:
a ``link_open`` token carries its target as ``token.meta["link"]`` (a ``Link`` of this module),
``math_inline`` and ``math_block`` tokens carry TeX as their content, ``alert_open`` tokens the kind
of a callout as ``token.meta["kind"]``, and the ``list_item_open`` of a pitfall or a point its id as
``token.meta["item"]``. ``place_of`` tells where a token's content stands in its file.
A figure is a ``figure_open`` token with a ``FigureLink`` as ``token.meta["figure"]``, the inline token of its
caption, and a ``figure_close``. Comments are gone. Tokens are shared and must not be changed.
"""

from __future__ import annotations

import hashlib
import pickle
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, overload

from markdown_it.token import Token

from generator.lang import Frequency, Lang, Level, PitfallGroup, SectionName, Text
from generator.problems import Place


class Tokens(Sequence[Token]):
    """Tokens in their order, unpacked when they are first read.

    Of the cards that a build finds in its cache it reads few beyond their front matter and links,
    and tokens are nearly all that a card is made of.
    """

    __slots__ = ("_length", "_packed", "_tokens")

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens: tuple[Token, ...] | None = tuple(tokens)
        self._length = len(self._tokens)
        self._packed = b""

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Token, ...]: ...
    def __getitem__(self, index: int | slice) -> Token | tuple[Token, ...]:
        return self._unpacked()[index]

    def __iter__(self) -> Iterator[Token]:
        return iter(self._unpacked())

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._unpacked() == other._unpacked()

    __hash__ = None  # type: ignore[assignment]  # nor has a token one

    def __getstate__(self) -> tuple[int, bytes]:
        return self._length, self._packed or pickle.dumps(self._tokens, protocol=5)

    def __setstate__(self, state: tuple[int, bytes]) -> None:
        self._length, self._packed = state
        self._tokens = None

    def _unpacked(self) -> tuple[Token, ...]:
        if self._tokens is None:
            self._tokens, self._packed = pickle.loads(self._packed), b""
        return self._tokens


Difficulty = Literal["easy", "medium", "hard"]
Device = str
"""``cpu``, or a GPU's short name: ``h200``."""


def at_device(device: Device) -> str:
    """How a link asks for that device's record: ``@h200``; nothing for the CPU, whose record is meant unsaid."""
    return "" if device == "cpu" else f"@{device}"


Places = Sequence[tuple[int, Place]]
"""Where content stands: each entry an offset in it and the place there; the text between two
entries stands in one row of the file."""


def locate(places: Places, index: int) -> Place:
    """The place of the character at ``index`` of the content that has these places."""
    before = bisect_right(places, index, key=lambda anchor: anchor[0]) - 1
    offset, place = places[max(before, 0)]
    return Place(place.path, place.line, place.column + max(index - offset, 0))


def place_of(token: Token, index: int = 0) -> Place:
    """Where the character at ``index`` of a token's content stands in the file.

    Tokens that have content have places: inline ones, code, math, links and their blocks.
    """
    return locate(token.meta["places"], index)


@dataclass(frozen=True, slots=True)
class Claim:
    """``[33.3%](claim:demo/metric@device)``, or ``wrong:`` where the number is refuted.

    ``place`` of a link is its opening bracket; ``text`` is what stands between the brackets,
    as written, math and emphasis with their marks.
    """

    place: Place
    text: str
    demo: str
    metric: str
    device: Device
    refuted: bool


@dataclass(frozen=True, slots=True)
class Fact:
    """``[80 GB](fact:h100-sxm/memory)``: a public fact, an entry of ``facts.yml`` and a key of it."""

    place: Place
    text: str
    entry: str
    key: str


@dataclass(frozen=True, slots=True)
class Param:
    """``[64](param:demo/layers)``: a setting of the run that a demo's CPU record keeps."""

    place: Place
    text: str
    demo: str
    name: str


@dataclass(frozen=True, slots=True)
class Calc:
    """``[128 GB](calc: "{model/parameters} × 16 B")``: a number that follows from others."""

    place: Place
    text: str
    expression: str


@dataclass(frozen=True, slots=True)
class Citation:
    """``[30–40%](source:key "Table 5")``: someone else's result, and where in their work it stands."""

    place: Place
    text: str
    source: str
    where: str


@dataclass(frozen=True, slots=True)
class Given:
    """``[80 GB](given:)``: a quantity assumed for the argument."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Awaited:
    """``[not yet recorded on a GPU](gpu:demo/metric)``: a number that only a GPU's record will hold."""

    place: Place
    text: str
    demo: str
    metric: str


@dataclass(frozen=True, slots=True)
class CardLink:
    """``[text](card:other-id)``, with the id of a follow-up, pitfall or point behind ``#`` where given."""

    place: Place
    text: str
    card: str
    anchor: str


@dataclass(frozen=True, slots=True)
class WebLink:
    """An ordinary link to another site."""

    place: Place
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class FigureLink:
    """``![caption](figure:demo/name@device)``: a figure of a demo's record, over its caption.

    ``place`` is that of its exclamation mark.
    """

    place: Place
    demo: str
    figure: str
    device: Device


Link = Claim | Param | Fact | Calc | Citation | Given | Awaited | CardLink | WebLink


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence ```` ```python run ````: code that is run; ``place`` is where its first line stands."""

    place: Place
    code: str

    @property
    def digest(self) -> str:
        """SHA-256 of the code, by which its record is known."""
        return hashlib.sha256(self.code.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Item:
    """A follow-up (``title`` is the question), a pitfall or a point (``title`` is empty), known by its id.

    What does not apply to the kind of item is ``None``, as is what a card of format 1 does not say:
    ``frequency`` of a follow-up, ``group`` of a pitfall, ``level`` of a point, ``asks``, the follow-up that
    probes a point.
    """

    id: str
    place: Place
    title: Tokens
    body: Tokens
    links: tuple[Link, ...]
    frequency: Frequency | None = None
    group: PitfallGroup | None = None
    level: Level | None = None
    asks: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One section in one language.

    ``tokens`` is the whole section without its heading (empty for follow-ups); ``items`` holds the
    follow-ups, pitfalls or points; ``links`` every link in the section, in order, and ``figures`` every
    figure.
    """

    name: SectionName
    lang: Lang
    place: Place
    tokens: Tokens
    items: tuple[Item, ...]
    links: tuple[Link, ...]
    figures: tuple[FigureLink, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A work that a card cites: ``where`` is a section, table, file or symbol in it."""

    key: str
    place: Place
    title: str
    url: str
    where: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a card's calculations assume.

    ``model`` and ``device`` are entries of ``facts.yml``; ``devices`` counts devices, ``batch`` sequences, and
    ``sequence`` the tokens of one.
    """

    model: str | None = None
    device: str | None = None
    devices: int | None = None
    batch: int | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One card in both languages.

    A card with a ``question`` is in format 2: it has all sections but perhaps the optional ones, in both
    languages alike. Another is not yet, and has those of format 1.
    """

    id: str
    path: str
    title: Text
    question: Text | None
    """As an interviewer asks it."""
    asked: Mapping[str, tuple[str, ...]]
    """Other wordings of the question by language."""
    frequency: Frequency | None
    module: str
    topic: str
    difficulty: Difficulty
    updated: date
    tags: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]]
    prerequisites: tuple[str, ...]
    related: tuple[str, ...]
    formerly: tuple[str, ...]
    sources: Mapping[str, Source]
    scenario: Scenario
    silenced: Mapping[str, str]
    """Codes of checks that do not apply to this card, each with the written reason."""
    places: Mapping[str, Place]
    """Where each key of the front matter stands; ``prerequisites.0`` for the first of a list."""
    sections: Mapping[Lang, Mapping[SectionName, Section]]
    digest: str
    """SHA-256 of the file's text: what is made of the card alone depends on this and ``path``."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """What is calculated under a name, ``[label]: calc: "…"``: expressions by label, in small letters."""
    fences: tuple[Fence, ...] = ()
    """The fences that are run, each code once, at its first place."""

    @property
    def converted(self) -> bool:
        """Whether the card is in format 2."""
        return self.question is not None

    @property
    def item_ids(self) -> frozenset[str]:
        """The ids of its follow-ups, pitfalls and points, which links may name behind ``#``."""
        sections = (section for half in self.sections.values() for section in half.values())
        return frozenset(item.id for section in sections for item in section.items)

    def links(self) -> Iterator[Link]:
        """Every link of the card, language by language, section by section."""
        for lang in self.sections:
            yield from self.links_in(lang)

    def claims(self) -> Iterator[Claim]:
        """Every claim of the card, in the order of ``links``."""
        return (link for link in self.links() if isinstance(link, Claim))

    def params(self) -> Iterator[Param]:
        """Every setting of a run that the card states, in the order of ``links``."""
        return (link for link in self.links() if isinstance(link, Param))

    def calcs(self) -> Iterator[Calc]:
        """Every number that the card calculates, in the order of ``links``."""
        return (link for link in self.links() if isinstance(link, Calc))

    def facts(self) -> Iterator[Fact]:
        """Every public fact that the card states, in the order of ``links``."""
        return (link for link in self.links() if isinstance(link, Fact))

    def awaited(self) -> Iterator[Awaited]:
        """Every number that the card leaves to a GPU's record, in the order of ``links``."""
        return (link for link in self.links() if isinstance(link, Awaited))

    def links_in(self, lang: Lang) -> Iterator[Link]:
        """The links of one language, section by section."""
        for section in self.sections[lang].values():
            yield from section.links

    def figures(self) -> Iterator[FigureLink]:
        """Every figure that the card shows, language by language, section by section."""
        for half in self.sections.values():
            for section in half.values():
                yield from section.figures

    def runs(self) -> tuple[tuple[str, Device], ...]:
        """The demos, with their devices, that the card rests on: of its claims, its figures, what it leaves to GPUs."""
        claimed = ((claim.demo, claim.device) for claim in self.claims())
        shown = ((figure.demo, figure.device) for figure in self.figures())
        awaited = ((link.demo, "cpu") for link in self.awaited())
        return tuple(dict.fromkeys((*claimed, *shown, *awaited)))

    def claims_in(self, lang: Lang) -> Iterator[Claim]:
        """The claims of one language, section by section."""
        return (link for link in self.links_in(lang) if isinstance(link, Claim))


@dataclass(frozen=True, slots=True)
class Topic:
    """A part of a module."""

    id: str
    title: Text


@dataclass(frozen=True, slots=True)
class PlannedCard:
    """A card that is named before it is written; links to it are shown as plain text."""

    id: str
    title: Text


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the syllabus, as ``modules.yml`` names it; ``code`` is M1, M2 and so on."""

    id: str
    code: str
    title: Text
    summary: Text
    topics: Mapping[str, Topic]
    planned: tuple[PlannedCard, ...]


@dataclass(frozen=True, slots=True)
class LearningPath:
    """Cards in an order for one kind of reader."""

    id: str
    title: Text
    summary: Text
    cards: tuple[str, ...]

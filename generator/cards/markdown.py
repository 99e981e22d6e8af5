"""The Markdown of cards: CommonMark, GFM tables, dollar math, GitHub's five callouts.

Every token carries in ``meta["places"]`` where its content stands in the file (``model.place_of``).
markdown-it counts the lines of blocks only; inline tokens are placed here, by their offset in
their block and by where each line of that block stands in its row.

A callout is an ``alert_open`` … ``alert_close`` pair with its kind, ``note`` or another of
``CALLOUTS``, in ``meta["kind"]``; its heading is the reader's to write, in their language.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import MD_TRIM_CHARS
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType
from mdit_py_plugins.dollarmath import dollarmath_plugin

from generator.cards.model import Places, locate, place_of
from generator.characters import faults
from generator.lines import Lines, strange
from generator.problems import Place, Problem

CALLOUTS = ("note", "tip", "important", "warning", "caution")
MAX_NESTING = 20
"""Quotes, lists and their items inside one another; markdown-it drops what stands deeper."""

_CONTAINERS = {"blockquote_open", "alert_open", "list_item_open"}
_VERBATIM = {"fence", "code_block", "html_block", "math_block"}
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_ESCAPED_PIPE = re.compile(r"\\\|")
_ASCII = 0x80

ESCAPED = 0xE000
"""A character of ASCII that was escaped stands so far up, among those of private use, in a text's
``meta["bare"]``: the text with only those marks left that may have been meant as markup."""


class _PlacedState(StateInline):
    """Notes the offset at which each token begins."""

    text_at = 0

    def append_pending(self, text: str) -> None:
        if not self.pending:
            self.text_at = self.pos
        super().append_pending(text)

    def pushPending(self) -> Token:  # markdown-it's name
        token = super().pushPending()
        token.meta = {"at": self.text_at}
        return token

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        token.meta = {"at": self.pos}
        return token


class _PlacedInline(ParserInline):
    """The inline parser, with a state that notes offsets."""

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _PlacedState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _Parser(MarkdownIt):
    """The parser, which leaves it to its reader to say what a link may lead to."""

    def validateLink(self, url: str) -> bool:  # noqa: ARG002  # markdown-it's
        return True


class Definition(NamedTuple):
    """``[label]: href "title"``."""

    href: str
    title: str


_NAMED = re.compile(r"\{calc:([^{}/]+)\}")
"""How an expression asks for a definition."""


class _References(dict[str, dict[str, Any]]):
    """The addresses that are given by name, and which of those names links have asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, label: str, default: Any = None) -> Any:
        """The address of a name, as links and images ask for it."""
        self.asked.add(label)
        return super().get(label, default)


@cache
def _parser() -> MarkdownIt:
    md = _Parser("commonmark")
    md.inline = _PlacedInline()
    md.configure("commonmark", {"maxNesting": MAX_NESTING, "alerts": True})
    md.enable("table")
    # Neighbouring texts are joined below, where their offsets are kept.
    md.disable(["fragments_join", "text_join"])
    md.use(dollarmath_plugin, allow_labels=False, allow_space=False, allow_blank_lines=False)
    return md


def parse(
    lines: Lines, first: int = 0
) -> tuple[list[Token], Mapping[str, Definition], list[Problem]]:
    """The placed tokens of the rows from ``first`` on, its definitions, and what reads unlike meant.

    Rows count from 0 and from the file's top, in ``token.map``, too; the labels of definitions, whose
    capitals say nothing, are in small letters.
    """
    named = _References()
    named.asked.update(label.upper() for label in _NAMED.findall(lines.text))
    env = {"references": named}
    tokens = _parser().parse("\n" * first + lines.text[lines.start(first) :], env)
    problems = [*_too_deep(tokens, lines), *_idle_references(named, env, lines)]
    tokens = list(_with_plain_callouts(tokens))
    cells: Iterator[Places] | None = None
    for index, token in enumerate(tokens):
        if token.type == "tr_open" and token.map:
            cells = _cells(lines, token.map[0], tokens[index + 2].content)
        elif token.type == "tr_close":
            cells = None
        if token.type == "inline":
            places = next(cells) if cells else _rows(token, lines)
            if image := _lone_figure(tokens[index - 1], token):
                opening = {"places": ((0, locate(places, 0)),), **image.attrs}
                tokens[index - 1] = _renamed(tokens[index - 1], opening)
                tokens[index + 1] = _renamed(tokens[index + 1], {})
                token.content, token.children = image.content, image.children
                places = _part(places, len("!["), len("![") + len(image.content))
            token.children = list(_settled(token, places, problems))
        elif token.type in _VERBATIM:
            places = _rows(token, lines)
        elif token.map:
            row = lines.rows[token.map[0]]
            places = ((0, lines.at(token.map[0], len(row) - len(row.lstrip()))),)
        else:
            continue
        token.meta = {**token.meta, "places": places}
    definitions = {
        label.lower(): Definition(each["href"], each.get("title", ""))
        for label, each in named.items()
    }
    return tokens, definitions, [*problems, *_unknown_callouts(tokens)]


def _lone_figure(before: Token, inline: Token) -> Token | None:
    """The image that is all of a paragraph and leads to a figure: its label is a caption."""
    children = inline.children or ()
    if before.type != "paragraph_open" or len(children) != 1 or children[0].type != "image":
        return None
    return children[0] if str(children[0].attrs["src"]).startswith("figure:") else None


def _renamed(paragraph: Token, meta: Mapping[str, Any]) -> Token:
    """A paragraph's opening or closing token as that of a figure."""
    kind = paragraph.type.replace("paragraph", "figure")
    return paragraph.copy(type=kind, tag="figure", hidden=False, meta={**paragraph.meta, **meta})


def _too_deep(tokens: Iterable[Token], lines: Lines) -> Iterator[Problem]:
    for token in tokens:
        if token.type in _CONTAINERS and token.level >= MAX_NESTING - 1 and token.map:
            yield Problem(
                lines.at(token.map[0]),
                "too-deep",
                f"quotes and lists stand {MAX_NESTING} deep in one another, and deeper text is lost",
                "Flatten them.",
            )
            return


def _idle_references(named: _References, env: Mapping[str, Any], lines: Lines) -> Iterator[Problem]:
    """What looks like ``[name]: address`` is never shown: where no link asks for it, text is lost."""
    idle = [each for label, each in named.items() if label not in named.asked]
    for each in [*idle, *env.get("duplicate_refs", ())]:
        yield Problem(
            lines.at(each["map"][0]),
            "unused-reference",
            "this line is read as the address of a link, `[name]: address`, and nothing uses it",
            "Link with `[text][name]`, remove the line, or write `\\[` where it is text.",
        )


def _unknown_callouts(tokens: list[Token]) -> Iterator[Problem]:
    for outer, inline in zip(tokens, tokens[2:], strict=False):
        if outer.type == "blockquote_open" and inline.content.startswith("[!"):
            yield Problem(
                place_of(inline),
                "unknown-callout",
                "this callout is none of GitHub's five, or does not stand alone on its line",
                "Write " + ", ".join(f"`> [!{kind}]`" for kind in CALLOUTS) + ", and text below.",
            )


def _with_plain_callouts(tokens: Iterable[Token]) -> Iterator[Token]:
    """Leave out the English headings that markdown-it gives to callouts."""
    in_title = False
    for token in tokens:
        if token.type == "alert_open":
            token.meta = {"kind": token.info.lower()}
            token.attrs = {}
        if token.type == "alert_title_open":
            in_title = True
        if not in_title:
            yield token
        if token.type == "alert_title_close":
            in_title = False


def _rows(token: Token, lines: Lines) -> Places:
    """Where each line of a block's content stands: behind list markers, quotes and fences."""
    if not token.map:
        return ((0, lines.at(0)),)
    first = token.map[0] + (token.type == "fence")
    places: list[tuple[int, Place]] = []
    offset = 0
    for index, text in enumerate(token.content.split("\n")):
        row = first + index
        if row >= len(lines.rows):
            break
        indent = len(text) - len(text.lstrip())
        column = _column(lines.rows[row], text.strip())
        if indent:
            places.append((offset, lines.at(row, column - indent)))
        places.append((offset + indent, lines.at(row, column)))
        offset += len(text) + 1
    return tuple(places)


def _column(row: str, wanted: str) -> int:
    """The column of a block's line in its row: its last part, or what a closing fence follows."""
    row = row.rstrip()
    return len(row) - len(wanted) if row.endswith(wanted) else row.rfind(wanted)


def _cells(lines: Lines, row: int, first: str) -> Iterator[Places]:
    """Where the cells of a table's row stand; ``first`` is the content of the first one."""
    text = lines.rows[row]
    bounds = [-1, *(found.start() for found in _CELL_BORDER.finditer(text)), len(text)]
    spans = [(start + 1, end) for start, end in pairwise(bounds)]
    written = first.replace("|", "\\|")
    before = text[: spans[0][1]].rstrip(MD_TRIM_CHARS)
    if before.strip(MD_TRIM_CHARS + ">") and first and before.endswith(written):
        # No pipe on the left: the cell ends the first span, perhaps behind a list marker.
        spans[0] = (len(before) - len(written), spans[0][1])
    else:
        spans.pop(0)
    for start, end in spans:
        cell = text[start:end]
        left = start + len(cell) - len(cell.lstrip(MD_TRIM_CHARS))
        places = [(0, lines.at(row, left))]
        for number, found in enumerate(_ESCAPED_PIPE.finditer(text, left, end)):
            places.append((found.start() - left - number, lines.at(row, found.start() + 1)))
        yield tuple(places)
    while True:  # cells that a short row leaves out
        yield ((0, lines.at(row, len(text))),)


def _settled(inline: Token, places: Places, problems: list[Problem]) -> Iterator[Token]:
    """The children of an inline token, placed, texts joined, links with their label as written.

    CommonMark lets no link stand in a link's text, but markdown-it lets an autolink:
    it is a problem, and its address is left as text.
    """
    children = inline.children or []
    level = label = 0
    opened: list[Token] = []
    run: list[Token] = []
    for index, token in enumerate(children):
        if token.type in {"text", "text_special"}:
            run.append(token)
            if token.info == "entity":
                where = locate(places, token.meta["at"])
                problems += _strange(token.content, token.markup, where)
            continue
        at = token.meta.get("at", 0)
        if token.type == "link_open":
            opened.append(token)
            if len(opened) > 1:
                problems.append(_nested(locate(places, at)))
                continue
        elif token.type == "link_close" and opened:
            first = opened.pop()
            if opened:
                continue
            auto = token.info == "auto"
            first.meta["label"] = children[index - 1].content if auto else inline.content[label:at]
        if run:
            yield _text(run, level, places)
            run = []
        level -= token.nesting < 0
        token.level = level
        level += token.nesting > 0
        if token.type == "link_open":
            # An autolink notes its own beginning, another link that of its label.
            label, at = at, at - (token.info != "auto")
            told = str(token.attrs.get("title", ""))
            problems += _strange(told, inline.content, locate(places, at))
        elif token.type in {"math_inline", "code_inline"}:
            at += len(token.markup)
        token.meta = {"places": _part(places, at, at + len(token.content))}
        yield token
    if run:
        yield _text(run, level, places)


def _strange(text: str, written: str, place: Place) -> Iterator[Problem]:
    """Characters that only an entity, such as ``&#8203;``, brought into a text."""
    return (strange(each, place) for each in faults(text) if each.character not in written)


def _nested(place: Place) -> Problem:
    return Problem(
        place,
        "nested-link",
        "a link stands within the text of another link",
        "Take the angle brackets off the address, or put it behind the other link.",
    )


def _text(run: list[Token], level: int, places: Places) -> Token:
    """One token for neighbouring texts, which remembers what of it was escaped."""
    joined = Token("text", "", 0, level=level, content="".join(token.content for token in run))
    anchors: list[tuple[int, Place]] = []
    index, last = 0, -1
    for token in run:
        at = token.meta["at"]
        if at > last:  # the characters of a run of asterisks all note its beginning
            place = locate(places, at)
            if not anchors or locate(anchors, index) != place:
                anchors.append((index, place))
        index, last = index + len(token.content), at
    bare = "".join(
        token.content if token.type == "text" else _masked(token.content) for token in run
    )
    joined.meta = {"places": tuple(anchors), "bare": bare}
    return joined


def _masked(text: str) -> str:
    return "".join(chr(ESCAPED + ord(each)) if ord(each) < _ASCII else "\0" for each in text)


def _part(places: Places, start: int, end: int) -> Places:
    """The places of ``content[start:end]``, counted from ``start``."""
    inner = places[_after(places, start) : _after(places, end - 1)]
    return ((0, locate(places, start)), *((offset - start, place) for offset, place in inner))


def _after(places: Places, offset: int) -> int:
    return bisect_right(places, offset, key=lambda anchor: anchor[0])

"""A card's tokens → Markdown as Obsidian reads it: wikilinks, callouts, block ids.

Obsidian differs from the Markdown of cards in what it adds (``[[links]]``, ``#tags``, ``==marks==``,
``%%comments%%``, ``^block-ids``), so that text has to be escaped for it; a line's end is a line
break; and ``|`` splits a table's cell even inside a formula or a link.

Widespread plugins run what stands in a note: Dataview inline code that begins with ``=`` or ``$=``,
and fences by their language; Templater ``<% … %>`` anywhere. What a card says is never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from string import punctuation
from urllib.parse import quote

from markdown_it.token import Token
from pygments.lexers import find_lexer_class_by_name
from pygments.util import ClassNotFound

from generator import words
from generator.cards import fences
from generator.cards.model import Fence, FigureLink, Link
from generator.lang import CALLOUT_LABELS, Lang
from generator.line_ends import line_end
from generator.render.printed import caption

_SPECIAL = re.compile(
    r"[\\`*\[\]<$#^]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|=(?==)|%(?=%)|(?<=:):"  # k:: v is a field
)
_ENTITY = re.compile(r"&(?=#?\w+;)")
JOINER = "\u2060"
"""Takes no room, and keeps the characters beside it from being read as one mark."""
_RUN_INLINE = re.compile(r"\s*\$?=")
_RUN_IN_TEXT = re.compile(rf"`(?={_RUN_INLINE.pattern})")
_RUN_FENCES = {"mermaid", "output"}
"""Languages that are known to Pygments, too: a diagram, and what Execute Code writes results to."""
_BLOCK_START = re.compile(r"^(?:[-+>](?=\s|$)|\d{1,9}(?=[.)](?:\s|$))|={3,}$|-{3,}$|\|)")
_LIST = re.compile(r"- |\d+\. ")
_FENCES = re.compile(r"`{3,}")
_TICKS = re.compile(r"`+")

LinkWriter = Callable[[Link, str, bool], str]
"""Writes a link whose label is already Markdown; the flag says that it stands in a table."""
FigureWriter = Callable[[FigureLink], str]
"""Writes what shows a figure: nothing where there is none, as in a draft."""
Printed = Callable[[Fence], str | None]
"""What a fence printed when it was run; ``None`` where it was not."""


def block_id(*parts: str) -> str:
    """A block id: Obsidian knows Latin letters, digits and dashes only."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts if part)


def escaped(text: str, *, table: bool = False) -> str:
    """Text that Obsidian shows as it is, within a line."""
    text = _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.splitlines()))
    text = _ENTITY.sub("&amp;", text)
    return text.replace("|", "\\|") if table else text


def paragraph(text: str) -> str:
    """Text that Obsidian shows as it is, at the beginning of a line."""
    return _opened(escaped(" ".join(text.split())))


def value(text: str) -> str:
    """Text as a property, which a table of Dataview shows as Markdown."""
    return _RUN_IN_TEXT.sub(rf"\g<0>{JOINER}", text)


def inert(note: str) -> str:
    """A whole note without the one mark that a plugin looks for everywhere, even in code."""
    return note.replace("<%", f"<{JOINER}%")


def link(note: str, anchor: str, label: str, *, table: bool = False) -> str:
    """A link within the vault: a wikilink, unless its label, which is Markdown, is more than text."""
    if is_plain(label):
        return wikilink(note + anchor, label, table=table)
    file = f"{note}.md".replace(" ", "%20") if note else ""
    return f"[{label}]({file}{anchor})"


def wikilink(target: str, label: str, *, table: bool = False) -> str:
    """A link to a note, or to a block of one, with a label of plain text."""
    label = " ".join(re.sub(r"[\[\]|]", " ", label).split())
    bar = "\\|" if table else "|"
    return f"[[{target}{bar}{label}]]"


def titled(label: str, address: str, title: str = "", *, table: bool = False) -> str:
    """A link out of the document, whose title says what stands there; ``label`` is Markdown already."""
    shown = escaped(title.replace('"', "'"), table=table)
    return f"[{label}](<{url(address)}>" + (f' "{shown}")' if title else ")")


def url(address: str) -> str:
    """An address that ends where its brackets end, also in a cell of a table."""
    return quote(address, safe="".join(set(punctuation) - set('\\<>|`"')))


def callout(kind: str, title: str, body: str, *, folded: bool = False) -> str:
    """A callout; each of its lines, those of formulas and code too, begins with ``>``."""
    return _prefixed(f"[!{kind}]{'-' if folded else ''} {title}\n{body}".rstrip(), "> ")


def with_block_id(block: str, name: str) -> str:
    """A quote, callout, list or table with its block id on a line of its own."""
    return f"{block}\n\n^{name}"


def row(cells: Iterable[str]) -> str:
    """One row of a table, from cells that are Markdown already."""
    return "| " + " | ".join(cells) + " |"


class Writer:
    """Writes one language of one card: its links, its figures, and the block ids of its pitfalls.

    ``printed`` says what its fences printed.
    """

    def __init__(
        self,
        lang: Lang,
        link: LinkWriter,
        figure: FigureWriter,
        name: Callable[[str], str],
        printed: Printed,
    ) -> None:
        self.lang, self.link, self.figure, self.name = lang, link, figure, name
        self.printed = printed

    def blocks(self, tokens: Sequence[Token]) -> str:
        """Block tokens as Markdown, without a line's end at the last line."""
        return "\n\n".join(self._blocks(tokens))

    def line(self, tokens: Iterable[Token]) -> str:
        """The inline content of ``tokens`` on one line, as in a heading."""
        return " ".join(self.inline(token.children or ()) for token in tokens if token.children)

    # Blocks

    def _blocks(self, tokens: Sequence[Token]) -> list[str]:
        written: list[str] = []
        index = 0
        while index < len(tokens):
            end = _closing(tokens, index)
            written.append(self._block(tokens[index], tokens[index + 1 : end]))
            index = end + 1
        return written

    def _block(self, token: Token, inner: Sequence[Token]) -> str:
        if write := getattr(self, f"_{token.type.removesuffix('_open')}", None):
            return str(write(token, inner))
        raise ValueError(f"no Markdown for the token {token.type}")

    def _paragraph(self, _: Token, inner: Sequence[Token]) -> str:
        return _opened(self.line(inner))

    def _figure(self, token: Token, inner: Sequence[Token]) -> str:
        caption = self._paragraph(token, inner)
        return f"{self.figure(token.meta['figure'])}\n{caption}".lstrip()

    def _heading(self, token: Token, inner: Sequence[Token]) -> str:
        return "#" * int(token.tag[1:]) + " " + self.line(inner)

    def _bullet_list(self, _: Token, inner: Sequence[Token]) -> str:
        return self._items(inner, lambda _: "- ")

    def _ordered_list(self, token: Token, inner: Sequence[Token]) -> str:
        first = int(token.attrs.get("start", 1))
        return self._items(inner, lambda number: f"{first + number}. ")

    def _blockquote(self, _: Token, inner: Sequence[Token]) -> str:
        return _prefixed(self.blocks(inner), "> ")

    def _alert(self, token: Token, inner: Sequence[Token]) -> str:
        kind = token.meta["kind"]
        return callout(kind, CALLOUT_LABELS[kind][self.lang], self.blocks(inner))

    def _math_block(self, token: Token, _: Sequence[Token]) -> str:
        return f"$$\n{_tex(token.content.strip())}\n$$"

    def _fence(self, token: Token, _: Sequence[Token]) -> str:
        listing = _fence(token.content, token.info.split()[0] if token.info.strip() else "")
        run = fences.fence(token)
        return f"{listing}\n\n{self._printed(run)}" if run else listing

    def _printed(self, fence: Fence) -> str:
        output = self.printed(fence)
        said = caption(output)[self.lang]
        if not output:
            return paragraph(said)
        colon = words.phrase("numbers.colon")[self.lang].rstrip()
        return f"{said}{colon}\n\n{_fence(output, 'text')}"

    def _code_block(self, token: Token, _: Sequence[Token]) -> str:
        return _fence(token.content, "")

    def _hr(self, _: Token, __: Sequence[Token]) -> str:
        return "---"

    def _items(self, inner: Sequence[Token], marker: Callable[[int], str]) -> str:
        items: list[str] = []
        index, tight = 0, True
        while index < len(inner):
            end = _closing(inner, index)
            content = inner[index + 1 : end]
            tight = tight and all(each.hidden for each in content if each.type == "paragraph_open")
            first, *rest = self._blocks(content) or [""]
            if name := inner[index].meta.get("item"):
                first += self._named(name)
            mark = marker(len(items))
            # A list within a tight one follows at once: a blank line would loosen both.
            text = first + "".join(
                ("\n" if tight and _LIST.match(each) else "\n\n") + each for each in rest
            )
            items.append(_prefixed(text, " " * len(mark), first=mark))
            index = end + 1
        return ("\n" if tight else "\n\n").join(items)

    def _named(self, item: str) -> str:
        """What makes a pitfall a place that links lead to."""
        return f" ^{self.name(item)}"

    def _table(self, _: Token, inner: Sequence[Token]) -> str:
        rows: list[list[str]] = []
        rule: list[str] = []
        for index, token in enumerate(inner):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                rows[-1].append(self.inline(inner[index + 1].children or (), table=True))
            if token.type == "th_open":
                align = str(token.attrs.get("style", "")).removeprefix("text-align:")
                rule.append({"left": ":--", "right": "--:", "center": ":-:"}.get(align, "---"))
        return "\n".join(row(cells) for cells in [rows[0], rule, *rows[1:]])

    # Inline content

    def inline(self, children: Iterable[Token], *, table: bool = False) -> str:
        """Inline tokens as Markdown; ``table`` keeps bars from splitting a cell."""
        stack: list[tuple[Link | None, str]] = [(None, "")]

        def add(text: str) -> None:
            link, before = stack[-1]
            stack[-1] = (link, before + text)

        tokens = list(children)
        for index, token in enumerate(tokens):
            match token.type:
                case "text":
                    add(escaped(token.content, table=table))
                case "softbreak":
                    add(line_end(tokens, index))
                case "hardbreak":
                    add("<br>" if table else "\n")
                case "code_inline":
                    add(_code(token.content, table))
                case "math_inline":
                    tex = _tex(token.content)
                    add(f"${_in_table(tex) if table else tex}$")
                case "link_open":
                    stack.append((token.meta["link"], ""))
                case "link_close":
                    link, label = stack.pop()
                    assert link is not None  # links are closed in the order in which they open
                    add(self.link(link, label, table))
                case _:
                    add(token.markup)
        return stack[0][1]


def is_plain(label: str) -> bool:
    """Whether a label is text alone, which is all that a wikilink shows."""
    return re.search(r"[\\`*_$\[\]|<>&]", label) is None


def _closing(tokens: Sequence[Token], index: int) -> int:
    """The index of the token that closes the one at ``index``: itself, where nothing has to."""
    depth = 0
    for at in range(index, len(tokens)):
        depth += tokens[at].nesting
        if depth == 0:
            return at
    raise ValueError(f"the token {tokens[index].type} is never closed")


def _prefixed(text: str, prefix: str, first: str | None = None) -> str:
    """Each line behind ``prefix``; empty ones without the prefix's trailing space."""
    lines = [(prefix + line).rstrip() for line in text.split("\n")]
    if first is not None:
        lines[0] = first + text.split("\n", 1)[0]
    return "\n".join(lines)


def _opened(line: str) -> str:
    """A line of text that begins no list, quote, rule or table."""
    return _BLOCK_START.sub(lambda match: _escape_last(match[0]), line)


def _escape_last(start: str) -> str:
    """The start of a paragraph that would begin a block, with its mark escaped."""
    return start + "\\" if start[0].isdigit() else "\\" + start


def _fence(content: str, language: str) -> str:
    language = language if _is_code(language) else "text" if language else ""
    longest = max((len(run) for run in _FENCES.findall(content)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{content.rstrip()}\n{marks}"


def _is_code(language: str) -> bool:
    """Whether a fence of this language is a listing everywhere, and no plugin's to run or draw."""
    try:
        find_lexer_class_by_name(language)
    except ClassNotFound:
        return False
    return language.lower() not in _RUN_FENCES


def _code(content: str, table: bool) -> str:
    if _RUN_INLINE.match(content):
        content = JOINER + content
    longest = max((len(run) for run in _TICKS.findall(content)), default=0)
    marks = "`" * (longest + 1)
    padding = " " if content.startswith("`") or content.endswith("`") else ""
    text = content.replace("|", "\\|") if table else content
    return f"{marks}{padding}{text}{padding}{marks}"


def _tex(tex: str) -> str:
    """A formula in which no less-than sign looks like a tag's."""
    return re.sub(r"<(?=[A-Za-z/!?])", "< ", tex)


def _in_table(tex: str) -> str:
    r"""A formula without bars, which split cells even here: ``\vert`` and ``\Vert`` instead."""
    tex = re.sub(r"\\\|", r"\\Vert ", tex)
    return tex.replace("|", r"\vert ")

r"""No mark-up that other Markdown draws, and ours shows as characters.

The rule reads what is left as text when a passage has been parsed, so that code, formulas and
the targets of links are never looked at, and what was escaped (``\*``) was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards import prose
from generator.cards.markdown import ESCAPED
from generator.cards.model import place_of
from generator.cards.prose import Flat, Passage, Piece
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "leftover-markup"
SEVERITY: Severity = "error"
SENTENCE = (
    "Nothing is shown as characters that was typed as mark-up: emphasis that does not open, `$`, "
    "`~~`, `==`, `[[…]]`, `[^1]`, `- [ ]`, `:::`, `#tag`, `{.class}`, `\\(…\\)`, `<br`, `:smile:`, a bare "
    "address, a `mermaid` block. What is meant as it stands is escaped, or code."
)

_LONGEST = 40
"""Characters that a message quotes."""

_HAN = r"\u3007\u3400-\u9fff\uf900-\ufaff"


def _escaped(marks: str) -> str:
    """These characters as they stand in a text where they were escaped."""
    return "".join(chr(ESCAPED + ord(mark)) for mark in marks)


_PAIRED_BRACKETS = (
    rf"{_escaped('(')}[^\n]*?{_escaped(')')}"
    rf"|^{_escaped('[')}[^\n]*{_escaped(']')}$"
    rf"|{_escaped('[')}[^\n\[\]]*?[\\^_=][^\n\[\]]*?{_escaped(']')}"
)
_ESCAPE_EMPHASIS = (
    "No punctuation stands at the inner edge of the mark while a letter or 汉字 stands at its outer one: "
    "take the quotation mark out of the emphasis, or write `\\*` for an asterisk."
)
# What it is, how it looks, and what to do; the first that fits a spot speaks.
_MARKS: tuple[tuple[str, str, str], ...] = (
    (
        "an image or a link of Obsidian or a wiki",
        r"!?\[\[(?![\d\s,.+-]*\]\])[^\[\]\n]+\]\]",
        "Link with `[text](card:ID)`; a list in a list is code.",
    ),
    ("a contents list", r"@?\[toc\]|@\[\w+\]", "Remove it: pages have their contents list."),
    (
        "a footnote",
        r"\[\^[^\]\s]+\]|\^\[",
        "Say it in the sentence, or cite it: `[text](source:KEY)`.",
    ),
    (
        "a task",
        r"^\[[ xX/-]?\](?=\s|$)",
        "Write a plain list; whether it is done does not belong on a card.",
    ),
    (
        "a link",
        r"\]\(|(?<![\w\])])\[[^\[\]\n]+\]\[[^\[\]\n]*\]",
        "A link is `[text](target)`, its target without spaces, its title in straight quotes.",
    ),
    (
        "BBCode",
        r"\[(?:url|color|size|quote)=[^\]\n]*\]|\[/(?:b|i|u|s|url|img|code|quote|color|size)\]",
        "Write Markdown.",
    ),
    ("an inserted or a deleted text", r"\{(?:\+\+|--|~~|==|>>)", "Write the text that holds."),
    (
        "bold text",
        r"\*{2,}|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)|'''",
        _ESCAPE_EMPHASIS,
    ),
    (
        "emphasis",
        r"(?<![A-Za-z0-9)\]*])\*(?=[^\s*])|(?<=[^\sA-Za-z0-9)\]*])\*(?=\s|$)"
        r"|(?<![A-Za-z0-9_])_(?=[^\s_])[^_\n]{1,200}(?<=\S)_(?![A-Za-z0-9_])",
        _ESCAPE_EMPHASIS,
    ),
    ("struck-through text", r"~~", "Delete the text, or say that it was wrong."),
    ("a subscript", r"~[^\s~]{1,30}~(?![\d~])", "Write a formula: `$x_i$`."),
    ("a superscript", r"\^[^\s^]{1,30}\^(?![\w({^])", "Write a formula: `$x^2$`."),
    ("a block's id in Obsidian", r"(?<=\s)\^[A-Za-z0-9-]+$", "Remove it: ids stand in comments."),
    (
        "marked text",
        r"(?<!=)==(?=[^\s=])[^=\n]{1,200}(?<=\S)==(?!=)",
        "Write `**bold**`, or put a comparison in backticks.",
    ),
    (
        "inserted text or a key",
        r"(?<![\w+])\+\+(?=[^\s+])[^+\n]{1,200}\+\+",
        "Write the text, or code.",
    ),
    ("a comment of Obsidian", r"%%", "Write a comment as `<!-- … -->`."),
    (
        "a block of another Markdown",
        r":{3,}|^(?:!!!|\?\?\?\+?)\s*\w|-+8<-+",
        "A callout is a quotation that begins with `> [!note]`.",
    ),
    (
        "a template or an attribute",
        r"\{\{|\{%|\{:?\s*[.#][A-Za-z][^{}\n]*\}|\{:\s|\{=\w+\}",
        "Remove it: cards carry no classes and no templates.",
    ),
    (
        "a heading or a tag",
        r"(?<![\w/&#])#+[^\W\d_][\w/-]*|^#{2,6}(?=\S)",
        "A heading has a space behind its `#`; tags stand in the front matter; write `\\#` for the sign.",
    ),
    (
        "a list's mark",
        rf"^(?:[-+]|\d{{1,3}}[.)])(?=[{_HAN}])|^[•●◦▪‣·]",
        "A list's mark is `-` or `1.`, with a space behind it.",
    ),
    (
        "a row of a table",
        r"\|\s*:?-{2,}:?\s*(?:\||$)|^\|[^\n|]+\|[^\n|]+\|$",
        "A table has a line `|---|---|` with as many columns as its head, and an empty line before it.",
    ),
    (
        "an emoji's or a role's name",
        r"(?<![\w:]):(?:[a-z][a-z0-9_+-]*|[+-]1):(?![\w:])",
        "Write the character, or the word.",
    ),
    ("a field of Dataview", r"[(\[][^\W\d][\w -]{0,40}::\s", "Say it in the sentence."),
    (
        "an entity",
        r"&(?:#\d+|#x[0-9a-f]+|nbsp|amp|lt|gt|quot|ensp|emsp|times|le|ge|ne|hellip|mdash|ndash)\b;?",
        "Write the character itself.",
    ),
    (
        "a tag of HTML",
        r"</?(?:br|hr|div|span|img|sub|sup|font|center|details|summary|kbd|iframe|script|style|table|td|tr)\b",
        "Say it in Markdown; write `\\<` for a less-than sign.",
    ),
    (
        "a formula in LaTeX's brackets",
        _PAIRED_BRACKETS,
        "A formula stands between dollar signs: `$…$`, or `$$` on lines of their own.",
    ),
    (
        "a formula",
        r"\$",
        "A formula has no space behind its first `$` or before its last, and `$$` stands on a line of its "
        "own; write `\\$` for a dollar.",
    ),
    (
        "code",
        r"`",
        "Close the code with as many backticks as open it; write `` \\` `` for a backtick.",
    ),
)
_LEFT = re.compile(
    "|".join(f"(?P<m{at}>{pattern})" for at, (_, pattern, _) in enumerate(_MARKS)),
    re.MULTILINE | re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?:https?://|www\.)[\w-]", re.IGNORECASE)
_DRAWN_ELSEWHERE = re.compile(
    r"mermaid|math|latex|tikz|plantuml|dataview(?:js)?|query|tasks|base|chart|graphviz|geojson|topojson|"
    r"stl|button|tabs|ad-.*|admonition|note|warning|tip",
    re.IGNORECASE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each spot where a reader would see a mark, and each block that another program draws."""
    for passage in reading.passages:
        yield from _in_passage(passage)
    for card in reading.cards:
        for lang, title in card.title.items():
            if found := _LEFT.search(title):
                message = f"“{found[0][:_LONGEST]}” stays visible: a title is shown as it is typed"
                hint = "Write the title in plain words; `√L` and `10⁻⁶` are characters."
                yield Problem(card.places[f"title.{lang}"], CODE, message, hint, SEVERITY)
        for section in (each for half in card.sections.values() for each in half.values()):
            for token in prose.blocks(section):
                name = token.info.strip().split()[0] if token.info.strip() else ""
                if token.type == "fence" and _DRAWN_ELSEWHERE.fullmatch(name.strip("{}")):
                    message = f"a block of `{name[:_LONGEST]}` is shown as code, and not drawn"
                    hint = "Let a demo draw a figure, write a formula between `$$`, or name no language."
                    yield Problem(place_of(token), CODE, message, hint, SEVERITY)


def _in_passage(passage: Passage) -> Iterator[Problem]:
    flat = passage.flat(_bare)
    told = set()  # each kind once a passage: marks come in pairs
    for found in _LEFT.finditer(flat.text):
        if (kind := found.lastgroup or "") not in told:
            told.add(kind)
            what, _, hint = _MARKS[int(kind[1:])]
            yield _problem(flat, found, f"it looks like {what}, and is none here", hint)
    for found in _ADDRESS.finditer(flat.text):
        if flat.piece(found.start()).link is None:
            hint = "Write `[text](https://…)`, or `<https://…>`; an example's address is code."
            yield _problem(flat, found, "an address alone is no link here", hint)


def _problem(flat: Flat, found: re.Match[str], what: str, hint: str) -> Problem:
    shown = "".join(_unmasked(each) for each in found[0])
    quoted = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
    message = f"“{quoted}” stays visible: {what}"
    return Problem(flat.place(found.start()), CODE, message, hint, SEVERITY)


def _unmasked(mark: str) -> str:
    return "\\" + chr(ord(mark) - ESCAPED) if ord(mark) >= ESCAPED else mark


def _bare(piece: Piece) -> str:
    if piece.kind == "text":
        bare: str = piece.token.meta["bare"]
        return bare[: len(piece.text)]
    return "\n" if piece.kind == "break" else "\ufffc" * len(piece.text)

"""MathML of two programs made comparable: what is drawn stays, how it is wrapped goes.

Kept: every character with its alphabet (bold, script, …), fractions, roots, scripts, accents, tables with
their alignment, stretched and sized brackets, spaces of a quarter of an em and more, display style.
Left out: groups, the spaces that operators bring along (each program has TeX's own table of them),
which of ``mi``, ``mo`` and ``mtext`` holds a character, and invisible operators.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import groupby
from xml.etree import ElementTree

Tree = tuple["str | Tree", ...]

INVISIBLE = dict.fromkeys(map(ord, "\u2061\u2062\u2063\u2064\u200b\ufe00\ufe01\ufe0e"))
ALIKE = str.maketrans({
    "ˆ": "^", "˜": "~", "‾": "¯", "ˉ": "¯", "−": "-", "⃗": "→", "∣": "|", "‖": "∥", "⟂": "⊥",
    "…": "...", "⋯": "···", "\u2006": "\u2009",
})  # fmt: skip
"""Characters of one look that the two programs choose between."""

FENCES = set("()[]{}|∥⌊⌋⌈⌉⟨⟩")
VARIANTS = {
    "bold": "BOLD", "italic": "ITALIC", "bold-italic": "BOLD ITALIC", "double-struck": "DOUBLE-STRUCK",
    "script": "SCRIPT", "fraktur": "FRAKTUR", "sans-serif": "SANS-SERIF", "monospace": "MONOSPACE",
    "-tex-mathit": "ITALIC",
}  # fmt: skip
LETTERLIKE = {  # alphabets that Unicode began before it had a block for them
    "SCRIPT": dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True)),
    "FRAKTUR": dict(zip("CHIRZ", "ℭℌℑℜℨ", strict=True)),
    "DOUBLE-STRUCK": dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    "ITALIC": {"h": "ℎ"},
}
ROWS = {"math", "mrow", "mstyle", "mtd", "msqrt", "mphantom", "menclose"}
QUARTER = 0.24
"""Ems; narrower spaces are those that operators bring along, too."""


class _Reader(HTMLParser):
    """Builds the tree as a page's parser would, in which an element may close itself."""

    def __init__(self, mathml: str) -> None:
        super().__init__(convert_charrefs=True)
        self.builder = ElementTree.TreeBuilder()
        self.feed(mathml)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.builder.start(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        """Characters."""
        self.builder.data(data)


def tree(mathml: str) -> Tree:
    """What a ``<math>`` element draws."""
    root = _Reader(mathml.strip()).builder.close()
    return _row(root, root.get("display") == "block")


def _row(node: ElementTree.Element, display: bool) -> Tree:
    """Children in a row: groups dissolved, neighbouring characters joined."""
    found: list[str | Tree] = []
    for child in node:
        for part in _parts(child, display):
            if isinstance(part, str) and found and isinstance(found[-1], str):
                found[-1] += part
            elif part:
                found.append(part)
    for at, part in enumerate(found):  # MathJax sizes the brackets of a binomial, which stretch
        if part[:2] == ("mfrac", "none") and 0 < at < len(found) - 1:
            for beside in (at - 1, at + 1):
                if found[beside][0] == "sized":
                    found[beside] = ("stretched", found[beside][2])
    if all(isinstance(part, str) or part[0] in {"stretched", "space"} for part in found):
        # A bracket stretches over what stands beside it: over characters it stays as it is.
        flat = [part[1] if part[0] == "stretched" else part for part in found]
        return tuple(_merged(flat))
    return tuple(found)


def _merged(parts: Iterable[str | Tree]) -> Iterator[str | Tree]:
    for words, run in groupby(parts, lambda part: isinstance(part, str)):
        if words:
            yield "".join(map(str, run))
        else:
            yield from run


def _parts(node: ElementTree.Element, display: bool) -> Tree:  # noqa: PLR0911 - one return a kind of element
    tag = node.tag
    style = node.get("displaystyle")
    if style and tag != "mtable" and (style == "true") != display:
        inner = _parts(_without_style(node), style == "true")
        return (("display", style, *inner),)
    if tag in {"mrow", "mstyle", "mpadded"}:
        return _row(node, display)
    if tag in {"mi", "mn", "mo", "mtext", "ms"}:
        return _leaf(node, tag)
    if tag == "mspace":
        width = _ems(node.get("width", "0em"))
        return (("space", f"{width:.2f}"),) if width > QUARTER else ()
    if tag == "mtable":
        return (("table", node.get("displaystyle", "false"), *_cells(node)),)
    if tag in ROWS:
        return ((tag, node.get("notation", ""), *_row(node, display)),)
    if tag == "mfrac":
        bar = "none" if node.get("linethickness", "1")[:1] == "0" else "bar"
        return (("mfrac", bar, *(_alone(child, False) for child in node)),)
    first, *rest = node
    base = _alone(first, display)
    movable = first.get("movablelimits") == "true" or (
        len(first) == 1 and first[0].get("movablelimits") == "true"
    )
    if movable and not display:
        tag = {"munder": "msub", "mover": "msup", "munderover": "msubsup"}.get(tag, tag)
    scripts = tuple(_alone(child, False) for child in rest)
    if tag in {"msub", "msup", "msubsup"} and isinstance(base[-1] if base else None, str):
        # Of a number or a word, each program may take all or the last part to carry the script.
        before, last = base[-1][:-1], base[-1][-1:]
        return (*base[:-1], *([before] if before else []), (tag, (last,), *scripts))
    return ((tag, base, *scripts),)


def _without_style(node: ElementTree.Element) -> ElementTree.Element:
    copy = ElementTree.Element(
        node.tag, {k: v for k, v in node.attrib.items() if k != "displaystyle"}
    )
    copy.text = node.text
    copy.extend(node)
    return copy


def _alone(node: ElementTree.Element, display: bool) -> Tree:
    row = ElementTree.Element("mrow")
    row.append(node)
    return _row(row, display)


def _cells(table: ElementTree.Element) -> Tree:
    aligned = table.get("columnalign", "").split()
    rows: list[Tree] = []
    for row in table:
        cells: list[Tree] = []
        for at, cell in enumerate(row):
            own = re.search(r"text-align:\s*(\w+)", cell.get("style", ""))
            by_column = aligned[min(at, len(aligned) - 1)] if aligned else "center"
            align = own[1] if own else by_column
            content = _row(cell, table.get("displaystyle") == "true")
            cells.append((align, *content) if content else ("empty",))
        rows.append(tuple(cells))
    return tuple(rows)


def _leaf(node: ElementTree.Element, tag: str) -> Tree:
    text = (node.text or "").translate(INVISIBLE).replace("\u00a0", " ")
    text = unicodedata.normalize("NFC", text.translate(ALIKE))
    if tag == "mtext" and not text.strip():
        return (("space", "0.25"),) if text else ()
    variant = node.get("mathvariant") or ("italic" if tag == "mi" and len(text) == 1 else "")
    text = "".join(_styled(each, VARIANTS.get(variant, "")) for each in text)
    if node.get("minsize"):
        return (("sized", f"{_ems(node.get('minsize', '')):.1f}", text),)
    if tag == "mo" and text in FENCES and node.get("stretchy") != "false":
        return (("stretched", text),)
    return (text,) if text else ()


def _styled(character: str, variant: str) -> str:
    """A letter in one of the mathematical alphabets; what has none stays."""
    if not variant or not (character.isascii() or "GREEK" in unicodedata.name(character, "")):
        return character
    if character in LETTERLIKE.get(variant, {}):
        return LETTERLIKE[variant][character]
    kind, _, letter = (
        unicodedata.name(character)
        .removeprefix("GREEK ")
        .removeprefix("LATIN ")
        .partition(" LETTER ")
    )
    wanted = (
        f"MATHEMATICAL {variant} {unicodedata.name(character)}"
        if character.isdigit()
        else f"MATHEMATICAL {variant} {kind} {letter}"
    )
    try:
        return unicodedata.lookup(wanted)
    except KeyError:
        return character


def _ems(length: str) -> float:
    found = re.fullmatch(r"(-?[\d.]+)(em|ex|pt|px)?", length)
    assert found, length
    return float(found[1]) * {"ex": 0.43, "pt": 0.1, "px": 0.0625}.get(found[2] or "em", 1)

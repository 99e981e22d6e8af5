r"""Tokens → the words that a reader sees, on one line: for search, descriptions and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import name

from markdown_it.token import Token

_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_GREEK = {  # "alpha": "α", from Unicode's own names
    name(letter).split()[-1].replace("LAMDA", "LAMBDA").lower(): letter
    for letter in map(chr, range(ord("α"), ord("ω") + 1))
}
_SYMBOLS = {
    **{rf"\{word}": letter for word, letter in _GREEK.items()},
    **{rf"\{word.title()}": letter.upper() for word, letter in _GREEK.items()},
    r"\ell": "ℓ",
    r"\pm": "±",
    r"\ll": "≪",
    r"\gg": "≫",
    r"\in": "∈",
    r"\top": "ᵀ",
    r"\mid": "|",
    r"\ldots": "…",
    r"\dots": "…",
    r"\cdots": "…",
    r"\Rightarrow": "⇒",
    r"\sqrt": "√",
    r"\times": " × ",
    r"\cdot": "·",
    r"\le": "≤",
    r"\leq": "≤",
    r"\ge": "≥",
    r"\geq": "≥",
    r"\approx": "≈",
    r"\neq": "≠",
    r"\sum": "∑",
    r"\prod": "∏",
    r"\infty": "∞",
    r"\to": "→",
    r"\star": "★",
    r"\partial": "∂",
    r"\nabla": "∇",
    r"\lceil": "⌈",
    r"\rceil": "⌉",
    r"\lfloor": "⌊",
    r"\rfloor": "⌋",
}
_FULL_WIDTH = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_SPACED = ("softbreak", "hardbreak")
_COMMAND = re.compile(r"\\([a-zA-Z]+)|\\.")
RAISED = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_LAYOUT = {
    "left",
    "right",
    "big",
    "Big",
    "bigg",
    "text",
    "mathrm",
    "mathbf",
    "operatorname",
    "quad",
}


def plain_text(tokens: Iterable[Token]) -> str:
    """The text of block or inline tokens; formulas as :func:`plain_math` writes them."""
    return " ".join("".join(_pieces(tokens)).split())


def line_end(tokens: Sequence[Token], index: int) -> str:
    """What the line's end at ``index`` is worth: nothing between 汉字, else a space."""
    before = tokens[index - 1].content[-1:] if index else ""
    after = tokens[index + 1].content[:1] if index + 1 < len(tokens) else ""
    return "" if _FULL_WIDTH.match(before) and _FULL_WIDTH.match(after) else " "


def plain_math(tex: str) -> str:
    r"""TeX in one line of plain characters: ``\sqrt{L/s}`` as ``√(L/s)``, ``10^{-6}`` as ``10⁻⁶``."""
    text = tex
    while (flat := _FRACTION.sub(r"(\1)/(\2)", text)) != text:
        text = flat
    text = _COMMAND.sub(_named, text.replace("&", " "))
    text = re.sub(r"√\s*\{([^{}]+)\}", lambda m: f"√{_grouped(m[1])}", text)
    text = re.sub(r"\((\w)\)/\((\w+)\)", r"\1/\2", text)
    text = re.sub(r"\^\{?([-−]?\d+)\}?", lambda m: m[1].translate(RAISED), text)
    return " ".join(re.sub(r"[{}]", "", text).split())


def _named(match: re.Match[str]) -> str:
    if match[0] in _SYMBOLS:
        return _SYMBOLS[match[0]]
    word = match[1]
    return " " if word is None or word in _LAYOUT else f" {word} "


def _grouped(inner: str) -> str:
    return inner if len(inner) == 1 else f"({inner})"


def _pieces(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        if token.children is not None:
            yield from _pieces(token.children)
            yield " "
        elif token.type in ("math_inline", "math_block", "math_inline_double"):
            yield plain_math(token.content)
        elif token.type in ("text", "code_inline", "fence", "code_block"):
            yield token.content
        elif token.type in _SPACED or (token.type.endswith("_close") and token.block):
            yield " "

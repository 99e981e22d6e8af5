"""What all drawings share: fonts, widths of words, the head of an SVG. Standard library only.

Text stays text, in the reader's own fonts, so nothing here depends on the fonts of this machine:
places are reckoned from an estimate in which 汉字 are one em wide.
"""

from __future__ import annotations

import re
from html import escape

WIDE, NARROW = 720, 300
"""Pixels of a drawing for a wide and for a narrow screen: on a phone, about those that it is shown in."""
FONT, SMALL = 13, 12
"""Sizes of words; nothing is smaller than ``SMALL``."""
BOLD = 1.12
"""How much wider bold words are, at most."""
LINE = 22
HTML_LANG = {"zh": "zh-Hans", "en": "en"}
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_PIECE = re.compile(
    "(?:[\u2e80-\U0003ffff]|[^\\s\u2e80-\U0003ffff]+\\s*|\\s+)[，。、；：！？）》」』]*"
)
_FONTS = "system-ui, 'Noto Sans CJK SC', 'Noto Sans SC', 'PingFang SC', sans-serif"


def legible(text: str) -> str:
    """``text`` without what no XML may hold."""
    return _NOT_XML.sub("\ufffd", text)


def text_width(text: str, size: float = FONT) -> float:
    """Roughly how wide ``text`` is, in pixels: 汉字 and full-width marks one em, letters less."""
    return size * sum(map(_em, text))


def _em(char: str) -> float:
    if ord(char) >= 0x2E80:
        return 1.0
    if char in "mwMW@%…":
        return 0.88
    return 0.68 if char.isupper() else 0.56


def wrap(text: str, width: float, size: float) -> list[str]:
    """``text`` in lines of at most ``width``; it breaks at spaces and beside 汉字, not before a mark that closes."""
    lines = [""]
    for part in _PIECE.findall(text):
        if lines[-1] and text_width(lines[-1] + part.rstrip(), size) > width:
            lines.append("")
        lines[-1] += part
    return [line.strip() for line in lines]


def head(alternative: str, lang: str, width: float, height: float) -> str:
    """The opening tag of an SVG, with what is read out in its place; a line of its own."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' class="pd-fig" role="img" lang="{HTML_LANG[lang]}" aria-label="{escape(legible(alternative))}"'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' style="font-family: var(--pd-fig-font, {_FONTS})">\n'
    )

"""The math font, cut down to the glyphs that the formulas of a base use: 25 KB in the place of 400.

MathML takes its radicals, fences and spacing from the font's MATH table; without it roots lose their
bars and brackets do not stretch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import unescape
from io import BytesIO
from pathlib import Path
from unicodedata import name, normalize

from fontTools import subset
from fontTools.ttLib import TTFont

_FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_ALWAYS = "√−"
"""Drawn for elements and signs that the markup writes otherwise: ``<msqrt>``, ``-``."""
_FEATURES = ["ssty", "dtls", "flac", "ccmp", "kern", "mark", "mkmk"]


def characters(fragments: Iterable[str]) -> frozenset[str]:
    """Every character that browsers draw for the formulas in fragments of HTML."""
    formulas = (formula for html in fragments for formula in _FORMULA.findall(html))
    written = {sign for formula in formulas for sign in unescape(_TAG.sub("", formula))}
    return frozenset(written | {sign for sign in _ITALIC if normalize("NFKC", sign) in written})


_ITALIC = "ℎ" + "".join(
    sign
    for sign in map(chr, range(0x1D434, 0x1D7CC))
    if name(sign, "").startswith("MATHEMATICAL ITALIC ")
)
"""What MathML draws for an identifier of a single letter."""


@cache
def cut(font: Path, used: frozenset[str]) -> bytes:
    """The font (WOFF2) with the glyphs of ``used``, their larger variants and pieces; the same bytes every time."""
    options = subset.Options(flavor="woff2", hinting=False, layout_features=_FEATURES)
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(sorted(used | set(_ALWAYS))))
    with TTFont(font, lazy=True, recalcTimestamp=False) as whole:
        cutter.subset(whole)
        whole.flavor = "woff2"
        made = BytesIO()
        whole.save(made)
    return made.getvalue()

"""The math font holds what the formulas draw, and little else."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from generator.edition import assets
from generator.tex import font as math_font
from generator.tex.mathml import mathml

TEX = (
    r"\left(\sqrt{\frac{a}{b}}\right) \le 10^{-6} \cdot \sum_{i=1}^{n} \varepsilon_i \in \mathbb{R}"
)
USED = math_font.characters([f"<p>text ☃ {mathml(TEX)} and 汉字</p>"])


@pytest.fixture(scope="module")
def font() -> TTFont:
    """The font for one formula."""
    return TTFont(BytesIO(assets.font(USED)))


def test_what_is_drawn_is_in_it(font: TTFont) -> None:
    """Letters in both shapes, operators, the radical that no text holds; none that no formula has."""
    drawn = {chr(code) for code in font.getBestCmap()}
    assert set("()√≤⋅∑∈ℝ106ab") <= drawn
    assert {"𝑎", "𝑏", "𝑖", "𝑛"} <= drawn, "an identifier of one letter is drawn in italics"
    assert drawn & {"ε", "ϵ"}
    assert not drawn & set("☃汉zQ∮")


def test_it_can_stretch(font: TTFont) -> None:
    """Brackets, radical and sum keep their larger variants, and brackets the pieces of a longer one."""
    names = font.getBestCmap()
    variants = font["MATH"].table.MathVariants
    upright = dict(
        zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True)
    )
    for sign in "()√∑":
        assert len(upright[names[ord(sign)]].MathGlyphVariantRecord) > 1, sign
    for sign in "()√":
        assert upright[names[ord(sign)]].GlyphAssembly.PartRecords, sign
    glyphs = set(font.getGlyphOrder())
    for construction in upright.values():
        assert {record.VariantGlyph for record in construction.MathGlyphVariantRecord} <= glyphs


def test_it_is_small_and_the_same_every_time() -> None:
    """A tenth of the whole font or less, and cut anew it has the same bytes."""
    first = assets.font(USED)
    assert len(first) * 10 < assets.vendor(assets.FONT).stat().st_size
    math_font.cut.cache_clear()
    assert assets.font(USED) == first


def test_a_base_without_formulas_has_a_font(tmp_path: Path) -> None:
    """Nothing used is no error."""
    assert math_font.characters(["<p>1 + 1</p>"]) == frozenset()
    assert TTFont(BytesIO(assets.font(frozenset()))).getBestCmap()

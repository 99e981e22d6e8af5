"""Characters that cannot be seen or told apart: what is a fault, where, and what is left alone."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

from generator import checks
from generator.cards.parse import parse
from generator.characters import faults
from generator.lines import Lines

ROOT = Path(__file__).parents[1]
CARD = (ROOT / "tests/library/cards/numerics/kahan-sum.md").read_text(encoding="utf-8")

FAULTS = {
    "zero width space": ("me\u200bmory", 2, "cannot be seen"),
    "zero width joiner": ("a\u200db", 1, "cannot be seen"),
    "word joiner": ("a\u2060b", 1, "cannot be seen"),
    "soft hyphen": ("mem\u00adory", 3, "cannot be seen"),
    "byte order mark within": ("a\ufeffb", 1, "cannot be seen"),
    "right-to-left override": ("\u202eabc", 0, "cannot be seen"),
    "isolate": ("a\u2066b", 1, "cannot be seen"),
    "variation selector": ("\u26a0\ufe0f", 1, "cannot be seen"),
    "variation of 汉字": ("\u8fbb\U000e0100", 1, "cannot be seen"),
    "tag character": ("a\U000e0041", 1, "cannot be seen"),
    "grapheme joiner": ("a\u034fb", 1, "cannot be seen"),
    "Hangul filler": ("a\u3164b", 1, "cannot be seen"),
    "Braille blank": ("a\u2800b", 1, "cannot be seen"),
    "no-break space": ("3\u00a0GB", 1, "a space"),
    "thin space": ("3\u2009GB", 1, "a space"),
    "ideographic space": ("\u3000汉", 0, "a space"),
    "line separator": ("a\u2028b", 1, "a space"),
    "next line": ("a\u0085b", 1, "a space"),
    "private use": ("\ue000", 0, "one font"),
    "replacement": ("a\ufffd", 1, "lost"),
    "decomposed": ("re\u0301sume", 2, "makes `é`"),
    "mark left over": ("x\u0302", 1, "a mark without"),
    "mark at the top": ("\u0301a", 0, "a mark without"),
    "full-width letter": ("ＧＰＵ", 0, "form of `G`"),
    "full-width digit": ("共 ３ 层", 2, "form of `3`"),
    "ligature": ("\ufb01le", 0, "form of `fi`"),
    "bold letter": ("\U0001d400", 0, "form of `A`"),
    "radical": ("\u2f64", 0, "form of `用`"),
    "compatible 汉字": ("\uf900", 0, "form of `豈`"),
    "Ohm": ("5 \u2126", 2, "form of `Ω`"),
    "Cyrillic within Latin": ("\u0430dam", 0, "a Latin letter"),
    "Greek within Latin": ("\u0391dam", 0, "a Latin letter"),
    "hyphen": ("all\u2010gather", 3, "form of `-`"),
    "no-break hyphen": ("all\u2011gather", 3, "form of `-`"),
}


@pytest.mark.parametrize(("text", "offset", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_a_character_that_cannot_be_told_is_a_fault(text: str, offset: int, why: str) -> None:
    """Each is named at its first place, with what to do."""
    first = next(faults(text))
    assert first.offset == offset
    assert why in first.why
    assert first.name.startswith(f"U+{ord(text[offset]):04X}")
    assert first.hint.endswith((".", "`"))


@pytest.mark.parametrize(
    "text",
    ["naïve Zürich é", "①② ½ x² H₂O", "µs μs Δx αβ λ 5 Ω", "😀 → ⇒ ≤ ≈ × √L ∑", "“…”——‘’·《》、", "カナ 한국 привет",
     "3 – 4 − 5 … ‰ °C ℓ ™", "tab\there\n", "10⁻⁶", "〇汉㐀"],
)  # fmt: skip
def test_what_people_type_is_none(text: str) -> None:
    """Accents in one character, signs, other scripts in words of their own."""
    assert list(faults(text)) == []


def test_every_format_character_of_unicode_is_a_fault() -> None:
    """No invisible character of class Cf passes, however rare."""
    for code in range(0x80, sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in {"Cf", "Co", "Zl", "Zp"}:
            assert list(faults(f"a{chr(code)}b")), hex(code)


def test_a_fault_is_told_once_with_its_count() -> None:
    """A file full of them gives one problem for each character, not one for each place."""
    [fault] = faults("a\u200b" * 1000)
    assert (fault.offset, fault.count) == (1, 1000)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## Trade-offs\n", "## Trade-offs\n\nWo\u200brd.\n"),
        ("## Trade-offs\n", "## Trade-offs\n\nWo&#8203;rd.\n"),
        ("## Trade-offs\n", "## Trade-offs\n\nWo&shy;rd&nbsp;x.\n"),
        ("## Trade-offs\n", '## Trade-offs\n\n[a](https://example.org "b&zwnj;c").\n'),
        ("## Trade-offs\n", "## Trade-offs\n\n```python\nx\u00a0= 1\n```\n"),
        ("title: {", "tags: [a\u200bb]\ntitle: {"),
        ("title: {", 'tags: ["a\\u200bb"]\ntitle: {'),
        ("title: {", '"a\\u00adb": 1\ntitle: {'),
    ],
)
def test_no_way_into_a_card_is_open_to_them(old: str, new: str) -> None:
    """Typed, as an entity or as an escape: in text, code, titles of links, keys and values."""
    assert old in CARD
    _, problems = parse(CARD.replace(old, new, 1), "numerics/kahan-sum.md")
    found = [problem for problem in problems if problem.code == "strange-character"]
    assert found
    rows = CARD.replace(old, new, 1).split("\n")
    for problem in found:
        assert 1 <= problem.place.column <= len(rows[problem.place.line - 1]) + 1


def test_modules_are_held_to_the_same(tmp_path: Path) -> None:
    """The syllabus is read by the same reader."""
    assert Lines("modules.yml", "title: a\u200bb").problems[0].code == "strange-character"
    found, problems = checks.load(ROOT / "cards")
    assert found
    assert not [problem for problem in problems if problem.code == "strange-character"]

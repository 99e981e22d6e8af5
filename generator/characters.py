"""Characters that a reader cannot see or tell apart, and that no search would find.

Nothing is replaced in silence: each is named, with what to type. Harmless, and left alone, are accented
letters in one character, circled numbers, super- and subscripts, Greek letters, µ, emoji of one character.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_BLANK = set("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""What is a letter or a sign by its class, and shows as nothing."""
_LOOKS_LIKE = {
    "\u2010": "-", "\u2011": "-", "\u00b4": "'", "\u02bc": "’",
    "\u2215": "/", "\u2044": "/", "\u2236": ":", "\u037e": ";", "\u0387": "·", "\u2024": ".",
}  # fmt: skip
_OTHER_SCRIPTS = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET")
_GREEK_CAPITALS = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνοκυ"
_MIXED = re.compile(rf"(?<=[A-Za-z])[{_GREEK_CAPITALS}]|[{_GREEK_CAPITALS}](?=[A-Za-z])")
_SUSPECT = re.compile(r"[^\n\t\x20-\x7e\u4e00-\u9fff，。；：！？（）“”‘’、《》—…·×≈]")
_COMPATIBLE = re.compile(
    "[\u2e80-\u2fdf\uf900-\ufaff\ufb00-\ufb06\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff\U0002f800-\U0002fa1f]"
)
"""Forms of 汉字, Latin letters and digits that another character stands for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A character that may not stand in a text: where it stands first, how often, why, and what to do."""

    character: str
    offset: int
    count: int
    why: str
    hint: str

    @property
    def name(self) -> str:
        """Its number and its name in Unicode."""
        return f"U+{ord(self.character):04X} {unicodedata.name(self.character, '')}".rstrip()


def faults(text: str) -> Iterator[Fault]:
    """Each character that may not stand in ``text``, once, at its first place."""
    first: dict[str, tuple[int, str, str]] = {}
    count: Counter[str] = Counter()
    for found in _SUSPECT.finditer(text):
        character = found[0]
        if character not in first:
            if (said := _fault(character, text, found.start())) is None:
                continue
            first[character] = (found.start(), *said)
        count[character] += 1
    for found in _MIXED.finditer(text):
        character = found[0]
        latin = "looks like a Latin letter within a word of them"
        first.setdefault(character, (found.start(), latin, "Type the Latin letter, or a formula."))
        count[character] += 1
    for character, (offset, why, hint) in first.items():
        yield Fault(character, offset, count[character], why, hint)


def _fault(character: str, text: str, at: int) -> tuple[str, str] | None:
    """What is wrong with the character at ``at``, and what to do; ``None`` where nothing is."""
    kind = unicodedata.category(character)
    said = None
    if character in _BLANK or kind == "Cf" or _is_selector(character):
        said = "cannot be seen", "Delete it; an editor that shows invisible characters finds it."
    elif kind in {"Zs", "Zl", "Zp", "Cc"}:
        said = "looks like a space", "Type a plain space, or none."
    elif kind == "Co" or _is_none(character):
        said = "means something in one font alone", "Type the character that is meant."
    elif character == "\ufffd":
        said = "stands for a character that was lost", "Type the character that is meant."
    elif kind in {"Mn", "Me"}:
        said = _mark(text, at)
    elif plain := _plain(character):
        said = f"is another form of `{plain}`", f"Type `{plain}`."
    elif unicodedata.name(character, "").startswith(_OTHER_SCRIPTS):
        around = text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
        if any(each.isascii() and each.isalpha() for each in around):
            said = "looks like a Latin letter within a word of them", "Type the Latin letter."
    return said


def _plain(character: str) -> str | None:
    """What to type in place of a character that looks like it or means the same."""
    if character in _LOOKS_LIKE:
        return _LOOKS_LIKE[character]
    if unicodedata.normalize("NFC", character) != character or _COMPATIBLE.match(character):
        return unicodedata.normalize("NFKC", character)
    return None


def _mark(text: str, at: int) -> tuple[str, str]:
    whole = unicodedata.normalize("NFC", text[max(at - 1, 0) : at + 1])
    if at and len(whole) == 1:
        return f"makes `{whole}` of two characters", f"Type `{whole}` as one (Unicode's form NFC)."
    return "is a mark without a letter of its own", r"Delete it; in a formula write `\hat{x}`."


def _is_none(character: str) -> bool:
    """Whether Unicode promises that this will never be a character."""
    code = ord(character)
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


def _is_selector(character: str) -> bool:
    code = ord(character)
    return (
        0xFE00 <= code <= 0xFE0F
        or 0xE0100 <= code <= 0xE01EF
        or 0x180B <= code <= 0x180F
        or code == 0x034F
    )

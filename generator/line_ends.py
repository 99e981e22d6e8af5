"""What the end of a line in the source is worth to a reader: nothing between 汉字, else a space.

The rules are those of CSS Text Level 4, "Segment Break Transformation Rules", for Chinese, on the
East Asian Width of Unicode (UAX #11), and they look through mark-up: through the end of bold text
or of a link, and into code. A formula counts as a Latin letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from unicodedata import category, east_asian_width, name

from markdown_it.token import Token

_BREAKS = {"softbreak", "hardbreak"}


def line_end(tokens: Sequence[Token], index: int) -> str:
    """What stands for the line's end at ``index`` of a passage's inline tokens."""
    before = chain.from_iterable(
        reversed(_words(token)) for token in _until_break(reversed(tokens[:index]))
    )
    after = chain.from_iterable(map(_words, _until_break(tokens[index + 1 :])))
    return "" if _close_up(before, after) else " "


def close_up(before: str, after: str) -> bool:
    """Whether two texts stand together where a line ends between them."""
    return _close_up(iter(reversed(before)), iter(after))


def _until_break(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type in _BREAKS:
            return
        yield token


def _words(token: Token) -> str:
    if token.type == "math_inline":
        return "x"
    return token.content if token.type in {"text", "code_inline"} else ""


def _close_up(before: Iterator[str], after: Iterator[str]) -> bool:
    """Whether two runs of characters, each from the line's end outwards, stand together."""
    left, right = next(before, ""), next(after, "")
    if not left or not right:
        return False
    if _is_mark(left) or _is_mark(right):
        return True
    if _is_shared(left) and _is_shared(right):
        # “ — … are used by both scripts: what they stand beside decides.
        return any(map(_is_wide, (_first_told(before), _first_told(after))))
    return all(_is_wide(each) or _is_shared(each) for each in (left, right)) and (
        _is_wide(left) or _is_wide(right)
    )


def _first_told(run: Iterator[str]) -> str:
    """The first character that is no punctuation of both scripts."""
    return next((each for each in run if not _is_shared(each)), "")


def _is_wide(character: str) -> bool:
    """Whether a character belongs to a script that sets no spaces between words."""
    return (
        bool(character)
        and east_asian_width(character) in {"W", "F", "H"}
        and not name(character, "").startswith(("HANGUL", "HALFWIDTH HANGUL"))
    )


def _is_mark(character: str) -> bool:
    """Whether it is full-width punctuation, which carries its own space."""
    return category(character).startswith("P") and _is_wide(character)


def _is_shared(character: str) -> bool:
    """Whether it is punctuation of Latin and Chinese alike: its width is ambiguous."""
    return category(character).startswith("P") and east_asian_width(character) == "A"

"""Fences that are run: ```` ```python run ````, alike in both languages."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it.token import Token

from generator.cards.model import Fence, Section, place_of
from generator.cards.prose import blocks
from generator.problems import Problem, quote

LONGEST = 16_000
"""Characters of code: what is longer is a demo, and no reader's to take in."""

_INFO = ["python", "run"]


def fence(token: Token) -> Fence | None:
    """The fence that a token is, where it is one that is run; blank lines at its end do not count."""
    if token.type != "fence" or token.info.split() != _INFO:
        return None
    return Fence(place_of(token), token.content.rstrip() + "\n")


def of_sections(sections: Iterable[Section]) -> tuple[tuple[Fence, ...], list[Problem]]:
    """The fences of a card that are run, each code once, and what is wrong with how they are written."""
    found: dict[str, Fence] = {}
    problems: list[Problem] = []
    for token in (token for section in sections for token in blocks(section)):
        if token.type != "fence":
            continue
        one = fence(token)
        if one is None:
            problems += _meant(token)
        elif len(one.code) > LONGEST:
            message = f"this fence has {len(one.code):,} characters, and one that is run at most {LONGEST:,}"
            hint = "Make a demo of it, and show the lines that matter."
            problems.append(Problem(one.place, "fence-long", message, hint))
        else:
            found.setdefault(one.code, one)
    return tuple(found.values()), problems


def _meant(token: Token) -> Iterable[Problem]:
    """A fence that says ``run`` in another way than is read."""
    if "run" in token.info.lower().split():
        message = f"a fence {quote(token.info.strip())} is not run"
        hint = "Write `python run` behind its marks, or leave `run` out."
        yield Problem(place_of(token), "fence-form", message, hint)

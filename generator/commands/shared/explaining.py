"""How what a card's links lead to is printed for a review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from generator.commands.shared.base import counted
from generator.lang import LANGS
from generator.library.explanations import Explanation
from generator.problems import printable
from generator.terminal import OUT

WIDEST = 100
"""Columns of a terminal that are used."""
_INDENT = 16
_COLOURS = {"unresolved": "red", "stale": "yellow", "refuted": "yellow"}


def show(found: Sequence[Explanation]) -> None:
    """Print each link with its place, what it prints and leads to, and what is there."""
    for each in found:
        place, printed = Text(str(each.place), "bold"), printable(each.printed)
        OUT.print(Text.assemble(place, f"  {printed}".rstrip()), soft_wrap=True)
        _row(each.state, each.target, _COLOURS.get(each.state, "green"))
        for name, words in _rows(each):
            _row(name, words, "dim")
    unresolved = sum(each.state == "unresolved" for each in found)
    OUT.print(f"{counted(len(found), 'link')}, {unresolved:,} unresolved", soft_wrap=True)


def _row(name: str, words: str, style: str) -> None:
    """One row of two columns; what is too long for a line goes on below."""
    wrapped = Text(printable(words)).wrap(OUT, min(OUT.width, WIDEST) - _INDENT, overflow="fold")
    for number, line in enumerate(wrapped):
        line.rstrip()
        head = Text(f"  {'' if number else name}".ljust(_INDENT), style)
        OUT.print(Text.assemble(head, line), soft_wrap=True)


def _rows(each: Explanation) -> Iterator[tuple[str, str]]:
    """What is said of a link, a row a language where they differ."""
    for name, words in each.said.items():
        if isinstance(words, str):
            yield name, words
        else:
            yield from ((name if lang == LANGS[0] else "", words[lang]) for lang in LANGS)
    if each.fault:
        yield "fault", each.fault
        yield "hint", each.hint


def data(card: str, found: Iterable[Explanation]) -> Mapping[str, Any]:
    """The same for a program."""
    return {"card": card, "links": [asdict(each) for each in found]}

"""The base that a command works on, and how its problems are printed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.text import Text

from generator import checks
from generator.cache import NOTHING_KEPT, Cache, default_folder
from generator.lab import laboratory
from generator.library.library import Library
from generator.problems import Problem
from generator.terminal import OUT


def load(
    cards: Path, demos: Path | None, evidence: Path | None
) -> tuple[Library | None, list[Problem]]:
    """The base in ``cards``; its demos stand beside it unless named, else the program's own count."""
    lab = laboratory.of_base(cards, demos, evidence)
    return checks.load(cards, demos=lab.demos, evidence=lab.evidence, cache=cache_beside(cards))


def cache_beside(cards: Path) -> Cache:
    """The user's cache; none where its folder stands in the cards, in which nothing is written."""
    folder = default_folder()
    inside = folder is not None and folder.resolve().is_relative_to(cards.resolve())
    return NOTHING_KEPT if inside else Cache(folder)


def show(problems: Iterable[Problem]) -> None:
    """Print problems, in colour on a terminal."""
    for problem in problems:
        colour = "red" if problem.severity == "error" else "yellow"
        head, hint = str(problem).split("\n", 1)
        line = Text(head)
        start = head.index(problem.code, len(str(problem.place)))
        line.stylize("bold", 0, start)
        line.stylize(colour, start, start + len(problem.code))
        OUT.print(line, Text(hint, style="dim"), sep="\n", soft_wrap=True)


def summary(found: Library | None, problems: Iterable[Problem]) -> None:
    """Print how many cards were read, and how many problems they have."""
    severities = [problem.severity for problem in problems]
    errors, warnings = severities.count("error"), severities.count("warning")
    cards = counted(len(found.cards) if found else 0, "card")
    claims = counted(
        sum(1 for c in found.cards.values() for _ in c.claims()) if found else 0, "claim"
    )
    text = f"{cards}, {claims}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    OUT.print(text, style="red" if errors else "green", soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """``1 card``, ``1,234 cards``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

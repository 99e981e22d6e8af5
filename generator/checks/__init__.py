"""The rules of a base, one a file, found by discovery.

A rule is a module with ``CODES`` (the codes of its problems), ``SENTENCE`` (what it holds, for the
docs), ``SEVERITY`` and ``check(library) -> Iterable[Problem]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from generator.problems import Problem

if TYPE_CHECKING:
    from generator.library import Library


def discover() -> Iterator[ModuleType]:
    """Every rule, by name."""
    for found in sorted(iter_modules(__path__), key=lambda each: each.name):
        yield import_module(f"{__name__}.{found.name}")


def run(library: Library) -> list[Problem]:
    """What all rules have to say, but for codes that a card silences with a reason."""
    silenced = {card.path: card.silenced for card in library.cards.values()}
    return [
        problem
        for rule in discover()
        for problem in rule.check(library)
        if problem.code not in silenced.get(problem.place.path, {})
    ]

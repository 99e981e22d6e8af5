"""A card belongs to a module of the syllabus."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.names import suggest
from generator.problems import Problem, Severity

CODE = "unknown-module"
SEVERITY: Severity = "error"
SENTENCE = "The module of a card is one of `modules.yml`."
NEVER_SILENT = "the card would stand under no module"


def check(base: Base) -> Iterator[Problem]:
    """Each module that is none."""
    modules = base.library.modules
    for card in base.cards:
        if card.module not in modules:
            message = f"there is no module `{card.module}`"
            hint = suggest(card.module, modules)
            yield Problem(card.places["module"], CODE, message, hint, SEVERITY)

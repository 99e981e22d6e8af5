"""A card stands in the folder of its module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "wrong-folder"
SEVERITY: Severity = "error"
SENTENCE = "A card's file stands in the folder called like its module, not deeper."
NEVER_SILENT = "a card is looked for in the folder of its module"


def check(base: Base) -> Iterator[Problem]:
    """Each card that stands elsewhere, at the line of its module."""
    for card in base.cards:
        folder = Path(card.path).relative_to(base.contents.root).parent.as_posix()
        if card.module in base.library.modules and folder != card.module:
            yield Problem(
                card.places["module"],
                CODE,
                f"the module is `{card.module}`, and the file stands in `{folder}/` of the base",
                f"Move the file into `{card.module}/`, or change its module.",
                SEVERITY,
            )

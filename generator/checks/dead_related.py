"""What a card names in ``related`` is a card."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "dead-related"
SEVERITY: Severity = "error"
SENTENCE = "Each name in `related` is a card, written or planned."
NEVER_SILENT = "a reader who follows it arrives nowhere"


def check(base: Base) -> Iterator[Problem]:
    """Each name that is no card's."""
    return base.unknown_names("related", CODE, SEVERITY)

"""What a card names in ``prerequisites`` is a card."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "dead-prerequisite"
SEVERITY: Severity = "error"
SENTENCE = "Each name in `prerequisites` is a card, written or planned."
NEVER_SILENT = "nobody can read first what does not exist"


def check(base: Base) -> Iterator[Problem]:
    """Each name that is no card's."""
    return base.unknown_names("prerequisites", CODE, SEVERITY)

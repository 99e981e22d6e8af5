"""Every public fact is what its entry says."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "fact"
SEVERITY: Severity = "error"
SENTENCE = (
    "A `fact:` link is one number with its unit, and equals the value in `facts.yml` at the precision "
    "printed; what is counted (parameters, tokens, layers) stands behind it."
)
NEVER_SILENT = "a number that its source contradicts is not shown"


def check(base: Base) -> Iterator[Problem]:
    """What the facts say against each link, by codes such as ``fact-number``.

    An entry that cannot be read is one problem, and is named where it stands: not again by each link.
    """
    for card in base.cards:
        for link in card.facts():
            found = base.library.stated[link]
            if isinstance(found, Problem) and not base.library.facts.is_unread(link.entry):
                yield found

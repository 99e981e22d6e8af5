"""Every setting of a run is the one that the run had."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "param"
SEVERITY: Severity = "error"
SENTENCE = (
    "A `param:` link is one number without a unit, and equals the parameter that the demo's record on "
    "the CPU keeps."
)
NEVER_SILENT = "a setting that its record contradicts is not shown"


def check(base: Base) -> Iterator[Problem]:
    """What the records say against each link, by codes such as ``param-number``.

    A broken record is one problem, and is named where it lies: not again by each of its settings.
    """
    for card in base.cards:
        for link in card.params():
            found = base.library.settings[link]
            if isinstance(found, Problem) and (link.demo, "cpu") not in base.evidence.broken:
                yield found

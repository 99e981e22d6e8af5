"""Every claim is what its run recorded."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "claim"
SEVERITY: Severity = "error"
SENTENCE = (
    "A claim is one number with its unit, and equals the recorded metric at the precision printed, "
    "or words for a truth value that is true; a bound is printed in full, and a mean over random "
    "draws no finer than its standard error; what is called wrong differs from the metric by more "
    "than rounding."
)
NEVER_SILENT = "a number that its run contradicts is not shown"


def check(base: Base) -> Iterator[Problem]:
    """What the evidence says against each claim, by codes such as ``claim-number``.

    A broken record is one problem, and is named where it lies: not again by each of its claims.
    """
    for card in base.cards:
        for claim in card.claims():
            if (claim.demo, claim.device) in base.evidence.broken:
                continue
            verdict = base.library.judged[claim]
            if isinstance(verdict, Problem):
                yield verdict

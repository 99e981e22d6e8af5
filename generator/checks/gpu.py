"""What waits for a GPU's record says so in words, and waits for something."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.problems import Problem, Severity

CODE = "gpu"
SEVERITY: Severity = "error"
SENTENCE = (
    "A `gpu:` link names a metric that only a GPU's run tells (a time, what it allocated), and says in words "
    "that no record holds it; when one does, `proofdeck refresh` puts its number there."
)
NEVER_SILENT = "a number that nobody measured is not shown"


def check(base: Base) -> Iterator[Problem]:
    """What the evidence says against each such link, by codes such as ``gpu-recorded``.

    A broken record, or demo, is one problem, and is named where it lies: not again by each of its links.
    """
    for card in base.cards:
        for link in card.awaited():
            found = base.library.awaited[link]
            if not isinstance(found, Problem) or (link.demo, "cpu") in base.evidence.broken:
                continue
            if found.code != "gpu-demo":
                yield found

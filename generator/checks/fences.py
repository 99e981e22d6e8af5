"""Every fence that is run has a record of what it prints."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Base
from generator.evidence.fence_records import judge, orphans
from generator.problems import Problem, Severity

CODE = "fence"
SEVERITY: Severity = "error"
SENTENCE = (
    "What a fence ```` ```python run ```` prints is recorded, for the code as it stands: "
    "`proofdeck verify CARD --record` runs it. A record whose fence is gone is named, as a warning."
)
NEVER_SILENT = "code that was not run is not shown as run"


def check(base: Base) -> Iterator[Problem]:
    """``fence-unrecorded``, ``fence-stale`` and ``fence-gone``, each where it stands."""
    found = base.contents.fences
    for card in base.cards:
        yield from judge(card, found)
    yield from orphans(base.contents.broken.union(base.library.cards), found)

"""A card proves something."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "few-claims"
SEVERITY: Severity = "warning"
SENTENCE = (
    "A card claims at least three different metrics, so that a run stands behind what it says."
)

FEWEST = 3


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each card with fewer."""
    for card in reading.cards:
        metrics = {(claim.demo, claim.metric, claim.device) for claim in card.claims()}
        if len(metrics) < FEWEST:
            message = f"the card claims {len(metrics)} metrics, and three are the fewest"
            hint = (
                "Measure what it asserts: `[text](claim:DEMO/METRIC)`; `proofdeck demo list` helps."
            )
            yield Problem(card.places["id"], CODE, message, hint, SEVERITY)

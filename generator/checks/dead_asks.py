"""What probes a point is a follow-up of its card."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Reading
from generator.lang import LANGS
from generator.names import suggest
from generator.problems import Problem, Severity

CODE = "dead-asks"
SEVERITY: Severity = "error"
SENTENCE = "`asks=` in the comment of a point names a follow-up of its card."
NEVER_SILENT = "a reader who follows it arrives nowhere"


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each point that asks what its card does not."""
    for card in reading.cards:
        for lang in LANGS:
            half = card.sections[lang]
            known = [item.id for item in half["followups"].items]
            for point in half["points"].items if "points" in half else ():
                if point.asks is not None and point.asks not in known:
                    message = (
                        f"`#{point.id}` asks `{point.asks}`, which is no follow-up of this card"
                    )
                    yield Problem(point.place, CODE, message, suggest(point.asks, known), SEVERITY)

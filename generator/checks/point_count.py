"""As many points as can be ticked while listening."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Reading
from generator.lang import LANGS, RED_FLAG
from generator.problems import Problem, Severity

CODE = "point-count"
SEVERITY: Severity = "error"
SENTENCE = "An interviewer listens for three to five points, and for at least one red flag."

FEWEST, MOST = 3, 5


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each list with too few points, too many, or without a red flag."""
    for card in reading.cards:
        for lang in LANGS:
            section = card.sections[lang].get("points")
            if section is None:
                continue
            points = [item for item in section.items if item.level != RED_FLAG]
            if len(points) > MOST:
                message = f"there are {len(points)} points, and this is one too many"
                hint = "Keep the five that tell candidates apart."
                yield Problem(points[MOST].place, CODE, message, hint, SEVERITY)
            elif len(points) < FEWEST:
                message = f"there are {len(points)} points, and three are the fewest"
                hint = "Say what a passing answer says, and a strong one adds: `- Text. <!-- #short-id strong -->`."
                yield Problem(section.place, CODE, message, hint, SEVERITY)
            if len(points) == len(section.items):
                message = "there is no red flag"
                hint = (
                    "Quote a sentence that fails a candidate: `- “…” <!-- #short-id red-flag -->`."
                )
                yield Problem(section.place, CODE, message, hint, SEVERITY)

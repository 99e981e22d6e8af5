"""As many follow-ups as an interviewer asks."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "followup-count"
SEVERITY: Severity = "error"
SENTENCE = (
    "A card has three to five follow-ups, each answered, there or by a link to the card that does."
)

FEWEST, MOST = 3, 5


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each half with too few follow-ups, or the first of too many. The parser sees to answers."""
    for card in reading.cards:
        for lang in LANGS:
            section = card.sections[lang]["followups"]
            count = len(section.items)
            if count > MOST:
                message = f"there are {count} follow-ups, and this is one too many"
                hint = "Keep the five that go deepest; another card may answer the others."
                yield Problem(section.items[MOST].place, CODE, message, hint, SEVERITY)
            elif count < FEWEST:
                message = f"there are {count} follow-ups, and three are the fewest"
                hint = "Add what a senior interviewer asks next: `### Question <!-- #short-id -->`."
                yield Problem(section.place, CODE, message, hint, SEVERITY)

"""As many follow-ups as an interviewer asks."""

from __future__ import annotations

from collections.abc import Iterator

from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "followup-count"
SEVERITY: Severity = "error"
SENTENCE = (
    "A card has four to seven follow-ups, each answered, there or by a link to the card that does; "
    "one that is not yet in format 2 has three to five."
)

FEWEST, MOST = 4, 7
OLD_FEWEST, OLD_MOST = 3, 5
_WORDS = {3: "three", 4: "four", 5: "five", 7: "seven"}


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each half with too few follow-ups, or the first of too many. The parser sees to answers."""
    for card in reading.cards:
        fewest, most = (FEWEST, MOST) if card.converted else (OLD_FEWEST, OLD_MOST)
        for lang in LANGS:
            section = card.sections[lang]["followups"]
            count = len(section.items)
            if count > most:
                message = f"there are {count} follow-ups, and this is one too many"
                hint = (
                    f"Keep the {_WORDS[most]} that go deepest; another card may answer the others."
                )
                yield Problem(section.items[most].place, CODE, message, hint, SEVERITY)
            elif count < fewest:
                message = f"there are {count} follow-ups, and {_WORDS[fewest]} are the fewest"
                hint = "Add what a senior interviewer asks next: `### Question <!-- #short-id often -->`."
                yield Problem(section.place, CODE, message, hint, SEVERITY)

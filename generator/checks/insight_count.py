"""Few enough insights to be remembered."""

from __future__ import annotations

from collections.abc import Iterator

from generator.cards.model import place_of
from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "insight-count"
SEVERITY: Severity = "error"
SENTENCE = "The key insights are a list of at most four."

MOST = 4


def check_card(reading: Reading) -> Iterator[Problem]:
    """The fifth insight of each card and language, or the place where a list is missing."""
    for card in reading.cards:
        for lang in LANGS:
            section = card.sections[lang]["insights"]
            insights = [
                token
                for token in section.tokens
                if token.type == "list_item_open" and token.level == 1
            ]
            if not insights:
                hint = "Write up to four, each as an item of a list: `- Insight.`"
                message = "the key insights are no list"
                yield Problem(section.place, CODE, message, hint, SEVERITY)
            elif len(insights) > MOST:
                message = f"there are {len(insights)} key insights, and this is one too many"
                hint = "Keep the four that an interviewer asks for; derive or drop the others."
                yield Problem(place_of(insights[MOST]), CODE, message, hint, SEVERITY)

"""Few enough numbers to be remembered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from generator.cards.model import CardLink, WebLink
from generator.checks import Reading
from generator.lang import LANGS, SECTION_HEADINGS, SectionName
from generator.problems import Problem, Severity

CODE = "linked-numbers"
SEVERITY: Severity = "error"
SENTENCE = (
    "What is said in thirty seconds has at most four linked numbers, and the key insights of a card in "
    "format 2 have at most six in all."
)

MOST: Mapping[SectionName, int] = {"spoken": 4, "insights": 6}
_DIGIT = re.compile(r"\d")


def check_card(reading: Reading) -> Iterator[Problem]:
    """The first linked number that is one too many, in each such section."""
    for card in reading.cards:
        for lang in LANGS if card.converted else ():
            for name, most in MOST.items():
                numbers = [
                    link
                    for link in card.sections[lang][name].links
                    if not isinstance(link, CardLink | WebLink) and _DIGIT.search(link.text)
                ]
                if len(numbers) > most:
                    heading = SECTION_HEADINGS[name][lang]
                    message = (
                        f"“{heading}” has {len(numbers)} linked numbers, and {most} are the most"
                    )
                    hint = "Keep those that one would say; the others go to the worked example or further below."
                    yield Problem(numbers[most].place, CODE, message, hint, SEVERITY)

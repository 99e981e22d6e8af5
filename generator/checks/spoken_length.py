"""The spoken answer takes about thirty seconds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import of_section
from generator.checks import Reading
from generator.lang import LANGS, Lang
from generator.problems import Problem, Severity

CODE = "spoken-length"
SEVERITY: Severity = "error"
SENTENCE = (
    "What is said in thirty seconds has 110 to 220 汉字, where a Latin word or a number counts as one, "
    "or 70 to 95 words."
)

LIMITS: dict[Lang, tuple[int, int]] = {"zh": (110, 220), "en": (70, 95)}
COUNTED: dict[Lang, re.Pattern[str]] = {
    "zh": re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+(?:[-’'.,/][^\W\u3400-\u9fff]+)*"),
    "en": re.compile(r"\w+(?:[-’'.,/]\w+)*"),
}
UNITS: dict[Lang, str] = {"zh": "汉字 and Latin words", "en": "words"}


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each spoken answer that is too short or too long, at the place where it begins."""
    for card in reading.cards:
        for lang in LANGS:
            section = card.sections[lang].get("spoken")
            found = list(of_section(card, section)) if section else []
            words = " ".join(p.text for each in found for p in each.pieces if p.kind == "text")
            count, (fewest, most) = len(COUNTED[lang].findall(words)), LIMITS[lang]
            if found and not fewest <= count <= most:
                said = f"{most} are the most" if count > most else f"{fewest} are the fewest"
                message = f"the spoken answer has {count} {UNITS[lang]}, and {said}"
                hint = "Say the claim, the mechanism, one number, the cost and when not; read it aloud with a watch."
                yield Problem(found[0].place, CODE, message, hint, SEVERITY)

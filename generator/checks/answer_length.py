"""The one-sentence answer can be said in one breath."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import of_section
from generator.checks import Reading
from generator.lang import LANGS, Lang
from generator.problems import Problem, Severity

CODE = "answer-length"
SEVERITY: Severity = "error"
SENTENCE = (
    "The one-sentence answer has at most 60 汉字 or 45 words; formulas and code are not counted."
)

LIMITS: dict[Lang, int] = {"zh": 60, "en": 45}
_COUNTED: dict[Lang, re.Pattern[str]] = {
    "zh": re.compile(r"[\u3400-\u9fff]"),
    "en": re.compile(r"\w+(?:[-’'.,/]\w+)*"),
}
_UNITS: dict[Lang, str] = {"zh": "汉字", "en": "words"}


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each answer that is longer, at the place where it begins."""
    for card in reading.cards:
        for lang in LANGS:
            section = card.sections[lang]["answer"]
            found = list(of_section(card, section))
            words = " ".join(p.text for each in found for p in each.pieces if p.kind == "text")
            count = len(_COUNTED[lang].findall(words))
            if found and count > LIMITS[lang]:
                message = f"the answer has {count} {_UNITS[lang]}, and {LIMITS[lang]} are enough"
                hint = "Say the conclusion alone; its reasons go to the key insights."
                yield Problem(found[0].place, CODE, message, hint, SEVERITY)

"""A caption names no colour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from generator.cards import prose
from generator.checks import Reading
from generator.lang import LANGS
from generator.problems import Problem, Severity

CODE = "caption-colour"
SEVERITY: Severity = "error"
SENTENCE = "The caption of a figure names no colour: light, dark and print have their own, and not everybody sees them."

_COLOURS = re.compile(
    r"\b(?:red|orange|yellow|green|blue|purple|violet|pink|gr[ae]y)\b|[红橙黄绿蓝紫灰][色条线格框点块]",
    re.IGNORECASE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each caption with the name of a colour, at its figure."""
    for card in reading.cards:
        for lang in LANGS:
            for section in card.sections[lang].values():
                for opening, inline in pairwise(prose.blocks(section)):
                    if opening.type != "figure_open" or "figure" not in opening.meta:
                        continue
                    if found := _COLOURS.search(inline.content):
                        message = f"the caption says “{found[0]}”"
                        hint = "Say which series it is, by its name, its hatching or its place."
                        place = opening.meta["figure"].place
                        yield Problem(place, CODE, message, hint, SEVERITY)

"""A minus in a formula is a hyphen in its TeX."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.model import place_of
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "math-dash"
SEVERITY: Severity = "error"
SENTENCE = "A minus in a formula is typed `-`, never as an en-dash or em-dash."

_DASH = re.compile("[\u2012-\u2015\ufe58\uff0d]")
_TEXT = re.compile(r"\\text\w*\s*\{[^{}]*\}")


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each dash in a formula, but for one between words."""
    for token in reading.formulas:
        visible = _TEXT.sub(lambda found: " " * len(found[0]), token.content)
        for found in _DASH.finditer(visible):
            message = f"“{found[0]}” is a dash, and is not drawn as a minus"
            place = place_of(token, found.start())
            yield Problem(place, CODE, message, "Type a hyphen, `-`.", SEVERITY)

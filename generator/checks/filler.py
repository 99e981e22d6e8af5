"""No sentence begins by saying that it is worth saying."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "filler"
SEVERITY: Severity = "error"
SENTENCE = (
    "No filler: “it is worth noting”, “in conclusion”, “众所周知”, “总而言之” and their like."
)

_PHRASES = re.compile(
    r"\b(?:it(?:'s|’s| is) (?:worth|important|interesting) (?:noting|mentioning|to (?:note|mention))"
    r"|it should be noted|needless to say|as we all know|as is well known|it goes without saying"
    r"|last but not least|in conclusion|to sum up|in summary|all in all|at the end of the day"
    r"|plays? an? (?:crucial|vital|key|pivotal) role|delv(?:e|es|ing) into)\b"
    r"|众所周知|总而言之|总的来说|综上所述|值得(?:注意|一提|指出)的?是?|需要(?:注意|指出)的是|不言而喻"
    r"|毋庸置疑|毫无疑问|显而易见|一言以蔽之|至关重要的作用",
    re.IGNORECASE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each such phrase in the text of a card."""
    for passage in reading.passages:
        flat = passage.flat(lambda p: p.text if p.kind in {"text", "break"} else "\ufffc")
        for found in _PHRASES.finditer(flat.text):
            message = f"“{found[0]}” says nothing"
            hint = "Delete it; what follows can stand alone."
            yield Problem(flat.place(found.start()), CODE, message, hint, SEVERITY)

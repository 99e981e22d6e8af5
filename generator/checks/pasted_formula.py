r"""No leftovers of copying a formula from a page that drew it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import Piece
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "pasted-formula"
SEVERITY: Severity = "error"
SENTENCE = (
    r"No formula stands there two or three times in a row, as it does when copied from a page that "
    r"drew it: `O(L)O(\sqrt{L})O(L)`."
)

# A page that draws formulas holds each as characters for readers, as TeX, and as drawn.
_DRAWN_AWAY = re.compile(r"\\[A-Za-z]+|[\\{}$ ]")
_LONGEST = 40
_AGAIN = re.compile(rf"([^\s\u3000-\uffef]{{3,{_LONGEST}}}?)\1\1|(\w\([^\s()]{{1,{_LONGEST}}}\))\2")
# What repeats has a bracket, a relation or the like in it; this is quick to look for.
_LIKELY = re.compile(rf"(\S[(=^_/+]\S)\S{{0,{_LONGEST}}}?\1|(\w\(\S)\S{{0,{_LONGEST}}}?\2")
_OPERATORS = "+-*/=,.;"


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each repetition in what a passage shows, whatever the TeX of its parts."""
    for passage in reading.passages:
        flat = passage.flat(_shown)
        if not _LIKELY.search(_DRAWN_AWAY.sub("", flat.text)):
            continue
        bones, origins = _bones(flat.text)
        for found in _AGAIN.finditer(bones):
            part = found[1] or found[2]
            if not any(map(str.isalpha, part)) or part[0] in _OPERATORS or part[-1] in _OPERATORS:
                continue  # a ruler, or a sum of equal terms
            message = f"“{part}” stands here {'three times' if found[1] else 'twice'} in a row"
            hint = "Delete what was copied along, and keep the TeX: `$…$`."
            place = flat.place(origins[found.start()])
            yield Problem(place, CODE, message, hint, SEVERITY)


def _shown(piece: Piece) -> str:
    if piece.kind == "math":
        return f"${piece.text}$"
    return " \ufffc " if piece.kind == "code" else piece.text


def _bones(text: str) -> tuple[str, list[int]]:
    """What is left without commands, braces and spaces, and where each character stood."""
    bones, at = "", 0
    origins: list[int] = []
    for found in [*_DRAWN_AWAY.finditer(text), None]:
        end = found.start() if found else len(text)
        bones += text[at:end]
        origins += range(at, end)
        at = found.end() if found else end
    return bones, origins

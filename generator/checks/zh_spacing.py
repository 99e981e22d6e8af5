"""A space between 汉字 and Latin words or numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import Piece
from generator.checks import Reading
from generator.problems import Place, Problem, Severity

CODE = "zh-spacing"
SEVERITY: Severity = "error"
SENTENCE = (
    "In Chinese a space stands between 汉字 and Latin words, numbers, formulas or code, "
    "inside links and around them."
)

HAN = r"\u3007\u3400-\u9fff\uf900-\ufaff"
_LATIN = r"A-Za-z0-9\u00c0-\u024f\u0370-\u03ff%‰$`"
_TOUCH = re.compile(rf"(?<=[{HAN}])(?=[{_LATIN}])|(?<=[{_LATIN}])(?=[{HAN}])")


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each place where the two touch, titles included."""
    for card in reading.cards:
        for found in _TOUCH.finditer(card.title["zh"]):
            yield _problem(card.title["zh"], found.start(), card.places["title.zh"])
    for passage in reading.passages:
        if passage.lang == "zh":
            flat = passage.flat(shown)
            for found in _TOUCH.finditer(flat.text):
                yield _problem(flat.text, found.start(), flat.place(found.start()))


def _problem(text: str, at: int, place: Place) -> Problem:
    around = text[at - 1 : at + 1].replace("$", "$…$").replace("`", "`…`")
    message = f"“{around}” lacks a space between 汉字 and what is none"
    return Problem(place, CODE, message, "Put one space between them.", SEVERITY)


def shown(piece: Piece) -> str:
    """Words as they are; formulas and code hidden between the marks that bound them."""
    if piece.kind == "math":
        return f"${'x' * len(piece.text)}$"
    return f"`{'x' * len(piece.text)}`" if piece.kind == "code" else piece.text

"""Each half is written in its own language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import Passage, Piece
from generator.checks import Reading
from generator.checks.zh_spacing import HAN
from generator.lang import LANGUAGE_HEADINGS
from generator.problems import Problem, Severity

CODE = "wrong-language"
SEVERITY: Severity = "error"
SENTENCE = (
    "The English half has neither 汉字 nor full-width punctuation outside code and quoted terms, "
    "and no sentence of the Chinese half is without 汉字."
)

_HAN = re.compile(f"[{HAN}]")
_CHINESE = re.compile(rf"[{HAN}\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+")
_QUOTED = re.compile('“[^”]{,99}”|‘[^’]{,99}’|"[^"]{,99}"|（[^）]{,99}）')
_WORD = re.compile(r"[A-Za-z]{2,}")
_SENTENCE_OF_WORDS = 6
"""So many Latin words are no longer a list of names in a Chinese card, but a sentence."""


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each passage, and each English title or question, in the other half's language."""
    for card in reading.cards:
        if _HAN.search(card.title["en"]):
            place = card.places["title.en"]
            yield Problem(place, CODE, "the English title has 汉字", "Translate it.", SEVERITY)
        if card.question and _HAN.search(card.question["en"]):
            place = card.places["question.en"]
            yield Problem(place, CODE, "the English question has 汉字", "Translate it.", SEVERITY)
    for passage in reading.passages:
        yield from _english(passage) if passage.lang == "en" else _chinese(passage)


def _english(passage: Passage) -> Iterator[Problem]:
    flat = passage.flat(_words)
    visible = _QUOTED.sub(lambda found: " " * len(found[0]), flat.text)
    if found := _CHINESE.search(visible):
        message = f"“{found[0]}” stands in the English half"
        hint = "Say it in English; a term that is discussed as such stands in quotation marks."
        yield Problem(flat.place(found.start()), CODE, message, hint, SEVERITY)


def _chinese(passage: Passage) -> Iterator[Problem]:
    text = passage.flat(_words).text
    if not _HAN.search(text) and len(_WORD.findall(text)) >= _SENTENCE_OF_WORDS:
        message = f"no 汉字 in this passage under `# {LANGUAGE_HEADINGS['zh']}`"
        hint = "Write it in Chinese, or move it to the English half."
        yield Problem(passage.place, CODE, message, hint, SEVERITY)


def _words(piece: Piece) -> str:
    return piece.text if piece.kind in {"text", "break"} else " "

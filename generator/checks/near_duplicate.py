"""No sentence is said twice, on a card or between cards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from math import ceil
from typing import NamedTuple

from generator.cards.prose import Passage, Piece
from generator.checks import Base, Reading
from generator.lang import LANGS, Lang
from generator.problems import Place, Problem, Severity
from generator.workers import FEW, spread

CODE = "near-duplicate"
SEVERITY: Severity = "error"
SENTENCE = (
    "No two sentences, on one card or on two, share half of their words in order; "
    "tables, whose cells are alike by design, do not count."
)

THRESHOLD = 0.5
"""The share of shingles that two sentences have in common, of all that either has (Jaccard).

Among the sentences of the first family's cards, no two share as much as 0.45, while one word that is
changed in twelve leaves two thirds.
"""
_HITS = 2
"""How many of the rarest elements two sets must share before they are compared in full."""
_SHINGLE: dict[Lang, int] = {"zh": 3, "en": 2}
_SHORTEST: dict[Lang, int] = {"zh": 12, "en": 8}
"""In 汉字 and words: shorter sentences are alike by chance."""
_UNIT: dict[Lang, re.Pattern[str]] = {
    "zh": re.compile(r"[\u3400-\u9fff]|[a-z]+|0"),
    "en": re.compile(r"[a-z]+|0"),
}
_NUMBER = re.compile(r"\d+")
"""Another number does not make another sentence."""
_SENTENCE = re.compile(r"(?:[^。！？；.!?;\n]++|[.!?;](?!\s|$))+")
_SHOWN = 24
MANY = 200
"""Cards whose languages are worth a process each."""


class Sentence(NamedTuple):
    """Words that end in a full stop, and where they begin."""

    text: str
    place: Place
    shingles: tuple[int, ...]
    """Digests of its runs of words, each once: cards have thousands, and they are kept."""


def check(base: Base) -> Iterator[Problem]:
    """Each sentence that is nearly an earlier one, in the order in which cards are read."""
    found = base.of_cards("sentences", _sentences)
    halves = [[each for of_one in found for each in of_one[lang]] for lang in LANGS]
    few = 1 if len(found) > MANY else FEW
    pairs = spread(lambda half: list(alike([each.shingles for each in half])), halves, few)
    for sentences, again_and_first in zip(halves, pairs, strict=True):
        for later, earlier, share in again_and_first:
            again, first = sentences[later], sentences[earlier]
            start = again.text[:_SHOWN].rstrip() + ("…" if len(again.text) > _SHOWN else "")
            message = f"“{start}” says again what stands in {first.place} ({share:.0%} alike)"
            hint = "Keep one of the two, and link to it: `[text](card:ID)`."
            yield Problem(again.place, CODE, message, hint, SEVERITY)


def alike(sets: Sequence[Collection[Hashable]]) -> Iterator[tuple[int, int, float]]:
    """For each set that is like an earlier one: its index, the earliest such index, the share.

    No set holds an element twice.

    Two sets can share so much only if they share two of their rarest elements (prefix filtering,
    Chaudhuri et al. 2006), so that each set is compared with few others; a set that is like an
    earlier one is not compared again. The answer is that of comparing all pairs.
    """
    counts = Counter(chain.from_iterable(sets))
    several = sorted(((n, at, e) for at, (e, n) in enumerate(counts.items()) if n > 1))
    rank = {element: at for at, (_, _, element) in enumerate(several)}
    met: dict[int, list[int]] = {}
    for index, each in enumerate(sets):
        overlap = ceil(THRESHOLD * len(each))
        shared = sorted([rank[element] for element in each if element in rank])
        # Elements that no other set has are the rarest, and need not be looked up.
        unique = len(each) - len(shared)
        prefix = shared[: max(len(each) - overlap + _HITS - unique, 0)]
        hits = Counter([other for element in prefix for other in met.get(element, ())])
        wanted = min(overlap, _HITS)
        for other in sorted([other for other, count in hits.items() if count >= wanted]):
            common = len({*each} & {*sets[other]})
            share = common / (len(each) + len(sets[other]) - common)
            if share >= THRESHOLD:
                yield index, other, share
                break
        else:
            for element in prefix:
                met.setdefault(element, []).append(index)


def _sentences(reading: Reading) -> dict[Lang, list[Sentence]]:
    """The sentences of a card that are long enough to compare."""
    found: dict[Lang, list[Sentence]] = {lang: [] for lang in LANGS}
    for passage in reading.passages:
        if passage.role != "cell":
            found[passage.lang] += _of_passage(passage)
    return found


def _of_passage(passage: Passage) -> Iterator[Sentence]:
    flat = passage.flat(_shown)
    for found in _SENTENCE.finditer(flat.text):
        units = _UNIT[passage.lang].findall(_NUMBER.sub("0", found[0].lower()))
        if len(units) >= _SHORTEST[passage.lang]:
            start = found.end() - len(found[0].lstrip())
            size = _SHINGLE[passage.lang]
            runs = range(len(units) - size + 1)
            shingles = {_digest(" ".join(units[at : at + size])) for at in runs}
            yield Sentence(found[0].strip(), flat.place(start), tuple(sorted(shingles)))


def _digest(run: str) -> int:
    return int.from_bytes(blake2b(run.encode(), digest_size=8).digest(), "big")


def _shown(piece: Piece) -> str:
    return f"${piece.text}$" if piece.kind == "math" else piece.text

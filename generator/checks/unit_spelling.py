"""B, GB and GiB are told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generator.cards.prose import Piece
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "unit-spelling"
SEVERITY: Severity = "error"
SENTENCE = (
    "Units are spelt so that they are told apart: `GB` is a thousand million bytes and `GiB` 2^30, "
    "`B` a byte; not `80G`, `gb`, `Gb` or `GIB`, nor `flops`."
)

_WRONG = re.compile(
    r"""(?<![A-Za-z0-9_.-])\d[\d,.]{0,40}\s{0,9}(?P<unit>
        (?:[kmgtp]i?b|[KMGTP]i?b|[mgtp]i?B|KIB|MIB|GIB|TIB|[kmgtp]IB|[KMGTP]b)(?![A-Za-z/])
      | (?<=\d)[GT](?=\s*(?:显存|内存|显卡|的?卡|VRAM|RAM|memory|HBM|of\b)|[，。；、）,.;)\s]*$|[\s]*[\u4e00-\u9fff])
      | [KMGTP]?flops?\b | [KMGTP]Flops?\b
    )""",
    re.VERBOSE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each unit beside a number whose letters leave open what it means."""
    for passage in reading.passages:
        flat = passage.flat(_words)
        for found in _WRONG.finditer(flat.text):
            message = f"“{found[0]}” leaves open which unit is meant"
            hint = (
                "Write `GB` (10^9 bytes), `GiB` (2^30), `B`, `FLOPs` (a count) or `FLOPS` (a rate)."
            )
            yield Problem(flat.place(found.start("unit")), CODE, message, hint, SEVERITY)


def _words(piece: Piece) -> str:
    return piece.text if piece.kind in {"text", "break"} else "\ufffc"

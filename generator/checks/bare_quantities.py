r"""No quantity stands in prose without its proof."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from generator.cards.prose import Passage, Piece
from generator.checks import Reading
from generator.evidence.numerals import (
    ONES,
    OTHER,
    UNITS_IN_CHARACTERS,
    UNITS_IN_LETTERS,
    Proof,
    any_of,
    is_model_size,
)
from generator.evidence.quantities import MULTIPLIERS
from generator.problems import Place, Problem, Severity

CODE = "bare-quantity"
SEVERITY: Severity = "error"
SENTENCE = (
    "A number with a unit of bytes, FLOPs, time or tokens, or with %, × or 倍, stands inside a "
    "`claim:`, `wrong:`, `fact:`, `calc:`, `source:` or `given:` link, in display math or in code, and nowhere "
    "else: titles, tables, questions and inline math included. So does a number in words, "
    "but for those up to ten before a unit in words. "
    "The points that an interviewer listens for may hold any."
)

# --- the pattern ---------------------------------------------------------------------------------

_GAP = r"[\s$-]{0,20}"
_OPERAND = rf"\s*[\d({OTHER}]"


_UNITS = (
    rf"[%％]|percent\b|(?:个)?百分点|{UNITS_IN_CHARACTERS}",
    rf"(?:{UNITS_IN_LETTERS}|B)(?![A-Za-z])",
    r"[kKM]\s*(?:tokens?\b|词元)",
)
_QUANTITY = re.compile(
    rf"""(?<![A-Za-z0-9_.])(?<![A-Za-z]-)
    (?: 百分之\s*\d+(?:\.\d+)?
      | \d(?:[\d,.]{{0,40}}\d)?(?:[eE][-+−]?\d+)?[⁻⁺⁰¹²³⁴-⁹]{{0,5}}
        (?: ×(?!{_OPERAND}|[A-Za-z])                                    # 2.1× faster, but not 4×4
          | {_GAP}×(?!{_OPERAND}|\s*[A-Za-z])                           # $2 \times$, but not 2 × n
          | x(?![\w(])
          | {_GAP}(?:(?:{any_of(MULTIPLIERS)}){_GAP})?(?:个\s*)?(?:{"|".join(_UNITS)})
          | [\s$]+[sh](?![\w/(’'-])                                     # 3 s, but not 3s or $3s$
        )
    )""",
    re.VERBOSE,
)

# Sixteen bytes, or two GB, are as bare as 16 and 2; two bytes are words of the language.
_TENS = "teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
_SYMBOL = r"(?:[kKMGTP]i?B|[mµn]s|[KMGTP]FLOPs?)(?![A-Za-z])"
_SPELLED = re.compile(
    rf"""(?<!第)(?: [一二两三四五六七八九]?[十百千][零一二三四五六七八九十百千]{{0,12}}[万亿]?
          (?: \s*(?:{UNITS_IN_LETTERS}|B)(?![A-Za-z]) | \s*(?:个\s*)?(?:{UNITS_IN_CHARACTERS}) )
        | [一二两三四五六七八九]\s*{_SYMBOL} )
      | \b(?: (?:eleven|twelve|\w*(?:{_TENS})(?:[\s-](?:and\s)?[a-z]+)?)[\s-]+(?:{UNITS_IN_LETTERS}|B)\b
          | (?:{ONES})[\s-]+{_SYMBOL} )""",
    re.VERBOSE,
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each bare quantity of each card, its titles included."""
    for card in reading.cards:
        for lang, title in card.title.items():
            for found in _QUANTITY.finditer(title):
                yield _problem(found[0], card.places[f"title.{lang}"])
    yield from of_passages(reading.passages)


def of_passages(passages: Iterable[Passage]) -> Iterator[Problem]:
    """Each bare quantity of these passages."""
    for passage in passages:
        if passage.section == "points":
            continue
        flat = passage.flat(_shown)
        for pattern in (_QUANTITY, _SPELLED):
            for found in pattern.finditer(flat.text):
                if not is_model_size(found.string, *found.span()):
                    yield _problem(found[0], flat.place(found.start()))


def _problem(text: str, place: Place) -> Problem:
    shown = " ".join(text.replace("$", " ").split())
    message = f"“{shown}” stands here without its proof"
    hint = (
        f"Measure it, `[{shown}](claim:DEMO/METRIC)`, calculate it (`calc:`), cite it (`fact:ID/KEY`, `source:KEY`), "
        "refute it (`wrong:`) or assume it (`given:`)."
    )
    return Problem(place, CODE, message, hint, SEVERITY)


# --- what is searched ----------------------------------------------------------------------------


def _shown(piece: Piece) -> str:
    if isinstance(piece.link, Proof) or piece.kind == "code":
        return OTHER
    return f"${_masked(piece.text)}$" if piece.kind == "math" else piece.text


_TEX = re.compile(
    r"""\\(?:text|mathrm|textrm|mathsf)\s*\{(?P<words>[^{}]*)\}
      | (?P<percent>\\%) | (?P<times>\\times(?![A-Za-z]))
      | (?P<comma>\{,\})
      | (?P<space>\\[,;:!>\ ] | ~ | \^(?:\{[^{}]*\}|\d) | [{}])
      | (?P<symbol>_(?:\{[^{}]*\}|\w) | \\[A-Za-z]+ | \\. | [A-Za-z])""",
    re.VERBOSE,
)


def _masked(tex: str) -> str:
    r"""A formula with its units laid bare and its symbols hidden, each character in its place."""
    return _TEX.sub(_mask, tex)


def _mask(found: re.Match[str]) -> str:
    length = len(found[0])
    if found["words"] is not None:
        before = found.start("words") - found.start()
        return " " * before + found["words"] + " " * (length - before - len(found["words"]))
    if found["percent"]:
        return " %"
    if found["times"]:
        return "×".ljust(length)
    if found["comma"]:
        return "," * length
    return (" " if found["space"] else OTHER) * length

r"""Every number that a card's text prints, and what stands behind each.

A numeral is one number as it is printed: ``128``, ``1,024``, ``10⁻⁶``, ``33.3`` of ``33.3%``; a range is two.
In words it is one beyond twenty: ``thirty-two``, 三百. It is *linked* where it stands in a link to a proof,
*free* where nothing has to be proven, and else *bare*. Free are names (``H100``, ``FSDP2``, ``GPT-2``, ``1F1B``,
``Table 5``, 第 2 步), dates, the numbers of a list, formulas, and whatever an interviewer listens for.

Digits are a name where they are joined to a letter or a hyphen, unless the letters spell a unit (``128GB``,
``33x``, ``128K``), or where a word before them says so (``§``, ``stage``). A formula is free, but where it is, or
ends after its last ``=`` or ``≈`` with, nothing but a number and its unit: that is a result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

from generator.cards.model import Calc, Card, Citation, Claim, Fact, Given, Param, place_of
from generator.cards.prose import Passage, Piece, passages
from generator.evidence.quantities import NUMBER, SYMBOLS, QuantityError, read
from generator.problems import Place

Proof = Claim | Param | Fact | Calc | Citation | Given
"""The links that say where a number comes from."""

Why = Literal["", "name", "date", "list", "formula", "point"]
"""Why a numeral is free; empty where it is not."""


@dataclass(frozen=True, slots=True)
class Numeral:
    """One number that a text prints: ``free`` says why it needs no proof, ``link`` where its proof is.

    ``place`` is that of its first digit; of a linked one, the link's.
    """

    text: str
    place: Place
    link: Proof | None = None
    free: Why = ""

    @property
    def state(self) -> Literal["free", "linked", "bare"]:
        """What stands behind it."""
        return "linked" if self.link else "free" if self.free else "bare"


NAMING: frozenset[str] = frozenset(
    {
        "§", "Table", "Figure", "Fig.", "Section", "Appendix", "Algorithm", "Equation", "Eq.", "Theorem",
        "Lemma", "Chapter", "Listing", "version", "step", "stage", "phase", "rank", "level",
        "Llama", "Qwen", "Mistral", "Gemma", "Claude", "PyTorch", "CUDA", "Python", "Triton", "NCCL", "ZeRO",
        "表", "图", "公式", "算法", "定理", "引理", "附录", "版本", "步骤", "阶段",
    }
)  # fmt: skip
"""Words behind which digits are a name; a base's glossary may list more."""


def of_card(card: Card, naming: Collection[str] = NAMING) -> Iterator[Numeral]:
    """Every numeral of the card's prose and tables, language by language, in the order of the file."""
    return of_passages(passages(card), naming)


def of_passages(read: Iterable[Passage], naming: Collection[str] = NAMING) -> Iterator[Numeral]:
    """Every numeral of these passages, in their order; behind a word of ``naming``, digits are a name."""
    naming = frozenset(naming)
    for passage in read:
        yield from sorted(_of_passage(passage, naming), key=lambda each: each.place)


def _of_passage(passage: Passage, naming: frozenset[str]) -> Iterator[Numeral]:
    for link, pieces in groupby(passage.pieces, key=lambda piece: piece.link):
        if isinstance(link, Proof):
            yield from (Numeral(text, link.place, link) for text in _printed(link))
        else:
            formulas = (piece for piece in pieces if piece.kind == "math")
            for found in (each for piece in formulas for each in _of_formula(piece)):
                yield _unless_a_point(found, passage)
    flat = passage.flat(_shown)
    for start, end, free in _in_words(flat.text, naming):
        found = Numeral(flat.text[start:end], flat.place(start), free=free)
        yield _unless_a_point(found, passage)


def _unless_a_point(found: Numeral, passage: Passage) -> Numeral:
    return Numeral(found.text, found.place, free="point") if passage.section == "points" else found


def _shown(piece: Piece) -> str:
    hidden = piece.kind in {"math", "code"} or isinstance(piece.link, Proof)
    return OTHER if hidden else piece.text


def _printed(link: Proof) -> list[str]:
    """The numbers in a link: one, but where somebody else's result is a range, or nothing is compared."""
    text = link.text.replace("$", " ")
    found = [text[start:end] for start, end, free in _in_words(text, frozenset()) if not free]
    one_number = not isinstance(link, Citation | Given)
    return found[:1] or [link.text] if one_number and _DIGIT.search(text) else found


def _of_formula(piece: Piece) -> Iterator[Numeral]:
    """The numbers of a formula: free, but for one that is its result."""
    result = _result(piece.text)
    for found in NUMBER.finditer(piece.text):
        free: Why = "" if found.start() == result else "formula"
        digits = len(found["sign"] or "")
        place = place_of(piece.token, found.start() + digits)
        yield Numeral(found[0][digits:], place, free=free)


_EQUALS = re.compile(r"=|≈|\\approx(?![A-Za-z])")
_NO_SYMBOL = re.compile(r"\\(?:text|mathrm|textrm|mathsf)\s*\{[^{}]*\}|\\[A-Za-z]+")
"""Units in words, and commands: what is no variable, as the h of 4h is."""


def _result(tex: str) -> int | None:
    """Where the number stands that a formula is, or comes to; ``None`` where it does not say one."""
    start = max((found.end() for found in _EQUALS.finditer(tex)), default=0)
    tail = tex[start:]
    if tail.count("{") != tail.count("}"):  # the limit of a sum
        return None
    try:
        printed = read(tail)
    except QuantityError:
        return None
    number = NUMBER.fullmatch(tail, printed.start, printed.end)
    assert number is not None  # a quantity is made from such a match
    operates = number["n1"] or number["n2"] or number["n3"] or number["base"] not in (None, "10")
    symbols = _NO_SYMBOL.sub("", tail[: printed.start] + tail[printed.end :])
    return None if operates or _HAS_LETTER.search(symbols) else start + printed.start


# --- words ---------------------------------------------------------------------------------------

OTHER = "\ufffc"
"""Stands for what is exempt, and for symbols of a formula: neither digit nor unit."""


def any_of(names: Iterable[str]) -> str:
    """A pattern of one of ``names``, the longest that stands there."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


UNITS_IN_LETTERS = any_of(
    name for name in SYMBOLS if name.isascii() and len(name) > 1 and name != "times"
)
UNITS_IN_CHARACTERS = any_of(
    name for name in SYMBOLS if not name.isascii() and name not in {"×", "％"}
)
ONES = "one|two|three|four|five|six|seven|eight|nine|ten"
_TO_NINE = ONES.removesuffix("|ten")
_TO_TWENTY = (
    f"{ONES}|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty"
)
_FROM_THIRTY = "thirty|forty|fifty|sixty|seventy|eighty|ninety"

_LETTER = r"[A-Za-z\u0370-\u03ff\u00b5]"
_WORD = re.compile(
    rf"(?:{_LETTER}|\d|(?<=[\dA-Za-z])[-‑_.](?=[\dA-Za-z])|(?<=\d),(?=\d{{3}}(?!\d)))+",
)
"""Letters and digits, with the marks that join them."""
_HAS_LETTER = re.compile(_LETTER)
_DIGIT = re.compile(r"\d")
_MEASURED = re.compile(
    rf"(?P<number>\d[\d.,]*(?:e[-+]?\d+)?)-?(?:{UNITS_IN_LETTERS}|[BshxkKMGT])", re.IGNORECASE
)
"""A word that is a number and its unit: ``128GB``, ``33x``, ``128K``."""
_VERSION = re.compile(r"\d+(?:\.\d+){2,}")

_MODEL_SIZE = re.compile(r"\d(?:\.\d+)?[BMT]$")
_MODEL = re.compile(r"模型|参数|网络|model|param|llama|gpt|qwen|mistral|opt-", re.IGNORECASE)
_NEAR = 30
"""How near to “7B” a word must stand, in characters, that makes it the size of a model."""


def is_model_size(text: str, start: int, end: int) -> bool:
    """Whether “7B”, which stands there in ``text``, names a model of so many parameters."""
    if not _MODEL_SIZE.search(text[start:end]) or text.startswith("/", end):
        return False
    around = text[max(start - _NEAR, 0) : end + _NEAR]
    return _MODEL.search(around) is not None


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_YEAR = r"(?:19[5-9]\d|20(?:0[1-9]|[12]\d|3\d))"
"""Not 2000 or 2048, which are rarely years here."""
_DATE = re.compile(
    rf"""(?<!\d)(?:
        {_YEAR}-(?:0[1-9]|1[0-2])(?:-[0-3]\d)?
      | {_YEAR}\s?年(?:代|\s?\d\d?\s?月(?:\s?\d\d?\s?[日号])?)?
      | \d\d?\s?月(?:\s?\d\d?\s?[日号])
      | {_YEAR}s
      | (?:\d\d?\s)?\b{_MONTH}\s(?:\d\d?,?\s)?{_YEAR}
      | (?<=[(（]){_YEAR}(?=[)）]) | (?<=,\s){_YEAR}(?=[)）]) | (?<=，){_YEAR}(?=[)）])
      | (?i:\b(?:in|since|of|by|before|after|until|from|early|late|mid|during)\s){_YEAR}
        (?:-(?:0[1-9]|1[0-2])(?:-[0-3]\d)?)?(?!,\d|\s?[%％×])
    )(?![\dA-Za-z]|\.\d)""",
    re.VERBOSE,
)
_LISTED = re.compile(r"(?<![A-Za-z])[(（](\d\d?)[)）]")
_ORDINAL = re.compile(r"第\s?$")
_CALLED = re.compile(r"[A-Za-z](?:\(|\+\+)$")
"""``O(1)``, ``C++17``."""
_NUMBERED = re.compile(r"\s?号(?!称)")
_WIDTH = re.compile(r"(?:4|8|16|32|64)\s?位(?![数小尾指有])")
"""8 位优化器: what English joins by a hyphen, 8-bit."""
_AND = re.compile(
    r"\s*(?:,\s*and|,\s*or|[,、/–~～-]|and|to|or|和|与|到|至|或|、和)\s*", re.IGNORECASE
)
"""What stands between names of a row: stages 1 and 2, 表 1、2."""


def _in_words(text: str, naming: frozenset[str]) -> Iterator[tuple[int, int, Why]]:
    """Each numeral of ``text``: its start, its end, and why it is free, if it is."""
    if _DIGIT.search(text):
        yield from _in_digits(text, naming)
    for found in (*_ENGLISH.finditer(text), *_CHINESE.finditer(text)):
        if found[0].isascii() or _worth(found[0]) > _TWENTY:
            yield found.start(), found.end(), ""


def _in_digits(text: str, naming: frozenset[str]) -> Iterator[tuple[int, int, Why]]:
    dated = {at for found in _DATE.finditer(text) for at in range(*found.span())}
    listed = _listed(text)
    named = _named(naming)
    done, last = 0, -1  # how far was read; where the last numeral ended that a word names
    for word in _WORD.finditer(text):
        start, end = max(word.start(), done), word.end()
        if start >= end or not _DIGIT.search(text, start, end):
            continue
        name = _is_name(text, start, end)
        for number, stop in _numbers(text, start, end):
            free: Why = ""
            before = text[max(number - _NEAR, 0) : number]
            if number in dated:
                free = "date"
            elif number in listed:
                free = "list"
            elif (
                named.search(before)
                or _ORDINAL.search(before)
                or (0 <= last <= number <= last + _NEAR and _AND.fullmatch(text, last, number))
            ):
                free, last = "name", stop
            elif (
                name
                or _CALLED.search(before)
                or _NUMBERED.match(text, stop)
                or _WIDTH.match(text, number)
            ):
                free = "name"
            yield number, stop, free
            done = max(done, stop)


def _listed(text: str) -> set[int]:
    """Where the numbers of a list in the text stand, (1) and (2) with none left out."""
    found: set[int] = set()
    for number in _LISTED.finditer(text):
        if int(number[1]) == len(found) + 1:
            found.add(number.start(1))
    return found


def _numbers(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers of one word; of a name, the first alone."""
    whole = _HAS_LETTER.search(text, start, end) or _VERSION.fullmatch(text, start, end)
    at = start
    while at < end and (digit := _DIGIT.search(text, at, end)):
        found = NUMBER.match(text, digit.start())
        assert found is not None  # it begins with a digit
        yield found.span()
        if whole:
            return
        at = found.end()


def _is_name(text: str, start: int, end: int) -> bool:
    """Whether the word that stands there is no number: ``H100``, ``1F1B``, ``2.9.1``, but not ``128GB``."""
    word = text[start:end]
    if _VERSION.fullmatch(word) or is_model_size(text, start, end):
        return True
    if not _HAS_LETTER.search(word):
        return False
    return not _MEASURED.fullmatch(word) and not NUMBER.fullmatch(word)


@lru_cache(8)
def _named(naming: frozenset[str]) -> re.Pattern[str]:
    """What stands before digits that are a name."""
    latin = any_of(word for word in naming if word[:1].isascii())
    others = any_of(word for word in naming if not word[:1].isascii())
    kinds = [rf"(?<![A-Za-z])(?:{latin})s?" if latin else "", others]
    return re.compile(rf"(?:{'|'.join(filter(None, kinds)) or '(?!)'})\.?\s?$", re.IGNORECASE)


# --- numbers in words ----------------------------------------------------------------------------

_ENGLISH = re.compile(
    rf"""(?<![A-Za-z-])(?:
        (?:a|{_TO_TWENTY}|(?:twenty|{_FROM_THIRTY})(?:-(?:{_TO_NINE}))?)\s(?:hundred|thousand|million|billion|trillion)
      | twenty-(?:{_TO_NINE}) | (?:{_FROM_THIRTY})(?:-(?:{_TO_NINE}))?
    )(?![A-Za-z]|-[A-Za-z])""",
    re.VERBOSE | re.IGNORECASE,
)
_CHINESE = re.compile(
    r"(?<![第几数零〇一二两三四五六七八九十百千万亿])"
    r"(?:[一二两三四五六七八九][十百千万亿]|十[一二三四五六七八九]?[万亿])[零〇一二两三四五六七八九十百千万亿]{0,20}"
    r"(?!年代|世纪|[一二三四五六七八九十]?分之)"
)
_TWENTY = 20
_DIGITS = {each: worth for worth, each in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_POWERS = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}


def _worth(characters: str) -> int:
    """The number that these characters spell."""
    whole = part = digit = 0
    for each in characters:
        if each in _DIGITS:
            digit = _DIGITS[each]
        elif each in _POWERS:
            part, digit = part + (digit or 1) * _POWERS[each], 0
        else:
            whole, part, digit = whole + (part + digit) * _MYRIADS[each], 0, 0
    return whole + part + digit

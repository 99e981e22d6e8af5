r"""One number with its unit, as a card prints it: ``33.3%``, ``$1.2\times10^{-6}$``, ``12 字节/参数``.

A printed number says how precise it is: it equals a recorded value when the value, rounded half up
to the last digit printed, is that number. All arithmetic is exact (rationals), so nothing depends on
binary floating point. Fractions and powers (``1/3``, ``$2^{-24}$``) leave no room to round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

MAX_EXPONENT = 400
"""Powers beyond every double; what is larger is a slip of the pen, and slow to compute."""

MAX_LENGTH = 200
"""Characters of a text that prints one number, its TeX included."""

NOISE = Fraction(1, 10**6)
"""Relative distance at which nobody says another number: ``4.0000001`` of 4 is no error of anyone."""


Recorded = int | float | Fraction
"""A value that a printed number is held against: of a record, or of a public fact."""


class QuantityError(ValueError):
    """The text prints no number that can be compared; the message is one clause for its author."""


# --- units ---------------------------------------------------------------------------------------

_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SECONDS = {
    Fraction(1): ("s", "sec", "second", "seconds", "秒"),
    Fraction(1, 10**3): ("ms", "millisecond", "milliseconds", "毫秒"),
    Fraction(1, 10**6): ("µs", "μs", "us", "microsecond", "microseconds", "微秒"),
    Fraction(1, 10**9): ("ns", "nanosecond", "nanoseconds", "纳秒"),
    Fraction(60): ("min", "minute", "minutes", "分钟"),
    Fraction(3600): ("h", "hour", "hours", "小时"),
}

SYMBOLS: Mapping[str, tuple[str, Fraction]] = {
    "": ("", Fraction(1)),
    "%": ("", Fraction(1, 100)),
    "％": ("", Fraction(1, 100)),
    **{name: ("", Fraction(1)) for name in ("×", "倍", "times")},
    **{name: ("B", Fraction(1)) for name in ("B", "byte", "bytes", "Byte", "Bytes", "字节")},
    **{f"{p}B": ("B", Fraction(n)) for p, n in (_DECIMAL | _BINARY).items()},
    **{name: ("FLOP", Fraction(1)) for name in ("FLOP", "FLOPs", "次浮点运算", "次浮点")},
    **{f"{p}{u}": ("FLOP", Fraction(n)) for p, n in _DECIMAL.items() for u in ("FLOP", "FLOPs")},
    **{f"{p}FLOPS": ("FLOP/s", Fraction(n)) for p, n in ({"": 1} | _DECIMAL).items()},
    **{name: ("s", factor) for factor, names in _SECONDS.items() for name in names},
    **{name: ("token", Fraction(1)) for name in ("token", "tokens", "词元")},
}
"""Every unit by its spelling: the unit of ``metrics.Unit`` and how many of it one is worth.

A GB is 10^9 bytes and a GiB 2^30; FLOPs are a count and FLOPS a rate.
"""

MULTIPLIERS: Mapping[str, int] = {
    "万亿": 10**12,
    "千万": 10**7,
    "百万": 10**6,
    "亿": 10**8,
    "万": 10**4,
    "千": 10**3,
    "trillion": 10**12,
    "billion": 10**9,
    "million": 10**6,
    "thousand": 10**3,
}
"""Words that multiply a number and stand before its unit, longer ones first."""

_PER = {
    "param": ("param", "params", "parameter", "个参数", "参数"),
    "token": ("token", "个词元", "个 token", "词元"),
    "s": ("s", "sec", "second", "秒"),
}
_PER_NAMES = {name: unit for unit, names in _PER.items() for name in names}
_PER_PATTERN = "|".join(sorted(map(re.escape, _PER_NAMES), key=len, reverse=True))
_AFTER = re.compile(rf"^(.*?)\s*(?:/\s*|\bper\s+|\ba\s+|每\s*)({_PER_PATTERN})$")
_BEFORE = re.compile(rf"^每\s*({_PER_PATTERN})$")


def _unit(before: str, after: str) -> tuple[str, Fraction]:
    """The unit, and how many of it one is worth, of the words around a number."""
    per = ""
    if match := _BEFORE.match(before):
        before, per = "", _PER_NAMES[match[1]]
    elif match := _AFTER.match(after):
        after, per = match[1], _PER_NAMES[match[2]]
    if before:
        raise QuantityError(f"“{before}” stands before the number")
    factor = Fraction(1)
    for word, worth in MULTIPLIERS.items():
        if after.startswith(word):
            after, factor = after[len(word) :].lstrip(), Fraction(worth)
            break
    if after.startswith("个") and after != "个":
        after = after[1:].lstrip()
    if after not in SYMBOLS:
        raise QuantityError(f"“{after}” is no unit that a metric can have")
    base, worth_of_one = SYMBOLS[after]
    return f"{base}/{per}" if per else base, factor * worth_of_one


# --- numbers -------------------------------------------------------------------------------------

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SPACE = r"(?:\s|\\[,;:!>\ ]|~)*"
_EXPONENT = r"(?:\^\{\s*[-−+]?\d+\s*\}|\^[-−]?\d|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
_TIMES = r"(?:×|\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])|·)"

NUMBER = re.compile(
    rf"""(?P<sign>[-−+](?=[\d\\]))?
    (?: \\[td]?frac \s* (?: \{{\s*(?P<n1>\d+)\s*\}}\s*\{{\s*(?P<d1>\d+)\s*\}} | (?P<n2>\d)\s*(?P<d2>\d) )
      | (?P<n3>\d+)/(?P<d3>\d+)
      | (?P<base>\d+) (?P<power>{_EXPONENT})
      | (?P<whole> \d{{1,3}} (?: (?:,|\{{,\}}) \d{{3}} )+ (?!\d) | \d+ )
        (?: \.(?P<decimals>\d+) )?
        (?: (?P<times> {_SPACE}{_TIMES}{_SPACE}10 ) (?P<exponent>{_EXPONENT})
          | (?P<e>[eE]) (?P<e_exponent>[-−+]?\d+) )?
    )""",
    re.VERBOSE,
)
"""One number in any of the forms that a card may print."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A printed number with its unit.

    ``value`` is in the unit named (bytes for ``1 KiB``), as is ``step``, the worth of the last digit
    printed: 0 for a fraction or a power, which print no last digit.
    ``start`` and ``end`` bound the number alone in ``text``.
    """

    text: str
    start: int
    end: int
    unit: str
    value: Fraction
    step: Fraction
    factor: Fraction

    def equals(self, recorded: Recorded) -> bool:
        """Whether ``recorded``, in the unit named, is printed right.

        It is rounded half up, away from zero. What is not zero must not be printed as zero.
        """
        exact = as_fraction(recorded)
        if self.step == 0 and isinstance(recorded, float):
            return _as_double(self.value) == recorded
        if self.step == 0:
            return self.value == exact
        if (exact == 0) != (self.value == 0):
            return False
        return round_half_up(exact / self.step) * self.step == self.value

    def is_exactly(self, recorded: int | float) -> bool:
        """Whether the number printed is ``recorded`` to the last digit, without rounding."""
        return self.value == as_fraction(recorded)

    def is_mere_rounding_of(self, recorded: int | float) -> bool:
        """Whether the number printed may be ``recorded``, only rounded: half up, up, down or coarsely.

        So are numbers that lie less than the last digit printed apart, the zeros of a whole number
        not counted (``16,000`` of 16,384), unless that is more than a twentieth (``2`` of 2.75).
        A fraction and a power print no last digit. Nearer than ``NOISE``, digits say nothing more.
        """
        if self.equals(recorded):
            return True
        exact = as_fraction(recorded)
        apart = abs(self.value - exact)
        if apart <= NOISE * abs(exact):
            return True
        near = apart * 20 <= abs(exact)
        return near and (self.step == 0 or apart < self._last_digit())

    def _last_digit(self) -> Fraction:
        """The worth of the last digit that says something: 16,000 may be rounded, 2.00 says that it is not."""
        step = self.step
        while self.value and step >= self.factor and (self.value / (10 * step)).denominator == 1:
            step *= 10
        return step

    def finest_step(self, error: float) -> Fraction:
        """The worth of the last digit that a standard ``error`` leaves to print, in the unit named.

        It is the place of the error's first digit in the unit printed: 0.1% for an error of 0.23%.
        """
        return Fraction(10) ** _first_place(as_fraction(error) / self.factor) * self.factor

    def reprint(self, recorded: Recorded) -> str:
        """The text with ``recorded`` in place of its number, in the same form and as precise.

        Raises ``QuantityError`` where that form cannot print it.
        """
        match = NUMBER.fullmatch(self.text, self.start, self.end)
        assert match is not None, "a quantity is made from such a match"
        wanted = as_fraction(recorded) / self.factor
        number = _write_exact(match, wanted) if self.step == 0 else _write_decimal(match, wanted)
        text = self.text[: self.start] + number + self.text[self.end :]
        if not read(text).equals(recorded):
            raise QuantityError(f"{recorded} cannot be printed in the form of “{self.text}”")
        return text


def _first_place(value: Fraction) -> int:
    """The power of ten of the first digit of ``value``, above zero."""
    exponent = 0
    while value >= 10:
        value, exponent = value / 10, exponent + 1
    while value < 1:
        value, exponent = value * 10, exponent - 1
    return exponent


def as_fraction(value: Recorded) -> Fraction:
    """The value as evidence writes it: the shortest decimal that names a double, taken exactly."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def round_half_up(value: Fraction) -> int:
    """The nearest whole number; halves go away from zero, as readers expect."""
    magnitude = floor(abs(value) + Fraction(1, 2))
    return magnitude if value >= 0 else -magnitude


def _as_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


@lru_cache(4096)
def read(text: str) -> Quantity:
    """The one number in ``text`` and its unit. Raises ``QuantityError`` where there is not just one."""
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"it has {len(text)} characters")
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        raise QuantityError("it prints no number")
    if len(numbers) > 1:
        raise QuantityError(f"it prints {len(numbers)} numbers")
    match = numbers[0]
    unit, factor = _unit(_plain(text[: match.start()]), _plain(text[match.end() :]))
    number, step = _value(match)
    return Quantity(text, *match.span(), unit, number * factor, step * factor, factor)


_TEX_SPACE = re.compile(r"\\[,;:!>\ ]|~|\\quad(?![a-zA-Z])")
_TEX_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mathsf|operatorname)\s*\{([^{}]*)\}")


def _plain(text: str) -> str:
    """Words around a number without the TeX and the emphasis that they are wrapped in."""
    text = _TEX_TEXT.sub(r"\1", _TEX_SPACE.sub(" ", text))
    text = text.replace(r"\%", "%").replace(r"\times", "×").replace(r"\mu", "µ")
    return " ".join(re.sub(r"[${}*_]", "", text).split())


def _value(match: re.Match[str]) -> tuple[Fraction, Fraction]:
    """The number matched and the worth of its last digit."""
    sign = -1 if match["sign"] in ("-", "−") else 1
    if match["base"]:
        base, exponent = int(match["base"]), _exponent(match["power"])
        if base == 0:
            raise QuantityError("a power of zero is no measurement")
        return sign * Fraction(base) ** exponent, Fraction(0)
    if match["whole"] is None:
        numerator, denominator = _fraction(match)
        if denominator == 0:
            raise QuantityError("it divides by zero")
        return Fraction(sign * numerator, denominator), Fraction(0)
    digits = re.sub(r"[,{}]", "", match["whole"]) + (match["decimals"] or "")
    exponent = _exponent(match["exponent"] or match["e_exponent"] or "0")
    step = Fraction(10) ** (exponent - len(match["decimals"] or ""))
    return sign * int(digits) * step, step


def _fraction(match: re.Match[str]) -> tuple[int, int]:
    parts = [int(match[name]) for name in ("n1", "d1", "n2", "d2", "n3", "d3") if match[name]]
    return parts[0], parts[1]


def _exponent(text: str) -> int:
    value = int(re.sub(r"[\^{}\s]", "", text).replace("−", "-").translate(_SUPERSCRIPTS))
    if abs(value) > MAX_EXPONENT:
        raise QuantityError(f"an exponent of {value} is beyond every number here")
    return value


# --- writing -------------------------------------------------------------------------------------


def _write_decimal(match: re.Match[str], wanted: Fraction) -> str:
    decimals = len(match["decimals"] or "")
    if match["times"]:
        exponent = _scale(wanted, decimals)
        tail = match["times"] + _write_exponent(match["exponent"], exponent)
    elif match["e"]:
        exponent = _scale(wanted, decimals)
        tail = match["e"] + _write_e_exponent(match["e_exponent"], exponent)
    else:
        exponent, tail = 0, ""
    scaled = round_half_up(abs(wanted) * Fraction(10) ** (decimals - exponent))
    digits = str(scaled).rjust(decimals + 1, "0")
    whole, rest = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
    whole = _group(whole, match["whole"])
    return _write_sign(match, wanted) + whole + (f".{rest}" if rest else "") + tail


def _scale(wanted: Fraction, decimals: int) -> int:
    """The power of ten that leaves one digit before the point, after rounding."""
    if wanted == 0:
        return 0
    exponent = _first_place(abs(wanted))
    magnitude = abs(wanted) / Fraction(10) ** exponent
    if round_half_up(magnitude * 10**decimals) == 10 ** (decimals + 1):
        exponent += 1
    return exponent


def _group(whole: str, like: str) -> str:
    """``whole`` with the thousands separators of ``like``, if it has any or was too short for them."""
    separator = "{,}" if "{,}" in like else ","
    if "," not in like and len(like) > 3:
        return whole
    head = len(whole) % 3 or 3
    return separator.join([whole[:head], *re.findall(r"\d{3}", whole[head:])])


def _write_sign(match: re.Match[str], wanted: Fraction) -> str:
    if wanted < 0:
        return match["sign"] if match["sign"] in ("-", "−") else "−"
    return "+" if match["sign"] == "+" else ""


def _write_exponent(like: str, exponent: int) -> str:
    if not like.startswith("^"):
        return str(exponent).translate(RAISED)
    return f"^{{{exponent}}}" if "{" in like or len(str(exponent)) > 1 else f"^{exponent}"


def _write_e_exponent(like: str, exponent: int) -> str:
    digits = like.lstrip("-−+")
    sign = "-" if exponent < 0 else "+" if like.startswith("+") else ""
    return sign + str(abs(exponent)).rjust(len(digits) if digits.startswith("0") else 1, "0")


def _write_exact(match: re.Match[str], wanted: Fraction) -> str:
    """``wanted`` as a fraction or a power like the one matched, where there is a plain one."""
    sign, magnitude = _write_sign(match, wanted), abs(wanted)
    if match["base"]:
        base = int(match["base"])
        exponent = _logarithm(magnitude, base)
        if exponent is None:
            raise QuantityError(f"the value is no power of {base}")
        return sign + match["base"] + _write_exponent(match["power"], exponent)
    simple = magnitude.limit_denominator(1000)
    if _as_double(simple) != _as_double(magnitude):
        raise QuantityError("the value is no simple fraction")
    if match["n3"]:
        return f"{sign}{simple.numerator}/{simple.denominator}"
    command = match[0][len(match["sign"] or "") :].split("frac")[0] + "frac"
    return f"{sign}{command}{{{simple.numerator}}}{{{simple.denominator}}}"


def _logarithm(magnitude: Fraction, base: int) -> int | None:
    """The whole exponent to which ``base`` gives ``magnitude``, as doubles see it."""
    if base < 2 or magnitude == 0:
        return None
    exponent, power, wanted = 0, Fraction(1), _as_double(magnitude)
    step = 1 if magnitude > 1 else -1
    while abs(exponent) <= MAX_EXPONENT:
        if _as_double(power) == wanted:
            return exponent
        exponent, power = exponent + step, power * Fraction(base) ** step
    return None

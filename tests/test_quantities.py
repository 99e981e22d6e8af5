"""Numbers as cards print them, against hand-made cases and against ``decimal``."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from generator.evidence.quantities import QuantityError, read

GIB = 1073741824

READ = [
    # text, unit, value, worth of the last digit
    ("33.3%", "", "0.333", "0.001"),
    (r"$33.3\%$", "", "0.333", "0.001"),
    ("33.3 %", "", "0.333", "0.001"),
    ("2.1×", "", "2.1", "0.1"),
    (r"$2.1\times$", "", "2.1", "0.1"),
    ("1.00 倍", "", "1", "0.01"),
    ("**5**", "", "5", "1"),
    ("-0.5%", "", "-0.005", "0.001"),
    ("−3", "", "-3", "1"),
    ("4,096", "", "4096", "1"),
    ("$4{,}096$", "", "4096", "1"),
    ("1,234,567 B", "B", "1234567", "1"),
    ("16 B", "B", "16", "1"),
    ("16B", "B", "16", "1"),
    ("16 bytes", "B", "16", "1"),
    ("16 字节", "B", "16", "1"),
    ("1.5 KB", "B", "1500", "100"),
    ("1 KiB", "B", "1024", "1024"),
    ("3 MB", "B", "3000000", "1000000"),
    ("3 MiB", "B", "3145728", "1048576"),
    ("3 GB", "B", "3000000000", "1000000000"),
    (r"$3\,\text{GiB}$", "B", str(3 * GIB), str(GIB)),
    ("2 TB", "B", "2000000000000", "1000000000000"),
    ("3.2 万字节", "B", "32000", "1000"),
    ("12 字节/参数", "B/param", "12", "1"),
    ("每参数 12 字节", "B/param", "12", "1"),
    ("每个参数 12 字节", "B/param", "12", "1"),
    ("12 B/param", "B/param", "12", "1"),
    ("12 bytes/parameter", "B/param", "12", "1"),
    ("12 bytes a parameter", "B/param", "12", "1"),
    ("12 bytes per parameter", "B/param", "12", "1"),
    ("34 字节/词元", "B/token", "34", "1"),
    ("1.5 GB/s", "B/s", "1500000000", "100000000"),
    ("7 FLOPs", "FLOP", "7", "1"),
    ("7.5 GFLOPs", "FLOP", "7500000000", "100000000"),
    ("1.2 万亿次浮点运算", "FLOP", "1200000000000", "100000000000"),
    ("312 TFLOPS", "FLOP/s", "312000000000000", "1000000000000"),
    ("312 TFLOP/s", "FLOP/s", "312000000000000", "1000000000000"),
    ("3 s", "s", "3", "1"),
    ("3 秒", "s", "3", "1"),
    ("2.5 ms", "s", "0.0025", "0.0001"),
    ("2.5 毫秒", "s", "0.0025", "0.0001"),
    ("8 µs", "s", "0.000008", "0.000001"),
    (r"$8\,\mu\mathrm{s}$", "s", "0.000008", "0.000001"),
    ("2 min", "s", "120", "60"),
    ("4,096 tokens", "token", "4096", "1"),
    ("4,096 词元", "token", "4096", "1"),
    ("4,096 个词元", "token", "4096", "1"),
    ("4,096 个 token", "token", "4096", "1"),
    ("67.4 亿", "", "6740000000", "10000000"),
    ("6.74 billion", "", "6740000000", "10000000"),
    ("1e-6", "", "0.000001", "0.000001"),
    ("1.20E3", "", "1200", "10"),
    (r"$1.2\times10^{-6}$", "", "0.0000012", "0.0000001"),
    (r"$1.2 \times 10^{-6}$", "", "0.0000012", "0.0000001"),
    (r"$1.2\cdot10^3$", "", "1200", "100"),
    ("1.2×10⁻⁶", "", "0.0000012", "0.0000001"),
    ("$10^{-6}$", "", "0.000001", "0"),
    ("10⁻⁶", "", "0.000001", "0"),
    ("$2^{20}$ B", "B", "1048576", "0"),
    ("1/3", "", "1/3", "0"),
    (r"$\frac{1}{3}$", "", "1/3", "0"),
    (r"$\tfrac13$", "", "1/3", "0"),
]


@pytest.mark.parametrize(("text", "unit", "value", "step"), READ)
def test_every_printed_form_is_read(text: str, unit: str, value: str, step: str) -> None:
    """Each form that a card may print means the unit, value and precision worked out by hand."""
    quantity = read(text)
    assert quantity.unit == unit
    assert quantity.value == Fraction(value)
    assert quantity.step == Fraction(step)


UNITS = {
    # how many of the unit, by the powers of ten and two that its name stands for
    "B": {"kB": "1e3", "KB": "1e3", "MB": "1e6", "GB": "1e9", "TB": "1e12", "PB": "1e15",
          "EB": "1e18", "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
          "byte": 1, "Bytes": 1, "千字节": "1e3", "百万字节": "1e6", "千万字节": "1e7",
          "亿字节": "1e8", "万亿字节": "1e12"},
    "FLOP": {"FLOP": 1, "KFLOPs": "1e3", "MFLOPs": "1e6", "GFLOP": "1e9", "TFLOPs": "1e12",
             "PFLOPs": "1e15", "EFLOPs": "1e18", "次浮点": 1, "万次浮点运算": "1e4"},
    "FLOP/s": {"FLOPS": 1, "MFLOPS": "1e6", "PFLOPS": "1e15", "GFLOPs/s": "1e9",
               "TFLOPs per second": "1e12"},
    "s": {"sec": 1, "seconds": 1, "ms": "1e-3", "μs": "1e-6", "us": "1e-6", "微秒": "1e-6",
          "ns": "1e-9", "纳秒": "1e-9", "minutes": 60, "分钟": 60, "h": 3600, "小时": 3600},
    "token": {"token": 1, "thousand tokens": "1e3", "万词元": "1e4"},
    "": {"thousand": "1e3", "million": "1e6", "billion": "1e9", "trillion": "1e12", "万": "1e4",
         "亿": "1e8", "times": 1, "％": "1e-2"},
    "B/s": {"MB/s": "1e6", "GiB per second": 2**30, "GB/秒": "1e9"},
    "B/param": {"GB a parameter": "1e9", "字节每参数": 1, "B/params": 1, "字节/个参数": 1},
    "B/token": {"bytes per token": 1, "字节/个词元": 1, "KB/token": "1e3"},
    "token/s": {"tokens/s": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "name", "worth"),
    [(unit, name, worth) for unit, names in UNITS.items() for name, worth in names.items()],
)
def test_every_unit_has_its_worth(unit: str, name: str, worth: str | int) -> None:
    """Three of each unit are three times its worth, by the metric and the binary prefixes."""
    quantity = read(f"3 {name}")
    assert quantity.unit == unit
    assert quantity.value == 3 * Fraction(worth)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("逐位相等", "no number"),
        ("", "no number"),
        ("30–40%", "2 numbers"),
        ("30-40%", "2 numbers"),
        ("12 of 16", "2 numbers"),
        ("1,2345", "2 numbers"),
        ("5 层", "层"),
        ("5 个", "个"),
        ("16 gb", "gb"),
        ("16 XB", "XB"),
        ("about 5", "about"),
        ("≤ 5", "≤"),
        ("5 or so", "or so"),
        ("1/0", "zero"),
        ("0^{-1}", "zero"),
        ("9" * 5000, "5000 characters"),
        ("1e999999999999", "beyond"),
        ("$10^{9999999}$", "beyond"),
    ],
)
def test_what_is_not_one_number_is_refused(text: str, said: str) -> None:
    """Text with no number, several, or words beside it is refused with its reason."""
    with pytest.raises(QuantityError, match=said):
        read(text)


@pytest.mark.parametrize(
    ("text", "recorded", "holds"),
    [
        ("33.3%", 1 / 3, True),
        ("33.4%", 1 / 3, False),
        ("33%", 1 / 3, True),
        ("0.333×", 1 / 3, True),
        ("0.333 倍", 1 / 3, True),
        ("1/3", 1 / 3, True),
        ("1/3", 0.3333, False),
        ("0.13", 0.125, True),  # half up
        ("0.12", 0.125, False),
        (
            "2.68",
            2.675,
            True,
        ),  # in binary 2.675 is a little less: the decimal that is recorded counts
        ("-0.13", -0.125, True),
        ("1.0e-6", 9.96e-7, True),
        ("1 GB", 10**9, True),
        ("1 GiB", 10**9, True),  # 0.93 of one, and no decimal is printed
        ("1.0 GiB", 10**9, False),
        ("1 GiB", GIB, True),
        ("1.1 GB", GIB, True),
        ("1.07 GB", GIB, True),
        ("16 B", 16, True),
        ("16 B", 15, False),
        ("0", 0, True),
        ("0.0 GiB", 3000, False),  # what is not zero is not printed as zero
        ("0%", 0.004, False),
        ("$2^{60}$", 2**60, True),
        ("$2^{60}$", 2**60 + 1, False),
        ("$2^{-24}$", 2.0**-24, True),
        ("$10^{-6}$", 1e-6, True),
        ("$10^{-6}$", 1.1e-6, False),
    ],
)
def test_a_number_equals_a_metric_at_the_precision_printed(
    text: str, recorded: float, holds: bool
) -> None:
    """Hand-made cases of rounding, of units and of forms that leave no room to round."""
    assert read(text).equals(recorded) is holds


numbers = st.one_of(
    st.integers(-(10**15), 10**15),
    st.floats(-1e12, 1e12, allow_nan=False, allow_subnormal=False),
)


def _printed(value: float, decimals: int) -> Decimal:
    """``value`` to so many decimals, by the standard library's decimal arithmetic."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(repr(value))
        return exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)


@given(numbers, st.integers(0, 8), st.sampled_from(["", "B", "s", "tokens", "FLOPs", "×"]))
def test_the_rounding_is_that_of_decimal(value: float, decimals: int, unit: str) -> None:
    """What ``decimal`` prints equals the value, and its neighbours in the last digit do not."""
    printed = _printed(value, decimals)
    assume(printed != 0 or value == 0)
    last = Decimal(1).scaleb(-decimals)
    assert read(f"{printed:f} {unit}").equals(value)
    assert not read(f"{printed + last:f} {unit}").equals(value)
    assert not read(f"{printed - last:f} {unit}").equals(value)


FORMS = [
    "{}", "{} B", "{}%", r"${}\%$", "{} 倍", "{} GiB", "{} 万", r"${}\,\text{{MB}}$", "每参数 {} 字节",
]  # fmt: skip


@given(numbers, numbers, st.integers(0, 8), st.sampled_from(FORMS))
def test_a_reprinted_number_is_right_and_keeps_its_form(
    before: float, after: float, decimals: int, form: str
) -> None:
    """Whatever stood there, the new text prints the new value, as precisely, in the same form."""
    old = read(form.format(f"{_printed(before, decimals):f}"))
    try:
        new = old.reprint(after)
    except QuantityError:  # it would print as zero
        assert 2 * abs(Fraction(repr(after))) < old.step
        return
    number = new[old.start : len(new) - len(old.text) + old.end]
    assert form.format(number) == new
    assert len(number.partition(".")[2]) == decimals
    digits = Decimal(number.replace(",", "").replace("−", "-"))
    assert Fraction(digits) * old.factor == read(new).value
    assert abs(read(new).value - Fraction(repr(after))) <= old.step / 2


@given(
    st.floats(1e-300, 1e300, allow_nan=False),
    st.integers(0, 6),
    st.sampled_from(["{}e{}", r"${}\times10^{{{}}}$", r"{}\cdot 10^{{{}}}"]),
)
def test_a_reprinted_power_of_ten_is_right(value: float, decimals: int, form: str) -> None:
    """Scientific notation keeps its digits, with one before the point, as ``%e`` has them."""
    old = form.format(f"{1:.{decimals}f}", -2)
    with localcontext() as context:
        context.rounding = ROUND_HALF_UP
        mantissa, exponent = f"{Decimal(repr(value)):.{decimals}e}".split("e")
    assert read(old).reprint(value) == form.format(mantissa, int(exponent))


@pytest.mark.parametrize(
    ("text", "recorded", "new"),
    [
        ("33.4%", 1 / 3, "33.3%"),
        (r"$33.4\%$", 1 / 3, r"$33.3\%$"),
        ("9,999 tokens", 1234567, "1,234,567 tokens"),
        ("$9{,}999$", 1234567, "$1{,}234{,}567$"),
        ("9999 B", 1234567, "1234567 B"),
        ("999 B", 1234567, "1,234,567 B"),
        ("3.2 万字节", 41_000, "4.1 万字节"),
        ("1.00e-06", 3.14159e-9, "3.14e-09"),
        ("1.2×10⁻⁶", 3.14e-12, "1.2×10⁻⁶".replace("1.2", "3.1").replace("⁻⁶", "⁻¹²")),
        ("1.2×10^3", 3.14e-12, "3.1×10^{-12}"),
        ("9.9e-7", 9.96e-7, "1.0e-6"),
        ("5", -7, "−7"),
        ("-5", -7, "-7"),
        ("+5%", 0.07, "+7%"),
        ("-5", 0, "0"),
        ("1.00e-06", 0, "0.00e00"),
        ("1/3", 0.25, "1/4"),
        (r"$\tfrac13$", 2 / 7, r"$\tfrac{2}{7}$"),
        ("$2^{-24}$", 2.0**-14, "$2^{-14}$"),
        ("$2^3$", 2**12, "$2^{12}$"),
        ("$2^3$", 2**5, "$2^5$"),
        ("2.0e3", 1.0, "1.0e0"),
        ("2.0e3", 10, "1.0e1"),
    ],
)
def test_reprinting_keeps_separators_signs_and_exponents(
    text: str, recorded: float, new: str
) -> None:
    """Hand-made cases: only digits change, and an exponent where it must."""
    assert read(text).reprint(recorded) == new


@pytest.mark.parametrize(
    ("text", "recorded"), [("0.5 GiB", 3), ("1/3", 0.123456), ("$2^{-24}$", 0.3), ("$2^{3}$", 0)]
)
def test_what_a_form_cannot_print_is_refused(text: str, recorded: float) -> None:
    """A fraction, a power or a unit that is far too large does not pretend."""
    with pytest.raises(QuantityError):
        read(text).reprint(recorded)

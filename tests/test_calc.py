"""What ``calc:`` expressions are worth: against Python's own operators, fractions and decimals."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from generator.evidence.calc import NEAR, Line, Put, Value, evaluate, prints, show, substituted
from generator.evidence.expressions import CalcError, Name, Scheme, parse
from generator.evidence.quantities import read

ROOT = Path(__file__).parent.parent

PARAMETERS, STATES = Name("model", key="parameters"), Name("claim", "memory", "states", "cpu")
DEVICES, MEMORY = Name("devices"), Name("device", key="memory")
BANDWIDTH, LOSS = Name("device", key="memory_bandwidth"), Name("claim", "train", "loss", "cpu")
VALUES = {
    PARAMETERS: Value.of(8030261248, "param"),
    STATES: Value.of(16, "B/param"),
    DEVICES: Value.of(8, ""),
    MEMORY: Value.of(Fraction(80 * 10**9), "B"),
    BANDWIDTH: Value.of(Fraction("3.35e12"), "B/s"),
    LOSS: Value.of(-0.1234567, ""),
}


# --- units and numbers by hand -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("{model/parameters} × {claim:memory/states}", 8030261248 * 16, "B"),
        ("{model/parameters} × {claim:memory/states} / {devices}", 8030261248 * 2, "B"),
        ("{model/parameters} * (2 B/param + 14 B/param / {devices})", 8030261248 * 3.75, "B"),
        ("ceil({model/parameters} × {claim:memory/states} / {device/memory})", 2, ""),
        ("{device/memory} / {device/memory_bandwidth}", 8e10 / 3.35e12, "s"),
        ("6 FLOP/param/token × {model/parameters}", 6 * 8030261248, "FLOP"),
        ("max({device/memory}, 96 GB) − 1 GiB", 96 * 10**9 - 2**30, "B"),
        ("sqrt({device/memory} × {device/memory})", 8e10, "B"),
        ("({device/memory}^2)^0.5", 8e10, "B"),
        ("(1 / (2 s))^−2", 4, "s**2"),
        ("−{device/memory}", -8e10, "B"),
        ("(2 + 3) KB", 5000, "B"), ("sqrt(4) ms", 0.002, "s"), ("5 min + 3 s", 303, "s"),
        ("7 ms", 0.007, "s"), ("0.1 ms", 0.0001, "s"), ("9 ns", 9e-9, "s"), ("(9) ns", 9e-9, "s"),
        ("1 GiB/ms", 2.0**30 * 1000, "B/s"), ("(36) KB/h", 10, "B/s"), ("36 KB/h", 10, "B/s"),
        ("8 TFLOPS × 2 s", 16e12, "FLOP"),
        ("2 B / {devices}", 0.25, "B"), ("2 B / (1 B)", 2, ""), ("33 %", 0.33, ""), ("1 h", 3600, "s"),
        ("2 token × 3", 6, ""), ("0 B + 0 B", 0, "B"),
        ("10^12", 1e12, ""), ("10^−6", 1e-6, ""), ("2^64", 2.0**64, ""), ("2^−24", 2.0**-24, ""),
        ("0^0", 1, ""), ("0^2", 0, ""), ("0^0.3", 0, ""), ("(−2)^3", -8, ""), ("9^0.5", 3, ""),
        ("0 × {device/memory}", 0, "B"), ("0 / {devices}", 0, ""), ("0 KB", 0, "B"),
    ],
)  # fmt: skip
def test_values_by_hand(text: str, number: float, unit: str) -> None:
    """Numbers come in their base units, and units multiply out."""
    assert evaluate(parse(text), VALUES) == Value(float(number), unit)


# --- against Python's operators ------------------------------------------------------------------

Sides = tuple[str, Callable[[], float]]
"""A text, and the same tree of Python's own operators."""


def _power(base: float, exponent: int) -> float:
    """The base multiplied by itself as often as that; exact for the small whole numbers drawn here."""
    return math.prod([base] * exponent, start=1.0)


leaves: st.SearchStrategy[Sides] = st.one_of(
    st.floats(1e-9, 1e9).map(lambda x: (repr(x), lambda: x)),
    st.integers(0, 10**7).map(lambda n: (str(n), lambda: float(n))),
    st.tuples(st.integers(0, 20), st.integers(0, 8)).map(
        lambda n: (f"{n[0]}^{n[1]}", lambda: _power(float(n[0]), n[1]))
    ),
)

BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "−": lambda a, b: a - b,
    "×": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "min": min,
    "max": max,
}
UNARY: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "ln": math.log,
    "log2": math.log2,
    "exp": math.exp,
    "ceil": lambda a: float(math.ceil(a)),
    "floor": lambda a: float(math.floor(a)),
    "−": lambda a: -a,
}


def _binary(name: str, a: Sides, b: Sides) -> Sides:
    text = f"{name}({a[0]}, {b[0]})" if name in ("min", "max") else f"({a[0]} {name} {b[0]})"
    return text, lambda: BINARY[name](a[1](), b[1]())


def _unary(name: str, a: Sides) -> Sides:
    return f"({name}({a[0]}))", lambda: UNARY[name](a[1]())


def _grown(children: st.SearchStrategy[Sides]) -> st.SearchStrategy[Sides]:
    return st.one_of(
        st.builds(_binary, st.sampled_from(sorted(BINARY)), children, children),
        st.builds(_unary, st.sampled_from(sorted(UNARY)), children),
    )


@given(st.recursive(leaves, _grown, max_leaves=20))
def test_any_tree_is_worth_what_python_makes_of_it(sides: Sides) -> None:
    """The doubles are equal to the last bit; an infinity, a zero by rounding or a fault of Python's gives none."""
    text, by_python = sides
    try:
        value = evaluate(parse(text), {})
    except CalcError as error:
        try:
            number = by_python()
        except (ArithmeticError, ValueError):
            return
        # What Python carries on with, and no card should: infinities, lost zeros, a ceil of mere rounding.
        assert "beyond every double" in error.message or "but for rounding" in error.message
        assert math.isfinite(number) or "beyond" in error.message
        return
    assert value == Value(by_python(), "")


@given(st.decimals("0.001", "1000", places=3), st.integers(-300, 300))
def test_whole_powers_are_near_the_exact_ones(base: Decimal, exponent: int) -> None:
    """A power by repeated squaring is off by no more than a rounding for each factor."""
    exact = Fraction(base) ** exponent
    assume(Fraction(10) ** -290 < exact < Fraction(10) ** 290)
    found = evaluate(parse(f"{base}^{exponent}"), {}).number
    assert abs(Fraction(found) / exact - 1) < Fraction(2 * abs(exponent) + 2, 2**52)


@given(st.decimals("0.001", "1000", places=3), st.decimals("-20", "20", places=2))
def test_broken_powers_are_near_those_of_decimal(base: Decimal, exponent: Decimal) -> None:
    """``exp(b × ln(a))`` agrees with fifty digits to a few dozen roundings."""
    with localcontext() as context:
        context.prec = 50
        exact = base**exponent
        found = Decimal(evaluate(parse(f"{base}^{exponent}"), {}).number)
        assert abs(found / exact - 1) < Decimal("1e-13")


@given(st.floats(0, 1e300))
def test_half_a_power_is_the_root(number: float) -> None:
    """``x^0.5`` is the double that ``sqrt`` gives, and not one by logarithms."""
    name = Name("batch")
    values = {name: Value(number)}
    assert evaluate(parse("{batch}^0.5"), values) == evaluate(parse("sqrt({batch})"), values)
    assert evaluate(parse("{batch}^0.5"), values).number == math.sqrt(number)


@given(st.integers(-(10**6), 10**6), st.floats(-1, 1))
def test_near_whole_numbers_are_not_guessed(whole: int, off: float) -> None:
    """``ceil`` and ``floor`` take whole numbers and what lies clear of them; what rounding may have made is refused."""
    number = whole * (1 + off * 4 * NEAR)
    values = {Name("batch"): Value(number)}
    for function, expected in (("ceil", math.ceil(number)), ("floor", math.floor(number))):
        try:
            assert evaluate(parse(f"{function}({{batch}})"), values).number == expected
        except CalcError:
            apart = abs(Fraction(number) - whole)
            assert 0 < apart <= Fraction(2 * NEAR) * abs(whole)
    values = {Name("batch"): Value(whole + 0.5)}
    assert evaluate(parse("ceil({batch})"), values).number == whole + 1


# --- what has no value ---------------------------------------------------------------------------

REFUSED = [
    # text, column, words of the message, words of the hint
    ("1 B + 1 s", 5, "`+` joins B with s", "same unit"),
    ("1 − {device/memory}", 3, "`−` joins a plain number with B", "`0 B`"),
    ("{model/parameters} − {devices}", 20, "`−` joins param with a plain number", "same unit"),
    ("2 × ({device/memory} + {device/memory_bandwidth})", 22, "`+` joins B with B/s", "same unit"),
    ("max(0, {device/memory})", 1, "`max` joins a plain number with B", "`0 B`"),
    ("2 × min(1 B, 2 B, 1 FLOP)", 5, "`min` joins B with FLOP", "same unit"),
    ("1 / 0", 3, "divides by zero", "behind the `/`"),
    ("1 + 2 / (3 − 3)", 7, "divides by zero", "behind the `/`"),
    ("0 / 0", 3, "divides by zero", "behind the `/`"),
    ("0^−1", 2, "divides by zero", "power of zero"),
    ("0^−0.3", 2, "divides by zero", "power of zero"),
    ("9^9^9^9", 4, "an exponent of 3.8742e+08", "1,000,000"),
    ("2^−1e7", 2, "an exponent of -1e+07", "1,000,000"),
    ("9^9^9", 2, "an exponent of 3.8742e+08", "1,000,000"),
    ("10^400", 3, "beyond every double", "meant otherwise"),
    ("10^−400", 3, "beyond every double", "meant otherwise"),
    ("0.1^400", 4, "beyond every double", "meant otherwise"),
    ("1e200 × 1e200", 7, "beyond every double", "meant otherwise"),
    ("1e-200 × 1e-200", 8, "beyond every double", "meant otherwise"),
    ("1e308 + 1e308", 7, "beyond every double", "meant otherwise"),
    ("−1e308 − 1e308", 8, "beyond every double", "meant otherwise"),
    ("1e200 / 1e-200", 7, "beyond every double", "meant otherwise"),
    ("exp(1000)", 1, "beyond every double", "meant otherwise"),
    ("exp(−1000)", 1, "beyond every double", "meant otherwise"),
    ("2^1e5", 2, "beyond every double", "meant otherwise"),
    ("1.5^12345.5", 4, "beyond every double", "meant otherwise"),
    ("(1e300) EB", 9, "beyond every double", "meant otherwise"),
    ("2^(1 B)", 2, "the exponent is in B", "plain number"),
    ("10^9 B", 3, "the exponent is in B", "`(10^9) B`"),
    ("{device/memory}^10", 16, "raises B to 10", "at most 9"),
    ("{device/memory}^0.3", 16, "raises B to a broken exponent, 0.3", "Divide by the unit"),
    ("(−2)^0.3", 5, "a negative number to a broken exponent", "no real value"),
    ("sqrt(−1)", 1, "square root of a negative", "no real value"),
    ("(−1)^0.5", 5, "square root of a negative", "no real value"),
    ("sqrt({device/memory})", 1, "square root of B", "unit"),
    ("{device/memory}^0.5", 16, "square root of B", "unit"),
    ("sqrt({device/memory_bandwidth}^2 × 1 s)", 1, "square root of B²/s", "unit"),
    ("ln(0)", 1, "`ln` takes a number above zero, not 0", "parentheses"),
    ("log2(−2)", 1, "`log2` takes a number above zero, not −2", "parentheses"),
    ("ln({device/memory})", 1, "`ln` takes a plain number, and this is in B", "Divide"),
    ("log2(1 B)", 1, "`log2` takes a plain number", "Divide"),
    ("exp(1 s)", 1, "`exp` takes a plain number, and this is in s", "Divide"),
    ("ceil(1.5 GB)", 1, "`ceil` takes a plain number, and this is in B", "Divide"),
    ("floor({model/parameters})", 1, "`floor` takes a plain number, and this is in param", "Divide"),
    ("ceil(7 × 0.1 × 10)", 1, "7.000000000000001: 7, but for rounding", "3 / 10"),
    ("floor(0.7 × 3 × 10 − 18)", 1, "but for rounding", "3 / 10"),
    ("(2 B) B", 7, "in B already", "away"),
    ("({device/memory} / (1 s)) GB/s", 27, "in B/s already", "away"),
    ("2 × {sequence}", 5, "`{sequence}` has no value", "recorded"),
    ("{claim:memory/states@h200}", 1, "`{claim:memory/states@h200}` has no value", "recorded"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "message", "hint"), REFUSED)
def test_what_has_no_value_is_told(text: str, column: int, message: str, hint: str) -> None:
    """What mixes units, divides by zero, runs away or has no real value says so where it happens."""
    with pytest.raises(CalcError) as caught:
        evaluate(parse(text), VALUES)
    assert caught.value.column == column
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**400, Fraction(10) ** 400])
def test_a_value_must_be_finite(number: float | int | Fraction) -> None:
    """What no double holds is refused where it is named, as is what is no number."""
    values = {DEVICES: Value.of(number, "")}
    with pytest.raises(CalcError, match=r"is (-?inf|nan)"):
        evaluate(parse("min(2, {devices})"), values)
    with pytest.raises(CalcError, match=r"is (-?inf|nan)"):
        substituted(parse("min(2, {devices})"), values)


# --- what a card prints --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "number", "unit", "same"),
    [
        ("128 GB", 128484179968.0, "B", True), ("128.5 GB", 128484179968.0, "B", True),
        ("128.4 GB", 128484179968.0, "B", False), ("120 GiB", 128484179968.0, "B", True),
        ("129 GB", 128484179968.0, "B", False), ("128", 128484179968.0, "B", False),
        ("128 GB", 128484179968.0, "", False), ("128 GB/s", 128484179968.0, "B", False),
        ("16 B/param", 16.0, "B/param", True), ("16 字节/参数", 16.0, "B/param", True),
        ("16 B", 16.0, "B/param", False), ("34 B/token", 34.0, "B", True), ("34 B", 34.0, "B", True),
        ("4,096 tokens", 4096.0, "", True), ("4,096", 4096.0, "", True), ("8", 8.0, "", True),
        ("8.03 billion", 8030261248.0, "param", True), ("80.3 亿", 8030261248.0, "param", True),
        ("8.04 billion", 8030261248.0, "param", False), ("8 B", 8.0, "param", False),
        ("8 s", 8.0, "param", False), ("20", 20.0, "1/param", False),
        ("20 tokens per parameter", 20.0, "1/param", True), ("23.9 ms", 8e10 / 3.35e12, "s", True),
        ("23.8 ms", 8e10 / 3.35e12, "s", False), ("989 TFLOPS", 989.4e12, "FLOP/s", True),
        ("989 TFLOPs", 989.4e12, "FLOP/s", False), ("33.3%", 1 / 3, "", True), ("33.4%", 1 / 3, "", False),
        ("0.3", 0.1 + 0.2, "", True), ("0.13", 0.125, "", True), ("0.12", 0.125, "", False),
        ("2.68", 2.675, "", True), ("2.67", 2.675, "", False), ("−2.68", -2.675, "", True),
        ("0", 1e-9, "", False), ("0", -0.0, "", True), ("1/3", 1 / 3, "", True), ("2×", 2.0, "", True),
    ],
)  # fmt: skip
def test_what_is_printed_agrees_with_the_value(
    printed: str, number: float, unit: str, same: bool
) -> None:
    """The unit must agree, and the number to the last digit printed, half up on the shortest decimal."""
    assert prints(read(printed), Value(number, unit)) is same


@given(st.floats(1e-6, 1e12), st.integers(0, 6))
def test_printing_rounds_half_up(number: float, places: int) -> None:
    """What ``decimal`` makes of the double's shortest decimal is printed right; the next number is not."""
    step = Decimal(1).scaleb(-places)
    with localcontext() as context:
        context.prec = 60
        rounded = Decimal(repr(number)).quantize(step, ROUND_HALF_UP)
        assume(rounded)
        assert prints(read(f"{rounded:f} B"), Value(number, "B"))
        assert not prints(read(f"{rounded + step:f} B"), Value(number, "B"))


# --- what a reader sees --------------------------------------------------------------------------


def as_text(line: Line) -> str:
    """A line in plain characters."""
    return "".join(map(str, line))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{model/parameters}*{claim:memory/states} / {devices}", "8,030,261,248 param×16 B/param / 8"),
        ("{device/memory} - 2 GB", "80 GB − 2 GB"),
        ("{device/memory}/{device/memory_bandwidth}", "80 GB/(3.35 TB/s)"),
        ("{devices} / {device/memory_bandwidth}", "8 / (3.35 TB/s)"),
        ("{device/memory_bandwidth} × 1e-6", "3.35 TB/s × 1e-6"),
        ("2 - 1e-6 - 1", "2 − 1e-6 − 1"),
        ("{device/memory}^2", "(80 GB)^2"), ("{devices} ^ 2", "8 ^ 2"),
        ("2 − {claim:train/loss}", "2 − (−0.123457)"), ("{claim:train/loss}^2", "(−0.123457)^2"),
        ("  max({devices}, 3)\n", "max(8, 3)"), ("2 × 3", "2 × 3"),
    ],
)  # fmt: skip
def test_values_stand_in_for_names(text: str, shown: str) -> None:
    """The line stays as it is written, with values for names, and in parentheses where they would be misread."""
    assert as_text(substituted(parse(text), VALUES)) == shown


def test_the_line_with_values_knows_whose_each_is() -> None:
    """What stands for a name can be linked to its proof, every time it stands there."""
    devices, batch = Name("devices"), Name("batch")
    values = {devices: Value(8), batch: Value(4)}
    line = substituted(parse(" {devices} × ({batch} − {devices}) "), values)
    assert line == (Put(devices, "8"), " × (", Put(batch, "4"), " − ", Put(devices, "8"), ")")


@pytest.mark.parametrize(
    ("number", "unit", "shown"),
    [
        (0, "B", "0 B"), (8, "", "8"), (1024, "B", "1 KiB"), (1000, "B", "1 KB"), (1001, "B", "1,001 B"),
        (16384, "B", "16 KiB"), (16385, "B", "16,385 B"), (0.0025, "s", "2.5 ms"), (1 / 3, "s", "0.333333 s"),
        (0, "s", "0 s"), (989.4e12, "FLOP/s", "989.4 TFLOP/s"), (1.2345678e20, "", "1.23457×10²⁰"),
        (1e-7, "", "1×10⁻⁷"), (-2, "", "−2"), (2.5, "B/param", "2.5 B/param"), (12, "B*s", "12 B·s"),
        (10**15 - 1, "", "999,999,999,999,999"), (999999.9, "", "1×10⁶"), (123456.78, "", "123457"), (3, "s", "3 s"),
    ],
)  # fmt: skip
def test_a_value_is_shown_in_plain_characters(number: float, unit: str, shown: str) -> None:
    """Whole numbers in full or in a unit that loses nothing, others with six digits."""
    assert show(Value(float(number), unit)) == shown


SCHEMES: tuple[Scheme, ...] = ("batch", "devices", "sequence")


@given(st.recursive(st.sampled_from([f"{{{each}}}" for each in SCHEMES]), lambda inner: st.one_of(
    st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from("+−×/-*"), inner),
    st.builds(lambda a, n: f"{a}^{n}", inner.filter(lambda a: "^" not in a), st.integers(0, 3)),
    st.builds(lambda a: f"−{a}", inner.filter(lambda a: not a.startswith("−"))),
), max_leaves=8), st.tuples(*[st.integers(-5000, 5000)] * 3))  # fmt: skip
def test_the_line_with_values_is_worth_the_same(text: str, numbers: tuple[int, ...]) -> None:
    """A reader who types the line with its values into a calculator gets the value."""
    values = {Name(each): Value(float(n)) for each, n in zip(SCHEMES, numbers, strict=True)}
    expression = parse(text)
    try:
        value = evaluate(expression, values)
    except CalcError:
        return
    line = as_text(substituted(expression, values))
    assert "{" not in line
    assert evaluate(parse(line.replace(",", "")), {}) == value


def test_pint_is_imported_when_units_meet() -> None:
    """Importing the evaluator, and evaluating plain numbers, imports neither pint nor numpy."""
    code = (
        "import sys\n"
        "from generator.evidence import calc, expressions\n"
        "value = calc.evaluate(expressions.parse('sqrt(2^4) × 3 GB'), {})\n"
        "assert (value.number, value.unit) == (12e9, 'B'), value\n"
        "print('pint' in sys.modules, 'numpy' in sys.modules)\n"
        "calc.evaluate(expressions.parse('(3 GB) / (2 s)'), {})\n"
        "print('pint' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", "True"]

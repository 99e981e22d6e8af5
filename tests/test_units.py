"""Units of what is calculated, against exponents that are added by hand."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.evidence import units
from generator.evidence.quantities import read
from runnable_demos.lab.metrics import Unit

BASES = ("B", "FLOP", "s", "param")

exponents = st.dictionaries(st.sampled_from(BASES), st.integers(-4, 4).filter(bool))


def text_of(powers: dict[str, int]) -> str:
    """The unit with such powers, multiplied together one by one."""
    unit = ""
    for name, each in powers.items():
        for _ in range(abs(each)):
            unit = units.product(unit, name) if each > 0 else units.quotient(unit, name)
    return unit


def powers_of(unit: str) -> dict[str, int]:
    """The powers in a unit's text: what stands behind a ``/`` counts as negative."""
    found: Counter[str] = Counter()
    for sign, name, power in re.findall(r"(^|[*/])([A-Za-z]+|1)(?:\*\*(\d+))?", unit):
        found[name] += (-1 if sign == "/" else 1) * int(power or 1)
    return {name: each for name, each in found.items() if each and name != "1"}


@given(exponents, exponents)
def test_products_and_quotients_add_powers(left: dict[str, int], right: dict[str, int]) -> None:
    """A product's powers are the sums of its factors', a quotient's the differences."""
    a, b = text_of(left), text_of(right)
    assert powers_of(a) == left
    names = left.keys() | right.keys()
    added = {n: left.get(n, 0) + right.get(n, 0) for n in names}
    less = {n: left.get(n, 0) - right.get(n, 0) for n in names}
    assert powers_of(units.product(a, b)) == {n: each for n, each in added.items() if each}
    assert powers_of(units.quotient(a, b)) == {n: each for n, each in less.items() if each}


@given(exponents, st.integers(-9, 9))
def test_powers_multiply_and_roots_halve(powers: dict[str, int], exponent: int) -> None:
    """A power multiplies each exponent; a root halves them where all are even, and else there is none."""
    unit = text_of(powers)
    raised = {n: each * exponent for n, each in powers.items() if exponent}
    assert powers_of(units.power(unit, exponent)) == raised
    root = units.root(unit)
    if any(each % 2 for each in powers.values()):
        assert root is None
    else:
        assert root is not None
        assert powers_of(root) == {n: each // 2 for n, each in powers.items()}


@given(exponents, st.permutations(BASES))
def test_a_unit_has_one_text(powers: dict[str, int], order: list[str]) -> None:
    """The same unit has the same text in whatever order it came about."""
    names = [name for name in order if name in powers]
    assert text_of({name: powers[name] for name in names}) == text_of(powers)


WITHOUT_TOKENS = {"B/token": "B", "token": "", "token/s": "1/s", "/token": "", "/param": "1/param"}


@pytest.mark.parametrize("unit", sorted({*get_args(Unit), *WITHOUT_TOKENS}))
def test_a_metric_is_calculated_with(unit: str) -> None:
    """Each unit of a metric can be calculated with; tokens are counted and leave it."""
    assert units.canonical(unit) == WITHOUT_TOKENS.get(unit, unit)


@pytest.mark.parametrize("unit", ["kB", "m", "B+s", "3", "__import__('os')", "B/", "秒"])
def test_what_is_no_unit_is_refused(unit: str) -> None:
    """What no metric could have is a ``ValueError``, and nothing of it is run."""
    with pytest.raises(ValueError, match="no unit"):
        units.canonical(unit)


@pytest.mark.parametrize("name", sorted(units.SPELLINGS.keys() - {"%"}))
def test_spellings_are_those_of_printed_numbers(name: str) -> None:
    """A unit in an expression is worth what it is worth on a card, and names one base unit."""
    unit, worth = units.SPELLINGS[name]
    if unit == "param":
        assert worth == 1
        return
    printed = read(f"1 {name}")
    assert (printed.unit, printed.value) == (unit, worth)
    assert worth >= 1 or (1 / worth).denominator == 1


def test_spellings_are_latin_and_complete() -> None:
    """Both languages share an expression: it has bytes, times, FLOPs, tokens and parameters in Latin."""
    wanted = {
        "B",
        "KB",
        "GiB",
        "FLOP",
        "TFLOPS",
        "s",
        "ms",
        "µs",
        "us",
        "min",
        "h",
        "token",
        "param",
    }
    assert wanted <= units.SPELLINGS.keys()
    assert not {"秒", "字节", "×", "times", "倍"} & units.SPELLINGS.keys()
    assert units.SPELLINGS["%"] == ("", Fraction(1, 100))


def test_a_reader_sees_dots_and_raised_powers() -> None:
    """``*`` and ``**`` are for programs."""
    assert units.shown("B**2*s/param**12") == "B²·s/param¹²"
    assert units.shown("B/param") == "B/param"
    assert units.shown("") == ""

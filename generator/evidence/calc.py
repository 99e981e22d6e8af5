"""What ``calc:`` expressions are worth.

All numbers are IEEE doubles, and each step rounds: sums, products and quotients in the order of the tree,
powers with a whole exponent by repeated squaring, others as ``exp(b × ln(a))``. Another evaluator that
does the same gets the same doubles, as far as its logarithm and exponential round alike.
Nothing runs away: a tree is bounded, as are exponents, and what leaves the doubles is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from generator.evidence import units
from generator.evidence.expressions import (
    CalcError,
    Call,
    Expression,
    Name,
    Negation,
    Node,
    Number,
    Operation,
    Reference,
    WithUnit,
    references,
)
from generator.evidence.quantities import RAISED, Quantity, as_fraction
from runnable_demos.lab.metrics import Unit
from runnable_demos.lab.scales import scale_for

MAX_EXPONENT = 10**6
"""Beyond it the doubles near 1 alone stay in range, and say little."""
MAX_UNIT_EXPONENT = 9
"""To what a quantity with a unit may be raised."""
NEAR = 2.0**-46
"""Relative distance from a whole number, some dozens of roundings, at which ``ceil`` and ``floor`` would
tell the rounding rather than the number."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number with its unit, as ``units`` writes it."""

    number: float
    unit: str = ""

    @classmethod
    def of(cls, number: int | float | Fraction, unit: str) -> Value:
        """The value of a metric, a parameter or a fact: the nearest double; tokens have no dimension."""
        try:
            return cls(float(number), units.canonical(unit))
        except OverflowError:
            return cls(math.inf, units.canonical(unit))


Values = Mapping[Name, Value]


def evaluate(expression: Expression, values: Values) -> Value:
    """What ``expression`` is worth where the names in it have ``values``. Raises ``CalcError``."""
    return _evaluate(expression.root, values)


def _evaluate(node: Node, values: Values) -> Value:
    match node:
        case Number():
            return Value(node.value, node.unit)
        case Reference():
            return _value_of(node, values)
        case Negation():
            operand = _evaluate(node.operand, values)
            return Value(-operand.number, operand.unit)
        case WithUnit():
            return _with_unit(node, _evaluate(node.operand, values))
        case Call():
            return _call(node, [_evaluate(each, values) for each in node.arguments])
        case Operation():
            left, right = _evaluate(node.left, values), _evaluate(node.right, values)
            return _OPERATIONS[node.operator](node, left, right)


def _value_of(reference: Reference, values: Values) -> Value:
    value = values.get(reference.name)
    if value is None:
        message = f"`{{{reference.name}}}` has no value"
        raise CalcError(reference.column, message, "Name a number that is recorded or declared.")
    if not math.isfinite(value.number):
        message = f"`{{{reference.name}}}` is {value.number}"
        raise CalcError(reference.column, message, "Name a number that is finite.")
    return value


def _with_unit(node: WithUnit, operand: Value) -> Value:
    if operand.unit:
        message = f"what the parentheses hold is in {_said(operand)} already"
        raise CalcError(node.column, message, "Take the unit behind them away.")
    # A thousandth is no double: to divide by 1000 rounds once, to multiply by it twice.
    number = operand.number * float(node.worth.numerator) / float(node.worth.denominator)
    return _finite(node, number, node.unit, operand.number)


# --- operators -----------------------------------------------------------------------------------


def _sum(node: Operation, left: Value, right: Value) -> Value:
    _agree(node, [left, right])
    number = left.number + right.number if node.operator == "+" else left.number - right.number
    return _finite(node, number, left.unit)


def _product(node: Operation, left: Value, right: Value) -> Value:
    unit = units.product(left.unit, right.unit)
    return _finite(node, left.number * right.number, unit, left.number, right.number)


def _quotient(node: Operation, left: Value, right: Value) -> Value:
    if right.number == 0:
        raise CalcError(node.column, "this divides by zero", "See what stands behind the `/`.")
    unit = units.quotient(left.unit, right.unit)
    return _finite(node, left.number / right.number, unit, left.number)


def _power(node: Operation, base: Value, exponent: Value) -> Value:
    column, power = node.column, exponent.number
    if exponent.unit:
        message = f"the exponent is in {_said(exponent)}"
        hint = "An exponent is a plain number. For a unit behind a power write `(10^9) B`."
        raise CalcError(column, message, hint)
    if abs(power) > MAX_EXPONENT:
        message = f"an exponent of {power:g} is out of all bounds"
        raise CalcError(column, message, f"Write one of at most {MAX_EXPONENT:,}.")
    if base.number == 0 and power < 0:
        raise CalcError(column, "this divides by zero", "A negative power of zero has no value.")
    if power == 0.5:
        return _root(column, base)
    if power == int(power):
        if base.unit and abs(power) > MAX_UNIT_EXPONENT:
            message = f"this raises {_said(base)} to {power:g}"
            raise CalcError(column, message, f"Write a power of at most {MAX_UNIT_EXPONENT}.")
        unit = units.power(base.unit, int(power))
        raised = _finite(node, _whole_power(base.number, abs(int(power))), unit, base.number)
        return raised if power >= 0 else _finite(node, 1 / raised.number, unit, 1)
    if base.unit:
        message = f"this raises {_said(base)} to a broken exponent, {power:g}"
        raise CalcError(column, message, "Divide by the unit first: `({…} / (1 B))^0.3`.")
    if base.number < 0:
        message = f"this raises a negative number to a broken exponent, {power:g}"
        raise CalcError(column, message, "It has no real value.")
    if base.number == 0:
        return Value(0.0)
    return _finite(node, _exp(power * math.log(base.number)), "", 1)


def _whole_power(base: float, exponent: int) -> float:
    """``base`` to a whole ``exponent`` ≥ 0, from its lowest binary digit up."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        exponent >>= 1
        if exponent:
            base *= base
    return result


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


_OPERATIONS: Mapping[str, Callable[[Operation, Value, Value], Value]] = {
    "+": _sum,
    "−": _sum,
    "×": _product,
    "/": _quotient,
    "^": _power,
}


# --- functions -----------------------------------------------------------------------------------


def _call(node: Call, arguments: list[Value]) -> Value:
    first = arguments[0]
    match node.function:
        case "min" | "max":
            _agree(node, arguments)
            choose = min if node.function == "min" else max
            return Value(choose(each.number for each in arguments), first.unit)
        case "sqrt":
            return _root(node.column, first)
    if first.unit:
        message = f"`{node.function}` takes a plain number, and this is in {_said(first)}"
        raise CalcError(node.column, message, "Divide by the unit first: `… / (1 GB)`.")
    match node.function:
        case "exp":
            return _finite(node, _exp(first.number), "", 1)
        case "ln" | "log2":
            return _logarithm(node, first.number)
        case "ceil" | "floor":
            return _whole(node, first.number)


def _root(column: int, operand: Value) -> Value:
    if operand.number < 0:
        message = "this takes the square root of a negative number"
        raise CalcError(column, message, "It has no real value.")
    unit = units.root(operand.unit)
    if unit is None:
        message = f"this takes the square root of {_said(operand)}"
        raise CalcError(column, message, "Divide by the unit first, or square it.")
    return Value(math.sqrt(operand.number), unit)


def _logarithm(node: Call, number: float) -> Value:
    if number <= 0:
        message = f"`{node.function}` takes a number above zero, not {_decimal(number)}"
        raise CalcError(node.column, message, "See what stands in its parentheses.")
    return Value(math.log(number) if node.function == "ln" else math.log2(number))


def _whole(node: Call, number: float) -> Value:
    nearest = round(number)
    if number != nearest and abs(number - nearest) <= NEAR * abs(number):
        message = f"`{node.function}` is given {number!r}: {nearest}, but for rounding"
        hint = "Write it so that the whole number comes out exactly: `3 / 10`, not `3 × 0.1`."
        raise CalcError(node.column, message, hint)
    return Value(float(math.ceil(number) if node.function == "ceil" else math.floor(number)))


# --- what is refused -----------------------------------------------------------------------------


def _agree(node: Operation | Call, values: list[Value]) -> None:
    what = node.operator if isinstance(node, Operation) else node.function
    for other in values[1:]:
        if other.unit != values[0].unit:
            message = f"`{what}` joins {_said(values[0])} with {_said(other)}"
            hint = "Give both the same unit; a unit may follow a number: `0 B`."
            raise CalcError(node.column, message, hint)


def _finite(node: Node, number: float, unit: str, *factors: float) -> Value:
    """The value, where a double holds it; it is 0 only where one of ``factors`` is (if there are any)."""
    if not math.isfinite(number) or (number == 0 and factors and all(factors)):
        message, hint = "this is beyond every double", "See which of its parts is meant otherwise."
        raise CalcError(node.column, message, hint)
    return Value(number, unit)


def _said(value: Value) -> str:
    return units.shown(value.unit) or "a plain number"


# --- what a card prints --------------------------------------------------------------------------


def prints(quantity: Quantity, value: Value) -> bool:
    """Whether ``quantity`` is ``value`` at the precision printed, rounded half up, in an agreeing unit."""
    return agrees(quantity, value) and quantity.equals(value.number)


def agrees(quantity: Quantity, value: Value) -> bool:
    """Whether both are in one unit. Parameters are counted: their noun stands behind the link."""
    counted = value.unit == "param" and not quantity.unit
    return counted or units.canonical(quantity.unit) == value.unit


@dataclass(frozen=True, slots=True)
class Put:
    """A value in the place of a name, as it is ``shown`` there."""

    name: Name
    shown: str

    def __str__(self) -> str:
        return self.shown


Line = tuple[str | Put, ...]
"""An expression as it is written, with values for names: ``8,030,261,248 param × 16 B/param``."""


def substituted(expression: Expression, values: Values) -> Line:
    """The line of ``expression``. Raises ``CalcError`` where a name has no value."""
    text, at = expression.text, 0
    pieces: list[str | Put] = []
    for reference in references(expression):
        shown = show(_value_of(reference, values))
        before, after = text[at : reference.column - 1], text[reference.end - 1 :].lstrip()
        divides, is_raised = before.rstrip().endswith("/"), after.startswith("^")
        composed = (divides and re.search("[/×]", shown)) or (
            is_raised and re.search("[ ×]", shown)
        )
        shown = f"({shown})" if composed or shown.startswith("−") else shown
        pieces += [_plain(before), Put(reference.name, shown)]
        at = reference.end - 1
    pieces.append(_plain(text[at:]))
    pieces[0] = str(pieces[0]).lstrip()
    pieces[-1] = str(pieces[-1]).rstrip()
    return tuple(filter(None, pieces))


def _plain(written: str) -> str:
    """Typed operators as they are printed; the sign within ``1e-6`` stays."""
    return re.sub(r"(?<![0-9][eE])-", "−", written.replace("*", "×"))


def show(value: Value) -> str:
    """A value for a reader: in the unit in which it is shortest, with six digits of what is not whole."""
    plain = f"{_decimal(value.number)} {units.shown(value.unit)}".rstrip()
    return min([plain, *_scaled(value)], key=len)


def _scaled(value: Value) -> Iterator[str]:
    """The value in larger or smaller units where four digits say all of it: ``80 GB``, ``16 KiB``."""
    for binary in (False, True):
        scale = scale_for([value.number], cast(Unit, value.unit), binary=binary)
        number = float(f"{value.number / scale.worth:.4g}")
        if number and as_fraction(number) * as_fraction(scale.worth) == as_fraction(value.number):
            yield f"{_decimal(number)} {scale.unit}".rstrip()


def _decimal(number: float) -> str:
    """``8,030,261,248``, ``0.333333``, ``1.979×10¹⁵``, ``−2``."""
    whole = number == int(number) and abs(number) < 1e15
    digits, _, exponent = (f"{int(number):,}" if whole else f"{number:.6g}").partition("e")
    text = f"{digits}×10{str(int(exponent)).translate(RAISED)}" if exponent else digits
    return text.replace("-", "−")

"""Units of what is calculated: products and powers of ``B``, ``FLOP``, ``s`` and ``param``.

A unit is text, the same for the same unit: ``""``, ``B/param``, ``FLOP*s``, ``1/s``. Tokens are counted
and have no dimension. The algebra is pint's, over a registry that knows these units alone; it is imported
when two units first meet, because that takes longer than reading all cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from generator.evidence.quantities import RAISED, SYMBOLS

if TYPE_CHECKING:
    from pint import UnitRegistry
    from pint.facets.plain import PlainUnit

SPELLINGS: Mapping[str, tuple[str, Fraction]] = {
    **{name: SYMBOLS[name] for name in SYMBOLS if re.fullmatch("(?!times)[A-Za-zµμ]+|%", name)},
    **{name: ("param", Fraction(1)) for name in ("param", "params", "parameter", "parameters")},
}
"""Each spelling that may follow a number in an expression: its unit, and how many of it one is worth.

An expression serves both languages, so that only Latin ones are among them.
"""

_DEFINITIONS = (
    "B = [data]",
    "FLOP = [operations]",
    "s = [time]",
    "param = [parameters]",
    "token = 1",
)


@cache
def _registry() -> UnitRegistry[Any]:
    from pint import UnitRegistry  # noqa: PLC0415 - see the top of this file

    registry: UnitRegistry[Any] = UnitRegistry(None, cache_folder=None)
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


@cache
def canonical(unit: str) -> str:
    """The unit of a metric, a fact or a printed number as it is calculated with.

    ``B/token`` is ``B``, and ``/param`` is ``1/param``. Raises ``ValueError`` for what is no such unit.
    """
    if not unit:
        return ""
    registry = _registry()
    try:
        return _text(registry.Quantity(1, f"1{unit}" if unit[0] == "/" else unit).to_base_units().u)
    except Exception as error:  # pint's errors have no base of their own
        raise ValueError(f"{unit!r} is no unit to calculate with") from error


@cache
def product(left: str, right: str) -> str:
    """The unit of a product."""
    return _text(_unit(left) * _unit(right)) if left and right else left or right


@cache
def quotient(left: str, right: str) -> str:
    """The unit of a quotient."""
    return _text(_unit(left) / _unit(right)) if right else left


@cache
def power(unit: str, exponent: int) -> str:
    """The unit of a power."""
    return _text(_unit(unit) ** exponent) if unit else ""


@cache
def root(unit: str) -> str | None:
    """The unit of a square root; ``None`` where a power in ``unit`` is odd."""
    half = _text(_unit(unit) ** 0.5) if unit else ""
    return None if "." in half else half


def shown(unit: str) -> str:
    """``unit`` for a reader: ``FLOP·s``, ``B²``."""
    return re.sub(r"\*\*(\d+)", lambda each: each[1].translate(RAISED), unit).replace("*", "·")


def _unit(text: str) -> PlainUnit:
    return _registry().Unit(text)


def _text(unit: PlainUnit) -> str:
    return "" if unit.dimensionless else f"{unit:C}"

"""Units with the prefix in which a number is short: 6.44 GB, 12 GiB, 3.2 ms. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from runnable_demos.lab.metrics import Unit

_DECIMAL = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, "")]
_BINARY = [(2.0**50, "Pi"), (2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (1024.0, "Ki")]
_BINARY.append((1.0, ""))
_SMALL = [(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")]


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit with its prefix, and what one of it is worth: 1 MB is 10^6."""

    unit: str
    worth: float

    def number(self, value: float, figures: int = 4) -> str:
        """``value`` in this unit, with at most so many figures unless it is a large whole number."""
        scaled = value / self.worth
        if scaled and (abs(scaled) < 1e-3 or abs(scaled) >= 1e7):
            return re.sub(r"e[+]?(-?)0*", r"e\1", f"{scaled:.3g}").replace("-", "−")
        before = math.floor(math.log10(abs(scaled))) + 1 if abs(scaled) >= 1 else 1
        text = f"{scaled:,.{max(0, figures - before)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace("-", "−")

    def show(self, value: float) -> str:
        """``value`` with its unit."""
        return f"{self.number(value)} {self.unit}".rstrip()


def scale_for(values: Iterable[float], unit: Unit, binary: bool = False) -> Scale:
    """The unit in which the largest of ``values`` is a number of one to three digits."""
    largest = max((abs(v) for v in values), default=0.0)
    if unit in ("B", "FLOP", "B/s", "FLOP/s"):
        prefixes = _BINARY if binary and unit.startswith("B") else _DECIMAL
    elif unit == "s":
        prefixes = _SMALL
    else:
        return Scale(unit, 1.0)
    worth, prefix = next((p for p in prefixes if largest >= p[0]), prefixes[-1])
    return Scale(prefix + unit, worth)


def round_places(low: float, high: float, worth: float, most: int) -> list[float]:
    """At most ``most`` round places between ``low`` and ``high``, round in units of ``worth``."""
    span = (high - low) / worth
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * m for m in (1, 2, 2.5, 5, 10, 20) if span / (step * m) <= most)
    first, last = math.ceil(low / worth / step - 1e-9), math.floor(high / worth / step + 1e-9)
    return [i * step * worth for i in range(first, last + 1)]

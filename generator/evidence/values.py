"""How the value of a metric is said: to a reader, and where every digit counts."""

from __future__ import annotations

from generator import words
from generator.evidence.quantities import RAISED
from generator.lang import LANGS, Text
from runnable_demos.lab.metrics import Metric
from runnable_demos.lab.scales import scale_for


def exact(metric: Metric) -> str:
    """The value with all its digits and its unit, where two values are held against each other."""
    if isinstance(metric.value, bool):
        return "yes" if metric.value else "no"
    scatter = f" ± {metric.error:.2g}" if metric.error is not None else ""
    return f"{metric.value!r}{scatter} {metric.unit}".rstrip()


def shown(metric: Metric) -> Text:
    """A metric's value for a reader: in full, and in a larger unit where one fits.

    A bounded one stands before its bound, a sampled one before its standard error and, where there is
    one, the closed form that it is held against.
    """
    if isinstance(metric.value, bool):
        return words.phrase("numbers.holds") if metric.value else words.phrase("numbers.fails")
    unit = f" {metric.unit}" if metric.unit else ""
    if metric.error is not None:
        return _sample(metric, metric.error, unit)
    text = f"{_number(metric.value)}{unit}"
    if metric.bound is not None:
        sign = "≤" if metric.value <= metric.bound else ">"
        text = f"{_number(metric.value)} {sign} {_number(metric.bound)}{unit}"
    elif (scale := scale_for([metric.value], metric.unit, binary=True)).worth > 1:
        text += f" ({scale.number(metric.value)} {scale.unit})"
    return dict.fromkeys(LANGS, text)


def _sample(metric: Metric, error: float, unit: str) -> Text:
    """``0.4876 ± 0.011 (closed form 0.5)``: two digits of the error, and as many places of the value."""
    scatter = f"{error:.1e}"
    places = max(0, 1 - int(scatter.partition("e")[2]))
    value = f"{metric.value:,.{places}f} ± {float(scatter):,.{places}f}{unit}"
    if metric.closed_form is None:
        return dict.fromkeys(LANGS, value)
    form = _number(metric.closed_form)
    return words.fill(words.phrase("numbers.closed_form"), value=value, form=form)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}"
    digits, _, exponent = f"{value:.3g}".partition("e")
    power = str(int(exponent or 0)).translate(RAISED)
    return f"10{power}" if digits == "1" else f"{digits}×10{power}"

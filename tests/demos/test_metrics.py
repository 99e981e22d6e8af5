"""Metrics: each kind carries what it promises, and nothing that belongs to another."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runnable_demos.__main__ import _check
from runnable_demos.lab.metrics import FARTHEST, Kind, Metric, Result, Series, Text

TEXT: Text = {"zh": "字", "en": "word"}


def metric(kind: Kind, value: float = 0.5, **rest: Any) -> Metric:
    """A metric whose words do not matter."""
    return Metric("m", value, "", kind, TEXT, TEXT, **rest)


@pytest.mark.parametrize(
    ("kind", "rest", "said"),
    [
        ("exact", {"bound": 1.0, "reason": TEXT}, "kind 'bounded' alone"),
        ("exact", {"reason": TEXT}, "kind 'bounded' alone"),
        ("bounded", {}, "kind 'bounded' alone"),
        ("bounded", {"bound": 1.0}, "kind 'bounded' alone"),
        ("sampled", {}, "standard error"),
        ("computed", {"error": 0.1}, "standard error"),
        ("sampled", {"error": 0.0}, "without scatter"),
        ("sampled", {"error": math.nan}, "without scatter"),
        ("exact", {"closed_form": 1.0}, "closed form"),
        ("measured", {"value": True}, "truth value"),
        ("sampled", {"value": True, "error": 0.1}, "truth value"),
    ],
)
def test_a_metric_carries_what_its_kind_promises(
    kind: Kind, rest: dict[str, Any], said: str
) -> None:
    """A bound, an error or a closed form at the wrong kind is refused by name."""
    with pytest.raises(ValueError, match=said):
        metric(kind, **rest)


@pytest.mark.parametrize("off", [-FARTHEST - 0.1, FARTHEST + 0.1])
def test_a_sample_far_from_its_closed_form_is_no_result(off: float) -> None:
    """Either the formula is wrong or the draws are; a record holds neither."""
    near = metric("sampled", error=0.01, closed_form=0.5 + 0.99 * FARTHEST * 0.01)
    _check(Result((near,)), "cpu")
    far = metric("sampled", error=0.01, closed_form=0.5 + off * 0.01)
    with pytest.raises(ValueError, match="standard errors from its closed form"):
        _check(Result((far,)), "cpu")


def test_a_theory_is_computed() -> None:
    """A formula's line is never called a reading."""
    assert Series("s", TEXT, (1.0,), (1.0,), "theory").kind == "computed"
    assert Series("s", TEXT, (1.0,), (1.0,)).kind == "exact"

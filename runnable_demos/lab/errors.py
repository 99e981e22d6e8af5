"""How far a result is from the truth."""

from __future__ import annotations

from torch import Tensor


def relative(found: Tensor, truth: Tensor) -> float:
    """``‖found − truth‖ / ‖truth‖``, over all elements; in the wider of both dtypes."""
    return float((found - truth).norm() / truth.norm())

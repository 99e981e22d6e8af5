"""The distance of a result from the truth, by hand."""

from __future__ import annotations

import pytest
import torch

from runnable_demos.lab.errors import relative


def test_a_relative_error_is_a_distance_over_a_length() -> None:
    """(3, 5) lies 1 from (3, 4), which is 5 long; the order matters, and so does a single entry."""
    found, truth = torch.tensor([3.0, 5.0]), torch.tensor([3.0, 4.0])
    assert relative(found, truth) == pytest.approx(1 / 5)
    assert relative(truth, found) == pytest.approx(1 / 34**0.5)
    assert relative(truth, truth) == 0


def test_it_is_taken_in_the_wider_dtype() -> None:
    """A third in fp32 lies 1e-8 from a third in fp64, which fp32 alone could not tell."""
    third = torch.ones(1, dtype=torch.float64) / 3
    error = relative(third.float(), third)
    assert 0 < error < 2**-24
    assert error == pytest.approx(float(abs(third.float().double() - third) / third))

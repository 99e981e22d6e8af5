"""Adafactor's state and what it rebuilds, against counts and a reference written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn, optim

from runnable_demos import adafactor
from runnable_demos.adafactor import PRESETS, rebuilt, run, state_after_one_step


@pytest.mark.parametrize("shape", [(4, 4), (2, 32), (64, 3), (1, 9)])
def test_a_matrix_keeps_one_number_a_row_and_a_column(shape: tuple[int, int]) -> None:
    """The factored state has exactly rows + columns numbers, in any proportion."""
    state = state_after_one_step(torch.randn(*shape))
    assert sum(t.numel() for t in state.values()) == sum(shape)


def test_a_vector_is_not_factored() -> None:
    """A bias or a norm's weight keeps one number for each of its entries."""
    assert sum(t.numel() for t in state_after_one_step(torch.randn(37)).values()) == 37


def test_the_rebuilt_moment_keeps_row_and_column_sums() -> None:
    """Whatever the gradient, V̂ has the row and column means of the squared gradient."""
    gradient = torch.randn(16, 24, dtype=torch.float64)
    estimate = rebuilt(state_after_one_step(gradient))
    for axis in (0, 1):
        torch.testing.assert_close(estimate.mean(axis), gradient.square().mean(axis))


def test_one_step_agrees_with_the_paper_in_numpy() -> None:
    """PyTorch's update is Algorithm 4 of Shazeer and Stern, written here without torch."""
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(6, 10)), rng.normal(size=(6, 10))
    lr, eps1, eps2, d = 1e-2, 1e-30, 1e-3, 1.0
    weight = nn.Parameter(torch.tensor(w))
    weight.grad = torch.tensor(g)
    optim.Adafactor([weight], lr=lr, eps=(eps1, eps2), d=d).step()
    squared = g**2 + eps1
    rows, columns = squared.sum(1, keepdims=True), squared.sum(0, keepdims=True)
    update = g / np.sqrt(rows @ columns / rows.sum())
    update /= max(1.0, np.sqrt((update**2).mean()) / d)
    step = max(eps2, np.sqrt((w**2).mean())) * min(lr, 1.0)
    np.testing.assert_allclose(weight.detach().numpy(), w - step * update, rtol=1e-9)


def test_the_demo_measures_the_textbook_cases() -> None:
    """A square needs 2n numbers, a strip of the same area far more; I is smeared over all entries."""
    config = PRESETS["small"]
    n, k = config.side, config.stretch
    metrics = {m.name: m for m in run(config, lambda share, what: None).metrics}
    assert metrics["numbers_square"].value == 2 * n
    assert metrics["numbers_long"].value == n // k + n * k
    assert metrics["numbers_vector"].value == n * n
    assert metrics["long_over_square"].value == (n // k + n * k) / (2 * n)
    assert metrics["bytes_per_param_square"].value == 4 * 2 * n / n**2
    assert metrics["bytes_per_param_vector"].value == 4
    assert metrics["identity_diagonal"].value == 1.0
    assert metrics["identity_off_diagonal_equal"].value is True
    error = metrics["rank_one_error"]
    assert error.bound is not None
    assert 0 < error.value <= error.bound


def test_the_figure_goes_through_all_shapes_of_one_area() -> None:
    """Every fourfold number of rows from 4 to n²/4, each with rows + columns numbers."""
    n = PRESETS["small"].side
    theory, measured = run(PRESETS["small"], lambda share, what: None).figures[0].series
    rows = [r for r in range(1, n * n) if r in {4**i for i in range(1, 12)} and r <= n * n / 4]
    assert theory.x == measured.x == tuple(rows)
    assert theory.y == measured.y == tuple(r + n * n / r for r in rows)


def test_a_wrong_estimate_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter too large is an error of a quarter; one entry that differs is not the same as all."""

    def askew(state: dict[str, torch.Tensor]) -> torch.Tensor:
        estimate = 1.25 * rebuilt(state)
        estimate[0, 1] *= 1.001
        return estimate

    monkeypatch.setattr(adafactor, "rebuilt", askew)
    found = {m.name: m.value for m in run(PRESETS["small"], lambda share, what: None).metrics}
    assert found["rank_one_error"] == pytest.approx(0.25, rel=0.01)
    assert found["identity_diagonal"] == pytest.approx(1.25)
    assert found["identity_off_diagonal_equal"] is False

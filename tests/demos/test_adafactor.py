"""Adafactor's state and what it rebuilds, against counts and a reference written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn, optim

from runnable_demos import adafactor
from runnable_demos.adafactor import (
    GRADIENT,
    PRESETS,
    rebuilt,
    row_ratio,
    run,
    state_after_one_step,
)
from runnable_demos.lab.mechanisms import Tiles


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
    """Every power of two from 4 to n²/4 rows, the square among them, each with rows + columns numbers."""
    n = PRESETS["small"].side
    figures = {f.name: f for f in run(PRESETS["small"], lambda share, what: None).figures}
    theory, measured = figures["state_by_shape"].series
    rows = [r for r in range(4, n * n // 4 + 1) if r.bit_count() == 1]
    assert n in rows
    assert theory.x == measured.x == tuple(rows)
    assert theory.y == measured.y == tuple(r + n * n / r for r in rows)


def test_tiles_show_what_means_rebuild() -> None:
    """V̂ of the figure from row and column sums in NumPy; the spike's row and column are too large, itself too small."""
    figures = run(PRESETS["small"], lambda share, what: None).figures
    figure = next(figure for figure in figures if isinstance(figure, Tiles))
    V = np.array(GRADIENT, dtype=float) ** 2
    assert np.linalg.matrix_rank(np.delete(V, 2, axis=1)) == 1  # but for the spike's column
    rows, columns = V.sum(1), V.sum(0)
    shown = {(t.row, t.column): t for t in figure.tiles}
    for (i, j), true in np.ndenumerate(V):
        estimate = rows[i] * columns[j] / V.sum()
        assert shown[i, j].notes == (f"{true:g}", f"→ {estimate:.1f}")
        kind = (
            "near" if 2 / 3 <= estimate / true <= 1.5 else "above" if estimate > true else "below"
        )
        assert shown[i, j].kind == kind
    assert [place for place, t in shown.items() if t.kind == "below"] == [(0, 2)]
    assert {place for place, t in shown.items() if t.kind == "above"} == {
        (0, 0), (0, 1), (0, 3), (1, 2), (2, 2), (3, 2),
    }  # fmt: skip
    for k in range(4):
        assert shown[k, 4].notes == (f"R {rows[k] / 4:.1f}",)
        assert shown[4, k].notes == (f"C {columns[k] / 4:.1f}",)
    assert shown[4, 4].notes == (f"{V.mean():.1f}",)


def test_the_floor_of_bf16_takes_adaptivity_away() -> None:
    """By hand: below eps^(3/4) every V̂ is the floor, and steps go with gradients; above it they are equal."""
    found = {m.name: m.value for m in run(PRESETS["small"], lambda share, what: None).metrics}
    assert 8e-3 < (2**-7) ** (3 / 4)  # the larger gradient is below the floor of bf16 ...
    assert found["row_ratio_bf16"] == 8
    assert 1e-3 > (2**-23) ** (3 / 4)  # ... and the smaller one above that of fp32
    assert found["row_ratio_fp32"] == found["row_ratio_bf16_small_eps"] == 1
    assert row_ratio(torch.float32, "cpu", (2**-7, 1e-3)) == pytest.approx(8)  # it is the epsilon


def test_the_floor_of_fp32_takes_adaptivity_from_small_gradients() -> None:
    """By hand, with the epsilon as both floors: the smaller rows lie on it, the larger ones just above."""
    found = {m.name: m.value for m in run(PRESETS["small"], lambda share, what: None).metrics}
    eps, small, large = 2.0**-23, 1e-6**2, 8e-6**2
    column = (small + large) / 2  # which is the overall mean, too
    assert column < eps
    roots = [max(row * column / eps, eps**2) ** 0.5 for row in (small, large)]
    assert roots[0] == eps < roots[1]
    assert found["row_ratio_fp32_small"] == pytest.approx(8 * roots[0] / roots[1], abs=1e-4)
    tiny = row_ratio(torch.float32, "cpu", (1e-30, 1e-3), 1e-6)
    assert tiny == pytest.approx(1, abs=1e-4)


def test_only_matrices_of_shards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column means are a reduction over shards, squared in place; an optimizer without them is not refused."""
    assert adafactor.refuses_shards()
    monkeypatch.setattr(optim, "Adafactor", lambda parameters: optim.SGD(parameters, lr=0.1))
    assert not adafactor.refuses_shards()


def test_a_step_holds_two_matrices() -> None:
    """The update of one matrix while the one before is still alive, and a mean of each; shards are refused."""
    config = PRESETS["small"]
    found = {m.name: m.value for m in run(config, lambda share, what: None).metrics}
    assert 2 <= found["transient_copies"] <= 2 + 4 / config.side
    assert found["fsdp_refused"] is True


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

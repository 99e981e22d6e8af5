"""In-place operations against finite differences, version counters and bytes counted by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.inplace_ops import (
    PRESETS,
    Case,
    Layer,
    cases,
    gradient,
    leaf_raises,
    observe,
    run,
)
from runnable_demos.lab.mechanisms import Tiles

CONFIG = PRESETS["small"]


def numeric_gradient(layer: Layer, x: Tensor) -> Tensor:
    """Central differences of Σ y², element by element, in fp64."""
    eps = 1e-6
    out = torch.empty_like(x)
    with torch.no_grad():
        for i in range(x.numel()):
            step = torch.zeros(x.numel(), dtype=x.dtype)
            step[i] = eps
            ends = [layer(x + sign * step.view_as(x)).pow(2).sum() for sign in (1, -1)]
            out.view(-1)[i] = (ends[0] - ends[1]) / (2 * eps)
    return out


def drawn_cases() -> tuple[Tensor, tuple[Case, ...]]:
    """An input in fp64 and all cases for a matrix that fits it."""
    torch.manual_seed(5)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    return x, cases(torch.randn(6, 6, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("index", range(len(drawn_cases()[1])))
def test_outcome_against_finite_differences(index: int) -> None:
    """What is called safe has the true gradient, what is called wrong has another, the rest raises."""
    x, every = drawn_cases()
    case = every[index]
    assert torch.equal(case.inplace(x * 1.0), case.reference(x * 1.0))  # the forwards agree
    truth = numeric_gradient(case.reference, x.detach())
    torch.testing.assert_close(gradient(case.reference, x), truth, rtol=1e-5, atol=1e-6)
    if case.outcome == "raises":
        with pytest.raises(RuntimeError, match=r"is at version \d; expected version \d"):
            gradient(case.inplace, x)
    else:
        dx = gradient(case.inplace, x)
        close = torch.allclose(dx, truth, rtol=1e-5, atol=1e-6)
        assert close == (case.outcome == "equal")
    assert observe(case, x) == case.outcome


def test_version_counters() -> None:
    """Views and detach() share a counter, each in-place operation adds one, .data has its own."""
    y = torch.ones(3, 4) * 2
    assert y._version == 0
    y[0].add_(1)
    y.mul_(2)
    with torch.no_grad():
        y.zero_()
    assert y._version == y[1]._version == y.detach()._version == 3
    y.data.add_(1)
    assert y._version == 3


def test_metrics_by_hand() -> None:
    """All outcomes hold, and the bytes are those that one counts with a pencil."""
    metrics = {m.name: m.value for m in run(CONFIG, lambda share, text: None).metrics}
    truths = [v for v in metrics.values() if isinstance(v, bool)]
    assert all(truths)
    assert len(truths) == 14
    # Output, shared with the next Linear's input; or that and one more tensor.
    assert (metrics["relu_saved"], metrics["relu_inplace_saved"]) == (4, 4)
    assert (metrics["leaky_relu_saved"], metrics["leaky_relu_inplace_saved"]) == (8, 4)
    assert (metrics["silu_saved"], metrics["silu_inplace_saved"]) == (8, 8)
    assert (metrics["dropout_saved"], metrics["dropout_inplace_saved"]) == (8, 8)
    unit = 4 * CONFIG.tokens * CONFIG.width
    assert metrics["forward_peak"] == (4 + 4) * unit
    assert metrics["inplace_forward_peak"] == (4 + 1) * unit
    assert metrics["peak_ratio"] == (4 + 1) / (4 + 4)


def test_silu_in_place_keeps_a_copy_of_its_input() -> None:
    """Autograd clones what the formula needs before it is overwritten."""
    u = torch.linspace(-2, 2, 5, requires_grad=True) * 1.0
    before = u.detach().clone()
    y = F.silu(u, inplace=True)
    assert torch.equal(y.grad_fn._saved_self, before)


def test_only_a_leaf_with_a_gradient_refuses() -> None:
    """A leaf without one takes the operation, and so does what was computed from a leaf."""
    assert leaf_raises(torch.ones(2, requires_grad=True))
    assert not leaf_raises(torch.ones(2))
    assert not leaf_raises(torch.ones(2, requires_grad=True) * 1.0)


def test_the_picture_of_version_counters() -> None:
    """What each operation saves is known from its derivative, and each write in place counts one."""
    figures = run(CONFIG, lambda share, text: None).figures
    tiles = next(figure for figure in figures if figure.name == "versions")
    assert isinstance(tiles, Tiles)
    assert [place.name for place in tiles.y.categories] == ["relu", "mask", "residual", "data"]
    assert [place.name for place in tiles.x.categories] == ["first", "write", "backward"]
    drawn = [[(t.kind, *t.notes) for t in tiles.tiles if t.row == row] for row in range(4)]
    assert drawn == [
        # A Linear does not save its output; ReLU does.
        [("free", "Linear", "v0"), ("saved", "ReLU_", "v1"), ("saved", "v1 = v1")],
        # Softmax saves its output, and so does a sigmoid; a Linear saves its input.
        [("saved", "softmax", "v0"), ("overwritten", "fill_", "v1"), ("overwritten", "v0 ≠ v1")],
        [("saved", "Linear", "v0"), ("overwritten", "x += f", "v1"), ("overwritten", "v0 ≠ v1")],
        [("saved", "sigmoid", "v0"), ("unseen", ".data", "v0"), ("unseen", "v0 = v0")],
    ]

"""Costs of derivatives against products and tensors counted by hand, and values against a graph of our own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from runnable_demos.autograd_vjp import HVPS, PRESETS, loss, net, problem, run
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result

CONFIG = PRESETS["small"]
L, H, B, M = CONFIG.layers, CONFIG.width, CONFIG.rows, CONFIG.outputs
WEIGHT = H / B
"""A weight, or the gradient of one, in activations."""


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, float]:
    """Its metrics by name."""
    return {m.name: m.value for m in result.metrics}


def test_a_vjp_has_a_product_for_each_operand(metrics: dict[str, float]) -> None:
    """Each layer has one product for its input and one for its weight; data needs none at the first layer."""
    assert metrics["vjp_input"] == L / L
    assert metrics["vjp_weights"] == (L + (L - 1)) / L
    assert metrics["vjp_all"] == (L + L) / L


def test_a_jvp_has_both_products_wherever_one_tangent_is(metrics: dict[str, float]) -> None:
    """``result: mm(self_t, mat2_p) + mm(self_p, mat2_t)``: with a tangent of x alone, half of it is by zeros."""
    assert metrics["jvp_all"] == 2
    assert metrics["jvp_input"] == 2
    assert metrics["jvp_input_by_zeros"] == 1


def test_hessian_vector_products_by_products(metrics: dict[str, float]) -> None:
    """A gradient has 3L − 1 products.

    Forwards, each becomes three. Backwards: the L of the forward have 2L − 1, the L for weights
    2L − 1 and the L − 1 for inputs 2L − 2.
    """
    one = 3 * L - 1
    assert metrics["hvp_forward_over_reverse"] == 3
    twice = one + (2 * L - 1) + (2 * L - 1) + (2 * L - 2)
    assert metrics["hvp_reverse_over_reverse"] == twice / one


def test_a_gradient_by_jvps_takes_one_for_each_parameter(metrics: dict[str, float]) -> None:
    """Two layers of 4 × 4: 32 columns.

    A column has a product at the first layer and two at the second; the forward has two, and one product
    is by zeros. A backward has three beside the forward's two.
    """
    assert metrics["gradient_by_jvps"] == (2 + 1 + 32 * (1 + 2)) / (2 + 3)


def test_a_jacobian_by_rows_or_by_columns(result: Result, metrics: dict[str, float]) -> None:
    """Rows: a VJP for each output. Columns: a JVP for each input, and once a product by zeros in each layer."""
    assert metrics["jacobian_reverse"] == 1 + M
    assert metrics["jacobian_forward"] == 1 + H + 1
    [figure] = [f for f in result.figures if f.name == "jacobian"]
    lines = {series.name: dict(zip(series.x, series.y, strict=True)) for series in figure.series}
    assert lines["reverse"] == {2**i: 1 + 2**i for i in range(8)}
    assert lines["forward"] == dict.fromkeys((2**i for i in range(8)), 2 + H)


def test_peaks_by_hand(metrics: dict[str, float]) -> None:
    """What is alive at the worst moment.

    Forward: a layer's input, its product, its output. VJP: all outputs, and two gradients at the first
    step back. JVP: input, product, two terms and their sum for its tangent, and the input's tangent.
    """
    assert metrics["forward_peak"] == 3
    assert metrics["vjp_peak"] == L + 2
    assert metrics["vjp_peak_twice"] == 2 * L + 2
    assert metrics["jvp_peak"] == metrics["jvp_peak_twice"] == 6


def test_what_a_layer_holds_until_the_end(metrics: dict[str, float]) -> None:
    """Tensors of an activation's size that one more layer adds to the peak, by hand.

    A gradient: the output. With a graph of the backward: the gradients before and after tanh as
    well, and the weight's gradient. Forward over reverse: the output and its tangent, doubled and
    tripled likewise.
    """
    assert metrics["held_gradient"] == 1
    assert metrics["held_gradient_func"] == 3 + WEIGHT
    assert metrics["held_reverse_over_reverse"] == 3 + WEIGHT
    assert metrics["held_forward_over_reverse"] == 2
    assert metrics["held_forward_over_grad"] == 2 * (3 + WEIGHT)


def test_the_graph_by_hand(metrics: dict[str, float]) -> None:
    """Each layer is a product, a transposed weight, its leaf and tanh; the loss is a power and a sum."""
    assert metrics["graph_nodes"] == 4 * L + 2
    assert metrics["saved_activations"] == L + 1
    for name in (
        "runs_in_reverse",
        "freed_by_backward",
        "kept_by_retain_graph",
        "second_backward_refused",
        "vector_backward_refused",
        "gradients_accumulate",
        "flash_jvp_refused",
        "flash_hvp_refused",
    ):
        assert metrics[name] is True, name


def by_hand(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """The gradient of the loss by the chain rule, without autograd."""
    acts = [x]
    for W in weights:
        acts.append((acts[-1] @ W.T).tanh())
    g, gradients = 2 * acts[-1], []
    for W, before, after in zip(weights[::-1], acts[-2::-1], acts[:0:-1], strict=True):
        g = g * (1 - after**2)
        gradients.append(g.T @ before)
        g = g @ W
    return gradients[::-1]


def test_every_hessian_vector_product_is_a_difference_of_gradients() -> None:
    """(∇f(w + εv) − ∇f(w − εv)) / 2ε with gradients made by hand, in fp64."""
    p = problem(3, 5, 7, torch.float64)
    eps = 1e-5
    ahead, behind = (
        by_hand(p.x, *(W + s * eps * v for W, v in zip(p.weights, p.directions, strict=True)))
        for s in (1, -1)
    )
    wanted = [(a - b) / (2 * eps) for a, b in zip(ahead, behind, strict=True)]
    for name, product in HVPS.items():
        for got, want in zip(product(p), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, msg=name)


def test_the_network_is_what_it_says(metrics: dict[str, float]) -> None:
    """tanh(W x) layer by layer, a sum of squares, and errors that are rounding."""
    p = problem(2, 3, 4)
    y = p.x
    for W in p.weights:
        y = (y @ W.T).tanh()
    torch.testing.assert_close(net(p.x, *p.weights), y)
    torch.testing.assert_close(loss(p.x, *p.weights), (y * y).sum())
    assert 0 <= metrics["adjoint_error"] < 1e-12
    assert 0 <= metrics["hvp_error"] < 1e-12
    assert math.isfinite(metrics["hvp_error"])


def test_the_figure_is_a_staircase_and_a_diagonal(result: Result) -> None:
    """Four layers: output i is made in action i; its backward is action 9 − i; a JVP drops it one action later.

    The last output is used by tanh's own backward, which is the first one.
    """
    [figure] = [f for f in result.figures if f.name == "held"]
    assert isinstance(figure, Lanes)
    ends = {(span.row, span.kind): (span.start, span.end) for span in figure.spans if span.row % 5}
    assert ends == {
        (1, "saved"): (0, 8), (2, "saved"): (1, 7), (3, "saved"): (2, 6), (4, "saved"): (3, 5),
        (6, "pair"): (0, 2), (7, "pair"): (1, 3), (8, "pair"): (2, 4), (9, "pair"): (3, 5),
    }  # fmt: skip
    actions = [(s.row, s.kind, s.start, s.label) for s in figure.spans if s.row % 5 == 0]
    assert actions == [
        *((0, "forward", i, str(i + 1)) for i in range(4)),
        *((0, "backward", 4 + i, str(4 - i)) for i in range(4)),
        *((5, "forward", i, str(i + 1)) for i in range(4)),
    ]

"""Saved bytes against a table made by hand from the derivatives, and against the graph's own nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.saved_tensors import (
    DTYPES,
    PRESETS,
    bytes_per_element,
    draw,
    lifetimes,
    make_layer,
    operations,
    run,
    sequences,
)

CONFIG = PRESETS["small"]
T, H = CONFIG.tokens, CONFIG.width

# Full-size tensors, bytes of masks an element, numbers a row, further bytes: by hand.
BY_HAND: dict[str, tuple[int, int, int, int]] = {
    "add": (0, 0, 0, 0),  # the gradient passes through
    "scale": (0, 0, 0, 0),  # the factor is a Python number
    "view": (0, 0, 0, 0),
    "mul": (1, 0, 0, 0),  # the other factor; it asks for no gradient, so this one is not kept
    "relu": (1, 0, 0, 0),  # the output
    "gelu": (1, 0, 0, 0),  # the input
    "silu": (1, 0, 0, 0),  # the input
    "sigmoid": (1, 0, 0, 0),  # the output
    "tanh": (1, 0, 0, 0),  # the output
    "softmax": (1, 0, 0, 0),  # the output
    "masked_fill": (0, 1, 0, 0),
    "dropout": (1, 0, 0, 0),  # on the CPU the mask has the input's dtype
    "native_dropout": (0, 1, 0, 0),
    "layer_norm": (1, 0, 2, 0),  # the input; mean and 1/σ
    "linear": (1, 0, 0, 0),  # the input
    "frozen_linear": (0, 0, 0, 0),  # the weight alone, a parameter
    "relu_linear": (1, 0, 0, 0),  # ReLU's output is the product's input
    "gelu_linear": (2, 0, 0, 0),
    "gated_silu": (3, 0, 0, 0),  # a, silu(a), b
    "linear_add_linear": (2, 0, 0, 0),  # both inputs; the residual sum is the second
    "two_linears_of_one_input": (1, 0, 0, 0),
    "softmax_dropout_matmul": (2, 1, 0, 0),  # P, the mask, the dropped P
}


@pytest.fixture(scope="module")
def metrics() -> dict[str, float]:
    """Every metric of the small run, by name."""
    return {m.name: m.value for m in run(CONFIG, lambda share, text: None).metrics}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_by_hand(name: str, dtype: str, metrics: dict[str, float]) -> None:
    """Each row of the table equals what its derivative formula needs."""
    full, mask, a_row, more = BY_HAND[name]
    size = DTYPES[dtype].itemsize
    assert metrics[f"{name}_{dtype}"] == full * size + mask + a_row * size / H + more / (T * H)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_on_the_cpu_keeps_two_fp32_tensors(dtype: str, metrics: dict[str, float]) -> None:
    """The CPU's RMSNorm is composed: the input in fp32, its normalised product in fp32, and 1/σ."""
    assert metrics[f"rms_norm_{dtype}"] == 4 + 4 + 4 / H


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy(dtype: str, metrics: dict[str, float]) -> None:
    """The log-softmax, an int64 target a row, and the total weight, one number."""
    size = DTYPES[dtype].itemsize
    assert metrics[f"cross_entropy_{dtype}"] == pytest.approx(size + 8 / H + size / (T * H))


def saved_on_nodes(out: Tensor, stop: object) -> Iterator[Tensor]:
    """Tensors that the graph's nodes show as ``_saved_…``, from ``out`` down to the node ``stop``."""
    todo, seen = [out.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node is stop or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(getattr(node, name), Tensor):
                yield getattr(node, name)
        todo += [following for following, _ in node.next_functions]


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_hooks_agree_with_the_nodes(dtype: torch.dtype) -> None:
    """What the pack hooks counted is what the nodes of the finished graph hold."""
    layer = make_layer(CONFIG, dtype)
    parameters = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    for name, operation in (operations(layer, CONFIG) | sequences(layer)).items():
        x = draw(CONFIG, dtype)
        out = operation(x)
        held = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in saved_on_nodes(out, x.grad_fn)
            if t.dtype != torch.float64  # a Python number, wrapped
        }
        held = {k: n for k, n in held.items() if k not in parameters}
        counted = bytes_per_element(operation, x, layer.parameters())
        assert counted * x.numel() == sum(held.values()), name


INPUT_SAVERS = {"mul", "gelu", "silu", "linear", "layer_norm"}
OUTPUT_SAVERS = {"relu", "sigmoid", "tanh", "softmax"}


@pytest.mark.parametrize("name", sorted(INPUT_SAVERS | OUTPUT_SAVERS))
def test_input_or_output(name: str) -> None:
    """The full-size tensor that is saved is the input itself, or the output itself."""
    x = draw(CONFIG, torch.float32)
    out = operations(make_layer(CONFIG, torch.float32), CONFIG)[name](x)
    held = {t.untyped_storage().data_ptr() for t in saved_on_nodes(out, x.grad_fn)}
    wanted, other = (x, out) if name in INPUT_SAVERS else (out, x)
    assert wanted.untyped_storage().data_ptr() in held
    assert other.untyped_storage().data_ptr() not in held


def test_silu_is_silu() -> None:
    """Bytes alone would not tell SiLU from another function that saves one tensor."""
    x = draw(CONFIG, torch.float32)
    out = operations(make_layer(CONFIG, torch.float32), CONFIG)["silu"](x)
    torch.testing.assert_close(out, x / (1 + (-x).exp()))


def test_a_saved_slice_keeps_its_whole_storage(metrics: dict[str, float]) -> None:
    """One column of h keeps h columns alive."""
    assert metrics["slice_keeps_ratio"] == H


# When each storage dies, by the derivatives: the forward is actions 1, 2, 3, the backward 4 (L2), 5 (f), 6 (L1).
# L1 saves x and L2 saves a; ReLU saves its output a, GELU its input z. A gradient lives for one handover.
ENDS = {
    "relu": {"x": 6, "z": 2, "a": 5, "g_a": 5, "g_z": 6},
    "gelu": {"x": 6, "z": 5, "a": 4, "g_a": 5, "g_z": 6},
}


@pytest.mark.parametrize("name", ENDS)
def test_a_storage_dies_with_the_last_backward_that_uses_it(name: str) -> None:
    """The input and its neighbours live as long as the derivative rules say, with the bytes of their shapes."""
    activation = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[name]
    lives = {life.what: life for life in lifetimes(activation, CONFIG)}
    assert {storage: life.gone for storage, life in lives.items()} == ENDS[name]
    assert {storage: life.born for storage, life in lives.items()} == {
        "x": 0, "z": 1, "a": 2, "g_a": 4, "g_z": 5,
    }  # fmt: skip
    widths = {storage: life.nbytes / (4 * T * H) for storage, life in lives.items()}
    assert widths == {"x": 1, "z": 4, "a": 4, "g_a": 4, "g_z": 4}


def test_the_figure_says_what_is_saved() -> None:
    """With ReLU z passes by and a is saved; with GELU both are saved; x always is."""
    [figure] = [f for f in run(CONFIG, lambda share, text: None).figures if f.name == "lifetimes"]
    assert isinstance(figure, Lanes)
    rows = [figure.y.categories[row].name for row in range(12)]
    assert rows == ["relu", "x", "z", "a", "g_a", "g_z", "gelu", "x", "z", "a", "g_a", "g_z"]
    saved = {span.row for span in figure.spans if span.kind == "saved"}
    assert saved == {1, 3, 7, 8, 9}
    assert {span.row for span in figure.spans if span.kind == "passing"} == {2}

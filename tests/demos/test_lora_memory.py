"""What LoRA leaves in memory, against tensors counted by hand."""

from __future__ import annotations

import math

import pytest

from runnable_demos.lab.metrics import Result
from runnable_demos.lora_memory import PRESETS, VOCABULARY, run

pytest.importorskip("bitsandbytes")

CONFIG = PRESETS["small"]
T, R = CONFIG.tokens, CONFIG.rank
HEADS, GROUPS = 32, 8


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, float]:
    """Its metrics by name."""
    return {m.name: m.value for m in result.metrics}


# --- a layer -------------------------------------------------------------------------------------

H = CONFIG.hidden
KV = H * GROUPS // HEADS
FF = H * 7 // 2
INPUTS = 6 * H + FF
"""Widths of the inputs of q, k, v, o, gate, up and down, added."""
ADAPTER = R * (2 * H + 2 * (H + KV) + 2 * H + 3 * (H + FF))
"""Parameters of the adapters of a layer."""

# Bytes a token in bf16. Whatever is trained: the inputs of both norms, Q, K, V and the output of attention,
# gate, silu(gate) and up; in fp32 1/rms of both norms and a logsumexp for each head.
PASSING = 2 * (2 * H + 2 * H + 2 * KV + 3 * FF) + 4 * (2 + HEADS)
INPUTS_OF_LINEARS = 2 * (2 * H + FF)
"""The outputs of both norms and the product of the gate; the input of o is attention's output, saved anyway."""


def test_a_frozen_linear_saves_no_input(metrics: dict[str, float]) -> None:
    """Training needs the inputs of the Linears; passing a gradient through does not."""
    assert metrics["layer_full"] == T * (PASSING + INPUTS_OF_LINEARS)
    assert metrics["layer_frozen"] == T * PASSING
    assert metrics["layer_first"] == 0


def test_an_adapter_needs_the_input_and_its_own_narrow_product(metrics: dict[str, float]) -> None:
    """Q and v share their input; on all seven, the inputs are those of full training."""
    assert metrics["layer_qv"] == T * (PASSING + 2 * H + 2 * 2 * R)
    assert metrics["layer_all"] == T * (PASSING + INPUTS_OF_LINEARS + 7 * 2 * R)


def test_casts_and_dropout_make_each_adapter_a_copy_of_its_own(metrics: dict[str, float]) -> None:
    """fp32: four bytes an input and nothing shared.

    Autocast casts that back to two bytes, and saves the casts of the adapters' weights. Dropout: its output and a
    mask of a byte.
    """
    assert metrics["layer_fp32"] == T * (PASSING + 4 * INPUTS + 7 * 4 * R)
    assert metrics["layer_autocast"] == T * (PASSING + 2 * INPUTS + 7 * 2 * R) + 2 * ADAPTER
    assert metrics["layer_dropout"] == T * (PASSING + 3 * INPUTS + 7 * 2 * R)


# --- a step --------------------------------------------------------------------------------------

W, L, S, V = CONFIG.width, CONFIG.layers, CONFIG.length, VOCABULARY
WKV, WFF = W * GROUPS // HEADS, W * 7 // 2
LINEARS = [W * W, W * WKV, W * WKV, W * W, *[W * WFF] * 3]
"""Weights of the seven Linears of a layer."""
BASE = L * (sum(LINEARS) + 2 * W) + 2 * V * W + W
SMALL_ADAPTERS = L * R * (2 * W + 2 * (W + WKV) + 2 * W + 3 * (W + WFF))


def test_states_of_what_is_trained(metrics: dict[str, float]) -> None:
    """fp32: four bytes a weight, four a gradient, eight for Adam and four a tensor for its step."""
    tensors = L * 9 + 3
    assert metrics["full_weights"] == metrics["full_gradients"] == 4 * BASE
    assert metrics["full_optimizer"] == 8 * BASE + 4 * tensors
    assert metrics["adapter_parameters"] == SMALL_ADAPTERS
    assert metrics["lora_weights"] == 4 * (BASE + SMALL_ADAPTERS)
    for way in ("lora", "qlora"):
        assert metrics[f"{way}_gradients"] == 4 * SMALL_ADAPTERS
        assert metrics[f"{way}_optimizer"] == 8 * SMALL_ADAPTERS + 4 * L * 14
    assert metrics["adapter_states"] == 4 + 4 + 8
    assert metrics["trained_share"] == SMALL_ADAPTERS / (BASE + SMALL_ADAPTERS)


def packed(n: int) -> int:
    """Bytes of ``n`` weights in NF4, doubly quantized.

    Half a byte each, a byte for 64, four for 64 · 256; a table of 16 levels and one of 256, and an offset.
    """
    return n // 2 + n // 64 + 4 * math.ceil(n / 64 / 256) + 4 * 16 + 4 * 256 + 4


def test_a_quantized_base(metrics: dict[str, float]) -> None:
    """The Linears of the layers are packed; embedding, output layer, norms and adapters are not."""
    linears = L * sum(packed(n) for n in LINEARS)
    rest = BASE - L * sum(LINEARS) + SMALL_ADAPTERS
    assert metrics["qlora_weights"] == linears + 4 * rest


def test_bytes_of_nf4(metrics: dict[str, float]) -> None:
    """Half a byte and four for 64; or half, one for 64, and four for 64 · 256; tables beside."""
    n = CONFIG.nf4_side**2
    assert metrics["nf4"] == (n / 2 + 4 * n / 64 + 4 * 16) / n
    assert metrics["nf4_double"] == packed(n) / n
    assert metrics["nf4_levels"] == 2**4


def test_saved_activations_of_a_model(metrics: dict[str, float]) -> None:
    """fp32, by hand: the layers, the last norm, the output layer's input, log-probabilities, indices, rotations.

    LoRA drops the output layer's input and the first norm's, which need no gradient, and adds seven narrow products.
    """
    passing = 4 * (4 * W + 2 * WKV + 3 * WFF) + 4 * (2 + HEADS)
    layers = L * (passing + 4 * (2 * W + WFF))
    last = 4 * W + 4 + 4 * W + 4 * V
    shared = 8 * (S + 1) + 4 + 2 * 4 * S * (W // HEADS)
    full = S * (layers + last) + shared
    assert metrics["full_activations"] == full
    lora = full - S * 4 * W - S * (4 * W + 4) + S * L * 7 * 4 * R
    assert metrics["lora_activations"] == metrics["qlora_activations"] == lora


def test_what_holds(metrics: dict[str, float]) -> None:
    """A four-bit Linear saves no input and unpacks its weight once; the traps are as PyTorch has them."""
    assert metrics["linear4bit_saves_input"] is False
    assert metrics["dequantized_again"] == 1
    for name in (
        "linear4bit_weight_frozen",
        "reentrant_loses_gradients",
        "non_reentrant_keeps_gradients",
        "starts_at_base",
        "merged_error_small",
    ):
        assert metrics[name] is True, name


def test_the_figure_adds_nothing_from_two_moments(
    result: Result, metrics: dict[str, float]
) -> None:
    """At the start of the backward there are activations and no gradients, at the update the reverse."""
    [figure] = result.figures
    places = [place.name for place in figure.x.categories]
    held = {place: {s.name: s.y[i] for s in figure.series} for i, place in enumerate(places)}
    for way in ("full", "lora", "qlora"):
        both = {k: metrics[f"{way}_{k}"] for k in ("weights", "optimizer")}
        assert held[f"{way}_start"] == both | {
            "activations": metrics[f"{way}_activations"],
            "gradients": 0,
        }
        assert held[f"{way}_update"] == both | {
            "gradients": metrics[f"{way}_gradients"],
            "activations": 0,
        }

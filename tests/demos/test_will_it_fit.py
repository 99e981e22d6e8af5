"""Peaks of six real steps against a ledger by hand, and bytes counted one by one."""

from __future__ import annotations

import math

import pytest
import torch
from bitsandbytes.functional import quantize_4bit

from runnable_demos.lab.metrics import Figure, Result
from runnable_demos.models.llama import Size
from runnable_demos.will_it_fit import PRESETS, Trainer, build, foretold, run, second_step

CONFIG = PRESETS["small"]
H, F, L, A, V, T, R = 64, 128, 2, 4, 400, 32, 1
SIZE = Size(h=H, f=F, L=L, a=A, g=A, V=V)
MATRICES = L * (4 * H * H + 3 * H * F)
TABLES = 2 * V * H
NORMS = (2 * L + 1) * H
ADAPTERS = L * R * (4 * 2 * H + 3 * (H + F))
FOUR_BIT = L * (4 * (H * H // 2 + 64 + 4) + 3 * (H * F // 2 + 128 + 4)) + L * 7 * (64 + 1024 + 4)
"""Half a byte each, a byte for each 64, four for up to 256 of those; tables and an offset a matrix."""
LOGITS = 3 * 4 * T * V  # log-softmax and two gradients, fp32
ROTARY, BATCH, LOSS = 2 * 2 * T * (H // A), 8 * T, 4 + 4
LAYER = T * (2 * H + 4) * 2 + T * 2 * (2 * H) + T * 2 * 4 * H + T * 4 * A + T * 2 * 4 * F
"""Two norms, their outputs, Q, K, V and attention's output, a number a head, and four of SwiGLU."""


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def figure(result: Result, name: str) -> Figure:
    """A figure by name."""
    return next(f for f in result.figures if f.name == name)


def by_hand() -> dict[str, int]:
    """The six peaks, each part counted by hand for this one size."""
    P = MATRICES + TABLES + NORMS
    full = 14 * P + 4 * (9 * L + 3)
    lora = 2 * P + 14 * ADAPTERS + 4 * 14 * L
    qlora = lora - 2 * MATRICES + FOUR_BIT
    rest = LOGITS + ROTARY + BATCH + LOSS
    last = T * (2 * H + 4)
    adapted = L * (LAYER + 7 * 2 * T * R) - T * (2 * H + 4) + last
    inputs = L * 2 * T * H
    update = full + 2 * P + 4 * V * H + BATCH  # the largest gradient is the table's
    return {
        "full_plain": max(full + L * LAYER + last + 2 * T * H + rest, update),
        "full_checkpointed": max(full + inputs + last + 2 * T * H + rest, update),
        "lora_plain": lora + adapted + rest,
        "lora_checkpointed": lora + inputs + last + rest,
        "qlora_plain": qlora + adapted + rest,
        "qlora_checkpointed": qlora + inputs + last + rest,
    }


def test_peaks_and_sums_are_those_counted_by_hand(result: Result) -> None:
    """Real steps and the demo's formula, each against a ledger of this size alone."""
    for name, nbytes in by_hand().items():
        assert value(result, f"{name}_peak") == nbytes, name
        way, _, schedule = name.partition("_")
        assert foretold(SIZE, T, way, R, schedule == "checkpointed") == nbytes, name  # type: ignore[arg-type]
    assert value(result, "sums_hold") is True


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("way", ["full", "lora", "qlora"])
def test_the_sum_holds_at_another_size(way: str, checkpointed: bool) -> None:
    """Fewer key-value heads than heads, another rank, more layers."""
    torch.manual_seed(2)
    size = Size(h=128, f=192, L=3, a=4, g=2, V=700)
    model = build(size, way, 3)  # type: ignore[arg-type]
    trainer, tokens = Trainer(model), torch.randint(700, (1, 48))
    trainer.step(tokens)
    model.checkpointed = checkpointed
    assert second_step(trainer, tokens).peak == foretold(size, 48, way, 3, checkpointed)  # type: ignore[arg-type]


def test_shares_and_ratios(result: Result) -> None:
    """What activations and logits are of each peak, and what checkpoints leave of it."""
    held = by_hand()
    P = MATRICES + TABLES + NORMS
    states = {
        "lora": 2 * P + 14 * ADAPTERS + 4 * 14 * L,
        "qlora": 2 * P + 14 * ADAPTERS + 4 * 14 * L - 2 * MATRICES + FOUR_BIT,
    }
    for way, nbytes in states.items():
        whole = held[f"{way}_plain"]
        assert value(result, f"{way}_activations_share") == (whole - nbytes - BATCH) / whole
    update = 4 * V * H  # the full run of this size is fullest in the update
    assert value(result, "full_activations_share") == update / held["full_plain"]
    for way in ("full", "lora", "qlora"):
        ratio = held[f"{way}_checkpointed"] / held[f"{way}_plain"]
        assert value(result, f"{way}_checkpointed_ratio") == ratio


def test_bytes_of_a_parameter(result: Result) -> None:
    """Frozen in bf16; trained with gradient, master and moments; 4 bits as the library itself packs them."""
    assert value(result, "frozen_bytes_per_param") == 2
    assert value(result, "trained_bytes_per_param") == 2 + 2 + 4 + 4 + 4
    n = 4096**2
    packed, state = quantize_4bit(
        torch.randn(n // 4096, 4096), quant_type="nf4", compress_statistics=True
    )
    parts = (packed, state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code)
    assert value(result, "nf4_bytes_per_param") == sum(p.nbytes for p in parts) / n
    assert value(result, "nf4_bytes_per_param") == pytest.approx(
        0.5 + 1 / 64 + 4 / 64 / 256, rel=3e-4
    )


def test_a_layer_of_7b_keeps_its_activations(result: Result) -> None:
    """The adapters add seven thin tensors of rank 16 to 37.5 bytes for each of s, b, h."""
    h, f, tokens = 4096, 11008, 4096
    layer = tokens * (12 * h + 4 * h + 8 * f + 4 * 32 + 8)
    assert value(result, "lora_layer_ratio") == 1 + 7 * 2 * 16 * tokens / layer


def test_the_figure_reaches_each_peak(result: Result) -> None:
    """Each third of the line is one method, and reaches its own peak."""
    steps = figure(result, "steps")
    sums = [sum(column) for column in zip(*(s.y for s in steps.series), strict=True)]
    for number, way in enumerate(("full", "lora", "qlora")):
        own = [
            y for x, y in zip(steps.series[0].x, sums, strict=True) if math.ceil(x) == number + 1
        ]
        assert max(own) + BATCH == value(result, f"{way}_plain_peak")

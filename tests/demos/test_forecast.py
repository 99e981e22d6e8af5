"""Forecasts against sums by hand, whole models, and real training steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from runnable_demos.forecast import (
    OPTIMIZERS,
    PRESETS,
    Forecasts,
    MasterAdamW,
    forecast_extended,
    forecast_whole,
    run,
    second_step_peak,
)
from runnable_demos.models.llama import LLAMA_7B, Size

P = 6_738_415_616  # parameters of Llama 2 7B
TENSORS = 32 * 9 + 3
LARGEST = 32000 * 4096
BATCH = 8 * 4096  # one int64 a token

SIZES = [
    (Size(h=16, f=24, L=4, a=2, g=1, V=40), 3, 20),  # a layer saves more than its weights
    (Size(h=48, f=120, L=4, a=4, g=2, V=24), 1, 6),  # and less
    (Size(h=24, f=64, L=6, a=2, g=2, V=300), 1, 12),  # at first the logits hide that
]


@pytest.fixture(scope="module")
def metrics() -> dict[str, float]:
    """Every metric of the small run, by name."""
    return {m.name: m.value for m in run(PRESETS["small"], lambda share, text: None).metrics}


@pytest.fixture(scope="module")
def seven() -> Forecasts:
    """Forecasts for Llama 2 7B, batch 1, 4096 tokens."""
    return forecast_extended(LLAMA_7B, 1, 4096)


@pytest.mark.parametrize(("size", "batch", "length"), SIZES)
def test_extending_equals_running_every_layer(size: Size, batch: int, length: int) -> None:
    """Peaks and their categories, for every optimizer and schedule."""
    assert forecast_extended(size, batch, length) == forecast_whole(size, batch, length)


@pytest.fixture(scope="module")
def hidden_by_logits() -> Forecasts:
    """Forecasts for a size that the demo does not use."""
    return forecast_extended(*SIZES[2])


@pytest.mark.parametrize("schedule", ["plain", "checkpointed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_forecast_equals_a_real_step(
    optimizer: str, schedule: str, hidden_by_logits: Forecasts
) -> None:
    """The live peak of a real second step."""
    real = second_step_peak(*SIZES[2], OPTIMIZERS[optimizer], schedule == "checkpointed", "cpu")
    assert hidden_by_logits[optimizer, schedule].peak.bytes == real


def test_updates_of_7b_by_hand(seven: Forecasts) -> None:
    """Peaks that lie in the update: weights, gradients and state, and one transient."""
    steps = 4 * TENSORS  # AdamW counts its steps in an fp32 number a tensor
    foreach = seven["adamw_foreach", "plain"]
    assert foreach.in_update
    assert foreach.peak.bytes == (2 + 2 + 4 + 2) * P + steps + BATCH
    master = seven["adamw_master", "checkpointed"]
    assert master.in_update
    # The last tensor, the head, has its gradient in fp32; the norm before it left its divisor.
    assert master.peak.bytes == (2 + 2 + 12) * P + 4 * LARGEST + 4 * 4096 + BATCH
    assert seven["adamw_foreach", "checkpointed"].peak == foreach.peak


def test_state_lies_idle_in_forward_and_backward(seven: Forecasts) -> None:
    """Where the peak is in the pass, optimizers differ by their state alone."""
    plain = seven["sgd", "plain"].peak.bytes
    assert seven["adamw", "plain"].peak.bytes == plain + 4 * P + 4 * TENSORS
    assert seven["adamw_master", "plain"].peak.bytes == plain + 12 * P


def test_activations_grow_by_a_layers_saved_bytes(seven: Forecasts) -> None:
    """One more layer adds its weights and what it saves: 4096 (16h + 8f + 4a + 8) bytes."""
    layer_parameters = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    saved = 4096 * (16 * 4096 + 8 * 11008 + 4 * 32 + 8)
    fewer = forecast_extended(replace(LLAMA_7B, L=31), 1, 4096)
    short, long = (told["sgd", "plain"].peak.bytes for told in (fewer, seven))
    assert long - short == 2 * layer_parameters + saved


def test_master_adamw_is_adamw() -> None:
    """On fp32 parameters the hand-written update is torch's own, and bf16 parameters follow it."""
    torch.manual_seed(0)
    start, gradients = torch.randn(5, 3), [torch.randn(5, 3) for _ in range(4)]
    p32, p16, reference = start.clone(), start.bfloat16(), start.clone()
    ours, low = MasterAdamW([p32]), MasterAdamW([p16])
    theirs = torch.optim.AdamW([reference], lr=1e-3, weight_decay=0.01)
    for g in gradients:
        p32.grad, p16.grad, reference.grad = g.clone(), g.bfloat16(), g.clone()
        for optimizer in (ours, low, theirs):
            optimizer.step()
        torch.testing.assert_close(p32, reference, rtol=1e-6, atol=1e-7)
        assert torch.equal(p16, low.state[p16]["master"].bfloat16())


def test_metrics(metrics: dict[str, float]) -> None:
    """Every real step equals its forecast, and extension loses nothing."""
    assert metrics["steps_compared"] == metrics["steps_equal"] == 3 * 8
    assert metrics["extension_exact"] is True


def test_peaks_of_the_small_preset_by_hand(metrics: dict[str, float]) -> None:
    """64 tokens and two layers: weights rule, and peaks lie where the backward ends, or in the update.

    Without an update of its own worth counting, the embedding's gradient comes last: the gradient of
    its output is alive beside all states, the tokens, and eight bytes of the loss.
    """
    tokens, layers, V = 64, 2, 32000
    batch, loss = 8 * tokens, 8
    for name, h, f, keys in (
        ("7b", 4096, 11008, 4096),
        ("13b", 5120, 13824, 5120),
        ("70b", 8192, 28672, 1024),
    ):
        layer = 2 * h * h + 2 * h * keys + 3 * h * f + 2 * h
        p = 2 * V * h + layers * layer + h
        steps = 4 * (9 * layers + 3)
        in_flight = 2 * tokens * h
        # A tensor's gradient in fp32, beside the divisor that the tensor before it left: the head's
        # after the last norm's, or of two neighbours in the MLP.
        master = 4 * max(V * h + h, f * h + f * h)
        expected = {
            "sgd": 4 * p + in_flight + batch + loss,
            "adamw": 8 * p + steps + in_flight + batch + loss,
            "adamw_foreach": 10 * p + steps + batch,
            "adamw_master": 16 * p + master + batch,
        }
        norms = ("", "_functional_norm", "_eager_norm") if name == "7b" else ("",)
        for optimizer, peak in expected.items():
            for schedule in ("plain", "checkpointed"):
                for norm in norms:  # activations are too few to matter, whatever the norm saves
                    found = metrics[f"llama_{name}{norm}_{optimizer}_{schedule}"]
                    assert found == peak, (name, norm, optimizer)
        for norm in norms[1:]:
            assert metrics[f"llama_{name}{norm}_peak_in_backward"] is False
        assert metrics[f"llama_{name}_peak_in_update"] is True
    assert metrics["llama_7b_activations"] == loss
    assert metrics["llama_7b_transients"] == 2 * V * 4096 + 2 * tokens * 4096

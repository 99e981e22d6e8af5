"""The ledger of a training step against bytes counted by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from runnable_demos import memory_breakdown
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.metrics import Result
from runnable_demos.memory_breakdown import PRESETS, Config, begin, gpt_size, thin
from runnable_demos.models.gpt import GPT
from runnable_demos.models.recipes import RECIPES, breakdown

SMALL = PRESETS["small"]
L, H, V = SMALL.layers, SMALL.width, SMALL.vocabulary

# By hand: embedding, blocks (two norms, qkv, out, up, down), last norm, head.
BLOCK = 4 * H + (3 * H * H + 3 * H) + (H * H + H) + (4 * H * H + 4 * H) + (4 * H * H + H)
PARAMETERS = V * H + L * BLOCK + 2 * H + V * H
TENSORS = 1 + L * 12 + 2 + 1
COUNTERS = 4 * TENSORS  # Adam's step is one fp32 number a tensor


@pytest.fixture(scope="module")
def result() -> Result:
    """One run of the small preset."""
    torch.manual_seed(SMALL.seed)
    return memory_breakdown.run(SMALL, lambda *_: None)


@pytest.fixture(scope="module")
def values(result: Result) -> dict[str, float]:
    """Its metrics by name."""
    return {metric.name: metric.value for metric in result.metrics}


def test_parameters_are_counted(values: dict[str, float]) -> None:
    """P is the sum over the layers, and there are as many tensors as the model has."""
    assert values["parameters"] == PARAMETERS
    assert len(list(GPT(gpt_size(SMALL)).parameters())) == TENSORS


# weights, gradients, master, m + v, in bytes a parameter: what each recipe is defined to hold
LEDGER = {
    "fp32": (4, 4, 0, 8),
    "amp": (4, 4, 0, 8),
    "bf16": (2, 2, 0, 4),
    "bf16_master": (2, 2, 4, 8),
    "bf16_master_fp32_grads": (2, 4, 4, 8),
    "bf16_master_both_grads": (2, 6, 4, 8),
}


@pytest.mark.parametrize("recipe", LEDGER)
def test_every_part_by_hand(values: dict[str, float], recipe: str) -> None:
    """Bytes are the width of the dtype times P; the moments carry a counter a tensor besides."""
    weights, gradients, master, moments = LEDGER[recipe]
    counters = COUNTERS / PARAMETERS
    expected = {
        "weights": weights,
        "gradients": gradients,
        "master": master,
        "moments": moments + counters,
        "optimizer": master + moments + counters,
        "states": weights + gradients + master + moments + counters,
    }
    for part, size in expected.items():
        found = values[f"{recipe}_{part}_bytes_per_param"]
        assert math.isclose(found, size, rel_tol=1e-12), part


def test_shares_of_a_peak_add_up(values: dict[str, float]) -> None:
    """Every byte of a peak belongs to one category."""
    for recipe in RECIPES:
        shares = [v for name, v in values.items() if name.startswith(f"{recipe.name}_peak_")]
        peak = values[f"{recipe.name}_peak_bytes"]
        assert math.isclose(sum(shares) - peak, 1)


def test_the_peak_is_the_one_that_mem_tracker_finds(values: dict[str, float]) -> None:
    """PyTorch's own tracker reads the same peak off the same fp32 step."""
    trainer, tokens = begin(SMALL, RECIPES[0])
    trainer.backward(tokens)
    trainer.update()
    tracker = MemTracker()
    tracker.track_external(trainer.model, trainer.optimizers[0], tokens)
    with tracker:
        trainer.backward(tokens)
        trainer.update()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert values["fp32_peak_bytes"] == peak


def test_adam_state_is_what_the_second_step_adds(values: dict[str, float]) -> None:
    """Both moments are there in the second backward and were not in the first: 8 B/param and counters."""
    expected = 8 + COUNTERS / PARAMETERS
    assert math.isclose(values["second_backward_rise_bytes_per_param"], expected, rel_tol=1e-12)


def test_transients_by_hand(values: dict[str, float]) -> None:
    """Foreach holds √v of all tensors at once, the loop of one at a time, fused of none.

    In the loop √v and its quotient by the bias correction exist together,
    while the last tensor's denominator still has its name.
    """
    sizes = [4 * p.numel() for p in GPT(gpt_size(SMALL)).parameters()]
    loop = max(before + 2 * size for before, size in itertools.pairwise([0, *sizes]))
    assert values["foreach_transient_bytes_per_param"] == 4
    assert math.isclose(values["forloop_transient_bytes_per_param"], loop / PARAMETERS)
    assert values["fused_transient_bytes_per_param"] == 0


def test_the_same_peak_has_another_cause(values: dict[str, float]) -> None:
    """The SGD run reaches the peak of the Adam run without any optimizer state."""
    # One more token moves the peak by a few thousandths at the small size.
    assert math.isclose(values["lookalike_peak_ratio"], 1, abs_tol=0.01)
    assert values["lookalike_optimizer_share"] == 0
    assert values["lookalike_activation_share"] > values["fp32_peak_activations_share"]


def test_master_weights_learn_what_bf16_weights_hold() -> None:
    """After an update the 16-bit weights are the rounded masters, whichever gradients are kept."""
    for recipe in RECIPES:
        if recipe.master:
            torch.manual_seed(0)
            trainer, tokens = begin(SMALL, recipe)
            trainer.backward(tokens)
            trainer.update()
            for weight, master in zip(trainer.weights, trainer.masters, strict=True):
                assert torch.equal(weight.detach(), master.bfloat16())
            assert trainer.gradients() == []


def test_the_three_ways_to_hold_gradients_step_alike() -> None:
    """16, 18 and 20 bytes a parameter hold other bytes and take the same step."""
    steps = []
    for recipe in RECIPES:
        if recipe.master:
            torch.manual_seed(0)
            trainer, tokens = begin(SMALL, recipe)
            trainer.backward(tokens)
            trainer.update()
            steps.append(torch.cat([m.flatten() for m in trainer.masters]))
    assert len(steps) == 3
    assert torch.equal(steps[0], steps[1])
    assert torch.equal(steps[0], steps[2])


def test_thinning_a_timeline_keeps_its_peak() -> None:
    """However few points are left, the highest event is among them."""
    rows = [{"other": size} for size in (3, 1, 4, 1, 5, 9, 2, 6)]
    for points in (1, 2, 3, 8, 20):
        thinned = thin(rows, points)  # type: ignore[arg-type]
        assert len(thinned) <= points
        assert (5, {"other": 9}) in thinned


def test_the_figures_show_the_metrics(result: Result, values: dict[str, float]) -> None:
    """The bars are the bytes of the metrics, and the timeline reaches the peak."""
    states, peaks, timeline = result.figures
    sums = [sum(column) for column in zip(*(s.y for s in states.series), strict=True)]
    assert sums == pytest.approx([values[f"{r.name}_states_bytes_per_param"] for r in RECIPES])
    tops = [sum(column) for column in zip(*(s.y for s in peaks.series), strict=True)]
    assert tops == [values[f"{r.name}_peak_bytes"] for r in RECIPES]
    totals = [sum(column) for column in zip(*(s.y for s in timeline.series), strict=True)]
    assert max(totals) == values["fp32_peak_bytes"]


def test_ratios_by_hand(values: dict[str, float]) -> None:
    """AMP keeps all fp32 states; master, m and v are 12 of 16 bytes; an update holds 16 + 4."""
    counters = COUNTERS / PARAMETERS
    assert values["amp_over_fp32_states"] == 1
    share = (12 + counters) / (16 + counters)
    assert math.isclose(values["bf16_master_optimizer_share"], share, rel_tol=1e-12)
    batch = SMALL.batch * (SMALL.length + 1) * 8 / PARAMETERS  # int64 tokens
    update = 4 + 4 + 8 + 4 + counters + batch
    assert math.isclose(values["fp32_update_peak_bytes_per_param"], update, rel_tol=1e-12)


def test_maxima_do_not_coincide(values: dict[str, float]) -> None:
    """Gradients are largest when activations are gone: the maxima exceed the peak when summed."""
    weights = gradients = 4 * PARAMETERS
    moments = 8 * PARAMETERS + COUNTERS
    total = values["sum_of_maxima_over_peak"] * values["fp32_peak_bytes"]
    assert total > weights + gradients + moments
    assert values["sum_of_maxima_over_peak"] > 1


def test_the_maxima_are_those_of_a_step_read_again(values: dict[str, float]) -> None:
    """Each category at its own highest moment of the second fp32 step, and their sum over the peak."""
    trainer, tokens = begin(SMALL, RECIPES[0])
    trainer.backward(tokens)
    trainer.update()
    with LiveMemory(model=trainer.model, optimizer=trainer.optimizers[0], inputs=tokens) as live:
        trainer.backward(tokens)
        trainer.update()
    maxima = sum(max(column) for column in zip(*live.timeline, strict=True))
    assert values["sum_of_maxima_over_peak"] == pytest.approx(maxima / live.peak, rel=1e-12)


def test_the_lookalike_by_hand(values: dict[str, float]) -> None:
    """The SGD step nearest to Adam's peak, at the backward of cross-entropy.

    Alive are the weights, all that the graph keeps for a token, two gradients of the logits, the
    int64 tokens, and two scalars of the loss.
    """
    block = 16 * 4 * H + 4 * SMALL.heads + 4 * 4  # 16h numbers, logsumexp, two norms' statistics
    kept = L * block + (4 * H + 2 * 4) + 4 * H + 4 * V  # last norm, head's input, log-softmax

    def activations(length: int) -> int:
        return SMALL.batch * length * kept + 8

    def peak(length: int) -> int:
        tokens = SMALL.batch * length
        inputs = 8 * SMALL.batch * (length + 1)
        return 4 * PARAMETERS + activations(length) + 2 * 4 * V * tokens + inputs

    adam = values["fp32_peak_bytes"]
    length = min(range(1, 500), key=lambda n: abs(peak(n) - adam))
    assert values["lookalike_peak_ratio"] == peak(length) / adam
    assert values["lookalike_activation_share"] == activations(length) / peak(length)


def test_a_bigger_batch_moves_activations_alone() -> None:
    """Twice the batch leaves the states as they are."""
    double = Config(**{**SMALL.__dict__, "batch": 2 * SMALL.batch})
    once = breakdown(*begin(SMALL, RECIPES[0]))
    twice = breakdown(*begin(double, RECIPES[0]))
    assert once.held == twice.held

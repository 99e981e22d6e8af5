"""Peaks and leaks of a small residual network, against a ledger by hand."""

from __future__ import annotations

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from runnable_demos.lab.metrics import Result
from runnable_demos.oom_diagnosis import PRESETS, Network, run

CONFIG = PRESETS["small"]
H, L, ROWS, FEW = CONFIG.width, CONFIG.layers, CONFIG.rows_large, CONFIG.rows_small
P = L * (2 * 4 * H * H + 4 * H + H)
GRAPH = 4 * ROWS * H * (L * (4 + 4 + 1))  # GELU's input and output, and each block's sum


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_second_step_adds_the_moments_where_the_backward_is_the_peak(result: Result) -> None:
    """Eight bytes a parameter and a counter for each tensor; none where the step is the peak anyway."""
    counters = 4 * 4 * L
    assert value(result, "second_step_adds_large") == pytest.approx(8 + counters / P, rel=1e-12)
    assert value(result, "second_step_adds_small") == 0
    assert value(result, "third_step_adds") == 0


def test_gradients_that_are_zeroed_in_place_stay(result: Result) -> None:
    """They are there when the next backward begins: four bytes a parameter."""
    assert value(result, "kept_gradients_add") == 4


def test_culprits_differ(result: Result) -> None:
    """Activations fill the large batch's peak, states and scratch the small one's."""
    assert value(result, "activations_share_large") > 0.5 > value(result, "states_share_large")
    assert value(result, "states_share_small") > 0.5
    assert value(result, "activations_share_small") < 0.05


def test_each_cure_helps_against_its_own_culprit(result: Result) -> None:
    """Checkpointing leaves the step's peak as it is, and a fused optimizer the backward's."""
    assert value(result, "checkpointed_large") < 0.9
    assert value(result, "checkpointed_small") == 1
    assert value(result, "fused_large") == 1
    assert value(result, "fused_small") < 0.9


def second_step(rows: int, *, checkpointed: bool = False, fused: bool = False) -> dict[str, int]:
    """What is alive at the peak of the second step, by PyTorch's own tracker."""
    model = Network(CONFIG, checkpointed=checkpointed)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=not fused, fused=fused)
    x = torch.randn(rows, H)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        step()
    return {str(k): v for k, v in tracker.get_tracker_snapshot("peak")[torch.device("cpu")].items()}


def test_peaks_are_those_of_pytorchs_own_tracker(result: Result) -> None:
    """Both cures on both batches, over the peak without."""
    for name, rows in (("large", ROWS), ("small", FEW)):
        plain = second_step(rows)["Total"]
        checkpointed = second_step(rows, checkpointed=True)["Total"]
        fused = second_step(rows, fused=True)["Total"]
        assert value(result, f"checkpointed_{name}") == checkpointed / plain
        assert value(result, f"fused_{name}") == fused / plain


def test_shares_are_those_of_pytorchs_own_tracker(result: Result) -> None:
    """Activations by its categories; states are weights, gradients, moments and a counter a tensor."""
    large, small = second_step(ROWS), second_step(FEW)
    activations = large["_MemRefType.ACT"] / large["Total"]
    assert value(result, "activations_share_large") == activations
    moments = 8 * P + 4 * 4 * L  # four tensors a block
    assert value(result, "states_share_large") == (4 * P + moments) / large["Total"]
    assert value(result, "activations_share_small") == small["_MemRefType.ACT"] == 0
    assert value(result, "states_share_small") == (4 * P + 4 * P + moments) / small["Total"]


def test_the_small_batch_peaks_at_the_step(result: Result) -> None:
    """Parameters, moments, gradients, and foreach's scratch as large as the parameters: 4 + 8 + 4 of 20."""
    assert value(result, "states_share_small") == pytest.approx(16 / 20, rel=0.01)


def test_leaks(result: Result) -> None:
    """A validation loop keeps whole graphs; an attribute of ctx its tensor; a mended loop nothing."""
    assert value(result, "leak_validation") == GRAPH
    assert value(result, "leak_validation_over_graph") == 1
    assert value(result, "leak_stashed") == 4 * ROWS * H
    assert value(result, "leak_training") == 0
    assert value(result, "leak_item") == 0


def test_nodes_that_stay_behind(result: Result) -> None:
    """A block is two matrices (addmm, and a transpose for each), GELU and a sum; then loss and total.

    The accumulators of the parameters are shared by all steps; x asks for no gradient.
    """
    blocks = L * (2 + 2 + 1 + 1)
    loss = 2  # square and mean
    assert value(result, "nodes_a_step") == blocks + loss + 1


def test_an_exception_holds_the_frame_that_raised(result: Result) -> None:
    """While it is handled everything of the failed step is alive; then all of it is freed."""
    assert value(result, "held_in_except") == 1
    assert value(result, "held_after_except") == 0


def test_the_first_two_steps_are_drawn_as_they_were(result: Result) -> None:
    """Each step's peak is on it, the states stand between them, and activations are twice the same."""
    figure = next(figure for figure in result.figures if figure.name == "steps")
    parts = {series.name: series.y for series in figure.series}
    counters = 4 * 4 * L
    states = parts["optimizer"]
    begun = next(i for i, nbytes in enumerate(states) if nbytes)  # once the first update is over
    assert set(states[begun:]) == {8 * P + counters}
    assert max(parts["gradients"]) == 4 * P
    assert set(parts["parameters"]) == {4 * P + 4 * ROWS * H}  # with the batch
    first, second = slice(None, begun), slice(begun, None)
    assert max(parts["activations"][first]) == max(parts["activations"][second]) > GRAPH
    totals = [sum(column) for column in zip(*parts.values(), strict=True)]
    rise = max(totals[second]) - max(totals[first])
    assert rise / P == value(result, "second_step_adds_large")
    assert max(totals) == second_step(ROWS)["Total"]

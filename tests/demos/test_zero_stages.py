"""Bytes a rank under each ZeRO stage, against the paper's formulas and counts by hand."""

from __future__ import annotations

import pytest

from runnable_demos import zero_stages
from runnable_demos.lab.mechanisms import Shards
from runnable_demos.lab.metrics import Result
from runnable_demos.zero_stages import PRESETS, run
from tests.demos.told import told

CONFIG = PRESETS["small"]
N, LAYERS, WIDTH = CONFIG.ranks, CONFIG.layers, CONFIG.width
PARAMETERS = LAYERS * WIDTH * WIDTH
COUNTER = 4 / PARAMETERS  # Adam's step count, one fp32 number for a parameter tensor


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


# (parameters, gradients, moments, step counters on a rank) in bytes; by Rajbhandari et al., figure 1
FORMULA = {
    0: (4, 4, 8, LAYERS),
    1: (4, 4, 8 / N, LAYERS / N),
    2: (4 / N, 4 / N, 8 / N, LAYERS),
    3: (4 / N, 4 / N, 8 / N, LAYERS),
}


@pytest.mark.parametrize("stage", FORMULA)
def test_states_are_the_formula_to_the_byte(result: Result, stage: int) -> None:
    """Each stage divides one state more by N; FSDP's stage 2 keeps sharded parameters as well."""
    parameters, gradients, moments, counters = FORMULA[stage]
    optimizer = moments + counters * COUNTER
    assert value(result, f"stage{stage}_parameters") == parameters
    assert value(result, f"stage{stage}_gradients") == gradients
    assert value(result, f"stage{stage}_optimizer") == pytest.approx(optimizer, rel=1e-12)
    total = parameters + gradients + optimizer
    assert value(result, f"stage{stage}_states") == pytest.approx(total, rel=1e-12)


def test_shards_make_up_what_they_are_cut_from(result: Result) -> None:
    """What a stage divides is cut in N pieces that lie end to end; all else every rank holds whole."""
    figure = next(figure for figure in result.figures if isinstance(figure, Shards))
    cut_from = {"optimizer": 1, "gradients": 2, "parameters": 2}  # FSDP2 shards these in stage 2
    for stage in range(4):
        names = ["parameters", "gradients", "optimizer", *["gathered"] * (stage == 2)]
        assert set(figure.wholes(stage)) == set(names)
        for name in names:
            held = [b for b in figure.boxes if (b.group, b.kind) == (stage, name)]
            size = {"parameters": 4, "gathered": 4, "gradients": 4}.get(name, 8)
            assert held[0].whole == pytest.approx(size, rel=N * LAYERS * COUNTER)
            assert len(held) == N
            if stage >= cut_from.get(name, 4):
                edges = [0.0, *(box.end for box in held)]
                assert [box.start for box in held] == edges[:-1]
                assert edges[-1] == held[0].whole
                assert edges[1] == pytest.approx(size / N, rel=N * LAYERS * COUNTER)
            else:
                assert {(box.start, box.end) for box in held} == {(0, held[0].whole)}
        formula = sum(FORMULA[stage][:3]) + FORMULA[stage][3] * COUNTER + 4 * (stage == 2)
        assert figure.held(stage, 0) == pytest.approx(formula, rel=1e-12)


def test_only_stage_two_of_fsdp_keeps_gathered_parameters(result: Result) -> None:
    """All fp32 weights lie gathered between forward and backward, or none."""
    gathered = [value(result, f"stage{stage}_gathered") for stage in range(4)]
    assert gathered == [0, 0, 4, 0]
    excess = value(result, "stage2_with_gathered") - (4 + (4 + 8) / N)
    assert excess == pytest.approx(4 / N + LAYERS * COUNTER, rel=1e-9)  # the shard beside the whole


def test_ddp_by_default_holds_every_gradient_twice(result: Result) -> None:
    """The buckets are as large as the gradients unless the gradients are views of them."""
    assert value(result, "ddp_bucket_bytes") == 4
    expected = 4 + 4 + 4 + 8 + LAYERS * COUNTER
    assert value(result, "ddp_default_states") == pytest.approx(expected, rel=1e-12)


def test_bf16_policy_halves_what_is_gathered_and_nothing_else(result: Result) -> None:
    """The shards stay fp32, and are the master weights; the copy gathered for compute is bf16."""
    assert value(result, "bf16_states") == value(result, "stage3_states")
    assert value(result, "bf16_gathered") == 2


def test_hybrid_sharding_divides_by_the_shards_alone(result: Result) -> None:
    """Two replicas of N/2 shards: fp32 with Adam is 16 bytes over N/2."""
    expected = 16 / (N // 2) + LAYERS * COUNTER
    assert value(result, "hybrid_states") == pytest.approx(expected, rel=1e-12)


def test_whole_tensors_cannot_be_shared_evenly(result: Result) -> None:
    """With half of the weights in one matrix, a rank that owns it owns half; rows divide evenly."""
    states = [8 * PARAMETERS + 4] + [8 * WIDTH * WIDTH + 4] * LAYERS
    assert value(result, "zero1_largest_share") == pytest.approx(
        max(states[0], sum(states[1:])) / sum(states)
    )
    assert value(result, "fsdp_largest_share") == 1 / N


def test_stages_train_alike(result: Result) -> None:
    """Sharding changes where numbers lie, and not the numbers."""
    assert value(result, "weights_difference") <= 1e-6


def test_the_largest_difference_of_all_ranks_is_told() -> None:
    """The last rank alone is off by a quarter."""
    found = told(zero_stages, lambda report: report.update(difference=0.25))
    assert found["weights_difference"] == 0.25

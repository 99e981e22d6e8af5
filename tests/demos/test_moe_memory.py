"""A mixture of experts: saved bytes by hand, states by rank, and messages counted copy by copy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest
import torch
import torch.nn.functional as F

from runnable_demos import moe_memory
from runnable_demos.lab.mechanisms import Shards
from runnable_demos.lab.metrics import Result
from runnable_demos.moe_memory import (
    PRESETS,
    Expert,
    Mixture,
    WeightedGate,
    balanced,
    run,
    tokens_for,
    worst,
)
from tests.demos.told import told

CONFIG = PRESETS["small"]
N, E, K = CONFIG.ranks, CONFIG.experts, CONFIG.chosen
H, INNER, T = CONFIG.width, CONFIG.inner, CONFIG.tokens
EXPERTS = E * 3 * H * INNER  # parameters


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_a_token_uses_k_experts_and_a_batch_all_of_them(result: Result) -> None:
    """So each expert has a gradient and moments: 4 + 4 + 8 bytes, E/k times for an active one."""
    assert value(result, "experts_touched_by_token") == K
    assert value(result, "experts_touched_by_batch") == E
    assert value(result, "states_per_active") == 16 * E / K


def test_saved_bytes_are_the_hand_count(result: Result) -> None:
    """Two bytes for each number that a product, a gate or a weight needs again."""
    router, copies, outputs, gate = 2, 2 * K, 2 * K, 2 * 3
    assert value(result, "dense_per_h") == 2
    assert value(result, "dense_per_f") == gate
    assert value(result, "outside_per_h") == router + copies + outputs
    assert value(result, "inside_per_h") == router + copies
    assert value(result, "index_add_per_h") == router + copies + outputs + 2 * K
    assert value(result, "outside_per_f") == value(result, "inside_per_f") == K * gate


def test_only_experts_are_divided(result: Result) -> None:
    """Experts have 16 bytes a parameter over N ranks, the router all of them on each."""
    assert value(result, "expert_states_whole") == 16
    assert value(result, "expert_states_ep") == 16 / N
    assert value(result, "shared_states_ep") == 16


def test_messages_are_counted_copy_by_copy(result: Result) -> None:
    """Each token leaves k times; where all go to one rank, it receives those of all N."""
    assert value(result, "sent") == value(result, "received_balanced") == K
    assert value(result, "received_worst") == N * min(K, E // N)
    assert value(result, "received_least") == 0
    capacity = math.ceil(CONFIG.factor * T * K / E)
    assert value(result, "received_capacity") == N * (E // N) * capacity / T
    assert value(result, "dropped_worst") == 1 - K * capacity / (T * K)


def test_a_checkpoint_repeats_both_all_to_alls(result: Result) -> None:
    """Dispatch and combine, forward and backward; behind a checkpoint the forward's twice."""
    assert value(result, "all_to_alls") == 2 + 2
    assert value(result, "all_to_alls_checkpointed") == 2 + 2 + 2


def test_experts_elsewhere_compute_the_same(result: Result) -> None:
    """Outputs and gradients of real ranks agree with those of one process."""
    assert value(result, "difference") <= 1e-5


def test_the_rank_that_is_furthest_off_is_told() -> None:
    """The last rank alone is off by a quarter."""
    found = told(moe_memory, lambda report: report.update(difference=0.25))
    assert found["difference"] == 0.25


def test_the_mixture_is_the_sum_over_its_experts() -> None:
    """Token by token, with softmax over the chosen ones, by the definition; weights in or outside."""
    torch.manual_seed(0)
    model = Mixture(CONFIG).double()
    x = torch.randn(10, H).double()
    logits = model.router(x)
    expected = torch.zeros_like(x)
    for t in range(len(x)):
        best = logits[t].argsort(descending=True)[:K]
        weights = logits[t, best].softmax(-1)
        for w, e in zip(weights, best, strict=True):
            own = cast(Expert, model.experts[int(e)])
            expected[t] += w * own.down(F.silu(own.gate(x[t])) * own.up(x[t]))
    for inside in (False, True):
        for model.by_index_add in (False, True):
            model.inside = inside
            assert torch.allclose(model(x), expected, atol=1e-6)  # the router's softmax is fp32


def test_weighted_gate_has_the_right_gradients() -> None:
    """By finite differences."""
    torch.manual_seed(0)
    x, y = (torch.randn(3, 5).double().requires_grad_() for _ in range(2))
    w = torch.randn(3, 1).double().requires_grad_()
    assert torch.autograd.gradcheck(WeightedGate.apply, (x, y, w))


def test_the_capacity_keeps_the_first_copies() -> None:
    """With room for one token an expert, only the first is computed; the others get zeros."""
    torch.manual_seed(0)
    model = Mixture(CONFIG)
    x = tokens_for(CONFIG, worst(CONFIG))
    whole = model(x)
    model.capacity = 1
    limited = model(x)
    assert torch.allclose(limited[0], whole[0], atol=1e-6)
    assert not limited[1:].any()
    assert model.dropped == pytest.approx(1 - 1 / T)


def test_tokens_go_where_they_are_told() -> None:
    """The router chooses what is written into the tokens."""
    torch.manual_seed(0)
    for choices in (balanced(CONFIG), worst(CONFIG)):
        logits = Mixture(CONFIG).router(tokens_for(CONFIG, choices))
        assert torch.equal(logits.topk(K).indices.sort().values, choices.sort().values)


def test_expected_drops_are_those_of_all_outcomes() -> None:
    """Three tokens that choose two of three experts: every outcome, one by one."""
    config = replace(CONFIG, tokens=3, experts=3, chosen=2)
    pairs = [(0, 1), (0, 2), (1, 2)]
    dropped = 0
    for outcome in ((a, b, c) for a in pairs for b in pairs for c in pairs):
        counts = [sum(e in pair for pair in outcome) for e in range(3)]
        dropped += sum(max(0, n - 2) for n in counts)  # room for 1.0 × 3 × 2 / 3
    assert moe_memory.expected_drop(config, 3, 1.0) == pytest.approx(dropped / 27 / 6)


@pytest.mark.parametrize(
    ("name", "experts", "factor"),
    [
        ("dropped_at_100", E, 1.0),
        ("dropped_at_125", E, 1.25),
        ("dropped_many_experts", 8 * E, 1.25),
    ],
)
def test_drops_are_those_of_coins(result: Result, name: str, experts: int, factor: float) -> None:
    """An expert's tokens are T coins with chance k/E, tossed one by one; five errors of scatter."""
    chances = [1.0]  # of 0, 1, … tokens
    for _ in range(T):
        p = K / experts
        chances = [
            (chances[n] * (1 - p) if n < len(chances) else 0) + (chances[n - 1] * p if n else 0)
            for n in range(len(chances) + 1)
        ]
    room = math.ceil(factor * T * K / experts)
    expected = experts * sum(c * max(0, n - room) for n, c in enumerate(chances)) / (T * K)
    metric = next(m for m in result.metrics if m.name == name)
    assert metric.error is not None and metric.closed_form == pytest.approx(expected)
    assert abs(metric.value - expected) <= 5 * metric.error


def test_figure_holds_what_the_ranks_hold(result: Result) -> None:
    """Experts are cut into N equal pieces; what arrives is equal, or all on rank 0."""
    figure = next(figure for figure in result.figures if isinstance(figure, Shards))
    states, hidden = 16 * EXPERTS, 4 * T * H
    assert figure.wholes(0) == {"experts": states}
    assert all(figure.held(0, rank) == states for rank in range(N))
    assert all(figure.held(1, rank) == states / N + K * hidden for rank in range(N))
    assert figure.held(2, 0) == states / N + N * K * hidden
    assert all(figure.held(2, rank) == states / N for rank in range(1, N))
    padded = N * (E // N) * math.ceil(CONFIG.factor * T * K / E) / T
    assert all(figure.held(3, rank) == states / N + padded * hidden for rank in range(N))

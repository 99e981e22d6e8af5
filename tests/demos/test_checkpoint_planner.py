"""The planner against brute force, and its profiles against bytes counted by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise

import pytest
import torch
from functorch.compile import aot_module, nop
from torch import nn
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition

from runnable_demos import checkpoint_planner
from runnable_demos.checkpoint_planner import (
    PRESETS,
    Forecast,
    Plan,
    Profile,
    Profiles,
    Segment,
    UnevenBlock,
    agrees_with_brute_force,
    all_plans,
    apply_plan,
    choose,
    forecast,
    measure_peaks,
    profile_segments,
    run,
    uniform,
)
from runnable_demos.lab.measure import count_flops
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.models.stacks import run_layers
from tests.demos.tracker import tracked_peak


def simulate(
    parts: list[tuple[int, int, bool]], costs: dict[tuple[int, int, bool], Profile]
) -> int:
    """The highest point of a step, by walking through it: forwards up, backwards down."""
    level, highest = 0, 0
    for part in parts:
        highest = max(highest, level + costs[part].forward_peak)
        level += costs[part].held
    for part in reversed(parts):
        level -= costs[part].held
        highest = max(highest, level + costs[part].backward_peak)
    return highest


def every_way(layers: int) -> list[list[tuple[int, int, bool]]]:
    """All plans, by choosing cut points and then which parts to recompute."""
    ways = []
    for count in range(layers):
        for cuts in combinations(range(1, layers), count):
            edges = [0, *cuts, layers]
            parts = list(pairwise(edges))
            for mask in range(2 ** len(parts)):
                flags = [bool(mask >> i & 1) for i in range(len(parts))]
                if all(flag or b - a == 1 for (a, b), flag in zip(parts, flags, strict=True)):
                    ways.append([(a, b, f) for (a, b), f in zip(parts, flags, strict=True)])
    return ways


@pytest.mark.parametrize("seed", range(60))
def test_the_chosen_plan_is_as_cheap_as_the_best_of_all(seed: int) -> None:
    """No plan within the budget repeats fewer FLOPs, by an enumeration and a walk of the test's own."""
    draw = random.Random(seed)
    layers = draw.randint(1, 6)
    ways = every_way(layers)
    costs = {
        part: Profile(*(draw.randint(0, 40) for _ in range(4))) for way in ways for part in way
    }
    budget = draw.randint(5, 120)
    fitting = [
        sum(costs[part].flops for part in way) for way in ways if simulate(way, costs) <= budget
    ]
    plan = choose(layers, {Segment(*part): cost for part, cost in costs.items()}, budget)
    if plan is None:
        assert fitting == []
    else:
        parts = [(s.start, s.stop, s.recompute) for s in plan]
        assert simulate(parts, costs) <= budget
        assert sum(costs[part].flops for part in parts) == min(fitting)


def test_the_number_of_plans_is_every_second_fibonacci_number() -> None:
    """Cutting n layers, with two choices for parts of one layer, gives F(2n+1) plans."""
    fibonacci = [1, 1]
    while len(fibonacci) < 14:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert [len(set(all_plans(n))) for n in range(1, 7)] == [fibonacci[2 * n] for n in range(1, 7)]


def test_a_kept_block_holds_what_its_operators_save() -> None:
    """LayerNorm keeps its input and two statistics a row, up its input, GELU its input, down its input."""
    batch, d, h, e = 8, 16, 48, 24
    block = UnevenBlock(d, h, e)
    held = measure_peaks([block], block, batch, d).held
    assert held == 4 * batch * (d + 2 + d + h + h)


def test_a_recomputed_segment_holds_its_input_alone() -> None:
    """Whatever its length, a checkpointed segment keeps one tensor of its first layer's width."""
    layers = [UnevenBlock(16, 64, 32), UnevenBlock(32, 96, 8)]
    plan = (Segment(0, 2, recompute=True),)
    assert measure_peaks(layers, lambda x: apply_plan(layers, plan, x), 8, 16).held == 4 * 8 * 16


def test_recompute_stops_before_the_last_matrix_product() -> None:
    """The last linear layer's output is needed by nobody, so a block of its own repeats only the first."""
    batch, d, h, e = 8, 16, 48, 24
    profiles = profile_segments(lambda: [UnevenBlock(d, h, e)], batch, "cpu")
    assert profiles[Segment(0, 1, recompute=True)].flops == 2 * batch * d * h
    assert profiles[Segment(0, 1, recompute=False)].flops == 0


def test_every_plan_computes_the_same_gradients() -> None:
    """A plan changes what is kept, not what is computed: gradients are equal bit for bit."""
    torch.manual_seed(0)
    layers = [UnevenBlock(8, 24, 16), UnevenBlock(16, 16, 8), UnevenBlock(8, 40, 8)]
    parameters = [p for layer in layers for p in layer.parameters()]
    x = torch.randn(4, 8)
    expected = torch.autograd.grad(run_layers(layers, x).square().sum(), parameters)
    for plan in all_plans(3):
        got = torch.autograd.grad(apply_plan(layers, plan, x).square().sum(), parameters)
        assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_forecasts_on_fake_tensors_hold_on_real_ones() -> None:
    """Peak and FLOPs of each plan of three layers are foretold exactly, not only those on the frontier."""
    widths, hidden, batch = [16, 8, 32, 16], [64, 24, 48], 32

    def stack() -> list[UnevenBlock]:
        return [UnevenBlock(d, h, e) for d, h, e in zip(widths, hidden, widths[1:], strict=False)]

    profiles = profile_segments(stack, batch, "cpu")
    layers = stack()

    def flops(forward: object) -> int:
        z = torch.ones(batch, widths[0], requires_grad=True)
        return count_flops(lambda: forward(z * 1.0).sum().backward())  # type: ignore[operator]

    base = flops(lambda x: run_layers(layers, x))
    for plan in all_plans(3):
        forward = lambda x, plan=plan: apply_plan(layers, plan, x)  # noqa: E731 - bound to its plan
        step = measure_peaks(layers, forward, batch, widths[0])
        expected = forecast(plan, profiles)
        assert expected.peak == max(step.forward_peak, step.backward_peak)
        assert expected.flops == flops(forward) - base


def test_uniform_segments_cover_all_layers_once() -> None:
    """Segments follow each other without gaps, and only the last may be shorter."""
    plan = uniform(7, 3)
    assert [(s.start, s.stop) for s in plan] == [(0, 3), (3, 6), (6, 7)]


def test_the_demo_finds_its_own_claims_true() -> None:
    """At small size the forecasts hold, brute force agrees and the leanest plan is below all others."""
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, what: None).metrics}
    assert metrics["peaks_as_predicted"] is True
    assert metrics["equals_brute_force"] is True
    assert metrics["partitioner_dominated"] is True
    assert metrics["peak_leanest"] <= min(metrics["peak_each_block"], metrics["peak_root"])
    assert metrics["peak_planned"] <= metrics["peak_root"]
    assert metrics["overhead_planned"] <= metrics["overhead_root"]
    assert metrics["overhead_layerwise"] == 0.0 < metrics["overhead_within"]
    assert metrics["peak_layerwise"] < metrics["peak_kept"]


def by_the_tracker(layers: list[UnevenBlock], batch: int, width: int) -> int:
    """The peak with a graph of each layer and half of PyTorch's own budget, by PyTorch's own tracker."""
    with functorch_config.patch(activation_memory_budget=0.5):
        graphs = nn.Sequential(
            *(
                aot_module(
                    layer,
                    fw_compiler=nop,
                    bw_compiler=nop,
                    partition_fn=min_cut_rematerialization_partition,
                )
                for layer in layers
            )
        )
        graphs(torch.ones(batch, width, requires_grad=True)).sum().backward()  # compiles
        return tracked_peak(graphs, layers, (batch, width))


@cache
def by_all_plans() -> dict[str, float]:
    """Every plan is applied and its peak read; what it repeats is a sum of products by hand."""
    config = PRESETS["small"]
    draw = random.Random(config.seed)
    n = config.layers
    widths = [draw.randint(1, 4) * config.unit for _ in range(n + 1)]
    hidden = [draw.randint(2, 12) * config.unit for _ in range(n)]
    sizes = list(zip(widths, hidden, widths[1:], strict=False))
    layers = [UnevenBlock(*size) for size in sizes]
    up, down = (
        [2 * config.batch * a * b for a, b in pairs]
        for pairs in zip(*(((d, h), (h, e)) for d, h, e in sizes), strict=True)
    )
    whole_step = 3 * (sum(up) + sum(down))

    def repeated(way: list[tuple[int, int, bool]]) -> int:
        """All products of a recomputed part but its last one."""
        return sum(sum(up[a:b]) + sum(down[a : b - 1]) for a, b, again in way if again)

    def peak(way: list[tuple[int, int, bool]]) -> int:
        plan = tuple(Segment(*part) for part in way)
        step = measure_peaks(layers, lambda x: apply_plan(layers, plan, x), config.batch, widths[0])
        return max(step.forward_peak, step.backward_peak)

    points = [(peak(way), repeated(way)) for way in every_way(n)]

    def equal_parts(k: int) -> tuple[int, int]:
        way = [(i, min(i + k, n), True) for i in range(0, n, k)]
        return peak(way), repeated(way)

    root, each, one = equal_parts(2), equal_parts(1), equal_parts(n)
    kept = peak([(i, i + 1, False) for i in range(n)])
    lowest = min(p for p, _ in points)
    leanest = (lowest, min(f for p, f in points if p == lowest))
    cheapest = min(f for p, f in points if p <= root[0])
    planned = (min(p for p, f in points if f == cheapest), cheapest)
    layerwise = by_the_tracker(layers, config.batch, widths[0])
    within = min(f for p, f in points if p <= layerwise)
    named = {"each_block": each, "root": root, "leanest": leanest, "planned": planned}
    undominated = {
        p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)
    }
    return {
        **{f"peak_{name}": peak for name, (peak, _) in named.items()},
        **{f"overhead_{name}": flops / whole_step for name, (_, flops) in named.items()},
        "peak_kept": kept,
        "peak_whole": one[0],
        "peak_layerwise": layerwise,
        "overhead_within": within / whole_step,
        "plans_on_frontier": len(undominated),
    }


def test_the_numbers_of_the_demo_are_those_of_all_plans() -> None:
    """Peaks and overheads of every named plan, and the number of plans that no other one beats."""
    config = PRESETS["small"]
    metrics = {m.name: m.value for m in run(config, lambda share, what: None).metrics}
    expected = by_all_plans()
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["random_cases"] == config.random_cases


Choice = Callable[[int, Profiles, int], Plan | None]


@pytest.mark.parametrize("low", range(10, 90, 16))
def test_a_planner_that_errs_for_some_budgets_is_found_out(
    low: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Budgets of any size are tried: giving up, or repeating too much, shows within each fifth."""
    right: Choice = choose

    def gives_up(layers: int, profiles: Profiles, budget: int) -> Plan | None:
        return None if low <= budget < low + 17 else right(layers, profiles, budget)

    def wasteful(layers: int, profiles: Profiles, budget: int) -> Plan | None:
        plan = right(layers, profiles, budget)
        if plan is None or not low <= budget < low + 17:
            return plan
        fitting = (p for p in all_plans(layers) if forecast(p, profiles).peak <= budget)
        return max(fitting, key=lambda p: forecast(p, profiles).flops)

    assert agrees_with_brute_force(300, 0)
    for wrong in (gives_up, wasteful):
        monkeypatch.setattr(checkpoint_planner, "choose", wrong)
        assert not agrees_with_brute_force(300, 0)


def test_a_planner_that_exceeds_its_budget_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five bytes too many are noticed."""
    right: Choice = choose
    beyond: Choice = lambda layers, profiles, budget: right(layers, profiles, budget + 5)  # noqa: E731
    monkeypatch.setattr(checkpoint_planner, "choose", beyond)
    assert not agrees_with_brute_force(300, 0)


def test_as_many_cases_are_tried_as_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on profiles and a budget of its own."""
    seen: list[tuple[int, int]] = []
    right: Choice = choose

    def noting(layers: int, profiles: Profiles, budget: int) -> Plan | None:
        seen.append((layers, budget))
        return right(layers, profiles, budget)

    monkeypatch.setattr(checkpoint_planner, "choose", noting)
    assert agrees_with_brute_force(100, 0)
    assert len(seen) == 100
    assert len({budget for _, budget in seen}) > 40
    assert {layers for layers, _ in seen} == {1, 2, 3, 4, 5, 6}


def test_a_wrong_forecast_and_a_better_partitioner_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """One FLOP too many in a profile, or a point of PyTorch's below the frontier, and the demo says so."""
    profile = checkpoint_planner.profile_segments

    def off_by_one(*arguments: object) -> dict[Segment, Profile]:
        found = profile(*arguments)  # type: ignore[arg-type]
        return {
            s: Profile(p.held, p.forward_peak, p.backward_peak, p.flops + 1)
            for s, p in found.items()
        }

    monkeypatch.setattr(checkpoint_planner, "profile_segments", off_by_one)
    monkeypatch.setattr(checkpoint_planner, "measure_partitioner", lambda *_: Forecast(1, 1))
    monkeypatch.setattr(checkpoint_planner, "choose", lambda layers, *_: uniform(layers, 1))
    metrics = {m.name: m.value for m in run(PRESETS["small"], lambda share, what: None).metrics}
    assert metrics["peaks_as_predicted"] is False
    assert metrics["partitioner_dominated"] is False
    assert metrics["peak_layerwise"] == 1
    assert metrics["overhead_within"] == metrics["overhead_leanest"]
    assert metrics["equals_brute_force"] is False


def test_rows_of_the_figure_are_optimal_plans_by_brute_force() -> None:
    """Each budget's row repeats the fewest FLOPs of all plans that fit; widths are what layers save."""
    config = PRESETS["small"]
    figure = {f.name: f for f in run(config, lambda share, what: None).figures}["plans"]
    assert isinstance(figure, Lanes)
    draw = random.Random(config.seed)
    widths = [draw.randint(1, 4) * config.unit for _ in range(config.layers + 1)]
    hidden = [draw.randint(2, 12) * config.unit for _ in range(config.layers)]
    saved = [4 * config.batch * (2 * d + 2 + 2 * h) for d, h in zip(widths, hidden, strict=False)]
    edges = [sum(saved[:i]) for i in range(config.layers + 1)]
    profiles = profile_segments(
        lambda: [UnevenBlock(*size) for size in zip(widths, hidden, widths[1:], strict=False)],
        config.batch,
        "cpu",
    )
    costs = {(s.start, s.stop, s.recompute): p for s, p in profiles.items()}
    ways = every_way(config.layers)
    peaks = [simulate(way, costs) for way in ways]
    repeated = [sum(costs[part].flops for part in way) for way in ways]
    everything = simulate([(i, i + 1, False) for i in range(config.layers)], costs)
    for row, category in enumerate(figure.y.categories):
        spans = [s for s in figure.spans if s.row == row]
        way = [
            (edges.index(int(s.start)), edges.index(int(s.end)), s.kind == "again") for s in spans
        ]
        assert [s.label for s in spans] == [
            str(a + 1) if b == a + 1 else f"{a + 1}–{b}" for a, b, _ in way
        ]
        if category.name.isdigit():
            budget = everything * int(category.name) // 100
            fitting = [f for p, f in zip(peaks, repeated, strict=True) if p <= budget]
            assert simulate(way, costs) <= budget
            assert sum(costs[part].flops for part in way) == min(fitting)
    assert [c.name for c in figure.y.categories[-2:]] == ["root", "leanest"]
    assert way in [w for w, p in zip(ways, peaks, strict=True) if p == min(peaks)]

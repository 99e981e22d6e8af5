"""What compiled graphs keep, against counts by hand and a search over all choices.

The search takes no minimum cut: it tries every set of values and asks what the backward could then compute.
"""

from __future__ import annotations

import itertools
from functools import cache, partial

import pytest
import torch
from functorch.compile import (  # type: ignore[import-untyped]
    default_partition,
    min_cut_rematerialization_partition,
)

from runnable_demos.compile_memory import (
    LAYERS,
    NAMES,
    PRESETS,
    Compiled,
    base,
    crossing,
    functional,
    mlp,
    numbers,
    operands,
    results,
    run,
    stack,
    stacked,
)
from runnable_demos.lab.mechanisms import Tiles
from runnable_demos.lab.metrics import Result
from runnable_demos.models.llama import LlamaBlock, Size, Variant, rotary
from tests.demos.allocator import audited

CONFIG = PRESETS["small"]
S, H, F_ = CONFIG.tokens, CONFIG.width, CONFIG.inner
X = 2 * S * H
"""Bytes of the input."""
INNER = 2 * S * F_
ROW = 4 * S
"""Bytes of one fp32 number for each token."""


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_eager_saves_what_each_derivative_needs(result: Result) -> None:
    """X in fp32 for the square and the product, 1/rms, and the inputs of scale, three products, silu, gate."""
    # rsqrt saves its result, and so does the product with it: one storage.
    assert value(result, "eager_saved") == 2 * X + ROW + X + X + 4 * INNER


def test_the_default_partition_saves_the_same(result: Result) -> None:
    """It runs nothing again, so that the same values cross."""
    assert value(result, "default_saved") == value(result, "eager_saved")


def test_min_cut_keeps_what_products_read(result: Result) -> None:
    """X itself and not in fp32; the operands of the three weight gradients; gate and up; not silu."""
    assert value(result, "mincut_saved") == X + ROW + X + 2 * INNER + INNER
    assert value(result, "mincut_repeated") == 0


def test_a_budget_below_one_gives_up_operands_first(result: Result) -> None:
    """The scaled input and the product follow from x, gate and up by element-wise operators alone."""
    assert value(result, "budget_90_saved") == X + ROW + 2 * INNER
    assert value(result, "budget_90_repeated") == 0


def test_then_it_gives_up_products(result: Result) -> None:
    """One of the nine equal products of a step runs again at a half, two of them at a fifth and at zero."""
    assert value(result, "budget_50_repeated") == pytest.approx(1 / 9)
    assert value(result, "budget_20_repeated") == pytest.approx(2 / 9)
    assert value(result, "budget_0_repeated") == pytest.approx(2 / 9)
    assert value(result, "budget_50_saved") in (X + INNER, X + ROW + INNER)
    assert value(result, "budget_20_saved") == X + ROW
    assert value(result, "budget_0_saved") == X


def test_no_choice_that_repeats_no_product_keeps_less() -> None:
    """Of all sets of values from which the backward follows without products, budget 0.9 keeps a smallest."""
    made = {  # value: what it is computed from, if that is no product
        "x32": {"x"}, "rms": {"x32"}, "normed": {"x32", "rms"}, "scaled": {"normed"},
        "silu": {"gate"}, "product": {"silu", "up"},
    }  # fmt: skip
    size = {
        "x": X, "x32": 2 * X, "rms": ROW, "normed": X, "scaled": X,
        "gate": INNER, "silu": INNER, "up": INNER, "product": INNER,
    }  # fmt: skip
    needs = {"x32", "rms", "normed", "scaled", "gate", "silu", "up", "product"}
    least = min(
        sum(size[v] for v in kept)
        for n in range(len(size) + 1)
        for kept in itertools.combinations(size, n)
        if needs <= closure(set(kept), made)
    )
    cut = Compiled(mlp, min_cut_rematerialization_partition, 0.9)
    results(cut, operands(S, H, F_))
    kept = sum(size[v] for v, kind in crossing(cut).items() if kind == "kept")
    assert least == X + 2 * INNER
    assert kept in (least, least + ROW)  # 1/rms is a reduction, which is never run again by default


def closure(known: set[str], made: dict[str, set[str]]) -> set[str]:
    """All that follows from what is known."""
    while more := {v for v, parts in made.items() if parts <= known} - known:
        known = known | more
    return known


def test_the_names_are_those_of_the_values() -> None:
    """Each node that the figure names has the shape and the dtype of its value."""
    compiled = Compiled(mlp, default_partition)
    results(compiled, operands(48, 32, 80))
    made = {n.name: n.meta["val"] for n in compiled.graphs[0].graph.nodes if "val" in n.meta}
    shapes = {
        "x": (32, torch.bfloat16), "x32": (32, torch.float32), "rms": (1, torch.float32),
        "normed": (32, torch.bfloat16), "scaled": (32, torch.bfloat16),
        **dict.fromkeys(("gate", "silu", "up", "product"), (80, torch.bfloat16)),
        "down": (32, torch.bfloat16),
    }  # fmt: skip
    for node, name in NAMES.items():
        width, dtype = shapes[name]
        assert (made[node].shape, made[node].dtype) == ((48, width), dtype), name
    assert numbers(compiled)["gate"] == 80 / 32


def test_the_figure_is_what_the_graphs_say(result: Result) -> None:
    """Kept values of each column add up to the bytes that autograd's hooks saw."""
    figure = next(f for f in result.figures if f.name == "crossing")
    assert isinstance(figure, Tiles)
    size = {
        "x": X, "x32": 2 * X, "rms": ROW, "normed": X, "scaled": X, "gate": INNER, "silu": INNER,
        "up": INNER, "product": INNER, "down": X,
    }  # fmt: skip
    rows = list(size)
    columns = ("eager", "mincut", "budget_90", "budget_50", "budget_0")
    for column, name in enumerate(columns):
        kept = [t for t in figure.tiles if t.column == column and t.kind == "kept"]
        assert sum(size[rows[t.row]] for t in kept) == value(result, f"{name}_saved"), name
    assert {t.kind for t in figure.tiles if t.row == rows.index("down")} == {"unused"}


def test_large_values_are_counted(result: Result) -> None:
    """By hand: x in fp32, normalized, scaled, gate, silu, up, product; then x, scaled, gate, up, product."""
    assert value(result, "eager_values") == 7
    assert value(result, "mincut_values") == 5


def test_the_peak_is_the_allocators() -> None:
    """The stack's peaks are those of the CPU allocator's own events, for tensors of the program."""
    args = list(operands(256, 32, 112))
    args += operands(256, 32, 112)[1:]
    for budget in (1.0, 0.5, 0.0):
        compiled = Compiled(stack, min_cut_rematerialization_partition, budget)
        results(compiled, args)
        with audited() as readings:
            stacked(compiled, args)
        assert readings
        for reading in readings:
            assert abs(reading.meter - reading.tensors) <= 64, budget


def test_the_budget_limits_what_is_saved_and_not_the_peak(result: Result) -> None:
    """Saved bytes fall with the budget to one input of 8 × (4 + 4f/h) of them; the peak turns up again."""
    figure = next(f for f in result.figures if f.name == "budget")
    saved, peak = figure.series
    assert list(saved.y) == sorted(saved.y, reverse=True)
    whole = LAYERS * (4 * 2 * 32 + 4 + 4 * 2 * 112)  # bytes per token that eager saves
    assert saved.y[-1] == pytest.approx(2 * 32 / whole)
    assert min(peak.y) < peak.y[0] < peak.y[-1]


def test_a_checkpoint_within_keeps_the_input_alone(result: Result) -> None:
    """Gate and up run again, which are two products; down does not."""
    assert value(result, "checkpoint_share") == 1
    assert value(result, "checkpoint_again") == 2


def test_a_layer_saves_what_is_counted_by_hand(result: Result) -> None:
    """Eager, per token: two norms, attention with grouped keys, SwiGLU; min-cut is below, the inputs lowest."""
    h, g = 2 * S * H, CONFIG.kv_heads / CONFIG.heads
    norms = 2 * (2 * h + ROW + h)  # fp32 input, 1/rms, normalized
    # The norm's result, rotated q and k, v, what attention returns, and its sum of exponentials.
    attention = h + (1 + 2 * g) * h + h + 4 * CONFIG.heads * S
    assert value(result, "block_eager_saved") == norms + attention + h + 4 * INNER
    assert value(result, "block_inputs_saved") == h
    order = [value(result, f"block_{n}_saved") for n in ("eager", "mincut", "budget", "inputs")]
    assert order == sorted(order, reverse=True)


def graph_bytes(compiled: Compiled, parameters: int) -> int:
    """Bytes of what the forward graph hands to the backward, by its own metadata, parameters left out."""
    forward, backward = compiled.graphs
    made = {n.name: n for n in forward.graph.nodes if "val" in n.meta}
    inputs = [n.name for n in forward.graph.nodes if n.op == "placeholder"]
    ours = set(inputs[len(inputs) - parameters :])
    crossed = {
        base(made[n.name]) for n in backward.graph.nodes if n.op == "placeholder" and n.name in made
    }
    return sum(n.meta["val"].nbytes for n in crossed if n.name not in ours)


@cache
def stacks() -> dict[float | None, tuple[int, int]]:
    """By budget, None for eager: bytes that cross by the graphs, and the allocator's peak of tensors."""
    torch.manual_seed(1)
    args = operands(256, 32, 112)
    args += [p for _ in range(LAYERS - 1) for p in operands(256, 32, 112)[1:]]
    found = {}
    for budget in (None, 1.0, 0.2, 0.0):
        way = (
            stack
            if budget is None
            else Compiled(stack, min_cut_rematerialization_partition, budget)
        )
        results(way, args)
        saved = LAYERS * 256 * (4 * 2 * 32 + 4 + 4 * 2 * 112)
        if isinstance(way, Compiled):
            saved = graph_bytes(way, len(args) - 1)
        with audited() as readings:
            stacked(way, args)
        found[budget] = saved, readings[-1].tensors
    return found


def test_the_stack_is_what_graphs_and_allocator_say(result: Result) -> None:
    """Saved bytes by the graphs' metadata, peaks by the allocator's events; both over those of eager."""
    told = stacks()
    saved, peak = ({b: pair[i] / told[None][i] for b, pair in told.items()} for i in (0, 1))
    assert value(result, "stack_20_saved") == pytest.approx(saved[0.2])
    assert value(result, "stack_0_saved") == pytest.approx(saved[0.0])
    for name, b in (("mincut", 1.0), ("20", 0.2), ("0", 0.0)):
        assert value(result, f"stack_{name}_peak") == pytest.approx(peak[b], rel=2e-3)


def test_a_compiled_layer_by_hand(result: Result) -> None:
    """Fused norms save their input and 1/rms; the cut keeps, for each norm, also what it returns."""
    h, g = 2 * S * H, CONFIG.kv_heads / CONFIG.heads
    attention = (1 + 2 * g) * h + h + 4 * CONFIG.heads * S  # q, k, v, the result and its log-sums
    norms = 2 * (h + ROW)
    assert value(result, "block_fused_saved") == norms + 2 * h + attention + 4 * INNER
    assert value(result, "block_mincut_saved") == norms + 2 * h + attention + 3 * INNER


@cache
def half_a_layer() -> int:
    """Bytes that cross in a layer at half the budget, by the graphs' metadata."""
    block = LlamaBlock(Size(H, F_, 1, CONFIG.heads, CONFIG.kv_heads), Variant(norm="eager"))
    weights = dict(block.named_parameters())
    compiled = Compiled(
        partial(functional, block, list(weights)), min_cut_rematerialization_partition, 0.5
    )
    x = torch.zeros(1, S, H, dtype=torch.bfloat16, requires_grad=True)
    tables = rotary(S, H // CONFIG.heads, torch.bfloat16)
    y = compiled(x, *tables, *weights.values())
    y.sum().backward()
    return graph_bytes(compiled, len(weights) + 2)


def test_half_a_layer(result: Result) -> None:
    """What autograd's hooks see is what the graphs hand over."""
    assert value(result, "block_budget_saved") == half_a_layer()


def test_shares(result: Result) -> None:
    """The input's bytes, and the cut's share of what eager saves."""
    assert value(result, "input_bytes") == X
    assert value(result, "mincut_share") == (2 * X + ROW + 3 * INNER) / (4 * X + ROW + 4 * INNER)


def test_bits(result: Result) -> None:
    """Run operator by operator, what is recomputed is what it was."""
    assert value(result, "gradients_equal") is True

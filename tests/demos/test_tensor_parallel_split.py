"""Four orders of splitting an MLP, attention by heads, and the mistakes, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from runnable_demos import tensor_parallel_split
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Tiles
from runnable_demos.lab.metrics import Figure, Result
from runnable_demos.tensor_parallel_split import PRESETS, run
from tests.demos.told import told

CONFIG = PRESETS["small"]
T, S, H = CONFIG.ranks, CONFIG.tokens, CONFIG.width


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_one_all_reduce_each_way(result: Result) -> None:
    """Ours and PyTorch's, the MLP's and attention's, forward and backward."""
    for sublayer in ("mlp", "attention", "torch"):
        for way in ("forward", "backward"):
            assert value(result, f"{sublayer}_{way}") == 1


# Passes of sh elements through a rank, by hand: (forward, backward). The hidden is four of them wide;
# an all-reduce is two passes, a gather or a scatter one.
PASSES = {
    "column_row": (2, 2),
    "column_column": (
        4 + 1,
        4 + 2,
    ),  # gather hidden, gather output; scatter hidden, all-reduce input
    "row_row": (4 + 2, 4 + 1),
    "row_column": (2 * 4 + 1, 2 * 4 + 1),
}


@pytest.mark.parametrize("order", PASSES)
def test_volume_is_a_count_of_passes(result: Result, order: str) -> None:
    """Each order sends what its collectives add up to."""
    assert value(result, f"{order}_volume") == sum(PASSES[order])
    if order in ("column_row", "row_column"):
        assert value(result, f"{order}_forward") == PASSES[order][0]


def test_the_ratio_of_the_orders(result: Result) -> None:
    """Eighteen passes over four."""
    assert value(result, "row_column_over") == 18 / 4


def test_the_ring_sends_two_halves(result: Result) -> None:
    """2 (t − 1)/t of the message, each way: t − 1 hops for each half, of a t-th part each."""
    for way in ("forward", "backward"):
        assert value(result, f"ring_{way}") == sum(1 / T for _ in range(2 * (T - 1)))


def test_what_the_mlp_saves(result: Result) -> None:
    """Input, GELU's input and GELU's output: of the hidden two, a t-th or all."""
    assert value(result, "whole_saved") == 1 + 4 + 4
    assert value(result, "column_row_saved") == 1 + (4 + 4) / T
    assert value(result, "row_column_saved") == 1 / T + 4 + 4


def test_parameters_and_copies(result: Result) -> None:
    """Weights are cut into t; one key-value head on t ranks is there t times."""
    assert value(result, "parameter_share") == 1 / T
    assert value(result, "kv_copies") == T / CONFIG.few


def test_splits_agree_with_the_whole(result: Result) -> None:
    """All orders and attention with many and few key-value heads; SwiGLU cut apart, its forward."""
    assert value(result, "error") <= 1e-12
    assert value(result, "fused_cut_right") is True


def test_the_identities_in_numpy() -> None:
    """The algebra without a rank: columns then rows is exact, rows then GELU is not."""
    rng = np.random.default_rng(1)
    X, A, B = rng.normal(size=(5, 8)), rng.normal(size=(8, 12)), rng.normal(size=(12, 8))
    columns = zip(np.split(A, 4, axis=1), np.split(B, 4, axis=0), strict=True)
    assert np.allclose(sum(np.tanh(X @ a) @ b for a, b in columns), np.tanh(X @ A) @ B)
    rows = zip(np.split(X, 4, axis=1), np.split(A, 4, axis=0), strict=True)
    parts = [x @ a for x, a in rows]
    assert np.allclose(sum(parts), X @ A)
    assert not np.allclose(sum(map(np.tanh, parts)), np.tanh(X @ A))


def test_mistakes_are_seen(result: Result) -> None:
    """A bias on each rank is added t − 1 times too often; the other three give other numbers without an error."""
    assert value(result, "bias_extra") == T - 1
    for name in ("gelu_of_parts_differs", "fused_cut_differs", "kv_unsummed_differs"):
        assert value(result, name) is True


def test_the_figure_of_steps(result: Result) -> None:
    """Shapes and states by hand: who has all, whose columns, and where only a summand."""
    figure = next(f for f in result.figures if isinstance(f, Tiles))
    all_, hidden = f"{S}×{H}", f"{S}×{4 * H}"
    own, part = f"{S}×{H // T}", f"{S}×{4 * H // T}"
    first = [
        ("whole", all_),
        ("columns", part),
        ("nothing", ""),
        ("columns", part),
        ("summand", all_),
        ("whole", all_),
    ]
    second = [
        ("columns", own),
        ("summand", hidden),
        ("whole", hidden),
        ("whole", hidden),
        ("columns", own),
        ("whole", all_),
    ]
    drawn = [(tile.kind, "".join(tile.notes)) for tile in figure.tiles]
    assert drawn == 2 * first + 2 * second


def test_the_figure_of_orders(result: Result) -> None:
    """Bars are the passes of each order."""
    figure = next(f for f in result.figures if f.name == "orders")
    assert isinstance(figure, Figure)
    for series, way in zip(figure.series, (0, 1), strict=True):
        assert list(series.y) == [passes[way] for passes in PASSES.values()]


def test_what_one_rank_finds_is_told() -> None:
    """The last rank alone is wrong, and it shows."""

    def change(report: ranks.Report) -> None:
        report["mlp"]["errors"].append(0.5)
        report["mistakes"]["right"] = 0.5
        report["mistakes"]["cut"] = 0.0
        report["torch"]["backward"] = 9
        report["mlp"]["saved"]["column_row"] = 1000 * S * H
        report["mlp"]["parameters"][0] = 0.9
        report["few"]["copies"] += 3
        report["mlp"]["calls"]["column_row"]["backward"] *= 5
        report["attention"]["calls"]["forward"] *= 7

    found = told(tensor_parallel_split, change)
    assert found["error"] == 0.5
    assert found["fused_cut_right"] is False
    assert found["fused_cut_differs"] is False
    assert found["torch_backward"] == 9
    assert found["column_row_saved"] == 1000
    assert found["parameter_share"] == 0.9
    assert found["kv_copies"] == T / CONFIG.few + 3
    assert found["mlp_backward"] == 5
    assert found["column_row_volume"] == 2 + 5 * 2
    assert found["attention_forward"] == 7

"""FSDP's peaks against a ledger kept by hand: each buffer taken and freed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runnable_demos import fsdp
from runnable_demos.fsdp import DRAWN, PRESETS, run, splits
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from tests.demos.told import told

CONFIG = PRESETS["small"]
N, LAYERS, WIDTH = CONFIG.ranks, CONFIG.layers, CONFIG.width
LAYER = 4 * WIDTH * WIDTH
COUNTERS = 4 * LAYERS  # Adam's step counts
SCALARS = 2 * 4  # the loss's gradient, and the loss


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def forward_peak(sizes: Sequence[int]) -> float:
    """Layers held beside the shards: gather into a buffer, copy out, free the buffer before, compute."""
    live = peak = before = 0.0
    for size in sizes:
        live += size  # gathered into a buffer
        live += size  # copied out
        peak = max(peak, live)
        live -= before  # the buffer of the unit before
        before = size
        live -= size  # resharded after its forward
    return peak


def backward_peak(sizes: Sequence[int], *, prefetch: bool) -> float:
    """Above the parameter and optimizer shards: what is held while each unit runs backward."""
    order = list(reversed(sizes))
    live = peak = reducing = 0.0
    buffered = False
    for i, size in enumerate(order):
        if not buffered:
            live += size
        live += size  # copied out of the buffer
        peak = max(peak, live)
        live -= size  # the buffer
        buffered = prefetch and i + 1 < len(order)
        if buffered:
            live += order[i + 1]  # the next unit is gathered into its buffer meanwhile
        live += size  # the unit's gradient
        peak = max(peak, live)
        live -= size  # resharded
        live -= reducing  # the previous unit's reduction is over
        live += size  # the buffer that this one is reduced from
        peak = max(peak, live)
        live -= size - 1  # the gradients copied into it, but for the last layer's
        live += size / N  # this rank's part of the result
        peak = max(peak, live)
        live -= 1
        reducing = size
    return peak


def test_shards_are_a_share_of_all_states(result: Result) -> None:
    """Four bytes of parameters and eight of moments over N; with gradients sixteen."""
    counters = COUNTERS / (LAYERS * WIDTH * WIDTH)
    assert value(result, "rest") == pytest.approx(12 / N + counters)
    assert value(result, "states") == pytest.approx(16 / N + counters)


def test_forward_holds_three_units(result: Result) -> None:
    """The ledger's forward peak, which is three equal units."""
    ledger = forward_peak([1] * LAYERS)
    assert ledger == 3
    assert value(result, "forward_extra_units") == ledger


@pytest.mark.parametrize(("metric", "prefetch"), [("backward", True), ("no_prefetch", False)])
def test_backward_holds_almost_four_units_or_three(
    result: Result, metric: str, prefetch: bool
) -> None:
    """The ledger's backward peak above the shards of all gradients, a scalar or two apart."""
    ledger = backward_peak([1] * LAYERS, prefetch=prefetch) - LAYERS / N
    assert ledger == (4 - 2 / N if prefetch else 3 - 1 / N)
    assert 0 <= value(result, f"{metric}_extra_units") - ledger <= SCALARS / LAYER


@pytest.mark.parametrize(("metric", "reducing"), [("bf16", 1), ("bf16_reduce_fp32", 2)])
def test_bf16_halves_the_buffers_and_not_the_shards(
    result: Result, metric: str, reducing: int
) -> None:
    """Parameters, gradient, a buffer gathered and one reduced; two fp32 gradient shards are to come.

    Or, with few ranks, while that unit is reduced: its gradient, the buffer gathered, the one reduced
    and, where that is bf16, its result beside the fp32 copy; one fp32 gradient shard is to come.
    """
    computing = 3 + reducing - 2 * 2 / N
    reduced = 2 + reducing + (reducing == 1) / N - 2 / N
    ledger = max(computing, reduced)
    assert 0 <= value(result, f"{metric}_extra_units") - ledger <= 2 * SCALARS / LAYER


def test_the_largest_unit_decides(result: Result) -> None:
    """A unit of half the layers among single ones: twice itself and one neighbour on each side."""
    big = LAYERS // 2
    sizes = [*[1] * (LAYERS // 4), big, *[1] * (LAYERS // 4)]
    ledger = (backward_peak(sizes, prefetch=True) - LAYERS / N) / big
    assert 0 <= value(result, "lopsided_extra_units") - ledger <= SCALARS / LAYER
    peak = (16 / N) + 4 * ledger * big / LAYERS
    few = (COUNTERS + SCALARS) / (LAYERS * WIDTH**2)
    assert value(result, "peak_lopsided") == pytest.approx(peak, abs=few)


def test_one_unit_holds_the_whole_model_twice(result: Result) -> None:
    """All parameters, and the buffer that they are copied out of."""
    assert forward_peak([LAYERS]) == 2 * LAYERS
    assert value(result, "one_unit_extra") == 2
    assert value(result, "peak_one_unit") == pytest.approx(12 / N + 8, rel=0.01)


def test_figure_falls_with_the_number_of_units(result: Result) -> None:
    """The measured curve is the ledger's, for every number of units."""
    figure = next(f for f in result.figures if f.name == "units")
    measured = figure.series[-1]
    assert list(measured.x) == splits(LAYERS)
    for n, peak in zip(measured.x, measured.y, strict=True):
        sizes = [LAYERS // int(n)] * int(n)
        ledger = max(forward_peak(sizes), backward_peak(sizes, prefetch=True))
        expected = 12 / N + 4 * ledger / LAYERS
        assert peak == pytest.approx(expected, abs=(COUNTERS + SCALARS) / (LAYERS * WIDTH**2))
    assert value(result, "peak_layer_units") == measured.y[measured.x.index(LAYERS)]


@pytest.mark.parametrize("around", ["each", "all"])
def test_checkpointing_gathers_no_third_time(result: Result, around: str) -> None:
    """One gather for the forward, one for the backward; the recomputation uses the second."""
    assert value(result, "gathers") == 2
    assert value(result, f"gathers_checkpoint_{around}") == 2


def test_units_within_one_checkpoint_are_gathered_together(result: Result) -> None:
    """Around each unit nothing changes; around all, every unit is whole when the backward begins.

    At the peak the last unit is resharded; its gradient, the buffer that this was copied into and the
    part that came out are there: L − 1 + 1 + 1 + 1/N, above the shards of all gradients.
    """
    each = value(result, "checkpoint_each_extra_units")
    assert each == value(result, "backward_extra_units")
    ledger = (LAYERS - 1) + 1 + 1 + 1 / N - LAYERS / N
    assert 0 <= value(result, "checkpoint_all_extra_units") - ledger <= SCALARS / LAYER


def held(figure: Lanes, row: int) -> list[tuple[str, str, int, int]]:
    """What a row of the figure shows, in order."""
    return [(s.kind, s.label, int(s.start), int(s.end)) for s in figure.spans if s.row == row]


def test_the_figure_is_the_ledger_unit_by_unit(result: Result) -> None:
    """Each unit goes through the states that the ledger takes and frees, once forward and once back."""
    figure = next(f for f in result.figures if isinstance(f, Lanes))
    (_, f, _, turn), (_, b, start, _) = held(figure, 0)
    assert (f, b) == ("F", "B")
    assert turn == start
    forward = [("buffer", "1"), ("copied", "2"), ("buffer", "1")]
    backward = [
        *[("buffer", "1"), ("copied", "2"), ("whole", "1"), ("gradient", "2")],
        *[("reducing", "1"), ("reducing", "2"), ("reducing", "1")],
    ]
    for unit in range(DRAWN):
        assert [(kind, n) for kind, n, *_ in held(figure, 1 + unit)] == forward + backward
    # A unit is gathered before the one that runs before it in the backward has its gradient.
    for unit in range(DRAWN - 1):
        gathered = held(figure, 1 + unit)[len(forward)][2]
        before = [(kind, start) for kind, _, start, _ in held(figure, 2 + unit)]
        assert gathered < next(start for kind, start in before if kind == "gradient")


def test_the_figure_adds_up_to_the_peaks(result: Result) -> None:
    """Summed over the units, the figure's highest columns are the ledger's forward and backward peak."""
    figure = next(f for f in result.figures if isinstance(f, Lanes))
    turn = held(figure, 0)[0][3]
    end = held(figure, 0)[1][3]
    columns = [
        sum(
            int(n)
            for unit in range(DRAWN)
            for _, n, start, stop in held(figure, 1 + unit)
            if start <= x < stop
        )
        for x in range(end)
    ]
    assert max(columns[:turn]) == forward_peak([1] * DRAWN) == 3
    # In the ledger two of the gradient shards are still to come at the peak.
    assert max(columns[turn:]) == backward_peak([1] * DRAWN, prefetch=True) - (DRAWN - 2) / N == 4


def test_ranks_are_alike(result: Result) -> None:
    """Equal shards, equal peaks."""
    assert value(result, "ranks_agree") is True


def test_a_rank_that_differs_by_a_byte_shows() -> None:
    """Peaks of the last rank a byte higher: the ranks do not agree."""

    def change(report: ranks.Report) -> None:
        report.update({name: higher(found) for name, found in report.items()})

    def higher(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: higher(each) for name, each in found.items()}
        return found + 1 if isinstance(found, int) else found

    assert told(fsdp, change)["ranks_agree"] is False

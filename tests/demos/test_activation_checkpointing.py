"""The textbook's 12 layers in 3 segments, against the order and the counts written out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count

import pytest
import torch

from runnable_demos import activation_checkpointing
from runnable_demos.activation_checkpointing import PRESETS, bit_equal, run
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.models.gpt import Block
from runnable_demos.models.stacks import Layer, run_layers, run_segments
from runnable_demos.models.tracing import trace_step
from tests.demos.tracker import tracked_peak

CONFIG = PRESETS["small"]
SHAPE = (CONFIG.batch, CONFIG.width)
A = CONFIG.batch * CONFIG.width * 4  # bytes of one layer's output
LOSS = 8 / A  # the loss and its gradient, in activations


def span(moment: str, layers: Iterable[int]) -> list[tuple[str, int]]:
    """Consecutive events."""
    return [(moment, layer) for layer in layers]


ORDER = [
    *span("forward", range(1, 13)),
    *span("backward", [12]),
    *span("recompute", [9, 10, 11, 12]),
    *span("backward", [11, 10, 9, 8]),
    *span("recompute", [5, 6, 7, 8]),
    *span("backward", [7, 6, 5, 4]),
    *span("recompute", [1, 2, 3, 4]),
    *span("backward", [3, 2, 1]),
]


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def test_the_last_segment_runs_again_first() -> None:
    """The order of all 36 actions: the gradient arrives, then its segment is rebuilt and used."""
    layers = [Layer(CONFIG.width) for _ in range(12)]
    _, log = trace_step(layers, (4, 4, 4), SHAPE, "cpu")
    assert [(event.moment, event.layer) for event in log] == ORDER


def test_live_activations_are_those_of_a_count_by_hand() -> None:
    """The most alive in each action, written out: z is a layer's value before its ReLU, g a gradient."""
    layers = [Layer(CONFIG.width) for _ in range(12)]
    _, log = trace_step(layers, (4, 4, 4), SHAPE, "cpu")
    live = [event.live // A for event in log]
    # forward: x_0 z x_1; x_0 x_1 z x_2; x_0 x_2 z x_3; …; x_0 x_4 x_5 z x_6
    assert live[:12] == [3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6]
    # last segment: x_0 x_4 x_8 and g, with z x_9; x_9 z x_10; …; x_9 x_10 x_11 z x_12
    assert live[13:17] == [6, 7, 8, 9]
    # then x_12 goes once it is used, and g with another gradient stays
    assert live[17:20] == [9 - 1, 8 - 1, 7 - 1]
    # first segment: x_0 and g, with z x_1; …; x_1 x_2 x_3 z x_4
    assert live[29:33] == [4, 5, 6, 7]


def test_what_is_held_and_the_peaks_are_the_textbooks(metrics: dict[str, Metric]) -> None:
    """13 and 3 activations held; 13 and 3 + 4 at the peak, with two in flight."""
    assert metrics["held_none"].value == 13
    assert metrics["held_segments"].value == 3
    assert metrics["peak_none"].value == 13 + 2 + LOSS
    assert metrics["peak_segments"].value == 3 + 4 + 2 + LOSS
    assert metrics["peak_last_kept"].value == 3 + 4 + 2 + LOSS
    assert metrics["peak_each"].value == 12 + 1 + 2 + LOSS


def test_who_runs_again(metrics: dict[str, Metric]) -> None:
    """All 12 layers, from the 9th to the 4th; one forward is a third of a step, 8 layers 2/9."""
    assert metrics["layers_recomputed"].value == 12
    assert metrics["first_recomputed"].value == 9
    assert metrics["last_recomputed"].value == 4
    assert metrics["peak_segment"].value == 3
    assert metrics["recompute_overhead"].value == pytest.approx(1 / 3, rel=1e-12)
    assert metrics["recompute_overhead_last_kept"].value == pytest.approx(2 / 9, rel=1e-12)


def test_a_block_holds_what_a_count_by_hand_says(metrics: dict[str, Metric]) -> None:
    """Input, two norms with statistics, qkv, context, logsumexp, and the wide layer twice."""
    h, heads = CONFIG.hidden, CONFIG.heads
    numbers = (h + 2) + h + 3 * h + (h + heads) + (h + 2) + h + 4 * h + 4 * h
    assert metrics["block_held_none"].value == 4 * numbers
    assert metrics["block_held_each"].value == 4 * h
    assert metrics["block_held_ratio"].value == numbers / h


def test_recompute_of_a_block_stops_before_its_last_product(metrics: dict[str, Metric]) -> None:
    """By formula: all products but ``down``; the flash kernel's backward makes five, not four."""
    N, h = CONFIG.tokens, CONFIG.hidden
    linear, attention = 2 * N * 12 * h * h, 4 * N * N * h
    step = 3 * linear + attention + attention * 5 / 2
    again = linear + attention - 2 * N * 4 * h * h
    assert metrics["block_recompute_overhead"].value == pytest.approx(again / step, rel=1e-12)


def test_gradients_are_the_same_bit_by_bit(metrics: dict[str, Metric]) -> None:
    """With dropout and without; not so where the random state is not restored."""
    assert metrics["gradients_bit_equal"].value is True
    assert metrics["gradients_bit_equal_dropout"].value is True
    assert metrics["loss_equal_without_rng_state"].value is True
    assert metrics["gradients_wrong_without_rng_state"].value is True


def test_bit_equality_sees_one_bit() -> None:
    """The smallest change of one number is noticed."""
    x = torch.ones(3)
    y = x.clone()
    y[1] = torch.nextafter(y[1], torch.tensor(2.0))
    assert bit_equal([x], [x.clone()])
    assert not bit_equal([x], [y])


def test_the_figures_show_every_action(result: Result) -> None:
    """12 forwards and backwards, three segments of 4 that run again; both timelines."""
    order, live, _ = result.figures
    assert [len(series.x) for series in order.series] == [12, 12, 4, 4, 4]
    assert [len(series.x) for series in live.series] == [24, 36]


def test_lanes_show_when_each_output_is_alive(result: Result) -> None:
    """By who uses it last: layer i keeps x_i for its ReLU, and x_{i−1}; a segment's layers run again to have them."""
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    plain = [*span("forward", range(1, 13)), *span("backward", range(12, 0, -1))]

    def end(order: list[tuple[str, int]], moment: str, layer: int) -> int:
        return order.index((moment, layer)) + 1

    expected = set()
    for i in range(13):
        start = max(i - 1, 0)
        expected.add((1 + i, "saved", start, end(plain, "backward", max(i, 1))))
        if i in (0, 4, 8):  # an input of a segment, used last by its first layer
            expected.add((15 + i, "saved", start, end(ORDER, "backward", i + 1)))
        else:
            expected.add((15 + i, "dropped", start, min(i + 1, 12)))
        if i:  # the last of a segment is used as soon as it is there: its gradient has arrived
            moment = "recompute" if i in (4, 8, 12) else "backward"
            again = end(ORDER, "recompute", i)
            expected.add((15 + i, "rebuilt", again - 1, end(ORDER, moment, i)))
    actions = [span for span in figure.spans if span.row in (0, 14)]
    others = {(s.row, s.kind, s.start, s.end) for s in figure.spans if s not in actions}
    assert others == expected
    for row, order in ((0, plain), (14, ORDER)):
        told = [s.kind for s in actions if s.row == row for _ in range(int(s.end - s.start))]
        assert told == [moment for moment, _ in order]
    assert [s.label for s in actions] == [
        "1–12", "12–1", "1–12", "12", "9–12", "11–8", "5–8", "7–4", "1–4", "3–1",
    ]  # fmt: skip


def test_as_many_lanes_are_alive_as_activations_are_held(
    result: Result, metrics: dict[str, Metric]
) -> None:
    """Bytes that another meter reads between forward and backward: a lane is an activation."""
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    for first, name in ((1, "held_none"), (15, "held_segments")):
        held = [s for s in figure.spans if first <= s.row < first + 13 and s.start < 12 < s.end]
        assert len(held) == metrics[name].value


def test_blocks_peak_where_pytorchs_own_tracker_says(metrics: dict[str, Metric]) -> None:
    """Twelve blocks, without checkpoints and with one around each."""
    blocks = [Block(CONFIG.hidden, CONFIG.heads) for _ in range(12)]
    shape = (1, CONFIG.tokens, CONFIG.hidden)
    none = tracked_peak(partial(run_layers, blocks), blocks, shape)
    each = tracked_peak(partial(run_segments, blocks, (1,) * 12), blocks, shape)
    assert metrics["block_peak_ratio"].value == pytest.approx(none / each, rel=1e-12)


def test_verdicts_follow_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gradients that differ from run to run nothing is equal, with constant ones nothing wrong."""

    def verdicts(values: Iterable[int]) -> dict[str, object]:
        drawn = iter(values)
        monkeypatch.setattr(
            activation_checkpointing,
            "loss_and_gradients",
            lambda *_: [torch.full((3,), float(next(drawn))) for _ in range(2)],
        )
        found = run(CONFIG, lambda share, what: None).metrics
        return {m.name: m.value for m in found if isinstance(m.value, bool)}

    assert verdicts(count(1)) == {
        "gradients_bit_equal": False,
        "gradients_bit_equal_dropout": False,
        "loss_equal_without_rng_state": False,
        "gradients_wrong_without_rng_state": True,
    }
    assert verdicts(iter(lambda: 1, 0)) == {
        "gradients_bit_equal": True,
        "gradients_bit_equal_dropout": True,
        "loss_equal_without_rng_state": True,
        "gradients_wrong_without_rng_state": False,
    }

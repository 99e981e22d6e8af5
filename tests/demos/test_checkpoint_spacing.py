"""Peaks over the segment length, against counts by hand and all ways to cut a short stack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise, product
from math import ceil, sqrt

import pytest

from runnable_demos import checkpoint_spacing
from runnable_demos.checkpoint_spacing import PRESETS, leanest_decreasing, run
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.models.stacks import (
    Layer,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
)

CONFIG = PRESETS["small"]
L = CONFIG.layers
SHAPE = (CONFIG.batch, CONFIG.width)
A = CONFIG.batch * CONFIG.width * 4  # bytes of one layer's output
LOSS = 8  # bytes: the loss and its gradient
UNUSED = {"relu": 0, "gelu": 1}  # nobody's backward needs what the last GELU returns
SAVED = {"relu": 1, "gelu": 2}


def by_hand(lengths: Sequence[int], activation: str) -> int:
    """Bytes at the peak: inputs so far, what is rebuilt, the incoming gradient and one more."""
    s, unused = SAVED[activation], UNUSED[activation]
    return (max(i + s * n - unused for i, n in enumerate(lengths, 1)) + 2) * A + LOSS


def compositions(n: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut ``n`` layers into segments."""
    for cuts in product((False, True), repeat=n - 1):
        bounds = [0, *(i for i, cut in enumerate(cuts, 1) if cut), n]
        yield tuple(b - a for a, b in pairwise(bounds))


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_every_segment_length_peaks_where_the_count_says(activation: str) -> None:
    """Equal segments of every length, the last one shorter where it must be."""
    layers = [Layer(CONFIG.width, activation) for _ in range(L)]  # type: ignore[arg-type]
    for k in range(1, L + 1):
        lengths = [k] * (L // k) + [L % k] * (L % k > 0)
        forward = partial(run_segments, layers, equal_segments(L, k))
        step = measure_step(forward, layers, SHAPE, "cpu")
        assert step.peak == by_hand(lengths, activation)
        assert step.held == ceil(L / k) * A


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_unequal_segments_peak_where_the_count_says(activation: str) -> None:
    """Rising, falling and mixed lengths."""
    layers = [Layer(CONFIG.width, activation) for _ in range(L)]  # type: ignore[arg-type]
    for lengths in ((1, 2, 3, 6), (6, 3, 2, 1), (1, 10, 1), (5, 4, 3)):
        step = measure_step(partial(run_segments, layers, lengths), layers, SHAPE, "cpu")
        assert step.peak == by_hand(lengths, activation)


def test_without_checkpoints_all_layers_are_held() -> None:
    """ReLU: L + 1 activations and two in flight; GELU: 2L, and its output is freed."""
    for activation, all_of_them in (("relu", L + 3), ("gelu", 2 * L + 2)):
        layers = [Layer(CONFIG.width, activation) for _ in range(L)]  # type: ignore[arg-type]
        step = measure_step(partial(run_layers, layers), layers, SHAPE, "cpu")
        assert step.peak == all_of_them * A + LOSS


@pytest.mark.parametrize("s", [1, 2, 3, 8])
def test_no_way_to_cut_is_leaner_than_the_decreasing_one(s: int) -> None:
    """All cuts of up to 12 layers, in the model of the card: max of i + s·n_i."""

    def peak(lengths: Sequence[int]) -> int:
        return max(i + s * n for i, n in enumerate(lengths, 1))

    for layers in range(1, 13):
        lengths = leanest_decreasing(layers, s)
        assert sum(lengths) == layers
        assert peak(lengths) == min(peak(cut) for cut in compositions(layers))


def test_decreasing_segments_need_about_root_2sL() -> None:
    """The smallest P at which the room, the sum of ⌊(P − i)/s⌋, reaches L; rounding adds s/2 + 1."""
    for layers, s in ((100, 1), (100, 2), (1000, 1), (1000, 4)):
        lengths = leanest_decreasing(layers, s)
        peak = max(i + s * n for i, n in enumerate(lengths, 1))
        assert 0 <= peak - sqrt(2 * s * layers) <= s / 2 + 1
        assert sum((peak - 1 - i) // s for i in range(1, peak)) < layers


def test_metrics_are_those_of_the_counts(metrics: dict[str, Metric]) -> None:
    """The named points of both curves, in activations."""
    for activation, s in SAVED.items():
        peaks = {k: by_hand(equal_segments(L, k), activation) for k in (1, 2, 3, 4, 6, 12)}
        best = [k for k, peak in peaks.items() if peak == min(peaks.values())]
        none = {1: L + 3, 2: 2 * L + 2}[s]
        assert metrics[f"peak_none_s{s}"].value * A == none * A + LOSS
        assert metrics[f"peak_one_s{s}"].value * A == peaks[1]
        assert metrics[f"peak_root_s{s}"].value * A == peaks[3]
        assert metrics[f"peak_best_s{s}"].value * A == min(peaks.values())
        assert metrics[f"best_from_s{s}"].value == best[0]
        assert metrics[f"best_to_s{s}"].value == best[-1]
        decreasing = min(by_hand(cut, activation) for cut in compositions(L))
        assert metrics[f"peak_decreasing_s{s}"].value * A == decreasing
        assert metrics[f"whole_saves_nothing_s{s}"].value is True
        assert (
            metrics[f"longest_decreasing_s{s}"].value == {1: 5, 2: 3}[s]
        )  # 5 + 4 + 3 + 2 + 1 and 3 + 3 + 2 + 2 + 1 + 1 are enough for 12
    assert metrics["held_root_s1"].value == 4
    assert metrics["rebuilt_root_s1"].value * A == (3 + 2) * A + LOSS
    assert metrics["one_saves_nothing_s1"].value is True
    assert metrics["last_kept_same_peak"].value is True


def test_recompute_is_one_forward_whatever_the_spacing(metrics: dict[str, Metric]) -> None:
    """A linear layer's backward is two products of its forward's size: 1/3; less the last segment."""
    assert metrics["recompute_overhead"].value == pytest.approx(1 / 3, rel=1e-12)
    assert metrics["recompute_overhead_last_kept"].value == pytest.approx((L - 3) / (3 * L))
    assert metrics["same_cost_for_every_k"].value is True


def test_the_figure_holds_theory_and_measurement_over_the_same_lengths(result: Result) -> None:
    """The measurement stands above the line by what is in flight, less what GELU does not need."""
    theory1, measured1, theory2, measured2 = result.figures[0].series
    assert theory1.x == measured1.x == theory2.x == measured2.x
    at = {k: i for i, k in enumerate(theory1.x)}
    for k in (1, 2, 3, 4, 6, 12):
        assert theory1.y[at[k]] == L / k + k
        assert theory2.y[at[k]] == L / k + 2 * k
        assert measured1.y[at[k]] - theory1.y[at[k]] == pytest.approx(2, abs=0.01)
        assert measured2.y[at[k]] - theory2.y[at[k]] == pytest.approx(1, abs=0.01)


def test_lifetimes_are_those_of_a_hand_count(result: Result) -> None:
    """Nine layers in segments of 1, 3 and 9: what each action is, and when each x is born and freed.

    A segment's gradient arrives at its last output, then its layers run again, then the others get
    their gradients. x_j is held, or freed once the next layer has run; rebuilt, it goes with its
    own layer's backward, which for a segment's last layer ends the recomputation.
    """
    figure = result.figures[1]
    assert isinstance(figure, Lanes)
    assert [place.name for place in figure.y.categories if not place.name.isdecimal()] == [
        "short",
        "best",
        "long",
    ]
    n = 9
    drawn: dict[tuple[int, int], list[tuple[str, float, float]]] = {}
    for span in figure.spans:
        drawn.setdefault(divmod(span.row, n + 2), []).append((span.kind, span.start, span.end))
    for way, k in enumerate((1, 3, 9)):
        order = [("forward", i) for i in range(1, n + 1)]
        for top in range(n, 0, -k):
            order.append(("backward", top))
            order += [("recompute", i) for i in range(top - k + 1, top + 1)]
            order += [("backward", i) for i in range(top - 1, top - k, -1)]
        at = {action: place for place, action in enumerate(order)}
        assert len(order) == 3 * n
        flat = [kind for kind, start, end in drawn[way, 0] for _ in range(int(start), int(end))]
        assert flat == [kind for kind, _ in order]
        alive = [0] * len(order)
        for x in range(n + 1):
            born, expected = max(x - 1, 0), []
            if x % k == 0 and x < n:
                last = max(at["backward", x + 1], at["recompute", x + 1])
                expected.append(("held", born, last + 1))
            else:
                expected.append(("dropped", born, min(x + 1, n)))
            if x:
                again = at["recompute", x]
                gone = again if x % k == 0 else at["backward", x]
                expected.append(("rebuilt", again, gone + 1))
            assert drawn[way, 1 + x] == expected
            for _, start, end in expected:
                for place in range(start, end):
                    alive[place] += 1
        assert alive[at["recompute", n]] == max(alive) == n // k + k


def test_unequal_peaks_and_costs_are_called_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each reading is a byte, or a FLOP, above the one before, nothing stays the same."""
    more = count(1)

    def higher(*arguments: object, **options: object) -> object:
        step = measure_step(*arguments, **options)  # type: ignore[arg-type]
        return replace(step, peak=step.peak + next(more))

    monkeypatch.setattr(checkpoint_spacing, "measure_step", higher)
    monkeypatch.setattr(checkpoint_spacing, "step_flops", lambda *_: 1000 + next(more))
    found = {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}
    verdicts = {name: value for name, value in found.items() if isinstance(value, bool)}
    assert len(verdicts) == 5
    assert not any(verdicts.values()), verdicts

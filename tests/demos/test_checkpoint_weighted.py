"""Where to cut, against all ways to cut; peaks against weights counted by hand."""

from __future__ import annotations

import random
from functools import cache, partial
from itertools import pairwise
from math import sqrt

import pytest
from torch import nn

from runnable_demos import checkpoint_weighted
from runnable_demos.checkpoint_weighted import (
    KINDS,
    PRESETS,
    WEIGHT,
    agrees_with_brute_force,
    all_cuts,
    best_cut,
    cut,
    decreasing_segments,
    foretell,
    pyramid,
    run,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.models.stacks import measure_step, run_layers, run_segments
from tests.demos.tracker import tracked_peak

CONFIG = PRESETS["small"]
L = CONFIG.layers
SHAPE = (CONFIG.batch, CONFIG.width)
A = CONFIG.batch * CONFIG.width * 4  # bytes of one boundary


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def level(lengths: tuple[int, ...], weight: float) -> float:
    """Boundaries so far and what is rebuilt, at their highest, in boundaries."""
    return max(i + weight * n for i, n in enumerate(lengths, 1))


@cache
def lowest_level(layers: int, weight: float) -> float:
    """The lowest of all ways to cut."""
    return min(level(lengths, weight) for lengths in all_cuts(layers))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_layer_weighs_what_it_is_said_to(kind: str) -> None:
    """Whatever the lengths, the peak is the level and one constant."""
    layers = [KINDS[kind](CONFIG.width) for _ in range(12)]
    constants = set()
    for lengths in ((12,), (6, 6), (4, 4, 4), (6, 4, 2), (5, 4, 3), (3, 3, 3, 3)):
        forward = partial(run_segments, layers, lengths)
        step = measure_step(forward, layers, SHAPE, "cpu")
        constants.add(round(step.peak / A - level(lengths, WEIGHT[kind]), 1))
    assert len(constants) == 1


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0, 9.0])
def test_no_lengths_are_better_than_the_decreasing_ones(weight: float) -> None:
    """All ways to cut up to 12 equal layers."""
    for layers in range(1, 13):
        lengths = decreasing_segments(layers, weight)
        assert sum(lengths) == layers
        assert level(lengths, weight) == lowest_level(layers, weight)


def test_decreasing_segments_save_a_factor_of_root_two() -> None:
    """Without whole numbers √(2abL) in place of 2√(abL); they add a layer or so."""
    for weight in (0.5, 1.0, 2.0, 9.0):
        peak = level(decreasing_segments(1000, weight), weight)
        assert 0 <= peak - sqrt(2 * weight * 1000) <= weight / 2 + 1.5


def test_the_best_cut_is_as_low_as_all_cuts() -> None:
    """Random sizes with ties and extremes, beside those of the demo."""
    draw = random.Random(1)
    for _ in range(150):
        layers = draw.randint(1, 8)
        sizes = [draw.choice((1, 2, 3, 50)) for _ in range(layers + 1)]
        lowest = min(by_hand(sizes, c) for c in all_cuts(layers))
        assert by_hand(sizes, best_cut(sizes)) == lowest
        assert cut(sizes, lowest - 1) is None


def by_hand(sizes: list[int], lengths: tuple[int, ...]) -> int:
    """Play a step back: boundaries, rebuilt outputs one by one, a gradient and one more."""
    highest, start, held = 0, 0, 0
    for n in lengths:
        held += sizes[start]
        for layer in range(start + 1, start + n + 1):
            rebuilt = sum(sizes[start + 1 : layer + 1])
            highest = max(highest, held + rebuilt + sizes[layer] + sizes[layer])
        start += n
    return highest


def test_unequal_stacks_peak_as_foretold() -> None:
    """Both pyramids under several cuts, to the byte, with the loss's two scalars."""
    for widening in (False, True):
        widths = pyramid(CONFIG, widening)
        sizes = [CONFIG.batch * w * 4 for w in widths]
        layers = [nn.Sequential(nn.Linear(v, w), nn.ReLU()) for v, w in pairwise(widths)]
        for lengths in ((6,), (3, 3), (2, 2, 2), (1, 2, 3), (3, 2, 1), best_cut(sizes)):
            forward = partial(run_segments, layers, lengths)
            step = measure_step(forward, layers, (CONFIG.batch, widths[0]), "cpu")
            assert step.peak == foretell(sizes, lengths) + 8 == by_hand(sizes, lengths) + 8


def test_the_best_equal_length_moves_as_the_root(metrics: dict[str, Metric]) -> None:
    """√(aL/b) lies within the measured range, or between it and a whole number next to it."""
    for kind, weight in WEIGHT.items():
        best = sqrt(L / weight)
        assert metrics[f"{kind}_best_from"].value - 1 < best
        assert best < metrics[f"{kind}_best_to"].value + 1


def test_metrics_are_the_levels_and_a_constant(metrics: dict[str, Metric]) -> None:
    """Differences between strategies are those of the levels."""
    for kind, weight in WEIGHT.items():
        values = {n: metrics[f"{kind}_{n}"].value for n in ("root", "equal", "unequal")}
        root = level((4, 4, 4, 4), weight)
        unequal = lowest_level(L, weight)
        assert values["root"] - values["unequal"] == pytest.approx(root - unequal, abs=0.01)
        assert values["unequal"] <= values["equal"] <= values["root"]


def test_pyramids_and_brute_force(metrics: dict[str, Metric]) -> None:
    """Unequal cuts are never worse; the lengths are those of a search over all cuts."""
    assert metrics["peaks_as_foretold"].value is True
    assert metrics["equals_brute_force"].value is True
    assert metrics["cases"].value == CONFIG.cases
    for name in ("narrowing", "widening"):
        sizes = [CONFIG.batch * w * 4 for w in pyramid(CONFIG, name == "widening")]
        equal = metrics[f"{name}_equal_over_none"].value
        unequal = metrics[f"{name}_unequal_over_none"].value
        lowest = min(by_hand(sizes, c) for c in all_cuts(len(sizes) - 1))
        assert unequal <= equal
        assert lowest == by_hand(sizes, best_cut(sizes))


def test_levels_rise_with_equal_lengths_and_not_with_decreasing_ones(result: Result) -> None:
    """Of 4 segments of 4: 1 + 4 … 4 + 4, with two in flight."""
    equal, decreasing = result.figures[1].series
    assert equal.y == pytest.approx((7, 8, 9, 10), abs=0.01)
    assert max(decreasing.y) < max(equal.y)


@cache
def tracked(kind: str, lengths: tuple[int, ...]) -> int:
    """The peak of a stack under segments of some lengths, or of none, by PyTorch's own tracker."""
    if kind in KINDS:
        widths = [CONFIG.width] * (L + 1)
        layers = [KINDS[kind](CONFIG.width) for _ in range(L)]
    else:
        widths = pyramid(CONFIG, kind == "widening")
        layers = [nn.Sequential(nn.Linear(v, w), nn.ReLU()) for v, w in pairwise(widths)]
    forward = partial(run_segments, layers, lengths) if lengths else partial(run_layers, layers)
    return tracked_peak(forward, layers, (CONFIG.batch, widths[0]))


def parts(layers: int, k: int) -> tuple[int, ...]:
    """Segments of k layers, and what is left."""
    return tuple(min(k, layers - i) for i in range(0, layers, k))


@pytest.mark.parametrize("kind", list(KINDS))
def test_equal_stacks_peak_where_pytorchs_own_tracker_says(
    kind: str, metrics: dict[str, Metric]
) -> None:
    """Without checkpoints, with equal segments of each length, and with decreasing ones."""
    peaks = {k: tracked(kind, parts(L, k)) for k in range(1, L + 1)}
    lowest = min(peaks.values())
    best = [k for k, peak in peaks.items() if peak == lowest]
    assert metrics[f"{kind}_none"].value * A == tracked(kind, ())
    assert metrics[f"{kind}_root"].value * A == peaks[4]
    assert metrics[f"{kind}_equal"].value * A == lowest
    assert metrics[f"{kind}_best_from"].value == best[0]
    assert metrics[f"{kind}_best_to"].value == best[-1]
    decreasing = decreasing_segments(L, WEIGHT[kind])
    assert metrics[f"{kind}_unequal"].value * A == tracked(kind, decreasing)


@pytest.mark.parametrize("name", ["narrowing", "widening"])
def test_pyramids_peak_where_pytorchs_own_tracker_says(
    name: str, metrics: dict[str, Metric]
) -> None:
    """The lowest equal segments and the lowest of all cuts, over the peak without checkpoints."""
    sizes = [CONFIG.batch * w * 4 for w in pyramid(CONFIG, name == "widening")]
    layers = len(sizes) - 1
    none = tracked(name, ())
    equal = min(tracked(name, parts(layers, k)) for k in range(1, layers + 1))
    lowest = min(by_hand(sizes, c) for c in all_cuts(layers))
    best = [c for c in all_cuts(layers) if by_hand(sizes, c) == lowest]
    assert metrics[f"{name}_equal_over_none"].value == equal / none
    assert metrics[f"{name}_unequal_over_none"].value == (lowest + 8) / none
    ends = (metrics[f"{name}_first_length"].value, metrics[f"{name}_last_length"].value)
    assert ends in {(c[0], c[-1]) for c in best}


def test_a_worse_cut_and_a_wrong_forecast_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer a segment is not the best of all; a byte more than foretold is not as foretold."""
    assert agrees_with_brute_force(50, 0)
    monkeypatch.setattr(checkpoint_weighted, "best_cut", lambda sizes: (1,) * (len(sizes) - 1))
    assert not agrees_with_brute_force(50, 0)
    monkeypatch.setattr(
        checkpoint_weighted, "foretell", lambda sizes, lengths: foretell(sizes, lengths) + 1
    )
    found = {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}
    assert found["peaks_as_foretold"] is False


def test_the_bars_are_boundaries_the_segment_and_two_in_flight(result: Result) -> None:
    """Segment i of n_i layers: i boundaries, n_i rebuilt and two more; the last is fullest if all are equal."""
    figure = next(f for f in result.figures if f.name == "levels")
    assert isinstance(figure, Lanes)
    rows = [category.name for category in figure.y.categories]
    ways = {"root": (4, 4, 4, 4), "unequal": decreasing_segments(L, 1.0)}
    assert rows == [
        row for name, n in ways.items() for row in (name, *map(str, range(1, len(n) + 1)))
    ]
    row = 0
    for lengths in ways.values():
        for i, n in enumerate(lengths, 1):
            bars = {s.kind: s.end - s.start for s in figure.spans if s.row == row + i}
            assert bars["kept"] == pytest.approx(i, abs=0.01)
            assert sum(bars.values()) == pytest.approx(i + n + 2, abs=0.01)
        row += 1 + len(lengths)

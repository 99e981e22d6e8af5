"""Binomial schedules against a search over everything that could be done, and counts by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from math import comb, log2

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runnable_demos import checkpoint_extremes
from runnable_demos.checkpoint_extremes import (
    FEW,
    PRESETS,
    SHOWN,
    Run,
    Thick,
    advances,
    autograd,
    equal,
    halve,
    halve_first,
    lowest_segments,
    optimum,
    revolve,
    run,
    run_segments,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from runnable_demos.models.stacks import Layer
from tests.demos.tracker import Tracked, tracked_peak

CONFIG = PRESETS["small"]
L = CONFIG.layers
A = CONFIG.batch * CONFIG.width * 4  # bytes of one layer's output


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def fewest_advances(layers: int, slots: int) -> int:
    """Dijkstra over what is stored, where one stands, and how many layers are left to reverse."""
    start = (frozenset({0}), 0, layers)
    best = {start: 0}
    queue: list[tuple[int, int, tuple[frozenset[int], int, int]]] = [(0, 0, start)]
    pushed = 0
    while queue:
        cost, _, (stored, at, left) = heappop(queue)
        if cost > best[stored, at, left]:
            continue
        if left == 0:
            return cost
        moves = [(cost, (stored, x, left)) for x in stored]  # restore
        moves += [(cost, (stored - {x}, at, left)) for x in stored]  # forget
        if len(stored) < slots:
            moves.append((cost, (stored | {at}, at, left)))
        if at < left - 1:
            moves.append((cost + 1, (stored, at + 1, left)))
        if at == left - 1:
            moves.append((cost, (stored, at, left - 1)))  # tape
        for price, state in moves:
            if price < best.get(state, price + 1):
                best[state] = price
                pushed += 1
                heappush(queue, (price, pushed, state))
    raise AssertionError("a chain can always be reversed")


@pytest.mark.parametrize(("layers", "slots"), [(n, s) for n in range(1, 9) for s in range(1, 5)])
def test_no_order_of_actions_needs_fewer_advances(layers: int, slots: int) -> None:
    """Neither the recursion nor the binomial choice misses anything that a search finds."""
    assert advances(layers, slots) == optimum(layers, slots) == fewest_advances(layers, slots)


def test_the_closed_formula_of_griewank_and_walther() -> None:
    """p(l, s) = r·l − C(s + r, s + 1), for r with C(s + r − 1, s) < l ≤ C(s + r, s)."""
    for s in range(1, 9):
        for l in range(2, 120):  # noqa: E741 - the paper's letter
            r = next(r for r in range(l + 1) if comb(s + r, s) >= l)
            assert advances(l, s) == r * l - comb(s + r, s + 1)


def test_executed_schedules_run_each_layer_as_often_as_counted() -> None:
    """Advances and one taping a layer."""
    layers = [Layer(4) for _ in range(7)]
    z, weight = torch.randn(3, 4), torch.randn(3, 4)
    for slots in (1, 2, 3, 7):
        assert revolve(layers, z, weight, slots).forwards == 7 + fewest_advances(7, slots)


def test_a_slot_costs_one_activation() -> None:
    """The peak is the slots and a constant, so long as all of them are used."""
    torch.manual_seed(0)
    layers = [Layer(CONFIG.width) for _ in range(L)]
    shape = (CONFIG.batch, CONFIG.width)
    z, weight = torch.randn(*shape), torch.randn(*shape)
    peaks = [revolve(layers, z, weight, slots).peak for slots in (1, 2, 3, 4)]
    assert [b - a for a, b in pairwise(peaks)] == [A, A, A]


def test_one_segment_saves_nothing(metrics: dict[str, Metric]) -> None:
    """L + 1 activations and two in flight, with every layer run twice."""
    assert metrics["none_peak"].value == pytest.approx(L + 3, abs=0.01)
    assert metrics["one_segment_peak"].value == metrics["none_peak"].value
    assert metrics["one_segment_saves_nothing"].value is True
    assert metrics["one_segment_forwards"].value == 2 * L


def test_one_slot_starts_from_the_input_for_each_layer(metrics: dict[str, Metric]) -> None:
    """L(L − 1)/2 layer forwards more; the peak is that of any depth."""
    assert metrics["one_slot_extra_forwards"].value == L * (L - 1) // 2
    assert metrics["one_slot_forwards"].value == L + L * (L - 1) // 2
    assert metrics["one_slot_peak_is_constant"].value is True
    assert metrics["one_slot_peak"].value < 7


def test_halving_runs_the_logarithm(metrics: dict[str, Metric]) -> None:
    """Each level runs all layers; with early stop, half of them, since a second half's input is enough."""
    levels = int(log2(L))
    assert 2**levels == L
    assert metrics["halving_no_early_stop_forwards"].value == L + L * levels
    assert metrics["halving_forwards"].value == L + L // 2 * (levels - 1) + L


def test_a_second_half_needs_no_checkpoint(metrics: dict[str, Metric]) -> None:
    """Each level runs the first halves alone again: L/2 a level, at the peak of wrapping both."""
    assert metrics["halving_first_forwards"].value == L + L // 2 * int(log2(L))
    layers = [Layer(CONFIG.width) for _ in range(L)]
    tracked = tracked_peak(partial(halve_first, layers), layers, (CONFIG.batch, CONFIG.width))
    assert metrics["halving_first_peak"].value == tracked / A
    assert metrics["halving_first_peak"].value <= metrics["halving_peak"].value


class Functional:
    """A thick layer without modules, of which PyTorch's tracker takes no second call."""

    def __init__(self, layer: Thick) -> None:
        self.layer = layer

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the layer."""
        return self.layer.parameters()

    def __call__(self, x: Tensor) -> Tensor:
        """Linear, GELU, Linear."""
        up, down = self.layer.up, self.layer.down
        y = F.gelu(F.linear(x, up.weight, up.bias))
        return F.linear(y, down.weight, down.bias)


def tracked_revolve(layers: Sequence[Thick]) -> int:
    """Bytes at the peak of the binomial schedule, by PyTorch's own tracker."""
    z, weight = (torch.randn(CONFIG.batch, CONFIG.width) for _ in range(2))
    checkpoint_extremes.zero_gradients(layers)
    gradients = [p.grad for layer in layers for p in layer.parameters()]

    class Beside(Tracked):
        def __init__(self) -> None:
            super().__init__()
            self._tracker.track_external(*layers, z, weight, *gradients)

        def __enter__(self) -> Tracked:
            super().__enter__()
            self.before = super().peak
            return self

        @property
        def peak(self) -> int:
            return super().peak - self.before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_extremes, "LiveMemory", Beside)
        return revolve([Functional(layer) for layer in layers], z, weight, CONFIG.slots).peak


def test_segments_of_thick_layers_are_cheap_and_high(metrics: dict[str, Metric]) -> None:
    """Segments that run 2L are lowest; Revolve goes below, and with their room runs L + rL - C(s + r, r - 1)."""
    layers, shape = [Thick(CONFIG.width) for _ in range(L)], (CONFIG.batch, CONFIG.width)
    segments = min(
        tracked_peak(partial(run_segments, layers, (k,) * (L // k)), layers, shape)
        for k in (1, 2, 4)
    )
    few = tracked_revolve(layers)
    assert metrics["thick_segments_peak"].value == segments / A
    assert metrics["thick_segments_forwards"].value == 2 * L
    assert metrics["thick_revolve_few_peak"].value == few / A
    s = CONFIG.slots + (segments - few) // A
    r = next(r for r in count(1) if comb(s + r, r) >= L)
    assert metrics["thick_revolve_forwards"].value == L + r * L - comb(s + r, r - 1)


def test_revolve_of_thick_layers_has_the_room_it_is_given() -> None:
    """A slot more costs one activation there as well, so the slots that are compared fit the peak."""
    torch.manual_seed(0)
    layers = [Thick(CONFIG.width) for _ in range(L)]
    z, weight = torch.randn(CONFIG.batch, CONFIG.width), torch.randn(CONFIG.batch, CONFIG.width)
    segments = lowest_segments(layers, z, weight)
    few = revolve(layers, z, weight, CONFIG.slots)
    room = (segments.peak - few.peak) // A
    assert room > 0
    assert revolve(layers, z, weight, CONFIG.slots + room).peak <= segments.peak


def test_revolve_is_optimal(metrics: dict[str, Metric]) -> None:
    """16 layers by hand: r = 3 with 4 slots, r = 5 with 2; the cases are all pairs."""
    assert (L, CONFIG.slots) == (16, 4)
    assert metrics["revolve_forwards"].value == 16 + (3 * 16 - 21)
    assert metrics["two_slots_forwards"].value == 16 + (5 * 16 - 35)
    assert metrics["slot_a_layer_forwards"].value == 2 * L - 1
    assert metrics["executed_is_optimal"].value is True
    assert metrics["binomial_is_optimal"].value is True
    assert metrics["cases"].value == CONFIG.cases * (CONFIG.cases + 1) // 2


def test_segments_beat_revolve_where_layers_are_thin(metrics: dict[str, Metric]) -> None:
    """4 segments of 4 peak at 4 + 4 + 2; so do five slots and a constant of five, with r = 2."""
    assert metrics["root_peak"].value == pytest.approx(10, abs=0.01)
    assert metrics["root_forwards"].value == 2 * 16
    assert metrics["revolve_as_root_forwards"].value == 16 + (2 * 16 - 7)


def test_gradients_do_not_depend_on_the_schedule(metrics: dict[str, Metric]) -> None:
    """The same layers on the same inputs, whenever they run."""
    assert metrics["gradients_bit_equal"].value is True


def test_the_marks_lie_on_the_line(result: Result) -> None:
    """Executed forwards equal the formula for every number of slots."""
    theory, measured = result.figures[0].series
    assert theory.x == measured.x
    assert measured.y == pytest.approx(theory.y, rel=1e-12)


def test_peaks_are_slots_and_what_one_layer_takes(metrics: dict[str, Metric]) -> None:
    """Beside the slots a layer's input, output and three gradients, and those of its parameters.

    With a slot a layer the last one is the fullest moment: its input has a slot, and the gradient of
    its output does not come from a layer behind it.
    """
    parameters = 4 * (CONFIG.width**2 + CONFIG.width) / A
    assert metrics["one_slot_peak"].value == pytest.approx(1 + 5 + parameters, rel=1e-12)
    assert metrics["revolve_peak"].value == pytest.approx(CONFIG.slots + 5 + parameters, rel=1e-12)
    a_layer = L + 3 + parameters + 8 / A
    assert metrics["slot_a_layer_peak"].value == pytest.approx(a_layer, rel=1e-12)


def test_halving_adds_one_boundary_with_each_doubling(metrics: dict[str, Metric]) -> None:
    """An activation a level; what a single layer needs is the same at any depth."""
    shape = (CONFIG.batch, CONFIG.width)
    z, weight = torch.randn(*shape), torch.randn(*shape)
    peaks = []
    for depth in (2, 4, 8, 16):
        layers = [Layer(CONFIG.width) for _ in range(depth)]
        peaks.append(autograd(layers, lambda stack: partial(halve, stack), z, weight).peak)
    assert [b - a for a, b in pairwise(peaks)] == [A, A, A]
    assert metrics["halving_peak"].value == (log2(L) + 4) + 8 / A


def test_equality_sees_one_bit_of_one_gradient() -> None:
    """The last of three tensors differs by the smallest step; peaks and counts are another question."""
    gradients = [torch.ones(2), torch.zeros(3), torch.full((4,), 0.5)]
    same = Run(9, 9, [g.clone() for g in gradients])
    assert equal(Run(1, 1, gradients), same)
    same.gradients[2][3] = torch.nextafter(same.gradients[2][3], torch.tensor(1.0))
    assert not equal(Run(1, 1, gradients), same)


def test_unequal_schedules_are_called_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte, a forward and a bit more with each run: no peak is the same, and no count the best."""
    more = count(1)

    def other(original: object, *arguments: object) -> Run:
        found: Run = original(*arguments)  # type: ignore[operator]
        extra = next(more)
        gradients = [g + extra for g in found.gradients]
        return Run(found.forwards + extra, found.peak + extra, gradients)

    monkeypatch.setattr(checkpoint_extremes, "autograd", partial(other, autograd))
    monkeypatch.setattr(checkpoint_extremes, "revolve", partial(other, revolve))
    monkeypatch.setattr(checkpoint_extremes, "advances", lambda *of: advances(*of) + 1)
    found = {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}
    verdicts = {name: value for name, value in found.items() if isinstance(value, bool)}
    assert len(verdicts) == 5
    assert not any(verdicts.values()), verdicts


def test_the_schedule_drawn_is_one_that_a_chain_allows(result: Result) -> None:
    """Each run starts from a slot or from the run before; each layer is taped once, the last first."""
    figure = next(f for f in result.figures if f.name == "schedule")
    assert isinstance(figure, Lanes)
    first = 0
    for slots in (1, FEW):
        rows = range(first + slots, first + slots + SHOWN)
        runs = {s.start: (s.kind, s.row - rows[0] + 1) for s in figure.spans if s.row in rows}
        stays = [s for s in figure.spans if s.row in range(first, first + slots)]
        assert sorted(runs) == list(range(len(runs)))
        for t, (_, layer) in sorted(runs.items()):
            stored = {s.label for s in stays if s.start <= t < s.end}
            assert len(stored) <= slots
            assert f"x{layer - 1}" in stored or runs.get(t - 1) == ("advance", layer - 1)
        taped = [layer for _, (kind, layer) in sorted(runs.items()) if kind == "tape"]
        assert taped == list(range(SHOWN, 0, -1))
        assert len(runs) == SHOWN + fewest_advances(SHOWN, slots)
        first = rows[-1] + 1

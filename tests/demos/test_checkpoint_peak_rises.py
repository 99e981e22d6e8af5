"""Why peaks rise: how each grows with depth, against counts by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
from torch import Tensor, nn

from runnable_demos import checkpoint_peak_rises
from runnable_demos.checkpoint_peak_rises import (
    PRESETS,
    Case,
    Config,
    double_backward,
    heavy_boundary,
    held_outside,
    large_arguments,
    large_logits,
    remainder,
    run,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result
from tests.demos.tracker import tracked_peak, tracked_step

CONFIG = PRESETS["small"]
L, K = CONFIG.layers, CONFIG.segment
A = CONFIG.batch * CONFIG.width * 4  # bytes of one layer's output


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def growth(cause: Callable[[Config], Case]) -> tuple[float, float, float]:
    """Activations that K more layers add to each of the three peaks."""
    before, after = cause(CONFIG), cause(replace(CONFIG, layers=L + K))
    pairs = (
        (before.none, after.none),
        (before.checkpointed, after.checkpointed),
        (before.fixed, after.fixed),
    )
    none, checkpointed, fixed = (round((b - a) / A, 1) for a, b in pairs)
    return none, checkpointed, fixed


def test_a_heavy_boundary_costs_twice_what_it_spares() -> None:
    """A layer saves half an activation; its checkpoint keeps a whole one; a segment keeps one."""
    assert growth(heavy_boundary) == (K / 2, K, 1)


def test_what_the_caller_holds_is_not_spared() -> None:
    """All outputs stay in both; only without them does a segment cost one."""
    assert growth(lambda config: held_outside(config)[0]) == (K, K, 1)


def test_arguments_are_kept_beside_the_boundaries() -> None:
    """Linear saves one sum a layer; a checkpoint keeps K arguments and a boundary for K layers."""
    assert growth(large_arguments) == (K, K + 1, 1)


def test_held_outputs_and_a_rebuilt_segment_stand_side_by_side(
    metrics: dict[str, Metric],
) -> None:
    """L outputs and the input, K rebuilt, two in flight; with one segment L rebuilt, and one."""
    assert metrics["outside_none"].value == pytest.approx(L + 1 + 2, abs=0.1)
    assert metrics["outside_checkpointed"].value == pytest.approx(L + 1 + K + 2, abs=0.1)
    assert metrics["outside_one"].value == pytest.approx(L + 1 + L + 1, abs=0.1)


@pytest.mark.parametrize("layers", [12, 13, 20, 24])
def test_a_remainder_goes_to_the_chunk_without_a_checkpoint(layers: int) -> None:
    """S − 1 inputs, the last chunk's layers with its input, two in flight."""
    case, one_more = remainder(replace(CONFIG, layers=layers))

    def by_hand(segments: int) -> int:
        size = layers // segments
        last = layers - (segments - 1) * size
        return (segments - 1) + (last + 1) + 2

    even = layers // K
    assert case.checkpointed // A == by_hand(layers // 2 + 1)
    assert case.fixed // A == by_hand(even)
    assert one_more // A == by_hand(even + 1)


def test_causes_raise_the_peak_and_fixes_lower_it(metrics: dict[str, Metric]) -> None:
    """Three above, one up to it; every fix below."""
    for key in ("boundary", "outside", "arguments"):
        assert metrics[f"{key}_ratio"].value > 1
    assert metrics["remainder_ratio"].value == 1
    for key in ("boundary", "outside", "arguments", "remainder"):
        assert metrics[f"{key}_mended"].value < metrics[f"{key}_none"].value


def test_some_peaks_have_little_to_give(metrics: dict[str, Metric]) -> None:
    """Far less is saved than on the same stack without a cause."""
    plain = metrics["plain_ratio"].value
    assert plain < 0.75
    assert metrics["double_backward_ratio"].value > plain
    assert metrics["logits_ratio"].value > 0.85


def test_the_figure_shows_the_ratios(result: Result, metrics: dict[str, Metric]) -> None:
    """With checkpoints, and fixed, over the peak without."""
    with_checkpoints, fixed = result.figures[0].series
    for i, key in enumerate(("boundary", "outside", "arguments", "remainder")):
        assert with_checkpoints.y[i] == metrics[f"{key}_ratio"].value
        fix = metrics[f"{key}_mended"].value / metrics[f"{key}_none"].value
        assert fixed.y[i] == pytest.approx(fix, rel=1e-12)


@cache
def tracked() -> tuple[dict[str, Case], dict[str, int]]:
    """Causes with their fixes, and what else is measured, by PyTorch's own tracker."""

    def step_of(
        forward: Callable[[Tensor], Tensor],
        layers: Sequence[nn.Module],
        shape: Sequence[int],
        *_: object,
    ) -> SimpleNamespace:
        return SimpleNamespace(peak=tracked_peak(forward, layers, shape))

    def peak_of(
        layers: Sequence[nn.Module], config: Config, step: Callable[[Tensor], None], *_: object
    ) -> int:
        return tracked_step(step, layers, (config.batch, config.width))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_peak_rises, "measure_step", step_of)
        patch.setattr(checkpoint_peak_rises, "peak_of", peak_of)
        causes = {
            "boundary": heavy_boundary(CONFIG),
            "outside": held_outside(CONFIG)[0],
            "arguments": large_arguments(CONFIG),
            "remainder": remainder(CONFIG)[0],
        }
        others = {
            "outside_one": held_outside(CONFIG)[1],
            "remainder_one_more": remainder(CONFIG)[1],
        }
        for name, pair in (("double", double_backward), ("logits", large_logits)):
            others[f"{name}_none"], others[name] = pair(CONFIG)
    return causes, others


def test_every_peak_is_that_of_pytorchs_own_tracker(metrics: dict[str, Metric]) -> None:
    """The same steps under another meter: causes and fixes, double backward and logits."""
    causes, others = tracked()
    for name, case in causes.items():
        assert metrics[f"{name}_none"].value * A == case.none
        assert metrics[f"{name}_checkpointed"].value * A == case.checkpointed
        assert metrics[f"{name}_mended"].value * A == case.fixed
        assert metrics[f"{name}_ratio"].value == case.checkpointed / case.none
    for name in ("outside_one", "remainder_one_more"):
        assert metrics[name].value * A == others[name]
    ratio = others["double"] / others["double_none"]
    assert metrics["double_backward_ratio"].value == ratio
    assert metrics["logits_ratio"].value == others["logits"] / others["logits_none"]
    assert metrics["plain_ratio"].value == causes["outside"].fixed / causes["outside"].none


def test_the_bars_are_what_a_count_by_hand_finds_alive(result: Result) -> None:
    """Left by the forward, rebuilt and in flight, in activations; small tensors aside."""
    figure = next(f for f in result.figures if f.name == "alive")
    assert isinstance(figure, Lanes)
    rows = [category.name for category in figure.y.categories]
    bars: dict[tuple[str, str], dict[str, int]] = {}
    cause = ""
    for number, name in enumerate(rows):
        spans = [s for s in figure.spans if s.row == number]
        if not spans:
            cause = name
            continue
        bars[cause, name] = {s.kind: round(s.end - s.start) for s in spans}

    def bar(*parts: int) -> dict[str, int]:
        return dict(zip(("kept", "rebuilt", "flight"), parts, strict=True))

    singles = L // 2  # checkpoint_sequential in L/2 + 1 chunks: the last has L/2 layers
    segments = L // K
    assert bars["outside", "none"] == {"kept": L + 1, "flight": 2}
    # Held, the last ReLU's output is alive beside its rebuilt copy; dropped, the peak comes a layer later.
    assert bars["outside", "checkpointed"] == bar(L + 1, K + 1, 1)
    assert bars["outside", "one"]["kept"] == L + 1
    assert bars["outside", "one"]["rebuilt"] >= L - 1
    assert bars["outside", "fixed"] == bar(segments, K - 1, 2)
    assert bars["arguments", "checkpointed"]["kept"] >= L + segments
    assert bars["remainder", "none"] == {"kept": L + 1, "flight": 2}
    assert bars["remainder", "checkpointed"] == {"kept": singles + L - singles + 1, "flight": 2}
    assert bars["boundary", "checkpointed"]["kept"] == L


def test_the_bars_end_at_the_peaks(result: Result, metrics: dict[str, Metric]) -> None:
    """Nothing at the peak is left out."""
    figure = next(f for f in result.figures if f.name == "alive")
    assert isinstance(figure, Lanes)
    ends = [
        max(s.end for s in figure.spans if s.row == row)
        for row in sorted({s.row for s in figure.spans})
    ]
    names = []
    for cause in ("boundary", "outside", "arguments", "remainder"):
        names += [f"{cause}_none", f"{cause}_checkpointed"]
        names += ["outside_one"] if cause == "outside" else []
        names.append(f"{cause}_mended")
    assert ends == pytest.approx([metrics[name].value for name in names], rel=1e-12)

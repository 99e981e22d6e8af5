"""FLOPs of recompute, against products counted by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from runnable_demos.checkpoint_cost import PRESETS, run
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Metric, Result

CONFIG = PRESETS["small"]
L, K = CONFIG.layers, CONFIG.segment


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def metrics(result: Result) -> dict[str, Metric]:
    """Its metrics by name."""
    return {m.name: m for m in result.metrics}


def over(metrics: dict[str, Metric], name: str) -> Fraction:
    """An overhead as the fraction that it is."""
    return Fraction(metrics[f"{name}_overhead"].value).limit_denominator(10**6)


def test_a_layer_that_ends_in_relu_is_run_again_whole(metrics: dict[str, Metric]) -> None:
    """One product forward, two backward, one again."""
    assert over(metrics, "relu") == Fraction(1, 3)


def test_early_stop_spares_the_last_product_of_a_segment(metrics: dict[str, Metric]) -> None:
    """Of k products in a segment k − 1 are repeated: none where each layer is a segment."""
    assert over(metrics, "bare") == Fraction(K - 1, 3 * K)
    assert over(metrics, "bare_each") == 0
    assert over(metrics, "bare_no_early_stop") == Fraction(1, 3)


def test_the_first_layer_may_lack_a_product(metrics: dict[str, Metric]) -> None:
    """Where the batch asks for no gradient, the backward has 2L − 1 products."""
    assert over(metrics, "no_input_gradient") == Fraction(L, 3 * L - 1)


def test_checkpoint_sequential_leaves_its_last_chunk_alone(metrics: dict[str, Metric]) -> None:
    """L // k chunks; one chunk; and 5 chunks of 12 // 5 = 2 layers, the last one with 4."""
    assert over(metrics, "sequential") == Fraction(L - K, 3 * L)
    assert over(metrics, "sequential_one") == 0
    assert L == 12
    assert metrics["sequential_uneven_kept"].value == 12 - 4 * 2


def test_frozen_weights_make_recompute_dearer(metrics: dict[str, Metric]) -> None:
    """One product forward, one backward for the input, one again; LoRA adds thin products."""
    assert over(metrics, "frozen") == Fraction(1, 2)
    thin = 2 * Fraction(CONFIG.rank, CONFIG.width)  # both thin products, over the wide one
    forward, backward = 1 + thin, 1 + 2 * thin
    assert over(metrics, "lora") == forward / (forward + backward)


def test_segments_below_the_first_trained_layer_cost_nothing(metrics: dict[str, Metric]) -> None:
    """L products forward, one for the last weight, one again."""
    assert over(metrics, "frozen_bottom") == Fraction(1, L + 1)


def test_a_block_repeats_all_but_its_last_product(metrics: dict[str, Metric]) -> None:
    """24 N h² for the linear layers and 4 N² h for attention, of which ``down`` has 8 N h²."""
    N, h = CONFIG.tokens, CONFIG.hidden
    forward, down = 24 * N * h**2 + 4 * N**2 * h, 8 * N * h**2
    assert over(metrics, "block") == Fraction(forward - down, 3 * forward)
    assert over(metrics, "block_pair") == Fraction(2 * forward - down, 6 * forward)
    assert over(metrics, "block_no_early_stop") == Fraction(1, 3)
    assert metrics["backward_over_forward"].value == 2


def test_fused_attention_recomputes_within_its_backward(metrics: dict[str, Metric]) -> None:
    """Five products in its backward, where written out there are four."""
    N, h = CONFIG.tokens, CONFIG.hidden
    linear, attention, down = 24 * N * h**2, 4 * N**2 * h, 8 * N * h**2
    backward = 2 * linear + attention * 5 // 2
    assert over(metrics, "block_flash") == Fraction(
        linear + attention - down, linear + attention + backward
    )
    ratio = metrics["backward_over_forward_flash"].value
    assert ratio == pytest.approx(backward / (linear + attention), rel=1e-12)


def test_hfu_counts_what_mfu_does_not(metrics: dict[str, Metric]) -> None:
    """Their ratio is that of the FLOPs, whatever the time."""
    assert metrics["hfu_over_mfu"].value == pytest.approx(4 / 3, rel=1e-12)
    early = metrics["hfu_over_mfu_early_stop"].value
    assert early == pytest.approx(1 + metrics["block_overhead"].value, rel=1e-12)


def test_time_is_marked_as_measured(metrics: dict[str, Metric]) -> None:
    """No CPU run proves a time."""
    assert metrics["block_time_overhead"].kind == "measured"


def test_the_bars_are_forwards(result: Result) -> None:
    """Every forward is 1; a backward 2 or, frozen, 1; recompute at most 1."""
    forward, backward, recompute = result.figures[0].series
    assert set(forward.y) == {1.0}
    assert backward.y[:5] == (2.0,) * 5
    assert backward.y[5] == 1.0
    assert recompute.y[:3] == (1.0, (K - 1) / K, (L - K) / L)
    assert recompute.y[7] == 1 / L


def test_lanes_show_every_product_and_what_is_left_out(result: Result) -> None:
    """By hand, N = h: products of 6, 2, 2, 2, 8 and 8 N h² a block; the backward has two of each, the last first."""
    assert CONFIG.tokens == CONFIG.hidden
    forward = [("q", 6), ("", 2), ("", 2), ("", 2), ("u", 8), ("d", 8)]
    backward = [(name, 2 * size) for name, size in reversed(forward)]
    F = [("forward", *each) for each in forward]
    B = [("backward", *each) for each in backward]
    R = [("recompute", *each) for each in forward]
    stopped = R[:-1]  # nobody's backward needs what ``down`` returns
    expected = {
        0: [*F, *F, *B, *B],
        1: [*F, *F, *R, *B, *R, *B],
        2: [*F, *F, *stopped, *B, *stopped, *B],
        3: [*F, *F, *B, *stopped, *B],
    }
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    for row, parts in expected.items():
        at = Fraction(0)
        spans = [span for span in figure.spans if span.row == row]
        for span, (kind, name, size) in zip(spans, parts, strict=True):
            assert (span.kind, span.label) == (kind, name)
            assert span.start == pytest.approx(float(at))
            at += Fraction(size, 56)
            assert span.end == pytest.approx(float(at))
    assert [row.name for row in figure.y.categories] == ["none", "whole", "early", "kept"]


def test_the_lanes_are_as_long_as_the_overheads_say(
    result: Result, metrics: dict[str, Metric]
) -> None:
    """What another counter found for a block: a step of three forwards, and its share again."""
    figure = next(figure for figure in result.figures if isinstance(figure, Lanes))
    ends = [max(span.end for span in figure.spans if span.row == row) for row in range(4)]
    block = metrics["block_overhead"].value
    whole = metrics["block_no_early_stop_overhead"].value
    expected = [3, 3 * (1 + whole), 3 * (1 + block), 3 * (1 + block / 2)]
    assert ends == pytest.approx(expected, rel=1e-12)

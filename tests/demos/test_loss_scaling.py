"""The window of fp16 against powers of two, and PyTorch's scaler against its documented rule."""

from __future__ import annotations

import pytest
import torch

from runnable_demos import loss_scaling
from runnable_demos.loss_scaling import BF16, FP16, PRESETS, count, powers, received

SMALL = PRESETS["small"]
SMALLEST = -24  # of fp16's subnormals, as a power of two
LARGEST = 15  # of its binades


@pytest.fixture(scope="module")
def values() -> dict[str, float]:
    """One run of the small preset."""
    torch.manual_seed(SMALL.seed)
    result = loss_scaling.run(SMALL, lambda *_: None)
    return {metric.name: metric.value for metric in result.metrics}


def test_gradients_of_known_size(values: dict[str, float]) -> None:
    """2^-k is lost for k > 24, and S = 2^s moves that line and the overflow by s."""
    n = SMALL.count
    assert values["gradients"] == n
    assert values["lost_unscaled"] == sum(-k < SMALLEST for k in range(n))
    assert values["lost_scaled"] == sum(15 - k < SMALLEST for k in range(n)) == 0
    assert values["overflowed_excessive"] == sum(17 - k > LARGEST for k in range(n)) == 2
    assert values["smallest_kept"] == 2.0**SMALLEST
    assert values["lost_bf16"] == 0
    assert values["recovered_exactly"] is True


def test_the_window_of_scales(values: dict[str, float]) -> None:
    """The smallest gradient must reach 2^-24, the largest stay in the top binade."""
    smallest = -(SMALL.count - 1)
    assert values["smallest_good_scale"] == 2.0 ** (SMALLEST - smallest)
    assert values["largest_good_scale"] == 2.0**LARGEST


@pytest.mark.parametrize("exponent", range(0, 31, 5))
def test_counts_over_scales(exponent: int) -> None:
    """Any power of two as a scale: those below the window vanish, those above overflow."""
    found = count(powers(SMALL), FP16, 2.0**exponent)
    assert found.lost == sum(exponent - k < SMALLEST for k in range(SMALL.count))
    assert found.overflowed == sum(exponent - k > LARGEST for k in range(SMALL.count))
    assert found.exact


def test_half_of_the_smallest_subnormal_is_lost_and_a_little_more_is_not() -> None:
    """The tie at 2^-25 goes to the even 0; the next fp32 number above it rounds up."""
    tie = torch.tensor([2.0**-25, 2.0**-25 * (1 + 2.0**-20)])
    assert received(tie, FP16, 1.0).tolist() == [0.0, 2.0**-24]
    assert received(tie, BF16, 1.0)[0] == 2.0**-25


def test_the_largest_number_that_does_not_overflow() -> None:
    """65,519 rounds to 65,504; 65,520 is half a gap above it and becomes infinite."""
    edge = received(torch.tensor([65519.0, 65520.0]), FP16, 1.0)
    assert edge.tolist() == [65504.0, float("inf")]


def test_the_scaler_halves_skips_and_doubles(values: dict[str, float]) -> None:
    """Defaults of its signature: start 2^16, backoff a half, growth two."""
    assert values["initial_scale"] == 2**16
    assert values["scale_after_overflow"] == values["initial_scale"] / 2
    assert values["overflow_skips_the_step"] is True
    assert values["growth"] == 2


def test_clipping_needs_unscaled_gradients(values: dict[str, float]) -> None:
    """Clipping S·g to norm 1 and dividing by S leaves 1/S; after unscale_ it leaves 1."""
    scale = values["scale_after_overflow"] * values["growth"]
    assert values["clipped_without_unscale"] == pytest.approx(1 / scale, rel=1e-5)
    # clip_grad_norm_ adds 1e-6 to the norm before it divides.
    assert values["clipped_after_unscale"] == pytest.approx(4 / (4 + 1e-6), rel=1e-6)


def test_a_real_model(values: dict[str, float]) -> None:
    """Fp16 loses what a scale brings back; bf16 loses the same at any scale."""
    assert values["model_loses_half"] is True
    assert values["model_lost_scaled"] < 0.01
    assert values["model_lost_bf16"] < 0.01
    assert values["bf16_is_blind_to_scale"] is True

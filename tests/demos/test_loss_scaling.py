"""The window of fp16 against powers of two, and PyTorch's scaler against its documented rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos import loss_scaling
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from runnable_demos.loss_scaling import BF16, FP16, PRESETS, count, powers, received
from runnable_demos.models.gpt import GPTSize, build, make_tokens

SMALL = PRESETS["small"]
SMALLEST = -24  # of fp16's subnormals, as a power of two
LARGEST = 15  # of its binades


@pytest.fixture(scope="module")
def result() -> Result:
    """One run of the small preset."""
    torch.manual_seed(SMALL.seed)
    return loss_scaling.run(SMALL, lambda *_: None)


@pytest.fixture(scope="module")
def values(result: Result) -> dict[str, float]:
    """Its metrics by name."""
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


def test_the_default_scaler_grows_after_as_many_steps_as_it_says(
    values: dict[str, float],
) -> None:
    """The growth interval of its signature, and PyTorch's own getter."""
    default = inspect.signature(torch.amp.GradScaler).parameters["growth_interval"].default
    assert (
        values["steps_until_growth"] == default == torch.amp.GradScaler("cpu").get_growth_interval()
    )


@pytest.mark.parametrize(("row", "shift"), [(0, 0), (1, 15), (2, 17)])
def test_the_figure_shows_where_fp16_ends(result: Result, row: int, shift: int) -> None:
    """2^(shift - k) is 0 below 2^-24, subnormal below 2^-14, normal below 2^16, and infinite from there on."""
    figure = next(figure for figure in result.figures if figure.name == "shift")
    assert isinstance(figure, Lanes)
    low, high = shift - (SMALL.count - 1), shift + 1
    edges = [
        ("lost", -99, -24),
        ("subnormal", -24, -14),
        ("normal", -14, 16),
        ("overflowed", 16, 99),
    ]
    expected = [
        (kind, max(low, start), min(high, end), str(min(high, end) - max(low, start)))
        for kind, start, end in edges
        if max(low, start) < min(high, end)
    ]
    found = [span for span in figure.spans if span.row == row]
    assert [(s.kind, s.start, s.end, s.label) for s in found] == expected


def test_bf16_keeps_all_of_them_normal(result: Result, values: dict[str, float]) -> None:
    """Its window ends at 2^-126; fp16's subnormals are those of exponents -24 to -15."""
    figure = next(figure for figure in result.figures if figure.name == "shift")
    assert isinstance(figure, Lanes)
    assert [(s.kind, s.label) for s in figure.spans if s.row == 3] == [("normal", str(SMALL.count))]
    assert values["subnormal_unscaled"] == 10
    assert values["subnormal_scaled"] == sum(-24 <= 15 - k < -14 for k in range(SMALL.count))


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


@cache
def gradients_of_a_model(dtype: torch.dtype | None, scale: float) -> Tensor:
    """All gradients at the outputs of the Linears of a small GPT, on ``scale`` times its loss."""
    torch.manual_seed(SMALL.seed)
    size = GPTSize(SMALL.layers, SMALL.width, heads=2, vocabulary=256)
    model, tokens = build(size, "cpu"), make_tokens(256, batch=4, length=64, device="cpu")
    found: list[Tensor] = []

    def note(take: Callable[[Tensor], None], output: Tensor) -> None:
        output.register_hook(take)

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, __, output: note(found.append, output))
    with torch.autocast("cpu", dtype) if dtype else nullcontext():
        logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    (scale * loss).backward()
    return torch.cat([g.flatten() for g in found])


def test_what_a_model_loses_is_what_fp32_gradients_foretell(result: Result) -> None:
    """Those that fp32 has at half of fp16's smallest subnormal or below, over all divisions."""
    fp16, bf16 = next(figure for figure in result.figures if figure.name == "model").series
    true = gradients_of_a_model(None, 1.0).abs().double()
    assert fp16.x == bf16.x == tuple(4.0**k for k in range(8))
    for divided, share in zip(fp16.x, fp16.y, strict=True):
        assert share == pytest.approx(float((true / divided <= 2.0**-25).double().mean()), rel=0.05)
    assert len(set(bf16.y)) == 1


def test_the_named_shares_of_a_model(values: dict[str, float]) -> None:
    """The loss is divided by 1,024 in each; 2^16 in front of it leaves a factor of 64."""

    def zeros(dtype: torch.dtype, scale: float) -> float:
        return float((gradients_of_a_model(dtype, scale) == 0).double().mean())

    assert values["model_lost_scaled"] == zeros(FP16, 2**16 / 1024) != zeros(FP16, 2**16)
    assert values["model_lost_bf16"] == zeros(BF16, 1 / 1024)
    assert values["model_loses_half"] is (zeros(FP16, 1 / 1024) > 0.5)
    assert values["bf16_is_blind_to_scale"] is (zeros(BF16, 1 / 1024) == zeros(BF16, 1))


def test_losing_half_is_not_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other shares of zeros, both truth values are false."""
    monkeypatch.setattr(loss_scaling, "lost_share", lambda config, dtype, scale: scale / 1e6)
    found = {m.name: m.value for m in loss_scaling.run(SMALL, lambda *_: None).metrics}
    assert found["model_loses_half"] is False
    assert found["bf16_is_blind_to_scale"] is False

"""Accumulated gradients against sums by hand, and peaks against a count of tensors."""

from __future__ import annotations

import pytest
import torch

from runnable_demos.grad_accumulation import LONG, PRESETS, SHORT, added_in_bf16, run
from runnable_demos.metrics import Result

CONFIG = PRESETS["small"]
M, ROWS, WIDTH = CONFIG.micro_batches, CONFIG.rows, CONFIG.width
PARAMETERS = 2 * (WIDTH * WIDTH + WIDTH)


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_equal_micro_batches_are_the_large_batch(result: Result) -> None:
    """A mean of means of equally many terms is the mean of all."""
    assert value(result, "equal_error") <= 1e-12


def test_a_sum_over_all_tokens_is_right_and_a_mean_of_means_is_not(result: Result) -> None:
    """With n and n/4 tokens, a token of the short one counts four times as much."""
    assert value(result, "token_mean_error") <= 1e-12
    assert value(result, "mean_of_means_error") > 0.01
    assert value(result, "short_token_weight") == LONG / SHORT


def test_batchnorm_is_another_function_of_smaller_batches(result: Result) -> None:
    """Its gradient differs, and its old mean decays m times, by 0.9 each."""
    assert value(result, "batchnorm_error") > 0.01
    assert value(result, "batchnorm_updates") == M
    assert value(result, "batchnorm_old_mean_left") == pytest.approx(0.9**M, abs=1e-6)


def test_dropout_draws_other_masks(result: Result) -> None:
    """The same seed does not give the same masks once two layers take turns."""
    assert value(result, "dropout_error") > 0.01


def test_sgd_shows_a_forgotten_division_and_adam_hides_it(result: Result) -> None:
    """SGD's step is linear in the gradient; Adam's is free of its scale."""
    assert value(result, "unscaled_sgd") == M
    assert value(result, "unscaled_adam") == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_floats_stop_at_the_first_gap_of_two(dtype: torch.dtype) -> None:
    """A sum of ones stalls where neighbours are two apart: at 2/eps, which ties to even."""
    limit = 2 / torch.finfo(dtype).eps
    config = type(CONFIG)(additions=int(limit) + 50)
    assert added_in_bf16(config, dtype) == limit


def test_sums_of_gradients(result: Result) -> None:
    """bf16 has eight significant bits; fp32 counts on."""
    assert value(result, "bf16_sum") == 256
    assert value(result, "fp32_sum") == CONFIG.additions


def test_peaks_count_tensors(result: Result) -> None:
    """Parameters; from the second micro-batch on their gradients; and seven tensors of rows × width.

    Three are saved (GELU's input, its output, the difference that is squared); the others are the
    square's and the mean's gradients on their way back. Eight bytes are two scalars.
    """

    def peak(rows: int, *, again: bool) -> int:
        return 4 * PARAMETERS * (2 if again else 1) + 7 * 4 * rows * WIDTH + 8

    assert value(result, "second_micro_batch_adds") == 4
    assert value(result, "peak_m_over_two") == 1
    ratio = peak(M * ROWS, again=False) / peak(ROWS, again=True)
    assert value(result, "peak_large_batch") == pytest.approx(ratio, rel=1e-12)


def test_the_arithmetic_is_the_same(result: Result) -> None:
    """Rows are rows, in however many portions."""
    assert value(result, "flops_ratio") == 1

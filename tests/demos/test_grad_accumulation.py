"""Accumulated gradients against sums by hand, and peaks against a count of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean, stdev

import pytest
import torch
from torch import Tensor, nn

from runnable_demos.grad_accumulation import LONG, PRESETS, SHORT, SHOWN, added_in_bf16, run
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result

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


def assert_is_mean_of(result: Result, name: str, measure: Callable[[int], float]) -> None:
    """The metric is the mean over the seeds, with its standard error."""
    draws = [measure(CONFIG.seed + i) for i in range(CONFIG.draws)]
    found = next(m for m in result.metrics if m.name == name)
    assert found.value == pytest.approx(mean(draws), rel=1e-5)
    assert found.error == pytest.approx(stdev(draws) / CONFIG.draws**0.5, rel=1e-5)


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Root of the summed squares of all differences, over that of all expected ones."""
    squares = [float((a - b).pow(2).sum()) for a, b in zip(found, expected, strict=True)]
    return (sum(squares) / sum(float(b.pow(2).sum()) for b in expected)) ** 0.5


def mean_of_means(seed: int) -> float:
    """The error of a mean of means, from cross-entropy's derivative written out: w (p − onehot)."""
    torch.manual_seed(seed)
    tokens = LONG * ROWS
    E, out = nn.Embedding(WIDTH, WIDTH).weight.double(), nn.Linear(WIDTH, WIDTH).double()
    x, y = torch.randint(WIDTH, (2, tokens)), torch.randint(WIDTH, (2, tokens))
    lengths = (tokens, SHORT * ROWS)

    def derivatives(weights: tuple[float, float]) -> list[Tensor]:
        dE, dW, db = torch.zeros_like(E), torch.zeros_like(out.weight), torch.zeros_like(out.bias)
        for row, (length, weight) in enumerate(zip(lengths, weights, strict=True)):
            ids, targets = x[row, :length], y[row, :length]
            g = (E[ids] @ out.weight.T + out.bias).exp()
            g = g / g.sum(1, keepdim=True) - torch.eye(WIDTH, dtype=g.dtype)[targets]
            dE.index_add_(0, ids, weight * g @ out.weight)
            dW += weight * g.T @ E[ids]
            db += weight * g.sum(0)
        return [dE, dW, db]

    with torch.no_grad():
        truth = derivatives((1 / sum(lengths),) * 2)
        return distance(derivatives((1 / 2 / lengths[0], 1 / 2 / lengths[1])), truth)


Forward = Callable[[Tensor, list[Tensor]], Tensor]


def gelu(x: Tensor) -> Tensor:
    """The activation x Φ(x)."""
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


def batch_norm(x: Tensor, parameters: list[Tensor]) -> Tensor:
    """Linear, normalised over the rows given, GELU, Linear."""
    A, a, gamma, beta, B, b = parameters
    z = x @ A.T + a
    z = (z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-5).sqrt()
    return gelu(z * gamma + beta) @ B.T + b


def dropped(x: Tensor, parameters: list[Tensor]) -> Tensor:
    """Linear, GELU, mask, Linear, mask: masks in the order in which the generator gives them."""
    A, a, _, _, B, b = parameters
    first, second = (torch.empty_like(x).bernoulli_(0.9) / 0.9 for _ in range(2))
    return (gelu(x @ A.T + a) * first @ B.T + b) * second


def accumulated(forward: Forward, seed: int) -> float:
    """Error of m micro-batches of a function written out, each pass with its masks from the seed on."""
    torch.manual_seed(seed)
    one, two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    scales = [torch.ones(WIDTH), torch.zeros(WIDTH)]
    tensors = [one.weight, one.bias, *scales, two.weight, two.bias]
    parameters = [t.detach().double().requires_grad_() for t in tensors]
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(M * ROWS, WIDTH, generator=generator, dtype=torch.float64)

    def derivatives(batches: Sequence[Tensor]) -> list[Tensor]:
        torch.manual_seed(seed)
        means = [(forward(x, parameters) - x).pow(2).mean() for x in batches]
        loss = torch.stack(means).sum() / len(batches)
        given = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [g for g in given if g is not None]

    return distance(derivatives(whole.chunk(M)), derivatives([whole]))


def test_equal_micro_batches_are_the_large_batch(result: Result) -> None:
    """A mean of means of equally many terms is the mean of all."""
    assert value(result, "equal_error") <= 1e-12


def test_a_sum_over_all_tokens_is_right_and_a_mean_of_means_is_not(result: Result) -> None:
    """With n and n/4 tokens, a token of the short one counts four times as much."""
    assert value(result, "token_mean_error") <= 1e-12
    assert_is_mean_of(result, "mean_of_means_error", mean_of_means)
    assert value(result, "short_token_weight") == LONG / SHORT


def test_batchnorm_is_another_function_of_smaller_batches(result: Result) -> None:
    """Its gradient differs, and its old mean decays m times, by 0.9 each."""
    assert_is_mean_of(result, "batchnorm_error", partial(accumulated, batch_norm))
    assert value(result, "batchnorm_updates") == M
    assert value(result, "batchnorm_old_mean_left") == pytest.approx(0.9**M, abs=1e-6)


def test_dropout_draws_other_masks(result: Result) -> None:
    """The same seed does not give the same masks once two layers take turns."""
    assert_is_mean_of(result, "dropout_error", partial(accumulated, dropped))


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


def test_the_picture_of_a_step_is_that_of_its_matrix_products(result: Result) -> None:
    """A forward has two products; a backward three, since the data want no gradient.

    Activations live until the second layer's two gradients are done, and then ``.grad`` begins: the
    first layer's gradient needs the data alone. One large batch takes each product with all rows.
    """
    lanes = next(f for f in result.figures if f.name == "lifetimes")
    assert isinstance(lanes, Lanes)
    forward, whole, needed = 1.0, 2.5, 2.0  # in forwards: 2, 5 and 4 of 2 products
    n, at_once, one_by_one = SHOWN, 0, SHOWN + 2
    expected = {
        (at_once, "forward", 0.0, n * forward),
        (at_once, "backward", n * forward, n * whole),
    }
    for i in range(n):
        begin = i * whole
        expected |= {
            (at_once + 1 + i, "activations", 0.0, n * needed),
            (one_by_one, "forward", begin, begin + forward),
            (one_by_one, "backward", begin + forward, begin + whole),
            (one_by_one + 1 + i, "activations", begin, begin + needed),
        }
    expected |= {
        (at_once + 1 + n, "gradients", n * needed, n * whole),
        (one_by_one + 1 + n, "gradients", needed, n * whole),
    }
    assert {(s.row, s.kind, s.start, s.end) for s in lanes.spans} == expected
    each = [str(i) for i in range(1, n + 1)]
    assert [place.name for place in lanes.y.categories] == [
        "at_once", *each, "grad", "accumulated", *each, "grad",
    ]  # fmt: skip

"""Lost updates against exact arithmetic on fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from statistics import NormalDist

import pytest
import torch

from runnable_demos import master_weights
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.master_weights import BF16, BINADES, PRESETS, every_weight, plain

SMALL = PRESETS["small"]


def round_bf16(x: Fraction) -> Fraction:
    """``x`` > 0 rounded to eight significant bits, ties to even, in exact arithmetic."""
    exponent = math.floor(math.log2(x))
    gap = Fraction(2) ** (exponent - 7)
    steps, rest = divmod(x, gap)
    if rest > gap / 2 or (rest == gap / 2 and steps % 2):
        steps += 1
    return steps * gap


@pytest.fixture(scope="module")
def values() -> dict[str, float]:
    """One run of the small preset."""
    torch.manual_seed(SMALL.seed)
    result = master_weights.run(SMALL, lambda *_: None)
    return {metric.name: metric.value for metric in result.metrics}


def test_one_weight_by_exact_arithmetic(values: dict[str, float]) -> None:
    """In bf16 the weight stays; a master adds up and is rounded once at the end."""
    u, w = Fraction(1, 2**SMALL.exponent), Fraction(1)
    for _ in range(SMALL.steps):
        w = round_bf16(w + u)
    assert values["bf16_after"] == w == 1
    truth = 1 + SMALL.steps * u
    assert values["true_sum"] == truth
    assert values["master_after"] == round_bf16(truth)
    assert values["kahan_after"] == round_bf16(truth)


@pytest.mark.parametrize("exponent", [6, 7, 8, 10])
def test_plain_addition_is_bf16_rounding(exponent: int) -> None:
    """Whatever the update, PyTorch's bf16 addition is the rounding above."""
    u, w = Fraction(1, 2**exponent), Fraction(3, 4)
    for _ in range(50):
        w = round_bf16(w + u)
    assert float(plain(torch.tensor(0.75), float(u), 50)) == w


def test_the_smallest_update_kept(values: dict[str, float]) -> None:
    """Half a gap is not enough at 1 (the tie goes to the even 1), and is below 2 (127 is odd)."""
    gap = 2.0**-7
    assert values["smallest_kept_at_1"] == gap
    assert values["smallest_kept_below_2"] == gap / 2


@cache
def moves_by_kahan(exponent: int) -> bool:
    """Whether updates of 2 to the minus ``exponent`` move a weight of 1 in the end, in exact arithmetic."""

    def signed(x: Fraction) -> Fraction:
        return (round_bf16(x) if x > 0 else -round_bf16(-x)) if x else x

    u, w, c = Fraction(1, 2**exponent), Fraction(1), Fraction(0)
    for _ in range(2 ** (exponent - 6)):
        y = signed(u - c)
        t = signed(w + y)
        w, c = t, signed(signed(t - w) - y)
    return w > 1


def test_kahans_limit_by_exact_arithmetic(values: dict[str, float]) -> None:
    """At 1 the carry stops at half a gap where 2⁻¹⁶ is half a gap of its own; 2⁻¹⁵ gets through."""
    assert [moves_by_kahan(exponent) for exponent in (15, 16, 17)] == [True, False, False]
    assert values["kahan_smallest_kept_at_1"] == 2.0**-15


@cache
def moved_share(lr: float) -> float:
    """Each bf16 weight is moved down by lr in exact arithmetic, and counted where it changes."""
    moved = total = 0
    for e in BINADES:
        for j in range(128):
            w = (1 + Fraction(j, 128)) * Fraction(2) ** e
            total += 1
            moved += round_bf16(w - Fraction(lr)) != w if w > Fraction(lr) else True
    assert total == every_weight("cpu").numel()
    return moved / total


@pytest.mark.parametrize(
    ("name", "lr"), [("1e2", 1e-2), ("1e3", 1e-3), ("1e4", 1e-4), ("1e5", 1e-5)]
)
def test_moved_shares_by_brute_force(values: dict[str, float], name: str, lr: float) -> None:
    """The share that changes is that of exact arithmetic."""
    assert values[f"moved_at_lr_{name}"] == moved_share(lr)


def test_fp32_masters_all_move(values: dict[str, float]) -> None:
    """Every fp32 weight below 1 has a gap of at most 2^-24: 1e-5 moves all of them."""
    assert values["moved_with_master_at_lr_1e5"] == 1


@cache
def two_roundings(v: Fraction, beta2: float, gradient: Fraction, steps: int) -> Fraction:
    """``v`` after the loop's arithmetic: β₂ v is rounded, then the sum is."""
    b = Fraction(beta2)
    for _ in range(steps):
        v = round_bf16(v * b) if v else v
        v = round_bf16(v + (1 - b) * gradient**2)
    return v


def test_the_loops_moment_by_exact_arithmetic(values: dict[str, float]) -> None:
    """PyTorch's for-loop AdamW rounds twice: 0.5 at β₂ = 0.999, from where it never falls."""
    for name, beta2 in (("999", 0.999), ("99", 0.99), ("95", 0.95)):
        risen = two_roundings(Fraction(0), beta2, Fraction(1), 1000)
        if name == "999":
            assert values["bf16_moment_loop_rises_to"] == risen == Fraction(1, 2)
        # From above, only the order of magnitude of the start matters.
        fallen = two_roundings(risen, beta2, Fraction(1, 8), 1000)
        assert values[f"bf16_moment_loop_falls_to_at_{name}"] == fallen


def test_where_each_implementation_stalls(values: dict[str, float]) -> None:
    """Two roundings stop where 0.001 is under half a gap, one where 0.001 (1 - v) is."""
    assert 0.001 < 2.0**-9 / 1  # half a gap from 1/2 on
    assert 0.001 > 2.0**-10  # and below
    for way in ("loop", "foreach"):
        assert values[f"bf16_moment_{way}_rises_to"] == 0.5
    assert 0.001 * 0.75 < 2.0**-10  # half a gap from 1/4 on
    assert 0.001 * 0.75 > 2.0**-11  # and below
    assert values["bf16_moment_fused_rises_to"] == 0.25


@pytest.mark.parametrize("way", master_weights.WAYS)
def test_a_moment_falls_only_below_beta_0998(values: dict[str, float], way: str) -> None:
    """1 - 0.999 is under 2^-9 and v stays; 0.01 and 0.05 are over 2^-8, and v comes down."""
    assert 1 - 0.999 < 2.0**-9 < 2.0**-8 < 1 - 0.99
    stuck = values[f"bf16_moment_{way}_falls_to_at_999"]
    assert stuck == values[f"bf16_moment_{way}_rises_to"]
    assert values[f"bf16_moment_{way}_falls_to_at_99"] < 3 / 64
    assert values[f"bf16_moment_{way}_falls_to_at_95"] == pytest.approx(1 / 64, rel=0.1)


@cache
def moment_of_adamw(way: str, beta: str) -> float:
    """A thousand gradients of 1, then a thousand of 1/8, to one tensor and one optimizer by itself."""
    flags = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    w = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([w], betas=(0.9, float(f"0.{beta}")), **flags[way])
    for gradient in (1.0, 0.125):
        w.grad = torch.full_like(w, gradient)
        for _ in range(1000):
            optimizer.step()
    moment = optimizer.state[w]["exp_avg_sq"]
    assert moment.unique().numel() == 1
    return float(moment[0])


@pytest.mark.parametrize("beta", ["999", "99", "95"])
@pytest.mark.parametrize("way", ["loop", "foreach", "fused"])
def test_pytorchs_own_adamw_says_the_same(values: dict[str, float], way: str, beta: str) -> None:
    """The optimizer itself comes to the moment that the demo tells."""
    assert values[f"bf16_moment_{way}_falls_to_at_{beta}"] == moment_of_adamw(way, beta)


def test_bytes_by_dtype(values: dict[str, float]) -> None:
    """A master is an fp32 number a weight, Kahan's carry a bf16 one."""
    assert values["master_bytes_per_param"] == 4
    assert values["kahan_bytes_per_param"] == 2


def test_the_mean_of_stochastic_rounding_is_held_against_its_closed_form() -> None:
    """The mean of n weights is 1 + nu within five of its errors, and its error is no guess.

    The weights take whole gaps: the variance of their sum of gaps is at most that of fair coins.
    """
    found = {m.name: m for m in master_weights.run(SMALL, lambda share, what: None).metrics}
    metric, u = found["stochastic_mean"], 2.0**-SMALL.exponent
    assert metric.closed_form == 1 + SMALL.steps * u
    assert metric.error is not None
    assert abs(metric.value - metric.closed_form) < 5 * metric.error
    gap = 2.0**-7 * 2  # above 2
    assert 0 < metric.error < gap * math.sqrt(SMALL.steps / 4 / SMALL.copies)


def test_stochastic_rounding_is_unbiased_and_stays_on_the_grid() -> None:
    """One step moves 1 by a whole gap as often as the remainder says, and never elsewhere."""
    n = 2**16
    generator = torch.Generator().manual_seed(1)
    w = master_weights.stochastic(torch.ones(n), 2.0**-9, 1, generator)
    assert w.dtype is BF16
    assert set(w.unique().tolist()) == {1.0, 1.0078125}
    share = (w > 1).double().mean().item()
    # A quarter of a gap: binomial with p = 1/4; five standard deviations.
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n)


def test_errors_that_are_bounded(values: dict[str, float]) -> None:
    """An fp32 moment after 5,000 steps is 1 − 0.999^5000, by steps of exact rounding to 24 bits."""
    v = 0.0
    beta = 0.999
    for _ in range(5000):
        v = v * beta + (1 - beta)
    assert v == pytest.approx(1 - beta**5000, rel=1e-9)
    assert values["fp32_moment_error"] < 1e-3


@cache
def initial_moved_share(lr: float) -> float:
    """Quantiles of the standard library, rounded and moved down in exact arithmetic."""
    normal, n, step = NormalDist(0, 0.02), 4096, Fraction(lr)
    weights = [normal.inv_cdf((i + 0.5) / n) for i in range(n)]
    signed = [(1 if w > 0 else -1, round_bf16(Fraction(abs(w)))) for w in weights]
    moved = sum(
        (sign > 0 and size <= step) or round_bf16(size - sign * step) != size
        for sign, size in signed
    )
    return moved / n


def test_moved_shares_of_initial_weights_by_brute_force(values: dict[str, float]) -> None:
    """The share that changes is that of exact arithmetic, but for a weight or two."""
    for name, lr in (("1e3", 1e-3), ("1e4", 1e-4), ("1e5", 1e-5)):
        share = initial_moved_share(lr)
        assert values[f"initial_moved_at_lr_{name}"] == pytest.approx(share, abs=2 / 4096)


def test_the_figure_by_exact_arithmetic() -> None:
    """Eight quarters of a gap: bf16 never moves; a master and Kahan's weight are the truth, rounded."""
    found = master_weights.run(SMALL, lambda *_: None)
    figure = next(figure for figure in found.figures if figure.name == "remainders")
    assert isinstance(figure, Lanes)
    gap = Fraction(1, 128)
    quarters = {"": 0, "¼": 1, "½": 2, "¾": 3}

    def number(label: str) -> Fraction:
        sign = -1 if label[0] == "−" else 1
        digits = label.lstrip("−")
        part = digits[-1] if digits[-1] in quarters else ""
        whole = digits[: len(digits) - len(part)]
        return sign * (int(whole or 0) * gap + quarters[part] * gap / 4)

    lanes = []
    for row in range(6):
        spans = [s for s in figure.spans if s.row == row]
        lanes.append([number(s.label) for s in spans for _ in range(int(s.end - s.start))])
    for step in range(1, 9):
        truth = step * gap / 4
        seen = round_bf16(1 + truth) - 1
        at = [lane[step - 1] for lane in lanes]
        assert at == [0, truth, seen, truth - seen, seen, truth - seen]


@pytest.mark.parametrize("way", master_weights.WAYS.values())
def test_bf16_weights_do_not_decay(way: dict[str, bool]) -> None:
    """AdamW's own decay of 10⁻⁴ a step rounds back to each bf16 weight, and shrinks each fp32 one."""
    for dtype, moves in ((BF16, False), (torch.float32, True)):
        start = torch.linspace(0.001, 1, 1000).to(dtype)
        weight = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.1, **way)  # type: ignore[arg-type]
        for _ in range(20):
            weight.grad = torch.zeros_like(weight)
            optimizer.step()
        assert (weight.detach() != start).all() if moves else torch.equal(weight.detach(), start)

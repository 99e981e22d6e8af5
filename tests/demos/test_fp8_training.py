"""FP8 casts, scales, sums and saved bytes, against brute force over all 256 numbers and counts by hand."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache
from statistics import NormalDist, mean, stdev

import pytest
import torch
from torch import Tensor, nn

from runnable_demos.fp8_training import (
    E4M3,
    E5M2,
    EXAMPLE,
    PRESETS,
    Fp8Linear,
    delayed,
    flushed,
    narrow,
    off,
    outlier_errors,
    product_blocks,
    product_tensor,
    read_back,
    run,
    through,
)
from runnable_demos.lab.metrics import Metric

CONFIG = PRESETS["small"]
H = CONFIG.width


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    """One run at small size."""
    return {m.name: m for m in run(CONFIG, lambda share, what: None).metrics}


def numbers(exponent: int, fraction: int, bias: int, largest: float) -> list[float]:
    """All finite numbers of a format from its definition, without torch, in order."""
    found = {0.0}
    for e in range(2**exponent):
        for f in range(2**fraction):
            one = f / 2**fraction
            value = math.ldexp(one, 1 - bias) if e == 0 else math.ldexp(1 + one, e - bias)
            if value <= largest:
                found |= {value, -value}
    return sorted(found)


TABLES = {E4M3: numbers(4, 3, 7, 448.0), E5M2: numbers(5, 2, 15, 57344.0)}


def nearest(x: float, table: list[float]) -> float:
    """The nearest number of a table by comparison; a tie goes to the even fraction, the ends hold."""
    at = bisect_left(table, x)
    pair = table[max(at - 1, 0) : at + 1]
    if len(pair) == 1 or abs(pair[0] - x) != abs(pair[1] - x):
        return min(pair, key=lambda each: abs(each - x))
    low = at - 1 - table.index(0.0)  # numbers are numbered from 0, in step with their patterns
    return pair[0] if low % 2 == 0 else pair[1]


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_casts_are_those_to_the_nearest_number(dtype: torch.dtype) -> None:
    """Torch's cast of random numbers, subnormal ones among them, by brute force over the definition."""
    torch.manual_seed(1)
    x = torch.randn(2000) * torch.exp2(torch.randint(-14, 7, (2000,)).float())
    expected = [nearest(each, TABLES[dtype]) for each in x.tolist()]
    assert x.to(dtype).float().tolist() == expected


def test_formats_are_as_defined(metrics: dict[str, Metric]) -> None:
    """Worst rounding is 1/17 and 1/9; ends, spans and special patterns follow from the definition."""
    assert metrics["e4m3_worst_rounding"].value == pytest.approx(1 / 17, rel=1e-6)
    assert metrics["e5m2_worst_rounding"].value == pytest.approx(1 / 9, rel=1e-6)
    assert metrics["e4m3_normal_span"].value == 448 * 2**6
    assert metrics["e5m2_normal_span"].value == 57344 * 2**14
    assert 256 - (len(TABLES[E4M3]) + 1) == metrics["e4m3_nan_patterns"].value == 2  # 0 is twice
    assert metrics["e4m3_infinities"].value == 0
    assert metrics["e5m2_infinities"].value == 2
    assert 256 - (len(TABLES[E5M2]) + 1) - 2 == metrics["e5m2_nan_patterns"].value == 6
    assert metrics["e4m3_of_ten_thousand"].value == metrics["e4m3_of_infinity"].value == 448
    assert metrics["e4m3_keeps_nan"].value is True
    assert metrics["e5m2_overflows"].value is True


@pytest.mark.parametrize("group", [(8, 256), (1, 128), (4, 128)])
def test_groups_are_scaled_each_by_its_own_maximum(group: tuple[int, int]) -> None:
    """Value by value in Python: divided by its group's amax over 448, to the nearest number, and back."""
    torch.manual_seed(2)
    x = torch.randn(8, 256) * torch.exp2(-torch.arange(8.0))[:, None]
    got = through(x, group)
    for i in range(0, 8, group[0]):
        for j in range(0, 256, group[1]):
            part = x[i : i + group[0], j : j + group[1]]
            back = part.abs().max() / 448
            small = [nearest(each, TABLES[E4M3]) for each in (part / back).flatten().tolist()]
            expected = torch.tensor(small).view(part.shape) * back
            assert torch.equal(got[i : i + group[0], j : j + group[1]], expected)


def to_nearest(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest number of a format for each value, by the midpoints of its table."""
    table = torch.tensor(TABLES[dtype], dtype=torch.float64)
    return table[torch.bucketize(x.double(), (table[1:] + table[:-1]) / 2)]


def restored(x: Tensor, height: int, width: int, dtype: torch.dtype = E4M3) -> Tensor:
    """What is left of ``x`` in groups of ``height`` by ``width``, group by group, in fp64."""
    left = torch.empty(x.shape, dtype=torch.float64)
    for i in range(0, x.shape[0], height):
        for j in range(0, x.shape[1], width):
            place = slice(i, i + height), slice(j, j + width)
            back = x[place].double().abs().max() / max(TABLES[dtype])
            left[place] = to_nearest(x[place].double() / back, dtype) * back
    return left


def error(left: Tensor, true: Tensor) -> float:
    """Root of the sum of squared errors, over that of squares."""
    return math.sqrt(float((left - true).square().sum() / true.double().square().sum()))


@cache
def drawn() -> dict[str, list[float]]:
    """Every draw again, cast by tables: errors beside an outlier, values that become 0, and products."""
    rows, columns = CONFIG.rows, CONFIG.columns
    draw = torch.Generator().manual_seed(CONFIG.seed)
    seen: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seen.setdefault(name, []).append(value)

    for _ in range(CONFIG.draws):
        x = torch.randn(rows, columns, generator=draw)
        others = torch.ones_like(x, dtype=torch.bool)
        others[0, 0] = False
        for level, outlier in (("mild", 256.0), ("wild", 65536.0)):
            x[0, 0] = outlier
            ways = {"tensor": (rows, columns), "block": (128, 128), "tile": (1, 128)}
            for name, group in ways.items():
                note(f"{name}_{level}", error(restored(x, *group)[others], x[others]))
            whole = torch.round(x.double() * 127 / outlier) * outlier / 127
            note(f"int8_{level}", error(whole[others], x[others]))
        order = torch.randperm(rows, generator=draw)
        y = torch.randn(rows, columns, generator=draw)
        y *= torch.tensor([2 ** (-24 * i / (rows - 1)) for i in order.tolist()])[:, None]
        for name, left in (
            ("e4m3", restored(y, rows, columns)),
            ("e5m2", restored(y, rows, columns, E5M2)),
            ("block", restored(y, 128, 128)),
            ("tile", restored(y, 1, 128)),
        ):
            note(f"flushed_{name}", float((left == 0).double().mean()))
        a, b = (torch.randn(128, CONFIG.inner, generator=draw) for _ in range(2))
        true = a.double() @ b.double().t()
        note(
            "product_tensor",
            error(restored(a, 128, CONFIG.inner) @ restored(b, 128, CONFIG.inner).t(), true),
        )
        note("product_blocks", error(restored(a, 1, 128) @ restored(b, 128, 128).t(), true))
        note("product_bf16", error(a.bfloat16().double() @ b.bfloat16().double().t(), true))
    return seen


def test_sampled_metrics_are_those_of_the_same_draws(metrics: dict[str, Metric]) -> None:
    """Means and standard errors are those of the draws."""
    seen = drawn()
    for name in seen.keys() & metrics.keys():
        assert metrics[name].value == pytest.approx(mean(seen[name]), rel=2e-3, abs=2e-6), name
        spread = stdev(seen[name]) / math.sqrt(CONFIG.draws)
        assert metrics[name].error == pytest.approx(max(spread, 1e-6), rel=0.02, abs=2e-6)
    assert len(seen.keys() & metrics.keys()) == 6 + 4 + 3


def test_an_outlier_costs_floats_nothing_at_first(metrics: dict[str, Metric]) -> None:
    """256 σ leaves E4M3 as it was, and spoils INT8; 65,536 σ spoils one scale most and tiles least."""
    torch.manual_seed(3)
    plain = torch.randn(CONFIG.rows, CONFIG.columns)
    without = off(through(plain, (CONFIG.rows, CONFIG.columns)), plain)
    assert metrics["tensor_mild"].value == pytest.approx(without, rel=0.02)
    assert metrics["int8_mild"].value > 20 * metrics["tensor_mild"].value
    x = plain.clone()
    x[0, 0] = 2.0**30
    assert outlier_errors(x)["tensor"] == outlier_errors(x)["int8"] == 1


def test_flushed_is_what_the_normal_distribution_says() -> None:
    """Per row, the chance that a value is at most half the smallest number over its scale; E5M2 likewise."""
    torch.manual_seed(4)
    rows, columns = 256, 512
    scale = torch.exp2(-24 * torch.randperm(rows) / (rows - 1))
    x = torch.randn(rows, columns) * scale[:, None]
    got, z = flushed(x), NormalDist()
    for name, dtype in (("e4m3", E4M3), ("e5m2", E5M2)):
        least = (
            TABLES[dtype][TABLES[dtype].index(0.0) + 1]
            / 2
            * float(x.abs().max())
            / max(TABLES[dtype])
        )
        chance = [2 * z.cdf(least / s) - 1 for s in scale.tolist()]
        assert got[name] == pytest.approx(sum(chance) / rows, rel=0.05)
    assert got["tile"] < 1e-4 < got["block"]


def test_products_are_those_of_the_values_that_are_left() -> None:
    """Both ways of calling ``_scaled_mm`` against fp64 products of what the casts leave."""
    torch.manual_seed(5)
    x, w = torch.randn(128, 512), torch.randn(256, 512)
    whole = through(x, (128, 512)).double() @ through(w, (256, 512)).double().t()
    assert off(product_tensor(x, w), whole) < 1e-6
    parts = through(x, (1, 128)).double() @ through(w, (128, 128)).double().t()
    assert off(product_blocks(x, w), parts) < 1e-6


def cut(value: Fraction, last: Fraction) -> Fraction:
    """Towards 0, to a multiple of ``last``."""
    return Fraction(int(value / last)) * last


def by_hand(a: list[float], b: list[float], promote: int) -> float:
    """One element of the product with a 14-bit accumulator, in fractions."""
    total = torch.zeros((), dtype=torch.float32)
    register = Fraction(0)
    for k in range(0, len(a), 32):
        products = [
            Fraction(x) * Fraction(y) for x, y in zip(a[k : k + 32], b[k : k + 32], strict=True)
        ]
        largest = max(abs(each) for each in [*products, register])
        exponent = math.floor(math.log2(float(largest)))
        last = Fraction(2) ** (exponent - 13)
        register = cut(register, last) + sum((cut(p, last) for p in products), Fraction(0))
        if promote and (k + 32) % promote == 0:
            total, register = total + torch.tensor(float(register)), Fraction(0)
    return float(total) + float(register)


@pytest.mark.parametrize("promote", [0, 128])
def test_the_narrow_accumulator_cuts_as_it_is_told(promote: int) -> None:
    """Element by element in exact fractions."""
    torch.manual_seed(6)
    a, b = ((torch.rand(3, 512) * 100).to(E4M3).double() for _ in range(2))
    got = narrow(a, b, promote)
    for i in range(3):
        for j in range(3):
            assert float(got[i, j]) == by_hand(a[i].tolist(), b[j].tolist(), promote)


@cache
def sums() -> dict[str, float]:
    """Errors of the demo's sums, by the same matrices element by element in fractions."""
    found = {}
    draw = torch.Generator().manual_seed(0)
    for name, make in (("mixed", torch.randn), ("positive", torch.rand)):
        a, b = ((make(16, CONFIG.inner, generator=draw) * 100).to(E4M3).double() for _ in range(2))
        true = a @ b.t()
        for way, promote in (("narrow", 0), ("promoted", 128)):
            rows = [[by_hand(x, y, promote) for y in b.tolist()] for x in a.tolist()]
            found[f"{way}_{name}"] = error(torch.tensor(rows, dtype=torch.float64), true)
    return found


def test_sums_of_one_sign_lose_most(metrics: dict[str, Metric]) -> None:
    """Cuts towards 0 add up where all are positive."""
    for name in sums().keys() & metrics.keys():
        assert metrics[name].value == pytest.approx(sums()[name], rel=1e-3)
    assert metrics["narrow_positive"].value > 3 * metrics["narrow_mixed"].value


def test_delayed_scaling_clips_a_jump_and_remembers_it() -> None:
    """A step twice as large as its history is clipped at half; the history forgets it when it is full."""
    flat, tall = torch.full((4, 4), 1.0), torch.full((4, 4), 2.0)
    errors, factors = delayed([flat, tall, *[flat] * 5], 3)
    assert errors[0] == 0 and errors[1] == 0.5  # 2 comes back as 1
    assert factors == [1, 2, 0.5, 0.5, 0.5, 1, 1]


def test_stale_steps_are_as_many_as_the_history(metrics: dict[str, Metric]) -> None:
    """The jump leaves the window after 16 steps; until then only the range suffers, not the precision."""
    draw = torch.Generator().manual_seed(0)
    for make in (torch.randn, torch.rand):
        _ = [make(16, CONFIG.inner, generator=draw) for _ in range(2)]
    first, jump, after = (torch.randn(128, 128, generator=draw).double() for _ in range(3))
    jump = jump * 8
    factor = 448 / float(first.abs().max())
    clipped = to_nearest(jump * factor, E4M3) / factor  # the table ends at 448
    assert metrics["jump_delayed"].value == pytest.approx(error(clipped, jump), rel=1e-3)
    current = error(restored(jump, 128, 128), jump)
    assert metrics["jump_current"].value == pytest.approx(current, rel=1e-3)
    factor = 448 / float(jump.abs().max())
    stale = error(to_nearest(after * factor, E4M3) / factor, after)
    assert metrics["after_delayed"].value == pytest.approx(stale, rel=1e-3)
    assert metrics["stale_steps"].value == 16


def test_saved_bytes_are_those_counted_by_hand(metrics: dict[str, Metric]) -> None:
    """A byte and 4/128 of a scale for each element, and what else a block keeps in bf16."""
    assert metrics["input_bf16"].value == 2
    assert metrics["input_fp8"].value == 1 + 4 / 128
    assert metrics["input_fp8_twice"].value == 2 * (1 + 4 / 128)
    f = 7 * H // 2
    norms = 2 * (2 * H + 4)  # input and 1/rms
    attention = 2 * (H + 2 * H // 4) + 2 * H + 4 * 4  # q, k, v, output, log-sum-exp of four heads
    gate = 2 * 3 * f  # gate, its silu, up
    inputs = (
        2 * H + 2 * H + 2 * f
    )  # two norms' outputs, and the product; the output is there already
    assert metrics["block_bf16"].value == norms + attention + gate + inputs
    in_fp8 = (1 + 4 / 128) * (H + H + H + f)  # the output projection's input is one copy more
    assert metrics["block_fp8"].value == norms + attention + gate + in_fp8
    ratio = metrics["block_fp8"].value / metrics["block_bf16"].value
    assert metrics["block_ratio"].value == ratio


def test_gradients_are_those_of_a_linear_layer_but_for_rounding() -> None:
    """Within the error of two casts, for input and weight; layers that share an input share its copy."""
    torch.manual_seed(7)
    plain = nn.Linear(256, 128, bias=False)
    ours = Fp8Linear(nn.Parameter(plain.weight.detach().clone()))
    x, g = torch.randn(128, 256), torch.randn(128, 128)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    plain(a).backward(g)
    ours(b).backward(g)
    assert plain.weight.grad is not None and ours.weight.grad is not None
    assert 0.01 < off(ours.weight.grad, plain.weight.grad) < 0.05
    assert a.grad is not None and b.grad is not None
    assert 0.01 < off(b.grad, a.grad) < 0.05
    held = Fp8Linear.last
    ours(b)
    assert Fp8Linear.last is held


def test_tiles_show_what_is_read_back() -> None:
    """Every cell of the figure by brute force: with one scale for all, and with one for its row."""
    cells = {(t.row, t.column): t for t in read_back()}
    assert len(cells) == 4 * 5
    largest = max(abs(x) for row in EXAMPLE for x in row)
    for i, row in enumerate(EXAMPLE):
        top = max(map(abs, row))
        assert cells[i, 4].notes == (("6×10⁴",) if top > 1e3 else (f"{top:g}",))
        for j, x in enumerate(row):
            level = nearest(x / largest * 448, TABLES[E4M3])
            kind = "zero" if level == 0 else "subnormal" if abs(level) < 2**-6 else "normal"
            assert cells[i, j].kind == kind
            if x < 1e3:
                own = nearest(x / top * 448, TABLES[E4M3]) * top / 448
                shown = (f"{x:g}", f"T {level * largest / 448 + 0:.2g}", f"B {own:.2g}")
                assert cells[i, j].notes == tuple(n.replace("-", "−") for n in shown)
    assert {cells[1, j].kind for j in range(1, 4)} == {"normal", "subnormal"}
    assert {cells[3, j].kind for j in range(4)} == {"zero"}


def test_the_simulation_is_of_fourteen_bits() -> None:
    """A row of ones sums to 2^14 at most before ones are cut away, and exactly with promotion."""
    one = torch.ones(1, 2**15, dtype=torch.float64)
    assert float(narrow(one, one, 128)) == 2**15
    assert float(narrow(one, one)) == 2**14

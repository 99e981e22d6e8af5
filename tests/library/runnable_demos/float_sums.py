"""How far off is a sum of floating-point numbers, and what does it cost to do better?

The question
    n copies of the double nearest to 0.1 are added. The exact sum is n times that double.

The model
    A naive loop rounds once an addition. Kahan's loop carries what the last rounding lost:

        y ← x − c        t ← s + y        c ← (t − s) − y        s ← t

The measurement
    The error against rational arithmetic, the additions executed, the bytes of arrays,
    and the digits that a sum with 1 keeps.
"""

from __future__ import annotations

import random
import time
from array import array
from dataclasses import dataclass
from fractions import Fraction

from runnable_demos.metrics import (
    Axis,
    Figure,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    parameter,
    sample,
)

TITLE: Text = {"zh": "浮点数求和", "en": "Floating-point sums"}
QUESTION: Text = {
    "zh": "浮点数求和差多少？补偿求和要多付多少次加法？",
    "en": "How far off is a floating-point sum, and how many more additions does a better one need?",
}


@dataclass(frozen=True)
class Config:
    """How many numbers are added."""

    count: int = parameter(10_000, {"zh": "加数个数", "en": "how many numbers"}, 10, 100_000)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(count=1_000), "full": Config()}


def naive(numbers: array[float]) -> tuple[float, int]:
    """The sum from left to right, and how many additions it took."""
    total, additions = 0.0, 0
    for x in numbers:
        total, additions = total + x, additions + 1
    return total, additions


def rounded_down(draws: int, seed: int) -> list[float]:
    """1 for each random number below 1 whose sum with 1 is rounded down, else 0."""
    numbers = random.Random(seed)
    tried = (numbers.random() * 2.0**-7 for _ in range(draws))
    return [float(Fraction(1.0 + x) < 1 + Fraction(x)) for x in tried]


def kahan(numbers: array[float]) -> tuple[float, int]:
    """The compensated sum, and how many additions and subtractions it took."""
    total, lost, additions = 0.0, 0.0, 0
    for x in numbers:
        y = x - lost
        t = total + y
        lost = (t - total) - y
        total, additions = t, additions + 4
    return total, additions


def error(total: float, numbers: array[float]) -> float:
    """|total − exact| / exact, the exact sum being rational."""
    exact = len(numbers) * Fraction(numbers[0])
    return float(abs(Fraction(total) - exact) / exact)


def significant_bits() -> int:
    """How many binary digits a double keeps: 1 + 2⁻ᵏ is 1 from k = p on."""
    k = 0
    while 1.0 + 2.0**-k != 1.0:
        k += 1
    return k


def run(config: Config, progress: Progress) -> Result:
    """Add, compare, count."""
    numbers = array("d", [0.1]) * config.count
    start = time.perf_counter()
    plain, plain_additions = naive(numbers)
    seconds = time.perf_counter() - start
    progress(0.5, f"n = {config.count}")
    careful, careful_additions = kahan(numbers)
    plain_error, careful_error = error(plain, numbers), error(careful, numbers)

    lengths = [10**power for power in range(1, 5) if 10**power <= config.count]
    parts = [numbers[:length] for length in lengths]
    progress(1.0, "done")
    return Result(
        metrics=(
            Metric(
                "bytes_per_number",
                len(numbers.tobytes()) / len(numbers),
                "B",
                "exact",
                {"zh": "每个数的字节", "en": "bytes a number"},
                {"zh": "数组的字节数除以个数", "en": "bytes of the array over its length"},
            ),
            Metric(
                "bytes_per_single",
                len(array("f", numbers).tobytes()) / len(numbers),
                "B",
                "exact",
                {"zh": "每个单精度数的字节", "en": "bytes a single-precision number"},
                {"zh": "数组的字节数除以个数", "en": "bytes of the array over its length"},
            ),
            Metric(
                "significant_bits",
                significant_bits(),
                "",
                "exact",
                {"zh": "双精度的有效位数", "en": "significant bits of a double"},
                {
                    "zh": "把 2 的负幂加到 1 上，直到和不变",
                    "en": "powers of two added to 1 until it stays",
                },
            ),
            Metric(
                "tenth_is_exact",
                Fraction(0.1) == Fraction(1, 10),
                "",
                "exact",
                {"zh": "0.1 存得准", "en": "0.1 is stored exactly"},
                {"zh": "与有理数 1/10 比较", "en": "against the rational 1/10"},
            ),
            Metric(
                "additions_ratio",
                careful_additions / plain_additions,
                "",
                "exact",
                {"zh": "补偿求和与朴素求和的加法次数之比", "en": "additions, Kahan over naive"},
                {"zh": "逐次计数", "en": "counted as they are executed"},
            ),
            Metric(
                "naive_is_exact",
                plain_error == 0.0,
                "",
                "exact",
                {"zh": "朴素求和没有误差", "en": "the naive sum is exact"},
                {"zh": "与有理数运算比较", "en": "against rational arithmetic"},
            ),
            Metric(
                "kahan_is_closer",
                careful_error < plain_error,
                "",
                "exact",
                {"zh": "补偿求和更准", "en": "Kahan's sum is closer"},
                {"zh": "与有理数运算比较", "en": "against rational arithmetic"},
            ),
            Metric(
                "kahan_error",
                careful_error,
                "",
                "bounded",
                {"zh": "补偿求和的相对误差", "en": "relative error of Kahan's sum"},
                {"zh": "与有理数运算比较", "en": "against rational arithmetic"},
                bound=3e-16,
                reason={
                    "zh": "两个单位舍入，2u ≈ 2.2e-16，进位到一位数字",
                    "en": "two unit roundoffs, 2u ≈ 2.2e-16, rounded up to one digit",
                },
            ),
            Metric(
                "kahan_additions",
                4 * config.count,
                "",
                "computed",
                {"zh": "补偿求和的加法次数", "en": "additions of Kahan's sum"},
                {"zh": "按每个数四次算出", "en": "worked out at four for each number"},
            ),
            sample(
                "share_rounded_down",
                rounded_down(400, config.seed),
                "",
                {
                    "zh": "随机数加到 1 上，向下舍入的比例",
                    "en": "share of random numbers that are rounded down when added to 1",
                },
                {"zh": "400 个随机数", "en": "400 random numbers"},
                closed_form=0.5,
            ),
            Metric(
                "naive_seconds",
                seconds,
                "s",
                "measured",
                {"zh": "朴素求和的时间", "en": "time of the naive sum"},
                {"zh": "一次运行的墙钟时间", "en": "wall-clock time of one run"},
            ),
        ),
        figures=(
            Figure(
                "error",
                {"zh": "相对误差随个数的变化", "en": "Relative error over the count"},
                Axis({"zh": "个数", "en": "count"}, scale="log10"),
                Axis({"zh": "相对误差", "en": "relative error"}),
                (
                    Series(
                        {"zh": "朴素", "en": "naive"},
                        tuple(map(float, lengths)),
                        tuple(error(naive(part)[0], part) for part in parts),
                    ),
                    Series(
                        {"zh": "补偿", "en": "Kahan"},
                        tuple(map(float, lengths)),
                        tuple(error(kahan(part)[0], part) for part in parts),
                    ),
                ),
            ),
        ),
    )

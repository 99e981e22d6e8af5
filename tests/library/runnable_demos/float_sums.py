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

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

GPU = 1
TITLE: Text = {"zh": "浮点数求和", "en": "Floating-point sums"}
QUESTION: Text = {
    "zh": "浮点数求和差多少？补偿求和要多付多少次加法？",
    "en": "How far off is a floating-point sum, and how many more additions does a better one need?",
}

MEASURES = """
[[method]]
kind = "exact"
how = ["数组的字节数除以个数", "bytes of the array over its length"]
[method.metrics]
bytes_per_number = ["B", "每个数的字节", "bytes a number"]
bytes_per_single = ["B", "每个单精度数的字节", "bytes a single-precision number"]

[[method]]
kind = "exact"
how = ["把 2 的负幂加到 1 上，直到和不变", "powers of two added to 1 until it stays"]
[method.metrics]
significant_bits = ["", "双精度的有效位数", "significant bits of a double"]

[[method]]
kind = "exact"
how = ["与有理数 1/10 比较", "against the rational 1/10"]
[method.metrics]
tenth_is_exact = ["", "0.1 存得准", "0.1 is stored exactly"]

[[method]]
kind = "exact"
how = ["逐次计数", "counted as they are executed"]
[method.metrics]
additions_ratio = ["", "补偿求和与朴素求和的加法次数之比", "additions, Kahan over naive"]

[[method]]
kind = "exact"
how = ["与有理数运算比较", "against rational arithmetic"]
[method.metrics]
naive_is_exact = ["", "朴素求和没有误差", "the naive sum is exact"]
kahan_is_closer = ["", "补偿求和更准", "Kahan's sum is closer"]

[[method]]
kind = "bounded"
how = ["与有理数运算比较", "against rational arithmetic"]
bound = 3e-16
reason = ["两个单位舍入，2u ≈ 2.2e-16，进位到一位数字", "two unit roundoffs, 2u ≈ 2.2e-16, rounded up to one digit"]
[method.metrics]
kahan_error = ["", "补偿求和的相对误差", "relative error of Kahan's sum"]

[[method]]
kind = "computed"
how = ["按每个数四次算出", "worked out at four for each number"]
[method.metrics]
kahan_additions = ["", "补偿求和的加法次数", "additions of Kahan's sum"]

[[method]]
kind = "sampled"
how = ["{draws} 个随机数", "{draws} random numbers"]
[method.metrics]
share_rounded_down = [
  "",
  "随机数加到 1 上，向下舍入的比例",
  "share of random numbers that are rounded down when added to 1",
]

[[method]]
kind = "measured"
how = ["一次运行的墙钟时间", "wall-clock time of one run"]
[method.metrics]
naive_seconds = ["s", "朴素求和的时间", "time of the naive sum"]

[[method]]
kind = "measured"
only = "gpu"
how = ["GPU 上一次运行的墙钟时间", "wall-clock time of one run on a GPU"]
[method.metrics]
gpu_seconds = ["s", "{draws} 个数在 GPU 上求和的时间", "time in which a GPU adds {draws} numbers"]

[figure.error]
title = ["相对误差随个数的变化", "Relative error over the count"]
x = {label = ["个数", "count"], scale = "log10"}
y = {label = ["相对误差", "relative error"]}
[figure.error.series]
naive = ["measured", "朴素", "naive"]
kahan = ["measured", "补偿", "Kahan"]
"""


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


# --8<-- [start:kahan]
def kahan(numbers: array[float]) -> tuple[float, int]:
    """The compensated sum, and how many additions and subtractions it took."""
    total, lost, additions = 0.0, 0.0, 0
    for x in numbers:
        y = x - lost
        t = total + y
        lost = (t - total) - y
        total, additions = t, additions + 4
    return total, additions


# --8<-- [end:kahan]


def error(total: float, numbers: array[float]) -> float:
    """|total − exact| / exact, the exact sum being rational."""
    exact = len(numbers) * Fraction(numbers[0])
    return float(abs(Fraction(total) - exact) / exact)


def gpu_seconds(count: int) -> float:
    """The time of one sum on a GPU."""
    import torch  # noqa: PLC0415 - the rest of this demo runs without

    numbers = torch.full((count,), 0.1, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    numbers.sum().item()
    return time.perf_counter() - start


def significant_bits() -> int:
    """How many binary digits a double keeps: 1 + 2⁻ᵏ is 1 from k = p on."""
    k = 0
    while 1.0 + 2.0**-k != 1.0:
        k += 1
    return k


def run(config: Config, progress: Progress) -> Result:
    """Add, compare, count."""
    draws = 400
    found = Findings(MEASURES, config, draws=draws)
    numbers = array("d", [0.1]) * config.count
    found["bytes_per_number"] = len(numbers.tobytes()) / len(numbers)
    found["bytes_per_single"] = len(array("f", numbers).tobytes()) / len(numbers)
    found["significant_bits"] = significant_bits()
    found["tenth_is_exact"] = Fraction(0.1) == Fraction(1, 10)

    start = time.perf_counter()
    plain, plain_additions = naive(numbers)
    found["naive_seconds"] = time.perf_counter() - start
    progress(0.5, f"n = {config.count}")
    careful, careful_additions = kahan(numbers)
    plain_error, careful_error = error(plain, numbers), error(careful, numbers)
    found["additions_ratio"] = careful_additions / plain_additions
    found["naive_is_exact"] = plain_error == 0.0
    found["kahan_is_closer"] = careful_error < plain_error
    found["kahan_error"] = careful_error
    found["kahan_additions"] = 4 * config.count
    found.sample("share_rounded_down", rounded_down(draws, config.seed), closed_form=0.5)

    if config.device == "cuda":
        found["gpu_seconds"] = gpu_seconds(draws)
    lengths = [10**power for power in range(1, 5) if 10**power <= config.count]
    parts = [numbers[:length] for length in lengths]
    found.draw(
        "error",
        Line("naive", lengths, [error(naive(part)[0], part) for part in parts]),
        Line("kahan", lengths, [error(kahan(part)[0], part) for part in parts]),
    )
    progress(1.0, "done")
    return found.result()

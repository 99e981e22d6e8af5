"""What can fp16 and bf16 represent, and what follows for training?

The lesson is ``lessons/fp16_bf16.en.md`` (中文: ``lessons/fp16_bf16.zh.md``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from runnable_demos.lab.findings import Line
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "FP16 与 BF16", "en": "FP16 and BF16"}
QUESTION: Text = {
    "zh": "同是 16 位，bf16 的范围和 fp16 的精度各付出什么代价，对训练意味着什么？",
    "en": "With 16 bits each, what does bf16 pay for its range and fp16 for its precision, "
    "and what does that mean for training?",
}

MEASURES = """
[[method]]
kind = "exact"
how = ["列出全部 65,536 个位模式，排序后读出", "read off the sorted list of all 65,536 bit patterns"]
[method.metrics]
fp16_eps = ["", "fp16：1 之上的间隔", "fp16: gap above 1"]
fp16_max = ["", "fp16：最大有限数", "fp16: largest finite number"]
fp16_min_normal = ["", "fp16：最小正规数", "fp16: smallest normal number"]
fp16_min_subnormal = ["", "fp16：最小非规格化数", "fp16: smallest subnormal number"]
fp16_finite_patterns = ["", "fp16：有限的位模式", "fp16: finite bit patterns"]
fp16_values_in_one_to_two = ["", "fp16：[1, 2) 中的数", "fp16: numbers in [1, 2)"]
bf16_eps = ["", "bf16：1 之上的间隔", "bf16: gap above 1"]
bf16_max = ["", "bf16：最大有限数", "bf16: largest finite number"]
bf16_min_normal = ["", "bf16：最小正规数", "bf16: smallest normal number"]
bf16_min_subnormal = ["", "bf16：最小非规格化数", "bf16: smallest subnormal number"]
bf16_finite_patterns = ["", "bf16：有限的位模式", "bf16: finite bit patterns"]
bf16_values_in_one_to_two = ["", "bf16：[1, 2) 中的数", "bf16: numbers in [1, 2)"]
precision_ratio = ["", "1 附近的间隔，bf16 比 fp16", "gap above 1, bf16 over fp16"]
bf16_octaves = ["", "bf16 从最小到最大跨多少个 2 倍", "doublings from bf16's smallest to its largest"]
fp16_octaves = ["", "fp16 从最小到最大跨多少个 2 倍", "doublings from fp16's smallest to its largest"]

[[method]]
kind = "exact"
how = ["[1, 2) 中的 fp32 逐个舍入", "every fp32 tried in [1, 2) is rounded"]
[method.metrics]
fp16_worst_rounding = ["", "fp16：最大相对舍入误差", "fp16: largest relative error of rounding"]
bf16_worst_rounding = ["", "bf16：最大相对舍入误差", "bf16: largest relative error of rounding"]

[[method]]
kind = "exact"
how = ["从 1 起逐次减半再转换", "halved from 1 on and converted"]
[method.metrics]
fp16_underflow = ["", "fp16：变成 0 的最大的 2 的幂", "fp16: largest power of two that becomes 0"]
bf16_underflow = ["", "bf16：变成 0 的最大的 2 的幂", "bf16: largest power of two that becomes 0"]

[[method]]
kind = "exact"
how = ["逐个整数转换再转回", "integers converted there and back"]
[method.metrics]
fp16_last_exact_integer = [
  "",
  "fp16：从 1 起连续可表示的最大整数",
  "fp16: last of the integers from 1 that are all represented",
]
bf16_last_exact_integer = [
  "",
  "bf16：从 1 起连续可表示的最大整数",
  "bf16: last of the integers from 1 that are all represented",
]

[[method]]
kind = "exact"
how = ["逐个相加 {terms} 次", "{terms} additions one by one"]
[method.metrics]
fp16_sum_of_ones = ["", "fp16：一加到底停在", "fp16: a sum of ones stops at"]
bf16_sum_of_ones = ["", "bf16：一加到底停在", "bf16: a sum of ones stops at"]

[[method]]
kind = "exact"
how = ["写成一行乘一列", "as a row times a column"]
[method.metrics]
fp16_product_of_ones = [
  "",
  "fp16：同一个和写成矩阵乘法，结果正确",
  "fp16: the same sum as a matrix product is right",
]
bf16_product_of_ones = [
  "",
  "bf16：同一个和写成矩阵乘法，结果正确",
  "bf16: the same sum as a matrix product is right",
]

[[method]]
kind = "exact"
how = [
  "每个 bf16 位模式后补 16 个零，按 fp32 读，逐个比较",
  "each bf16 pattern with 16 zero bits behind it, read as fp32 and compared",
]
[method.metrics]
bf16_is_upper_half_of_fp32 = ["", "bf16 就是 fp32 的高 16 位", "bf16 is the upper half of fp32"]

[[method]]
kind = "exact"
how = ["直接转换", "converted"]
[method.metrics]
fp16_of_70000_is_infinite = ["", "70000 转成 fp16 是无穷大", "70000 becomes infinity in fp16"]

[[method]]
kind = "exact"
how = ["列出全部 256 个位模式，排序后读出", "read off the sorted list of all 256 bit patterns"]
[method.metrics]
e4m3_eps = ["", "FP8 E4M3：1 之上的间隔", "FP8 E4M3: gap above 1"]
e4m3_max = ["", "FP8 E4M3：最大有限数", "FP8 E4M3: largest finite number"]
e4m3_min_subnormal = ["", "FP8 E4M3：最小非规格化数", "FP8 E4M3: smallest subnormal number"]
e5m2_eps = ["", "FP8 E5M2：1 之上的间隔", "FP8 E5M2: gap above 1"]
e5m2_max = ["", "FP8 E5M2：最大有限数", "FP8 E5M2: largest finite number"]
e5m2_min_subnormal = ["", "FP8 E5M2：最小非规格化数", "FP8 E5M2: smallest subnormal number"]

[[method]]
kind = "exact"
how = [
  "在 1 的位模式里逐位翻转，看值怎样变：变号、仍在 (1, 2) 里，还是换了指数",
  "each bit is flipped in the pattern of 1; the value turns negative, stays within (1, 2), or changes its exponent",
]
[method.metrics]
fp32_exponent_bits = ["", "fp32：指数位", "fp32: exponent bits"]
fp32_fraction_bits = ["", "fp32：尾数位", "fp32: fraction bits"]
bf16_exponent_bits = ["", "bf16：指数位", "bf16: exponent bits"]
bf16_fraction_bits = ["", "bf16：尾数位", "bf16: fraction bits"]
fp16_exponent_bits = ["", "fp16：指数位", "fp16: exponent bits"]
fp16_fraction_bits = ["", "fp16：尾数位", "fp16: fraction bits"]
e4m3_exponent_bits = ["", "FP8 E4M3：指数位", "FP8 E4M3: exponent bits"]
e4m3_fraction_bits = ["", "FP8 E4M3：尾数位", "FP8 E4M3: fraction bits"]
e5m2_exponent_bits = ["", "FP8 E5M2：指数位", "FP8 E5M2: exponent bits"]
e5m2_fraction_bits = ["", "FP8 E5M2：尾数位", "FP8 E5M2: fraction bits"]

[[method]]
kind = "exact"
how = ["按位模式读出：第一个正的，和指数位刚好是 1 的", "read as patterns: the first positive one, and exponent 1"]
[method.metrics]
fp32_min_subnormal = ["", "fp32：最小非规格化数", "fp32: smallest subnormal number"]
fp32_min_normal = ["", "fp32：最小正规数", "fp32: smallest normal number"]

[[method]]
kind = "exact"
how = ["0 到 {positions} − 1 逐个转换，数不同的值", "0 to {positions} - 1 converted, different values counted"]
[method.metrics]
fp16_positions = ["", "fp16：{positions} 个位置里不同的值", "fp16: different values of {positions} positions"]
bf16_positions = ["", "bf16：{positions} 个位置里不同的值", "bf16: different values of {positions} positions"]

[figure.layouts]
title = [
  "五种格式怎样分配各自的位：指数管范围，尾数管精度",
  "How five formats spend their bits: the exponent gives range, the fraction precision",
]
x = {label = ["从左数第几位", "bits from the left"]}
y = {label = ["格式", "format"]}
[figure.layouts.series]
sign = ["bar", "符号", "sign"]
exponent = ["bar", "指数：范围", "exponent: range"]
fraction = ["bar", "尾数：精度", "fraction: precision"]
[figure.layouts.places]
fp32 = ["fp32", "fp32"]
bf16 = ["bf16", "bf16"]
fp16 = ["fp16", "fp16"]
e4m3 = ["E4M3", "E4M3"]
e5m2 = ["E5M2", "E5M2"]

[figure.binades]
title = ["每个 2 倍区间 [2^e, 2^(e+1)) 里有多少个数", "How many numbers lie in [2^e, 2^(e+1))"]
x = {label = ["指数 e", "exponent e"]}
y = {label = ["可表示的数", "representable numbers"], scale = "log2"}
[figure.binades.series]
fp16 = ["measured", "fp16", "fp16"]
bf16 = ["measured", "bf16", "bf16"]
"""


@dataclass(frozen=True)
class Config:
    """How much is tried; the formats are what they are."""

    samples: int = parameter(
        2**23,
        {"zh": "[1, 2) 中取样的 fp32 个数", "en": "fp32 numbers tried in [1, 2)"},
        2**12,
        2**23,
    )
    terms: int = parameter(4096, {"zh": "求和的项数", "en": "terms of the sums"}, 2100, 2**20)
    positions: int = parameter(
        8192, {"zh": "转换的位置个数", "en": "positions converted"}, 4096, 2**17
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(samples=2**16), "full": Config()}

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LAYOUTS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
PATTERNS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""The integers that hold a bit pattern of so many bytes."""


def all_values(dtype: torch.dtype, device: str) -> Tensor:
    """The value of each bit pattern of 16 or 8 bits, in fp64."""
    half = 2 ** (8 * dtype.itemsize - 1)
    patterns = torch.arange(-half, half, dtype=torch.int32, device=device)
    return patterns.to(PATTERNS[dtype.itemsize]).view(dtype).double()


@dataclass(frozen=True)
class Census:
    """What the bit patterns of a format are."""

    largest: float
    smallest: float
    smallest_normal: float
    gap_above_one: float
    finite: int
    between_one_and_two: int
    per_binade: dict[int, int]


def census(dtype: torch.dtype, device: str) -> Census:
    """List all values of a format and read its properties off the list."""
    # --8<-- [start:census]
    values = all_values(dtype, device)
    positive = values[torch.isfinite(values) & (values > 0)].sort().values
    gaps = positive[1:] - positive[:-1]
    # Subnormals are equally spaced from 0 up; the first wider gap begins one binade later.
    first_wider = int((gaps > gaps[0]).nonzero()[0])
    exponents = torch.frexp(positive).exponent - 1
    counts = torch.bincount(exponents - exponents.min())
    # --8<-- [end:census]
    lowest = int(exponents.min())
    return Census(
        largest=float(positive[-1]),
        smallest=float(positive[0]),
        smallest_normal=float(positive[first_wider]) / 2,
        gap_above_one=float(gaps[positive[:-1] == 1]),
        finite=int(torch.isfinite(values).sum()),
        between_one_and_two=int(((positive >= 1) & (positive < 2)).sum()),
        per_binade={lowest + i: int(count) for i, count in enumerate(counts)},
    )


def worst_rounding(dtype: torch.dtype, samples: int, device: str) -> float:
    """The largest relative error of rounding an fp32 number from 1 to 2."""
    # --8<-- [start:rounding]
    numbers = 1 + torch.arange(samples, dtype=torch.float64, device=device) / samples
    rounded = numbers.float().to(dtype).double()
    return float(((rounded - numbers) / numbers).abs().max())
    # --8<-- [end:rounding]


def underflows_below(dtype: torch.dtype, device: str) -> float:
    """The largest power of two that becomes 0."""
    power = 0
    while torch.tensor(2.0**power, dtype=torch.float64, device=device).to(dtype) != 0:
        power -= 1
    return 2.0**power


def last_exact_integer(dtype: torch.dtype, device: str) -> int:
    """The largest n such that 1, 2, … n are all represented."""
    numbers = torch.arange(1, 2**13, dtype=torch.int32, device=device)
    wrong = numbers.to(dtype).to(torch.int32) != numbers
    return int(numbers[wrong][0]) - 1


def sum_of_ones(dtype: torch.dtype, terms: int, device: str) -> float:
    """1 + 1 + … one by one in ``dtype``."""
    # --8<-- [start:sum]
    total = torch.zeros((), dtype=dtype, device=device)
    one = torch.ones((), dtype=dtype, device=device)
    for _ in range(terms):
        total += one
    return float(total)
    # --8<-- [end:sum]


def product_of_ones(dtype: torch.dtype, terms: int, device: str) -> float:
    """The same sum as a matrix product, (1, n) @ (n, 1)."""
    ones = torch.ones(terms, dtype=dtype, device=device)
    return float(ones[None, :] @ ones[:, None])


def is_upper_half_of_fp32(device: str) -> bool:
    """Whether each bf16 pattern followed by 16 zero bits is an fp32 of the same value."""
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32, device=device)
    wide = (patterns << 16).view(torch.float32).double()
    narrow = patterns.to(torch.int16).view(torch.bfloat16).double()
    return bool(((wide == narrow) | (wide.isnan() & narrow.isnan())).all())


def decode(pattern: int, dtype: torch.dtype, device: str) -> float:
    """The value of one bit pattern."""
    bits = 8 * dtype.itemsize
    signed = pattern - 2**bits if pattern >= 2 ** (bits - 1) else pattern
    held = torch.tensor([signed], dtype=PATTERNS[dtype.itemsize], device=device)
    return float(held.view(dtype).double())


def pattern(number: float, dtype: torch.dtype, device: str) -> int:
    """The bit pattern of a number rounded to a format."""
    held = torch.tensor([number], dtype=torch.float64, device=device).to(dtype)
    return int(held.view(PATTERNS[dtype.itemsize])) % (1 << 8 * dtype.itemsize)


def layout(dtype: torch.dtype, device: str) -> list[str]:
    """What each bit is for, from the left: flip it in the pattern of 1, and look at the value."""
    # --8<-- [start:bits]
    one, found = pattern(1.0, dtype, device), []
    for bit in reversed(range(8 * dtype.itemsize)):
        value = decode(one ^ (1 << bit), dtype, device)
        if value == -1:
            found.append("sign")
        elif 1 < value < 2:
            found.append("fraction")
        else:  # another power of two, infinity or NaN
            found.append("exponent")
    return found
    # --8<-- [end:bits]


def different_positions(dtype: torch.dtype, positions: int, device: str) -> int:
    """How many of the positions 0, 1, … are still told apart."""
    return len(torch.arange(positions, dtype=torch.float64, device=device).to(dtype).unique())


# --- the run -------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Take the census of both formats, and try rounding and sums."""
    found = Mechanisms(MEASURES, config)
    device, terms = config.device, config.terms
    listed: dict[str, Census] = {}
    for number, (name, dtype) in enumerate(FORMATS.items()):
        progress(number / len(FORMATS), name)
        values = listed[name] = census(dtype, device)
        found[f"{name}_eps"] = values.gap_above_one
        found[f"{name}_max"] = values.largest
        found[f"{name}_min_normal"] = values.smallest_normal
        found[f"{name}_min_subnormal"] = values.smallest
        found[f"{name}_finite_patterns"] = values.finite
        found[f"{name}_values_in_one_to_two"] = values.between_one_and_two
        found[f"{name}_octaves"] = math.floor(math.log2(values.largest / values.smallest))
        found[f"{name}_worst_rounding"] = worst_rounding(dtype, config.samples, device)
        found[f"{name}_underflow"] = underflows_below(dtype, device)
        found[f"{name}_last_exact_integer"] = last_exact_integer(dtype, device)
        found[f"{name}_sum_of_ones"] = sum_of_ones(dtype, terms, device)
        found[f"{name}_product_of_ones"] = product_of_ones(dtype, terms, device) == terms
        found[f"{name}_positions"] = different_positions(dtype, config.positions, device)

    fp16, bf16 = listed["fp16"], listed["bf16"]
    found["precision_ratio"] = bf16.gap_above_one / fp16.gap_above_one
    found["bf16_is_upper_half_of_fp32"] = is_upper_half_of_fp32(device)
    found["fp16_of_70000_is_infinite"] = bool(torch.tensor(70000.0, device=device).half().isinf())

    lines = []
    for name, format_ in listed.items():
        binades = {e: n for e, n in format_.per_binade.items() if e % 4 == 0}  # every fourth
        lines.append(Line(name, list(binades), list(binades.values())))
    found.draw("binades", *lines)
    eight_bits(found, device)
    found.lanes("layouts", list(spans(found, device)), LAYOUTS)
    progress(1.0, "")
    return found.result()


def eight_bits(found: Mechanisms, device: str) -> None:
    """The same census of FP8, and what fp32 has at its lower end."""
    for name, dtype in FP8.items():
        values = census(dtype, device)
        found[f"{name}_eps"] = values.gap_above_one
        found[f"{name}_max"] = values.largest
        found[f"{name}_min_subnormal"] = values.smallest
    fraction = layout(torch.float32, device).count("fraction")
    found["fp32_min_subnormal"] = decode(1, torch.float32, device)
    found["fp32_min_normal"] = decode(1 << fraction, torch.float32, device)


def spans(found: Mechanisms, device: str) -> Iterator[Span]:
    """The fields of each format, from the left, with how many bits they have."""
    for row, (name, dtype) in enumerate(LAYOUTS.items()):
        fields = layout(dtype, device)
        found[f"{name}_exponent_bits"] = fields.count("exponent")
        found[f"{name}_fraction_bits"] = fields.count("fraction")
        start = 0
        for kind, run_ in itertools.groupby(fields):
            end = start + len(list(run_))
            yield Span(row, kind, start, end, str(end - start))
            start = end

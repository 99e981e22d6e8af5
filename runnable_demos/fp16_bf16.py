"""What can fp16 and bf16 represent, and what follows for training?

The question
    Both have 16 bits. What is the price of bf16's range, and what is the price of fp16's precision?

The model
    A float with p fraction bits and exponents from e_min to e_max has

        ε = 2^-p                    the gap above 1; at most half of it is lost in rounding
        max = (2 - ε) · 2^e_max     beyond it: infinity
        min = 2^(e_min - p)         the smallest subnormal; at most half of it becomes 0

    fp16 has p = 10, e from -14 to 15; bf16 has p = 7, e from -126 to 127, the same as fp32.

The measurement
    Nothing is looked up. All 65,536 bit patterns of each format are listed and sorted;
    rounding is read off every fp32 number from 1 to 2; sums are run until they stop growing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from runnable_demos.metrics import (
    Axis,
    Figure,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    parameter,
)

TITLE: Text = {"zh": "FP16 与 BF16", "en": "FP16 and BF16"}
QUESTION: Text = {
    "zh": "同是 16 位，bf16 的范围和 fp16 的精度各付出什么代价，对训练意味着什么？",
    "en": "With 16 bits each, what does bf16 pay for its range and fp16 for its precision, "
    "and what does that mean for training?",
}


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
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(samples=2**16), "full": Config()}

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def all_values(dtype: torch.dtype, device: str) -> Tensor:
    """The value of each of the 65,536 bit patterns, in fp64."""
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32, device=device).to(torch.int16)
    return patterns.view(dtype).double()


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
    values = all_values(dtype, device)
    positive = values[torch.isfinite(values) & (values > 0)].sort().values
    gaps = positive[1:] - positive[:-1]
    # Subnormals are equally spaced from 0 up; the first wider gap begins one binade later.
    first_wider = int((gaps > gaps[0]).nonzero()[0])
    exponents = torch.frexp(positive).exponent - 1
    counts = torch.bincount(exponents - exponents.min())
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
    numbers = 1 + torch.arange(samples, dtype=torch.float64, device=device) / samples
    rounded = numbers.float().to(dtype).double()
    return float(((rounded - numbers) / numbers).abs().max())


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
    total = torch.zeros((), dtype=dtype, device=device)
    one = torch.ones((), dtype=dtype, device=device)
    for _ in range(terms):
        total += one
    return float(total)


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


# --- the run -------------------------------------------------------------------------------------

LISTED: Text = {
    "zh": "列出全部 65,536 个位模式，排序后读出",
    "en": "read off the sorted list of all 65,536 bit patterns",
}


def run(config: Config, progress: Progress) -> Result:
    """Take the census of both formats, and try rounding and sums."""
    metrics: list[Metric] = []
    found = {}
    for number, (name, dtype) in enumerate(FORMATS.items()):
        progress(number / 2, name)
        found[name] = census(dtype, config.device)
        metrics += format_metrics(config, name, dtype, found[name])
    range_ratio = math.log2(found["bf16"].largest / found["bf16"].smallest)
    metrics += [
        Metric(
            "precision_ratio",
            found["bf16"].gap_above_one / found["fp16"].gap_above_one,
            "",
            "exact",
            {"zh": "1 附近的间隔，bf16 比 fp16", "en": "gap above 1, bf16 over fp16"},
            LISTED,
        ),
        Metric(
            "bf16_octaves",
            math.floor(range_ratio),
            "",
            "exact",
            {
                "zh": "bf16 从最小到最大跨多少个 2 倍",
                "en": "doublings from bf16's smallest to its largest",
            },
            LISTED,
        ),
        Metric(
            "fp16_octaves",
            math.floor(math.log2(found["fp16"].largest / found["fp16"].smallest)),
            "",
            "exact",
            {
                "zh": "fp16 从最小到最大跨多少个 2 倍",
                "en": "doublings from fp16's smallest to its largest",
            },
            LISTED,
        ),
        Metric(
            "bf16_is_upper_half_of_fp32",
            is_upper_half_of_fp32(config.device),
            "",
            "exact",
            {"zh": "bf16 就是 fp32 的高 16 位", "en": "bf16 is the upper half of fp32"},
            {
                "zh": "每个 bf16 位模式后补 16 个零，按 fp32 读，逐个比较",
                "en": "each bf16 pattern with 16 zero bits behind it, read as fp32 and compared",
            },
        ),
        Metric(
            "fp16_of_70000_is_infinite",
            bool(torch.tensor(70000.0, device=config.device).half().isinf()),
            "",
            "exact",
            {"zh": "70000 转成 fp16 是无穷大", "en": "70000 becomes infinity in fp16"},
            {"zh": "直接转换", "en": "converted"},
        ),
    ]
    progress(1.0, "")
    return Result(tuple(metrics), (binades_figure(found),))


def format_metrics(config: Config, name: str, dtype: torch.dtype, found: Census) -> list[Metric]:
    """All metrics of one format."""

    def exact(key: str, value: float, zh: str, en: str, how: Text = LISTED) -> Metric:
        label = {"zh": f"{name}：{zh}", "en": f"{name}: {en}"}
        return Metric(f"{name}_{key}", value, "", "exact", label, how)

    device = config.device
    loop: Text = {"zh": f"逐个相加 {config.terms} 次", "en": f"{config.terms} additions one by one"}
    product: Text = {"zh": "写成一行乘一列", "en": "as a row times a column"}
    return [
        exact("eps", found.gap_above_one, "1 之上的间隔", "gap above 1"),
        exact("max", found.largest, "最大有限数", "largest finite number"),
        exact("min_normal", found.smallest_normal, "最小正规数", "smallest normal number"),
        exact("min_subnormal", found.smallest, "最小非规格化数", "smallest subnormal number"),
        exact("finite_patterns", found.finite, "有限的位模式", "finite bit patterns"),
        exact(
            "values_in_one_to_two", found.between_one_and_two, "[1, 2) 中的数", "numbers in [1, 2)"
        ),
        exact(
            "worst_rounding",
            worst_rounding(dtype, config.samples, device),
            "最大相对舍入误差",
            "largest relative error of rounding",
            {"zh": "[1, 2) 中的 fp32 逐个舍入", "en": "every fp32 tried in [1, 2) is rounded"},
        ),
        exact(
            "underflow",
            underflows_below(dtype, device),
            "变成 0 的最大的 2 的幂",
            "largest power of two that becomes 0",
            {"zh": "从 1 起逐次减半再转换", "en": "halved from 1 on and converted"},
        ),
        exact(
            "last_exact_integer",
            last_exact_integer(dtype, device),
            "从 1 起连续可表示的最大整数",
            "last of the integers from 1 that are all represented",
            {"zh": "逐个整数转换再转回", "en": "integers converted there and back"},
        ),
        exact(
            "sum_of_ones",
            sum_of_ones(dtype, config.terms, device),
            "一加到底停在",
            "a sum of ones stops at",
            loop,
        ),
        exact(
            "product_of_ones",
            product_of_ones(dtype, config.terms, device) == config.terms,
            "同一个和写成矩阵乘法，结果正确",
            "the same sum as a matrix product is right",
            product,
        ),
    ]


def binades_figure(found: dict[str, Census]) -> Figure:
    """How many numbers each format has from 2^e to 2^(e+1), for every fourth e."""
    series = []
    for name, format_ in found.items():
        counts = {e: n for e, n in format_.per_binade.items() if e % 4 == 0}
        xs, ys = tuple(map(float, counts)), tuple(map(float, counts.values()))
        series.append(Series({"zh": name, "en": name}, xs, ys))
    return Figure(
        "binades",
        {
            "zh": "每个 2 倍区间 [2^e, 2^(e+1)) 里有多少个数",
            "en": "How many numbers lie in [2^e, 2^(e+1))",
        },
        Axis({"zh": "指数 e", "en": "exponent e"}),
        Axis({"zh": "可表示的数", "en": "representable numbers"}, scale="log2"),
        tuple(series),
    )

"""The two formats against IEEE 754's formulas and Python's own half-precision reader."""

from __future__ import annotations

import math
import struct

import pytest
import torch

from runnable_demos import fp16_bf16
from runnable_demos.fp16_bf16 import PRESETS, all_values

# fraction bits, smallest and largest exponent of a normal number
SHAPES = {"fp16": (10, -14, 15), "bf16": (7, -126, 127)}


@pytest.fixture(scope="module")
def values() -> dict[str, float]:
    """One run of the small preset."""
    result = fp16_bf16.run(PRESETS["small"], lambda *_: None)
    return {metric.name: metric.value for metric in result.metrics}


@pytest.mark.parametrize("name", SHAPES)
def test_properties_by_formula(values: dict[str, float], name: str) -> None:
    """Every property follows from the bits of fraction and exponent."""
    p, low, high = SHAPES[name]
    binades = high - low + 1
    expected = {
        "eps": 2.0**-p,
        "max": (2 - 2.0**-p) * 2.0**high,
        "min_normal": 2.0**low,
        "min_subnormal": 2.0 ** (low - p),
        "finite_patterns": 2 * (binades * 2**p + 2**p),  # normals and subnormals of both signs
        "values_in_one_to_two": 2**p,
        "worst_rounding": 1 / (2 ** (p + 1) + 1),  # half a gap, at the first midpoint above 1
        "underflow": 2.0 ** (low - p - 1),  # half the smallest subnormal ties to even
        "last_exact_integer": 2 ** (p + 1),
        "sum_of_ones": 2 ** (p + 1),
        "product_of_ones": True,
    }
    for key, value in expected.items():
        assert values[f"{name}_{key}"] == value, key


def test_the_comparison_by_formula(values: dict[str, float]) -> None:
    """Three bits fewer of fraction make gaps eight times as wide; ranges are counted in doublings."""
    assert values["precision_ratio"] == 2 ** (10 - 7)
    for name, (p, low, high) in SHAPES.items():
        assert values[f"{name}_octaves"] == high - (low - p)
    assert values["bf16_is_upper_half_of_fp32"] is True
    assert values["fp16_of_70000_is_infinite"] is True


def test_every_fp16_value_is_the_one_that_python_reads() -> None:
    """The struct module decodes all 65,536 patterns to the same numbers."""
    patterns = range(-(2**15), 2**15)
    expected = [struct.unpack("<e", struct.pack("<h", pattern))[0] for pattern in patterns]
    found = all_values(torch.float16, "cpu").tolist()
    assert all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True)
    )


def test_every_bf16_value_is_a_truncated_fp32() -> None:
    """A bf16 is an fp32 whose lower sixteen bits are zero, read here by struct."""
    patterns = range(-(2**15), 2**15)
    expected = [struct.unpack("<f", struct.pack("<i", pattern << 16))[0] for pattern in patterns]
    found = all_values(torch.bfloat16, "cpu").tolist()
    assert all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True)
    )


def test_finfo_agrees(values: dict[str, float]) -> None:
    """PyTorch's own table of the formats says the same."""
    for name, dtype in fp16_bf16.FORMATS.items():
        info = torch.finfo(dtype)
        assert values[f"{name}_eps"] == info.eps
        assert values[f"{name}_max"] == info.max
        assert values[f"{name}_min_normal"] == info.tiny
        assert values[f"{name}_min_subnormal"] == info.smallest_normal * info.eps


def test_another_format_is_not_the_upper_half_of_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fp16's patterns, followed by zeros, are other numbers."""
    assert fp16_bf16.is_upper_half_of_fp32("cpu")
    monkeypatch.setattr(torch, "bfloat16", torch.float16)
    assert not fp16_bf16.is_upper_half_of_fp32("cpu")

"""The two formats against IEEE 754's formulas and Python's own half-precision reader."""

from __future__ import annotations

import math
import struct

import pytest
import torch

from runnable_demos import fp16_bf16
from runnable_demos.fp16_bf16 import PRESETS, all_values
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result

# fraction bits, smallest and largest exponent of a normal number
SHAPES = {"fp16": (10, -14, 15), "bf16": (7, -126, 127)}


# sign, exponent and fraction bits
FIELDS = {
    "fp32": (1, 8, 23),
    "bf16": (1, 8, 7),
    "fp16": (1, 5, 10),
    "e4m3": (1, 4, 3),
    "e5m2": (1, 5, 2),
}


@pytest.fixture(scope="module")
def result() -> Result:
    """One run of the small preset."""
    return fp16_bf16.run(PRESETS["small"], lambda *_: None)


@pytest.fixture(scope="module")
def values(result: Result) -> dict[str, float]:
    """Its metrics by name."""
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


def test_fp8_by_formula(values: dict[str, float]) -> None:
    """E5M2 is as IEEE has it; E4M3 has no infinity, and its largest pattern but one is a number."""
    assert values["e5m2_max"] == (2 - 2.0**-2) * 2.0**15
    assert values["e4m3_max"] == (2 - 2 * 2.0**-3) * 2.0**8
    for name, (p, low) in {"e4m3": (3, -6), "e5m2": (2, -14)}.items():
        assert values[f"{name}_eps"] == 2.0**-p
        assert values[f"{name}_min_subnormal"] == 2.0 ** (low - p)


def test_fp32_goes_further_down_than_bf16(values: dict[str, float]) -> None:
    """The same smallest normal number, and sixteen bits more of subnormals below it."""
    assert values["fp32_min_normal"] == values["bf16_min_normal"] == 2.0**-126
    assert values["fp32_min_subnormal"] == values["bf16_min_subnormal"] / 2**16 == 2.0**-149


@pytest.mark.parametrize("name", SHAPES)
def test_positions_told_apart(values: dict[str, float], name: str) -> None:
    """Each integer up to 2^(p + 1), then 2^p in each doubling; the last positions round up to 8,192."""
    p = SHAPES[name][0]
    doublings = 13 - (p + 1)
    assert PRESETS["small"].positions == 2**13
    assert values[f"{name}_positions"] == 2 ** (p + 1) + doublings * 2**p + 1


def test_the_figure_shows_the_fields(result: Result, values: dict[str, float]) -> None:
    """Fields of the known widths, side by side from the left."""
    figure = next(figure for figure in result.figures if figure.name == "layouts")
    assert isinstance(figure, Lanes)
    assert [category.name for category in figure.y.categories] == list(FIELDS)
    for row, (name, widths) in enumerate(FIELDS.items()):
        spans = [span for span in figure.spans if span.row == row]
        assert [s.kind for s in spans] == ["sign", "exponent", "fraction"]
        assert [(s.start, s.end) for s in spans] == [
            (sum(widths[:i]), sum(widths[: i + 1])) for i in range(3)
        ]
        assert [s.label for s in spans] == [str(width) for width in widths]
        assert (values[f"{name}_exponent_bits"], values[f"{name}_fraction_bits"]) == widths[1:]


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_where_a_tenth_has_them(name: str) -> None:
    """0.1 is 1.6 · 2^-4: its exponent field is the bias less 4, and its fraction rounds 0.6."""
    _, exponent, fraction = FIELDS[name]
    bits = fp16_bf16.pattern(0.1, fp16_bf16.LAYOUTS[name], "cpu")
    assert bits >> fraction == 2 ** (exponent - 1) - 1 - 4
    assert bits % 2**fraction == round(0.6 * 2**fraction)

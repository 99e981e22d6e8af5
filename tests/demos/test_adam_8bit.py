"""8-bit states against counts by hand, and the quantiser against brute force and bitsandbytes."""

from __future__ import annotations

from functools import cache
from statistics import mean, stdev

import pytest
import torch
from bitsandbytes.functional import create_dynamic_map, dequantize_blockwise, quantize_blockwise

from runnable_demos.adam_8bit import EXAMPLE, PRESETS, quantize, read_back, round_trip, run
from runnable_demos.lab.metrics import Metric


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    """One run at small size."""
    return {m.name: m for m in run(PRESETS["small"], lambda share, what: None).metrics}


def test_the_quantiser_finds_the_nearest_code() -> None:
    """Brute force over all 256 codes finds none that is nearer."""
    torch.manual_seed(0)
    codes, x = create_dynamic_map(signed=True), torch.randn(512)
    index, scale = quantize(x, codes, 128)
    distance = (codes[None, None, :] - (x.view(4, 128) / scale)[:, :, None]).abs()
    assert torch.equal(distance.gather(2, index[:, :, None])[:, :, 0], distance.amin(2))


def test_the_quantiser_is_that_of_bitsandbytes() -> None:
    """It leaves what the library leaves, and is nearer in the few values that the library rounds away."""
    torch.manual_seed(1)
    x = torch.randn(4096)
    packed, state = quantize_blockwise(x, blocksize=256)
    theirs = dequantize_blockwise(packed, state)
    ours = round_trip(x, create_dynamic_map(signed=True), 256)
    same = torch.isclose(ours, theirs)
    assert same.float().mean() > 0.99
    assert ((ours - x).abs() <= (theirs - x).abs())[~same].all()


def test_bytes_are_two_codes_and_two_scales(metrics: dict[str, Metric]) -> None:
    """A byte for each moment and 4 bytes for each 256 of each; two tables of 256 fp32 codes."""
    assert metrics["codes_bytes_per_param"].value == 2
    assert metrics["scales_bytes_per_param"].value == 2 * 4 / 256
    assert metrics["state_bytes_per_param"].value == 2 + 2 * 4 / 256
    assert metrics["code_tables_bytes"].value == 2 * 256 * 4


def test_small_tensors_keep_two_fp32_moments(metrics: dict[str, Metric]) -> None:
    """Below 4,096 values nothing is quantised."""
    assert metrics["small_tensor_bytes_per_param"].value == 8


@cache
def drawn() -> tuple[dict[str, list[int]], list[float]]:
    """Codes in use and values spoiled, counted again by hand in each random tensor."""
    config = PRESETS["small"]
    codes = create_dynamic_map(signed=True)
    generator = torch.Generator().manual_seed(config.seed)
    counts: dict[str, list[int]] = {"block": [], "tensor": [], "spoiled": []}
    ratios = []
    for _ in range(config.draws):
        x = torch.randn(config.values, generator=generator)
        x[0] = config.outlier
        for name, size in (("block", config.block), ("tensor", config.values)):
            index, _ = quantize(x, codes, size)
            counts[name].append(len(set(index.flatten().tolist())))
        off = (round_trip(x, codes, config.block) - x).abs().tolist()
        whole = (round_trip(x, codes, config.values) - x).abs().tolist()
        ratios.append(sum(off[1:]) / sum(whole[1:]))
        worst = max(off[config.block :])
        counts["spoiled"].append(sum(each > worst for each in off))
    return counts, ratios


def test_draws_are_averaged(metrics: dict[str, Metric]) -> None:
    """Means and standard errors are those of the draws by hand."""
    config = PRESETS["small"]
    counts, ratios = drawn()
    names = {
        "block": "codes_used_by_block",
        "tensor": "codes_used_by_tensor",
        "spoiled": "values_spoiled_by_block",
    }
    ratio = metrics["block_over_tensor_error"]
    assert ratio.value == pytest.approx(mean(ratios), rel=1e-5)
    assert ratio.error == pytest.approx(stdev(ratios) / config.draws**0.5, rel=1e-2)
    for key, name in names.items():
        error = max(stdev(counts[key]) / config.draws**0.5, 1 / config.draws)
        assert metrics[name].value == pytest.approx(mean(counts[key]), rel=1e-5)
        assert metrics[name].error == pytest.approx(error, rel=1e-5)


def test_an_outlier_reaches_its_own_block_alone(metrics: dict[str, Metric]) -> None:
    """At most one block is spoiled, and blocks err far less than one scale for all."""
    assert 0 < metrics["values_spoiled_by_block"].value < PRESETS["small"].block
    assert metrics["codes_used_by_tensor"].value * 5 < metrics["codes_used_by_block"].value
    assert 0.02 < metrics["block_over_tensor_error"].value < 0.15


def test_the_error_with_blocks_is_that_of_a_tensor_without_the_outlier() -> None:
    """Outside the outlier's block, values come out as if the outlier were not there."""
    torch.manual_seed(2)
    x, codes = torch.randn(2048), create_dynamic_map(signed=True)
    spoiled = x.clone()
    spoiled[0] = 1e4
    assert torch.equal(round_trip(x, codes, 256)[256:], round_trip(spoiled, codes, 256)[256:])


def nearest(codes: list[float], value: float) -> float:
    """The code nearest to a value, by brute force."""
    return min(codes, key=lambda code: abs(code - value))


def test_the_biases_are_those_of_the_codes(metrics: dict[str, Metric]) -> None:
    """Decay and rounding in Python floats: a slow decay never leaves its code, and −1 is no code."""
    unsigned = create_dynamic_map(signed=False).tolist()
    assert metrics["stale_fp32"].value == pytest.approx(0.999**1000, abs=1e-4)
    for name, beta in (("stale_8bit", 0.999), ("stale_8bit_99", 0.99), ("stale_8bit_95", 0.95)):
        ratio = first = nearest(unsigned, 0.25)  # of a gradient of 0.5 beside one of 1, squared
        for _ in range(1000):
            ratio = nearest(unsigned, beta * ratio)
        assert metrics[name].value == pytest.approx(ratio / first, abs=1e-4)
    lowest = min(create_dynamic_map(signed=True).tolist())
    assert metrics["lowest_code"].value == pytest.approx(lowest, abs=1e-6)
    assert metrics["positive_first_moment"].value == pytest.approx(1, abs=1e-4)
    steady = (
        0.1 / (1 - 0.9 * -lowest) * -lowest
    )  # m = 0.9 · |lowest| · m + 0.1, stored as |lowest| · m
    assert metrics["negative_first_moment"].value == pytest.approx(steady, abs=1e-4)


def test_tiles_show_what_is_read_back() -> None:
    """Every value of the figure by brute force over the codes, with the largest of its block or of all as its scale."""
    table = create_dynamic_map(signed=True)
    codes, tiles = table.tolist(), {(t.row, t.column): t for t in read_back(table)}
    assert len(tiles) == 4 * 5
    for place, x in enumerate(EXAMPLE):
        row, column = divmod(place, 4)
        scale, largest = max(map(abs, EXAMPLE[4 * row : 4 * row + 4])), max(map(abs, EXAMPLE))
        block, whole = scale * nearest(codes, x / scale), largest * nearest(codes, x / largest)
        tile = tiles[row, column]
        near = [abs(each / x - 1) <= 0.05 for each in (block, whole)]
        assert tile.kind == ("both" if all(near) else "blocked" if near[0] else "neither")
        if x != largest:
            expected = (f"{x:g}", f"B {block:.2g}", f"T {whole:.2g}")
            assert tile.notes == tuple(each.replace("-", "−") for each in expected)
            shown = [abs(float(f"{each:.2g}") / x - 1) <= 0.05 for each in (block, whole)]
            assert shown == near  # two digits suffice to see it
            assert tiles[row, 4].notes == ("10⁴" if row == 2 else f"{scale:g}",)
    assert {place for place, tile in tiles.items() if tile.kind == "neither"} == {
        (2, 1),
        (2, 2),
        (2, 3),
    }

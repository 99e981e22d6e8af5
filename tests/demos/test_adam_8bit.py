"""8-bit states against counts by hand, and the quantiser against brute force and bitsandbytes."""

from __future__ import annotations

from statistics import mean, stdev

import pytest
import torch
from bitsandbytes.functional import create_dynamic_map, dequantize_blockwise, quantize_blockwise

from runnable_demos.adam_8bit import PRESETS, quantize, round_trip, run
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


def test_draws_are_averaged(metrics: dict[str, Metric]) -> None:
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

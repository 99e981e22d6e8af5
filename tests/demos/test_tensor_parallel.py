"""A block split by hand, against the paper's formulas and a count of its operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from runnable_demos import tensor_parallel
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Shards
from runnable_demos.lab.metrics import Result
from runnable_demos.tensor_parallel import PRESETS, ranks_agree, run
from tests.demos.told import told

CONFIG = PRESETS["small"]
T, S, B, H, A = CONFIG.ranks, CONFIG.length, CONFIG.batch, CONFIG.width, CONFIG.heads
NORMS = 8 / H  # two LayerNorms, a mean and a deviation for each token, two bytes each, over h


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def ledger(t: int, *, sequence: bool) -> float:
    """Bytes a block saves over sbh, operator by operator (Korthikanti et al. 2022, §4.1 and §4.2)."""
    outside = 1 / t if sequence else 1  # what lies between the split matrices
    total = 0.0
    total += 2 * 2 * outside  # two LayerNorms' inputs
    total += NORMS * outside
    total += 2 * outside  # the input of q, k and v
    total += 2 * 3 / t  # q, k, v
    total += (2 + 1 + 2) * A * S / H / t  # softmax's output, its dropout's mask and output
    total += 2 / t  # the input of the output projection
    total += 1 * outside  # dropout's mask
    total += 2 * outside  # the input of the first MLP matrix
    total += (8 + 8) / t  # GELU's input and output
    total += 1 * outside  # dropout's mask
    return total


def test_saved_bytes_are_the_formulas(result: Result) -> None:
    """The ledger, which is the paper's formula and LayerNorm's statistics."""
    square = 5 * A * S / H
    assert ledger(1, sequence=False) == pytest.approx(34 + square + NORMS)
    assert ledger(T, sequence=False) == pytest.approx(10 + 24 / T + square / T + NORMS)
    assert ledger(T, sequence=True) == pytest.approx((34 + square + NORMS) / T)
    assert value(result, "one_rank_per_sbh") == pytest.approx(ledger(1, sequence=False))
    assert value(result, "tp_per_sbh") == pytest.approx(ledger(T, sequence=False))
    assert value(result, "sp_per_sbh") == pytest.approx(ledger(T, sequence=True))
    assert value(result, "norm_statistics_per_sb") == 8


PARTS = {
    "norms": 2 * 2 + NORMS,  # both inputs, and what is kept of each token
    "inputs": 2 * 2,
    "masks": 2 * 1,
    "heads": 2 * 3 + 2,
    "core": (2 + 1 + 2) * A * S / H,
    "mlp": 2 * (4 + 4),
}
"""Bytes over sbh that one rank saves, by hand: two an element, one an element of a mask."""


def test_shards_are_the_ledgers_parts(result: Result) -> None:
    """Between the split matrices all with tensor parallelism, and a t-th of the rest; a t-th of all with both."""
    figure = next(figure for figure in result.figures if isinstance(figure, Shards))
    outside = {"norms", "inputs", "masks"}
    found = {(b.group, b.rank, b.kind): (b.start, b.end, b.whole) for b in figure.boxes}
    expected = {}
    for kind, size in PARTS.items():
        whole = size * S * B * H
        for group, n, cut in ((0, 1, False), (1, T, kind not in outside), (2, T, True)):
            for rank in range(n):
                edges = (rank * whole / T, (rank + 1) * whole / T) if cut else (0, whole)
                expected[group, rank, kind] = (*edges, whole)
    assert found == expected
    totals = [figure.held(group, 0) / (S * B * H) for group in range(3)]
    assert totals == pytest.approx(
        [ledger(1, sequence=False), ledger(T, sequence=False), ledger(T, sequence=True)]
    )


def test_shares(result: Result) -> None:
    """Tensor parallelism leaves more than 1/t, sequence parallelism exactly that."""
    share = ledger(T, sequence=False) / ledger(1, sequence=False)
    assert value(result, "tp_share") == pytest.approx(share)
    assert value(result, "tp_share") > 1 / T
    assert value(result, "sp_share") == 1 / T


def test_collectives_are_counted(result: Result) -> None:
    """Two regions a block, each entered and left, forward and backward.

    Tensor parallelism: leaving sums in the forward, entering in the backward. Sequence parallelism:
    a gather and a scatter each time, and a gather of what was not kept.
    """
    regions = 2
    assert value(result, "tp_all_reduce") == 2 * regions
    assert value(result, "sp_reduce_scatter") == 2 * regions
    assert value(result, "sp_all_gather") == 2 * regions + regions
    assert value(result, "tp_checkpointed_all_reduce") == 3 * regions


def test_volumes(result: Result) -> None:
    """An all-reduce passes its message twice; the gather again in the backward costs two messages."""
    assert value(result, "tp_volume") == 4 * 2
    assert value(result, "sp_volume") == 4 + 4 + 2


def test_split_and_whole_block_agree(result: Result) -> None:
    """The same function and the same gradients, to rounding in fp64."""
    assert value(result, "error") <= 1e-12


def test_dropout_needs_the_same_seed_outside_the_split(result: Result) -> None:
    """Replicated activations stay replicas only where all ranks draw the same masks."""
    assert value(result, "same_seed_ranks_agree") is True
    assert value(result, "other_seeds_ranks_differ") is True


def test_ranks_compare_on_their_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is reduced is where the block is, since NCCL takes nothing from the CPU.

    Meta tensors stand for a device that is not the CPU; reading the verdict off one fails, and by
    then everything has been sent.
    """
    devices = []
    monkeypatch.setattr(dist, "all_reduce", lambda t, *_, **__: devices.append(t.device.type))
    monkeypatch.setattr(dist, "broadcast", lambda t, *_, **__: devices.append(t.device.type))
    monkeypatch.setattr(torch, "equal", lambda a, b: True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises((RuntimeError, NotImplementedError)):
            ranks_agree(replace(CONFIG, device="meta"), dist.group.WORLD, 0)
    finally:
        dist.destroy_process_group()
    assert len(devices) == 2 + 1 + 1  # two regions' sums, the first rank's output, the verdict
    assert set(devices) == {"meta"}


def test_what_one_rank_finds_is_told() -> None:
    """The last rank alone errs by a quarter, and finds what it should not."""

    def change(report: ranks.Report) -> None:
        report.update(error=0.25, same_seed=False, other_seed=True)

    found = told(tensor_parallel, change)
    assert found["error"] == 0.25
    assert found["same_seed_ranks_agree"] is False
    assert found["other_seeds_ranks_differ"] is False

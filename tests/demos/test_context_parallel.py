"""Attention over a split sequence, against PyTorch's of the whole and counts by hand."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from runnable_demos import context_parallel
from runnable_demos.context_parallel import PRESETS, SPLITS, block, merge, run
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Tiles
from runnable_demos.lab.metrics import Result
from tests.demos.told import told

CONFIG = PRESETS["small"]
N, S = CONFIG.ranks, CONFIG.tokens
n = S // N
RATIO = CONFIG.heads / CONFIG.kv_heads


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def test_all_ways_agree_with_the_whole(result: Result) -> None:
    """Ring and all-gather under three splits, Ulysses, and PyTorch's merger of the same blocks."""
    for name in ("ring_error", "gather_error", "ulysses_error", "torch_merge_error"):
        assert value(result, name) <= 1e-12


def test_messages_are_counted_by_hand(result: Result) -> None:
    """In units of a rank's K: K and V make N − 1 hops; in the backward dK and dV one more, home."""
    assert value(result, "ring_forward") == 2 * (N - 1)
    assert value(result, "ring_backward") == 2 * (N - 1) + 2 * N
    assert value(result, "gather_forward") == 2 * (N - 1)  # a ring all-gather sends as much
    assert value(result, "gather_backward") == 2 * (N - 1) + 2 * (N - 1)  # again, and the sums
    pieces = 2 * RATIO + 2  # Q, O, K and V, of which each rank keeps an N-th
    for way in ("forward", "backward"):
        assert value(result, f"ulysses_{way}") == pieces * (N - 1) / N


def test_what_stays_on_a_rank(result: Result) -> None:
    """Saved bytes are an N-th for all; a ring has at most three copies of its K and V in hand."""
    for way in ("ring", "gather", "ulysses"):
        assert value(result, f"{way}_saved_share") == 1 / N
    assert value(result, "ring_buffers") == 3  # own, in hand, arriving
    assert value(result, "gather_buffers") == N + 1


def owner(split: str, position: int, N: int, S: int) -> int:
    """Which rank has a token, by a rule of its own."""
    if split == "contiguous":
        return position * N // S
    if split == "striped":
        return position % N
    piece = position * 2 * N // S
    return min(piece, 2 * N - 1 - piece)


def pairs(split: str, N: int, S: int) -> np.ndarray:
    """Pairs (query, key) by rank and hop, one by one."""
    found = np.zeros((N, N), dtype=int)
    for q, k in product(range(S), repeat=2):
        if k <= q:
            rank, keys = owner(split, q, N, S), owner(split, k, N, S)
            found[rank, (rank - keys) % N] += 1
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_pairs_by_brute_force(result: Result, split: str) -> None:
    """Each pair of query and key, given to a rank and a hop by a rule that knows no masks."""
    found = pairs(split, N, S)
    total = S * (S + 1) // 2
    assert found.sum() == total
    ratio = found[-1].sum() / found[0].sum()
    assert value(result, f"{split}_last_over_first") == pytest.approx(ratio)
    critical = found.max(axis=0).sum() * N / total
    assert value(result, f"{split}_critical") == pytest.approx(critical)
    if split == "contiguous":
        assert value(result, "contiguous_idle") == (found == 0).sum() / N**2


def test_zigzag_is_even_at_any_size() -> None:
    """Every rank has as many pairs as every other at every hop; contiguous tends to twice the time."""
    for many in (2, 4, 8):
        assert len(set(pairs("zigzag", many, 32)[:, 1:].flatten())) == 1
        assert len(set(pairs("zigzag", many, 32)[:, 0])) == 1
    slowest = [pairs("contiguous", many, 64).max(axis=0).sum() * many for many in (2, 4, 8)]
    assert [x / (64 * 65 / 2) for x in slowest] == pytest.approx(
        [2 - 1 / 2, 2 - 1 / 4, 2 - 1 / 8], rel=0.02
    )


def test_two_softmaxes_merge_to_one() -> None:
    """Over a split of the keys, also where a row sees nothing of the second part."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 5, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    first = block(q, k[:, :2], v[:, :2], mask[:, :2])
    o, lse = merge(*first, *block(q, k[:, 2:], v[:, 2:], mask[:, 2:]))
    S = (q @ k.mT / math.sqrt(4)).masked_fill(~mask, -math.inf)
    assert torch.allclose(o, torch.softmax(S, -1) @ v)
    assert torch.allclose(lse[..., 0], S.logsumexp(-1))


def test_mistakes_are_seen(result: Result) -> None:
    """Contiguous positions give something else; late labels are wrong where pieces meet."""
    assert value(result, "zigzag_is_torch") is True
    assert value(result, "local_positions_differ") is True
    held = [[p for p in range(S) if owner("zigzag", p, N, S) == r] for r in range(N)]
    right = sum((b == a + 1) for row in held for a, b in pairwise(row))
    assert value(result, "late_shift_wrong") == S - 1 - right  # the last token needs no label


def test_the_figure_of_hops(result: Result) -> None:
    """Whose K and V, and how much counts: by the rule, in both halves."""
    figure = next(f for f in result.figures if isinstance(f, Tiles))
    drawn = {(t.row, t.column): (t.kind, t.notes) for t in figure.tiles}
    assert len(drawn) == 2 * N * N
    for group, split in enumerate(("contiguous", "zigzag")):
        found = pairs(split, N, S)
        for rank, hop in product(range(N), range(N)):
            share = found[rank, hop] / n**2
            kind = "idle" if share == 0 else "full" if share == 1 else "half"
            assert kind != "half" or share == pytest.approx(0.5, abs=0.1)
            label = f"KV{(rank - hop) % N}"
            assert drawn[group * N + rank, hop] == (kind, (label,))


def test_the_figure_of_volume(result: Result) -> None:
    """Bars are the messages."""
    figure = next(f for f in result.figures if f.name == "volume")
    for series in figure.series:
        ways = ("ring", "gather", "ulysses")
        assert list(series.y) == [value(result, f"{way}_{series.name}") for way in ways]


def test_what_one_rank_finds_is_told() -> None:
    """The last rank alone is wrong, and it shows."""

    def change(report: ranks.Report) -> None:
        report["errors"]["ulysses"].append(0.5)
        report["ring"]["saved"] *= 2
        report["buffers"] = [7.0, 9.0]
        report["late"] += 5

    found = told(context_parallel, change)
    assert found["ulysses_error"] == 0.5
    assert found["ring_saved_share"] == 2 / N
    assert found["ring_buffers"] == 7
    assert found["gather_buffers"] == 9
    assert found["late_shift_wrong"] == 2 * N - 2 + 5

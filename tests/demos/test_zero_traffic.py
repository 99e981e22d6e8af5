"""What a step sends under each ZeRO stage, against counts by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runnable_demos import zero_traffic
from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from runnable_demos.zero_traffic import PRESETS, run
from tests.demos.told import told

CONFIG = PRESETS["small"]
N, LAYERS = CONFIG.ranks, CONFIG.layers


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


# Passes of the whole model through a rank: (reduce-scatters, all-gathers, broadcasts)
PASSES = {
    "stage0": (1, 1, 0),  # an all-reduce is one of each
    "stage1": (1, 1, 1),  # PyTorch's keeps the all-reduce
    "stage2_by_hand": (1, 1, 0),
    "stage2": (1, 1, 0),
    "stage3": (1, 2, 0),
}


@pytest.mark.parametrize("scheme", PASSES)
def test_volume_is_a_count_of_passes(result: Result, scheme: str) -> None:
    """Each collective passes every parameter through a rank once."""
    assert value(result, f"{scheme}_volume") == sum(PASSES[scheme])


def test_what_the_volumes_are_made_of(result: Result) -> None:
    """ZeroRedundancyOptimizer adds a broadcast to an all-reduce; stage 3 gathers twice."""
    assert value(result, "stage1_all_reduce") == 2
    assert value(result, "stage1_broadcast") == 1
    assert value(result, "stage3_all_gather") == 2
    assert value(result, "stage3_reduce_scatter") == 1
    assert value(result, "stage3_over_ddp") == 3 / 2


def test_a_unit_that_stays_is_not_gathered_again(result: Result) -> None:
    """Keeping the last of L equal units saves 1/L of an all-gather."""
    assert value(result, "stage3_keep_last_volume") == pytest.approx(3 - 1 / LAYERS)


@pytest.mark.parametrize("m", [2, 4])
def test_micro_batches_gather_each_time_under_stage_three_alone(result: Result, m: int) -> None:
    """Two gathers for each micro-batch and one reduction; the others communicate once."""
    assert value(result, f"stage0_m{m}_volume") == 2
    assert value(result, f"stage2_m{m}_volume") == 2
    assert value(result, f"stage3_m{m}_volume") == 2 * m + 1


def test_bytes_follow_the_dtype(result: Result) -> None:
    """Three passes of four bytes, or of two."""
    assert value(result, "stage3_fp32_bytes") == 3 * 4
    assert value(result, "stage3_bf16_bytes") == 3 * 2


def sent_on_a_ring(ranks: int, start: int) -> list[int]:
    """Parts that each rank sends in N − 1 hops, by simulation: who has what, hop by hop."""
    holds = [{(rank + start) % ranks} for rank in range(ranks)]
    sent = [0] * ranks
    passing = [next(iter(h)) for h in holds]
    for _ in range(ranks - 1):
        sent = [n + 1 for n in sent]
        passing = [passing[-1], *passing[:-1]]
        for rank, part in enumerate(passing):
            holds[rank].add(part)
    assert all(len(h) == ranks for h in holds)
    return sent


def test_ring_sends_all_parts_but_one(result: Result) -> None:
    """Each half sends (N−1)/N of the message from each rank, and together they are an all-reduce."""
    hops = sent_on_a_ring(N, start=1)
    assert all(a == b for a, b in pairwise(hops))
    assert value(result, "ring_reduce_scatter") == hops[0] / N
    assert value(result, "ring_all_gather") == hops[0] / N
    assert value(result, "ring_all_reduce") == 2 * (N - 1) / N
    assert value(result, "ring_equals_all_reduce") is True


def test_the_figure_shows_an_all_reduce(result: Result) -> None:
    """Played as drawn, each rank passing to the next, all sums are complete when they are passed on."""
    figure = next(f for f in result.figures if isinstance(f, Lanes))
    sent = [[s for s in figure.spans if s.row == rank] for rank in range(N)]
    halves = ["reduce_scatter"] * (N - 1) + ["all_gather"] * (N - 1)
    assert all([s.kind for s in row] == halves for row in sent)
    assert all([s.start for s in row] == [hop + 0.5 for hop in range(2 * (N - 1))] for row in sent)
    added = [[{rank} for _ in range(N)] for rank in range(N)]  # whose numbers are in each part
    for hop, half in enumerate(halves):
        passed = [
            (int(row[hop].label), set(added[r][int(row[hop].label)])) for r, row in enumerate(sent)
        ]
        for rank, (part, ranks_in_it) in enumerate(passed):
            if half == "all_gather":
                assert ranks_in_it == set(range(N))
            else:
                assert len(ranks_in_it) == hop + 1
            added[(rank + 1) % N][part] |= ranks_in_it
    assert all(part == set(range(N)) for parts in added for part in parts)


def test_stage_two_by_hand_trains_like_ddp(result: Result) -> None:
    """A reduce-scatter and an all-gather carry all that an all-reduce does."""
    assert value(result, "by_hand_difference") <= 1e-6


WORKER = """
import torch
import torch.distributed as dist
from runnable_demos import zero_traffic
from runnable_demos.lab import collectives, ranks

timed = []

def count(step, device):
    for _ in range(2):
        step()
    with collectives.Collectives() as issued:
        step()
    timed.append([list(a.shape) for a in step.args])
    return collectives.volume((call.kind, call.nbytes) for call in issued.calls)

def measure(task):
    zero_traffic.typical_seconds = count
    times = zero_traffic.times(zero_traffic.Timed(layers=2, width=12, few=3, many=5), "cpu")
    batches = []
    together = dist.batch_isend_irecv

    def noting(ops):
        batches.append(sorted(op.op.__name__ for op in ops))
        return together(ops)

    def alone(*arguments, **more):
        raise AssertionError("a message on its own")

    dist.batch_isend_irecv, dist.send, dist.recv = noting, alone, alone
    right = zero_traffic.ring("cpu")
    add = torch.Tensor.__iadd__
    torch.Tensor.__iadd__ = lambda a, b: add(a, b + (dist.get_rank() == 1))
    wrong = zero_traffic.ring("cpu")
    return {
        "batches": batches, "right": right["equal"], "wrong": wrong["equal"],
        "times": times, "timed": timed,
    }

if __name__ == "__main__":
    ranks.work(measure, {"seed": 0, "device": "cpu"})
"""


@pytest.mark.parametrize("n", [2, 3])
def test_a_ring_sends_and_receives_at_once(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank waits for a receive that its neighbour would post later; a wrong sum is called wrong.

    What a GPU would time is counted on the way: steps of bf16 layers, of both schemes and both sizes of batch,
    and the gathering of one layer.
    """
    (tmp_path / "worker_of_a_ring.py").write_text(WORKER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for report in ranks.launch("worker_of_a_ring", n, {"seed": 0, "device": "cpu"}):
        assert report["batches"] == [["irecv", "isend"]] * (2 * 2 * (n - 1))
        assert report["right"] is True
        assert report["wrong"] is False
        layer = 2 * 12 * 12
        ddp, stage3 = 2 * 2 * layer, 3 * 2 * layer
        assert report["times"] == {
            "ddp_few": ddp,
            "ddp_many": ddp,
            "stage3_few": stage3,
            "stage3_many": stage3,
            "gather": layer,
        }
        assert report["timed"][:4] == [[[3, 12]], [[5, 12]]] * 2


def test_the_slowest_rank_is_told() -> None:
    """All ranks wait for it; a bus carries three quarters of a message between four."""
    quick = {"ddp_few": 1.0, "ddp_many": 2.0, "stage3_few": 1.0, "stage3_many": 2.0, "gather": 1e-4}
    slow = quick | {"stage3_few": 1.5, "stage3_many": 2.1, "gather": 1e-3}
    found: Any = {}
    zero_traffic.add_times([{"times": times} for times in (quick, quick, slow, quick)], found)
    message = 2 * zero_traffic.TIMED.width**2
    assert found == {
        "time_few": 1.5,
        "time_many": pytest.approx(1.05),
        "gather_bandwidth": pytest.approx(0.75 * message / 1e-3),
    }


def test_what_one_rank_finds_is_told() -> None:
    """The last rank alone is off by a quarter, and its ring is not the sum."""

    def change(report: ranks.Report) -> None:
        report["difference"] = 0.25
        report["ring"]["equal"] = False

    found = told(zero_traffic, change)
    assert found["by_hand_difference"] == 0.25
    assert found["ring_equals_all_reduce"] is False

"""Pipeline schedules against formulas, and against a recursion over what each operation waits for.

Real ranks also execute orders that no schedule gives, to show that the demo would notice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import torch

from runnable_demos.lab import ranks
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result
from runnable_demos.pipeline_schedule import (
    PRESETS,
    Op,
    Schedule,
    bit_equal,
    gpipe,
    interleaved,
    one_f_one_b,
    play,
    run,
)
from tests.demos import sketched

CONFIG = PRESETS["small"]
P, M = CONFIG.ranks, CONFIG.micro_batches
SIZES = [(2, 2), (2, 6), (3, 3), (4, 8), (5, 20)]


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size, on real ranks."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def finish(schedule: Schedule, times: dict[int, tuple[int, int]], v: int) -> Fraction:
    """When all is done, by recursion: after the device's operation before, and after what is needed."""
    p = len(schedule)
    place = {op: (i, n) for i, ops in enumerate(schedule) for n, op in enumerate(ops)}

    @cache
    def end(op: Op) -> Fraction:
        i, n = place[op]
        kind, stage, k = op
        waits = [schedule[i][n - 1]] if n else []
        if kind == "F":
            waits += [Op("F", stage - 1, k)] if stage else []
        else:
            waits += [Op("F", stage, k)]
            waits += [Op("B", stage + 1, k)] if stage < p * v - 1 else []
        start = max((end(w) for w in waits), default=Fraction(0))
        return start + Fraction(times[i][kind == "B"], v)

    return max(end(ops[-1]) for ops in schedule)


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("t_b", [1, 2, 3])
def test_bubbles_are_the_formulas(p: int, m: int, t_b: int) -> None:
    """(p − 1)/m for GPipe and 1F1B, whatever the backward costs; 1/v of it with v chunks."""
    times = dict.fromkeys(range(p), (1, t_b))
    assert play(gpipe(p, m), times).bubble == Fraction(p - 1, m)
    assert play(one_f_one_b(p, m), times).bubble == Fraction(p - 1, m)
    for v in (2, 3):
        assert play(interleaved(p, m, v), times, v).bubble == Fraction(p - 1, v * m)


def held(ops: Sequence[Op], v: int) -> Fraction:
    """Forwards whose backward is still to come, at most, in micro-batches of all v chunks."""
    level = [sum(1 if op.kind == "F" else -1 for op in ops[:n]) for n in range(len(ops) + 1)]
    return Fraction(max(level), v)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_in_flight_counts(p: int, m: int) -> None:
    """All m with GPipe; p − i at most with 1F1B; p + (p − 1 − 2i)/v on device i of v chunks."""
    assert [held(ops, 1) for ops in gpipe(p, m)] == [m] * p
    assert [held(ops, 1) for ops in one_f_one_b(p, m)] == [min(p - i, m) for i in range(p)]
    for v in (2, 3):
        expected = [min(p + Fraction(p - 1 - 2 * i, v), m) for i in range(p)]
        assert [held(ops, v) for ops in interleaved(p, m, v)] == expected


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_time_slots_agree_with_the_recursion(p: int, m: int) -> None:
    """The event loop and a recursion over dependencies end at the same time, with unequal stages too."""
    times = {i: (1 + i % 2, 2 + i % 3) for i in range(p)}
    for schedule, v in ((gpipe(p, m), 1), (one_f_one_b(p, m), 1), (interleaved(p, m, 2), 2)):
        assert play(schedule, times, v).time == finish(schedule, times, v)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_each_operation_is_scheduled_once(p: int, m: int) -> None:
    """Every device runs every micro-batch forward and backward through each of its chunks."""
    for schedule, v in ((gpipe(p, m), 1), (one_f_one_b(p, m), 1), (interleaved(p, m, 2), 2)):
        expected = {Op(kind, s, k) for kind in "FB" for s in range(p * v) for k in range(m)}
        ops = [op for device in schedule for op in device]
        assert len(ops) == len(expected) and set(ops) == expected


def test_a_schedule_that_waits_for_itself_is_refused() -> None:
    """A backward before its forward never starts."""
    with pytest.raises(ValueError, match="waits for itself"):
        play([[Op("B", 0, 0), Op("F", 0, 0)]], {0: (1, 2)})


def test_metrics_are_the_formulas(result: Result) -> None:
    """The recorded bubbles, for the preset's p and m."""
    assert value(result, "bubble_gpipe") == (P - 1) / M
    assert value(result, "bubble_one_f_one_b") == (P - 1) / M
    assert value(result, "bubble_interleaved") == (P - 1) / (2 * M)
    assert value(result, "bubble_of_total") == pytest.approx((P - 1) / (M + P - 1))
    assert value(result, "bubble_four_times") == (P - 1) / (4 * P)
    times = {i: (2, 4) if i == P - 1 else (1, 2) for i in range(P)}
    slow = finish(one_f_one_b(P, M), times, 1) / (3 * (M + P - 1))
    assert value(result, "slow_stage") == pytest.approx(float(slow))


def test_real_ranks_hold_what_the_schedule_says(result: Result) -> None:
    """Live activation bytes in units of one micro-batch's."""
    assert value(result, "in_flight_gpipe_first") == M
    assert value(result, "in_flight_gpipe_last") == M
    assert value(result, "in_flight_one_f_one_b_first") == P
    assert value(result, "in_flight_one_f_one_b_last") == 1
    assert value(result, "interleaved_in_flight") == P + (P - 1) / 2


def test_every_device_holds_what_its_operations_say(result: Result) -> None:
    """All schedules over all devices; the loss's scalar is all that the last stage adds."""
    gpipes, alternating, chunked = result.figures[1].series[-3:]
    assert gpipes.y == tuple(held(ops, 1) for ops in gpipe(P, M))
    assert alternating.y == tuple(held(ops, 1) for ops in one_f_one_b(P, M))
    expected = [float(held(ops, 2)) for ops in interleaved(P, M, 2)]
    assert chunked.y == pytest.approx(expected, rel=4 / (4 * CONFIG.rows * CONFIG.width))


def test_theory_and_computation_meet_in_the_figures(result: Result) -> None:
    """(p − 1)/m and half of it; m, p − i and p + (p − 1 − 2i)/2."""
    whole, half, alternating, chunked = result.figures[0].series
    assert whole.y == alternating.y == tuple((P - 1) / n for n in whole.x)
    assert half.y == chunked.y == tuple((P - 1) / (2 * n) for n in whole.x)
    flat, falling, slanted = result.figures[1].series[:3]
    assert flat.y == (M,) * P
    assert falling.y == tuple(P - i for i in range(P))
    assert slanted.y == tuple(P + (P - 1 - 2 * i) / 2 for i in range(P))


def test_lanes_show_when_each_operation_ran(result: Result) -> None:
    """GPipe in closed form, 1F1B by hand; each interleaved stage runs once, after what it needs, half as long."""
    piped, alternating, chunked = (figure for figure in result.figures if isinstance(figure, Lanes))
    forwards = {(i, f"F{k + 1}", i + k, i + k + 1) for i in range(P) for k in range(M)}
    first = M + P - 1  # the slot in which the last stage begins its first backward
    backwards = {
        (i, f"B{k + 1}", start, start + 2)
        for i in range(P) for k in range(M) for start in [first + 2 * (P - 1 - i) + 2 * k]
    }  # fmt: skip
    assert {(s.row, s.label, s.start, s.end) for s in piped.spans} == forwards | backwards
    assert alternating.spans == sketched.one_f_one_b(P, M)
    when = {(s.kind, s.row, s.label): (s.start, s.end) for s in chunked.spans}
    chunks = [(kind, i) for kind in ("forward", "forward_later") for i in range(P)]
    chunks += [(k.replace("forward", "backward"), i) for k, i in reversed(chunks)]
    assert len(when) == len(chunked.spans) == len(chunks) * M
    for k in range(1, M + 1):
        way = [when[kind, i, f"{kind[0].upper()}{k}"] for kind, i in chunks]
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(way))
        assert [end - start for start, end in way] == [0.5] * 2 * P + [1.0] * 2 * P
    assert max(span.end for span in chunked.spans) == 3 * M * (1 + (P - 1) / (2 * M))


def test_checkpointed_stages_keep_their_ends(result: Result) -> None:
    """Input and output of h each, in place of two layers' GELU inputs and outputs of 4h and h besides."""
    kept, all_of_it = 1 + 1, 1 + 2 * (4 + 4 + 1 + 1)
    assert value(result, "checkpointed_first") == pytest.approx(kept / all_of_it)


def test_gradients_are_one_devices(result: Result) -> None:
    """Every stage's gradient equals that of one process, to the last bit."""
    assert value(result, "gradients_bit_equal") is True


def test_bit_equality_sees_one_bit_and_another_layer() -> None:
    """The smallest change of one number is noticed, and the right numbers in the wrong place."""
    expected = [torch.ones(3), torch.full((3,), 2.0)]
    changed = expected[1].clone()
    changed[2] = torch.nextafter(changed[2], torch.tensor(3.0))
    assert bit_equal({0: torch.ones(3), 1: expected[1].clone()}, expected)
    assert not bit_equal({0: torch.ones(3), 1: changed}, expected)
    assert not bit_equal({1: expected[0]}, expected)


WORKER = """
import torch.distributed as dist
from runnable_demos.lab import ranks
from runnable_demos.lab.collectives import Collectives
from runnable_demos.pipeline_schedule import Config, Op, alone, bit_equal, execute

def measure(task):
    config = Config(ranks=2, micro_batches=4, rows=8, width=16)
    i = dist.get_rank()
    up = [Op("F", i, k) for k in range(4)]
    down = [Op("B", i, k) for k in range(4)]
    orders = {
        "right": up + down,
        "one_by_one": [op for pair in zip(up, down) for op in pair],
        "summed_backwards": up + down[::-1],
        "one_left_out": up[:3] + down[:3],
    }
    report = {}
    for name, ops in orders.items():
        with Collectives() as issued:
            done = execute(config, ops)
        kinds = [call.kind for call in issued.calls]
        report[name] = [done.order, kinds, bit_equal(done.gradients, alone(config))]
    return report

if __name__ == "__main__":
    ranks.work(measure, {"seed": 0, "device": "cpu"})
"""


def test_wrong_orders_on_real_ranks_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is what went over the wire; another order has its own bubble, a wrong sum other bits."""
    (tmp_path / "worker_of_a_pipeline.py").write_text(WORKER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reports = ranks.launch("worker_of_a_pipeline", 2, {"seed": 0, "device": "cpu"})
    verdicts = {name: {r[name][2] for r in reports} for name in reports[0]}
    assert verdicts == {
        "right": {True},
        "one_by_one": {True},  # the same sums in the same order, however long that takes
        "summed_backwards": {False},
        "one_left_out": {False},
    }
    log = {name: [[Op(*op) for op in r[name][0]] for r in reports] for name in reports[0]}
    times = {0: (1, 2), 1: (1, 2)}
    assert play(log["right"], times).bubble == Fraction(1, 4)
    assert play(log["one_by_one"], times).bubble == 1  # one of two devices is always idle
    for name, ranks_did in log.items():
        for rank, ops in enumerate(ranks_did):
            first = {"F": "send", "B": "recv"}  # activations to the second stage, gradients back
            second = {"F": "recv", "B": "send"}
            assert reports[rank][name][1] == [(second if rank else first)[op.kind] for op in ops]


@cache
def reports() -> list[ranks.Report]:
    """What real ranks report."""
    return ranks.launch("runnable_demos.pipeline_schedule", CONFIG.ranks, asdict(CONFIG))


def told(change: Callable[[ranks.Report], None]) -> dict[str, object]:
    """The metrics by name, had the last rank reported something else."""
    altered = deepcopy(reports())
    change(altered[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "launch", lambda *_: altered)
        return {m.name: m.value for m in run(CONFIG, lambda share, what: None).metrics}


@pytest.mark.parametrize("name", ["gpipe", "one_f_one_b", "interleaved"])
def test_one_wrong_gradient_of_any_schedule_is_told(name: str) -> None:
    """The last rank's gradients differ under one schedule, at the largest number of micro-batches."""

    def change(report: ranks.Report) -> None:
        report[f"{name}_{8 * P}"]["equal"] = False

    assert told(change)["gradients_bit_equal"] is False


def test_another_order_in_a_log_is_another_bubble() -> None:
    """1F1B's last rank gives each backward as soon as it can; delayed to the end, the first one waits."""

    def change(report: ranks.Report) -> None:
        done = report[f"one_f_one_b_{M}"]
        done["order"] = sorted(done["order"], key=lambda op: op[0], reverse=True)

    last = [Op("F", P - 1, k) for k in range(M)] + [Op("B", P - 1, k) for k in range(M)]
    schedule = [*one_f_one_b(P, M)[:-1], last]
    with pytest.raises(ValueError, match="waits for itself"):
        play(schedule, dict.fromkeys(range(P), (1, 2)))
    with pytest.raises(ValueError, match="waits for itself"):
        told(change)

"""Pipeline schedules against formulas, and against a recursion over what each operation waits for."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

from runnable_demos.metrics import Result
from runnable_demos.pipeline_schedule import (
    PRESETS,
    Op,
    Schedule,
    gpipe,
    interleaved,
    one_f_one_b,
    play,
    run,
)

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


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_in_flight_counts(p: int, m: int) -> None:
    """All m with GPipe; p − i at most with 1F1B; p + (p − 1)/v on the first device of v chunks."""
    times = dict.fromkeys(range(p), (1, 2))
    assert play(gpipe(p, m), times).in_flight == [m] * p
    assert play(one_f_one_b(p, m), times).in_flight == [min(p - i, m) for i in range(p)]
    for v in (2, 3):
        first = play(interleaved(p, m, v), times, v).in_flight[0]
        assert first == min(p + Fraction(p - 1, v), m)


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
    assert value(result, "interleaved_in_flight") == P + (P - 1) / 2
    times = {i: (2, 4) if i == P - 1 else (1, 2) for i in range(P)}
    slow = finish(one_f_one_b(P, M), times, 1) / (3 * (M + P - 1))
    assert value(result, "slow_stage") == pytest.approx(float(slow))


def test_real_ranks_hold_what_the_schedule_says(result: Result) -> None:
    """Live activation bytes in units of one micro-batch's."""
    assert value(result, "in_flight_gpipe_first") == M
    assert value(result, "in_flight_gpipe_last") == M
    assert value(result, "in_flight_one_f_one_b_first") == P
    assert value(result, "in_flight_one_f_one_b_last") == 1


def test_checkpointed_stages_keep_their_ends(result: Result) -> None:
    """Input and output of h each, in place of GELU's inputs and outputs of 4h and h besides."""
    kept, all_of_it = 1 + 1, 1 + 4 + 4 + 1 + 1
    assert value(result, "checkpointed_first") == pytest.approx(kept / all_of_it)


def test_gradients_are_one_devices(result: Result) -> None:
    """Every stage's gradient equals that of one process, to the last bit."""
    assert value(result, "gradients_bit_equal") is True

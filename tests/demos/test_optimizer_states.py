"""Optimizer states and transients against counts made by hand from each algorithm."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import optim

from runnable_demos.lab.metrics import Result
from runnable_demos.optimizer_states import PRESETS, STEPS, follow, measure, run

CONFIG = PRESETS["small"]
N = CONFIG.width
WEIGHTS = CONFIG.matrices * N * N


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


# fp32 numbers that each algorithm's paper keeps: (for a weight, for a matrix)
NUMBERS = {
    "sgd": (0, 0),
    "momentum": (1, 0),
    "rmsprop": (1, 1),  # a matrix has a step counter, too
    "muon": (1, 0),
    "adamw": (2, 1),
    "amsgrad": (3, 1),
    "adafactor": (0, N + N + 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_state_is_what_the_algorithm_keeps(result: Result, name: str) -> None:
    """Bytes a parameter are four for each number that the algorithm needs between steps."""
    each, per_matrix = NUMBERS[name]
    state = next(m.value for m in result.metrics if m.name == f"state_{name}")
    assert state == 4 * each + 4 * per_matrix / (N * N)


def test_eight_bit_state_is_two_bytes_and_its_scales(result: Result) -> None:
    """One byte for each moment, an fp32 scale for 256 of each, and two tables of 256 fp32 codes."""
    state = next(m.value for m in result.metrics if m.name == "state_adam8bit")
    assert state == 2 + 2 * 4 / 256 + 2 * 256 * 4 / WEIGHTS


def test_no_state_exists_before_the_first_step(result: Result) -> None:
    """States appear at the first step, which is why the second step is the one to measure."""
    assert next(m.value for m in result.metrics if m.name == "state_before_first_step") == 0


@pytest.mark.parametrize("matrices", [1, 2, 5])
def test_transients_follow_how_the_step_is_written(matrices: int) -> None:
    """A loop needs the root and the quotient, and still holds the last matrix's; foreach needs all roots."""
    config = replace(CONFIG, matrices=matrices)
    copies = {
        name: measure(factory, config).transient * matrices / 4 for name, factory in STEPS.items()
    }
    assert copies == {"loop": 2 if matrices == 1 else 3, "foreach": matrices, "fused": 0}


def test_transients_are_copies_of_a_matrix(result: Result) -> None:
    """Three fp32 matrices for the loop, one for each matrix with foreach, none for the fused kernel."""
    found = {m.name: m.value for m in result.metrics}
    for name, copies in (("loop", 3), ("foreach", CONFIG.matrices), ("fused", 0)):
        assert found[f"transient_{name}_copies"] == copies
        assert found[f"transient_{name}"] == 4 * copies * N * N / WEIGHTS


def test_a_state_that_is_there_before_the_first_step_is_seen() -> None:
    """Adagrad makes its sums and counters when it is built, and keeps no more afterwards."""
    cost = measure(lambda p: optim.Adagrad(p, foreach=False), CONFIG)
    assert cost.before == cost.state == 4 + 4 / (N * N)


def test_adam_keeps_two_numbers_for_the_one_of_momentum(result: Result) -> None:
    """And a counter for each matrix."""
    ratio = next(m.value for m in result.metrics if m.name == "adam_over_momentum")
    assert ratio == pytest.approx((8 + 4 / (N * N)) / 4, rel=1e-12)


@pytest.mark.parametrize(("name", "transient"), [("foreach", 4), ("fused", 0)])
def test_the_state_comes_with_the_first_update_and_stays(name: str, transient: int) -> None:
    """By hand, fp32: 4 for weights, 4 for gradients, 8 for two moments, counters aside, and foreach's quotient."""
    moments = follow(STEPS[name], CONFIG)
    counters = 4 * CONFIG.matrices  # Adam counts its steps in an fp32 for each matrix

    def most(begin: float, end: float) -> int:
        return round(max(m.held for m in moments if begin <= m.time < end) * WEIGHTS)

    assert most(0, 0.5) == 8 * WEIGHTS
    for update in (0.5, 1.5):
        beside = most(update, update + 0.5) - (16 + transient) * WEIGHTS
        assert (
            counters <= beside <= 3 * counters
        )  # foreach makes some numbers for each matrix besides
    assert most(1, 1.5) == 16 * WEIGHTS + counters
    assert round(moments[-1].held * WEIGHTS) == 16 * WEIGHTS + counters

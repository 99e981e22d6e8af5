"""Which records are missing, stale or broken, and in which order a GPU is asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.evidence.evidence import Evidence
from generator.lab.freshness import Turn, devices, gaining, state, turns
from runnable_demos.lab.discovery import Demo
from runnable_demos.lab.metrics import Record, Result, Text
from runnable_demos.lab.table import Table

TEXT: Text = {"zh": "字", "en": "word"}


def record(demo: str, device: str) -> Record:
    """A record that says nothing."""
    return Record(demo, TEXT, TEXT, device, "full", (), Result((), (), {}), {}, {}, "2026-11-29")


def demo(name: str, gpu: int | None) -> Demo:
    """A demo that is this high in the order of GPUs."""
    return Demo(name, Path(f"{name}.py"), TEXT, TEXT, Table({}, {}), {}, (), gpu)


KEPT = Evidence(
    {
        (name, device): record(name, device)
        for name, device in [
            ("a", "cpu"),
            ("b", "cpu"),
            ("b", "h200"),
            ("b", "a100"),
            ("c", "h200"),
        ]
    },
    stale=frozenset({("b", "h200")}),
    broken=frozenset({("b", "l4"), ("d", "h200")}),
)


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("a", "cpu", "recorded"),
        ("a", "h200", "missing"),
        ("b", "h200", "stale"),
        ("b", "a100", "recorded"),
        ("b", "l4", "broken"),
        ("e", "cpu", "missing"),
    ],
)
def test_a_record_is_one_of_four(name: str, device: str, expected: str) -> None:
    """There and its demo's own, there and outgrown, there and unreadable, or not there."""
    assert state(KEPT, name, device) == expected


def test_the_devices_of_a_demo_are_those_of_its_records() -> None:
    """The CPU leads, though nothing be recorded there; what is broken is named, too."""
    assert devices(KEPT, "b") == ("cpu", "a100", "h200", "l4")
    assert devices(KEPT, "c") == ("cpu", "h200")
    assert devices(KEPT, "e") == ("cpu",)


def test_a_gpu_is_asked_for_the_most_valuable_first() -> None:
    """By the demos' own order, then by name; what gains nothing is left out, what is fresh is said."""
    demos = {
        each.name: each for each in (demo("a", None), demo("b", 2), demo("c", 1), demo("d", 2))
    }
    assert gaining(demos) == ("b", "c", "d")
    assert turns(demos, KEPT, "h200") == (
        Turn("c", "recorded"),
        Turn("b", "stale"),
        Turn("d", "broken"),
    )
    assert [turn.state for turn in turns(demos, KEPT, "l4")] == ["missing", "broken", "missing"]

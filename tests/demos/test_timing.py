"""How long calls take, by a clock that is the test's own."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from runnable_demos.lab import timing


def test_without_a_gpu_the_process_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call lies between two readings of the process's clock, which counts in seconds."""
    events: list[object] = []
    clock = itertools.count(10, 3)

    def read() -> int:
        events.append("read")
        return next(clock)

    monkeypatch.setattr(timing, "process_time", read)
    assert timing.seconds(lambda: events.append("call"), "cpu") == 3
    assert events == ["read", "call", "read"]


def test_on_a_gpu_its_events_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call lies between two events, whose milliseconds are read once the second has passed."""
    log: list[str] = []
    names = iter(("start", "end"))

    def event(*, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        name = next(names)
        return SimpleNamespace(
            record=lambda: log.append(f"record {name}"),
            synchronize=lambda: log.append(f"wait for {name}"),
            elapsed_time=lambda other: log.append("read") or 2500.0,
        )

    monkeypatch.setattr(torch.cuda, "Event", event)
    assert timing.seconds(lambda: log.append("call"), "cuda") == 2.5
    assert log == ["record start", "call", "record end", "wait for end", "read"]


def test_the_typical_call_is_the_middle_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that warm up do not count, and one slow call does not either."""
    taken = iter((1.0, 9.0, 2.0))
    calls: list[None] = []

    def seconds(function: object, device: str) -> float:
        assert len(calls) == timing.WARM_UP
        return next(taken)

    monkeypatch.setattr(timing, "seconds", seconds)
    assert timing.typical_seconds(lambda: calls.append(None), "cpu", repeats=3) == 2.0

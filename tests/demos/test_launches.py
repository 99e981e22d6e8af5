"""Ranks that are started once for all tests, with a start that only counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runnable_demos.lab import ranks
from tests.demos import launches


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What has been asked of the real start, which reports how often it was asked."""
    asked: list[object] = []

    def start(*task: Any) -> list[ranks.Report]:
        asked.append(task)
        return [{"number": len(asked)}]

    monkeypatch.setattr(launches, "_start", start)
    return asked


def numbers(*tasks: tuple[str, int, dict[str, int]]) -> list[int]:
    """Which start each of some launches is told of."""
    return [ranks.launch(*task)[0]["number"] for task in tasks]


def test_a_task_is_started_once(tmp_path: Path, started: list[object]) -> None:
    """Another module, another number of ranks and another seed are other tasks; a later process asks in vain."""
    demo = ("runnable_demos.fsdp", 2, {"seed": 0})
    others = [
        ("runnable_demos.zero_stages", 2, {"seed": 0}),
        ("runnable_demos.fsdp", 4, {"seed": 0}),
        ("runnable_demos.fsdp", 2, {"seed": 1}),
    ]
    with launches.shared(tmp_path):
        assert numbers(demo, demo, *others, *others) == [1, 1, 2, 3, 4, 2, 3, 4]
    with launches.shared(tmp_path):
        assert numbers(demo) == [1]
    assert len(started) == 4


def test_what_is_to_be_seen_twice_is_started_twice(tmp_path: Path, started: list[object]) -> None:
    """Within ``anew``, and for a module that a test has written; afterwards the first report is told again."""
    demo, worker = ("runnable_demos.fsdp", 2, {"seed": 0}), ("worker_of_a_test", 2, {"seed": 0})
    with launches.shared(tmp_path):
        assert numbers(demo) == [1]
        with launches.anew():
            assert numbers(demo, demo) == [2, 3]
        assert numbers(demo, worker, worker) == [1, 4, 5]
    assert len(started) == 5


def test_a_start_that_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one starts ranks again."""
    answers: list[Any] = [RuntimeError("rank 1 failed"), [{"number": 7}]]

    def start(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(launches, "_start", start)
    with launches.shared(tmp_path):
        with pytest.raises(RuntimeError, match="rank 1 failed"):
            numbers(("runnable_demos.fsdp", 2, {}))
        assert numbers(("runnable_demos.fsdp", 2, {})) == [7]

"""Starting ranks: what they report comes back by rank, and what goes wrong is said in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runnable_demos.lab import ranks

MODULE = """
import torch
import torch.distributed as dist
from runnable_demos.lab import ranks
from runnable_demos.lab.measure import LiveMemory

def measure(task):
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    if task["fail"] and dist.get_rank() == 1:
        raise ValueError("rank one gives up")
    left = 0
    with LiveMemory() as live:
        for _ in range(50):
            whole = torch.empty(dist.get_world_size() * 1000)
            dist.all_gather_single(whole, torch.ones(1000))
            del whole
            left = max(left, live.current)
    return {"rank": dist.get_rank(), "total": total.item(), "kept": task["kept"], "left": left}

if __name__ == "__main__":
    ranks.work(measure, {"seed": 0, "device": "cpu", "fail": False, "kept": "default"})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A worker that ranks can import."""
    (tmp_path / "worker_of_a_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "worker_of_a_test"


def test_reports_come_back_by_rank(module: str) -> None:
    """Two ranks add up 1 and 2; what the task leaves out is the default; messages are let go at once."""
    reports = ranks.launch(module, 2, {"seed": 0, "device": "cpu"})
    assert reports == [{"rank": r, "total": 3.0, "kept": "default", "left": 0} for r in range(2)]


def test_a_failing_rank_is_named_with_its_reason(module: str) -> None:
    """The error is the rank's own, not that of those which waited for it."""
    task = {"seed": 0, "device": "cpu", "fail": True}
    with pytest.raises(RuntimeError, match=r"rank 1 failed: ValueError: rank one gives up"):
        ranks.launch(module, 2, task)


def test_too_few_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has a CUDA device of its own."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RuntimeError, match="2 ranks need 2 CUDA devices, and there are 1"):
        ranks.launch("json", 2, {"seed": 0, "device": "cuda"})


def test_by_hand_rank_zero_prints(module: str, tmp_path: Path) -> None:
    """Started without ``--reports``, as on a cluster, rank 0 prints the list of all reports."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["--module", module, "--task", '{"kept": "given"}']
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [r["kept"] for r in json.loads(done.stdout)] == ["given", "given"]

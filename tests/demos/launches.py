"""Real ranks are started once a session for each task: whoever asks again is told what they reported.

A start costs seconds of every core. Tests ask what a demo finds at its small size, its own and those that hold
for all demos, in several processes; none of them changes what ranks do. What is to be seen twice is asked
for within ``anew``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runnable_demos.lab import ranks

PACKAGE = "runnable_demos."
_start = ranks.launch
_anew = False


@contextmanager
def anew() -> Iterator[None]:
    """Within, ranks are started, whatever was reported before."""
    global _anew  # noqa: PLW0603 - one setting of the process
    before, _anew = _anew, True
    try:
        yield
    finally:
        _anew = before


@contextmanager
def shared(folder: Path) -> Iterator[None]:
    """Within, ``ranks.launch`` keeps what ranks of the package's demos report, in ``folder``."""

    def launch(module: str, count: int, task: Mapping[str, Any]) -> list[ranks.Report]:
        if _anew or not module.startswith(PACKAGE):
            return _start(module, count, task)
        asked = json.dumps([module, count, task], sort_keys=True)
        path = folder / hashlib.sha256(asked.encode()).hexdigest()
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be starting the same ones
            if not path.is_file():
                path.write_text(json.dumps(_start(module, count, task)), encoding="utf-8")
        reports: list[ranks.Report] = json.loads(path.read_text(encoding="utf-8"))
        return reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "launch", launch)
        yield

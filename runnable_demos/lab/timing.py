"""How long a call takes: on a GPU by its own events, elsewhere by what this process has computed."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time

import torch

WARM_UP = 3
"""Calls before the first that counts: libraries choose kernels in them and take workspaces."""


def seconds(function: Callable[[], object], device: str) -> float:
    """Seconds of one call.

    Without a GPU they are the process's own, so that what else runs there counts for less.
    """
    if device == "cpu":
        begin = process_time()
        function()
        return process_time() - begin
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def typical_seconds(function: Callable[[], object], device: str, repeats: int = 20) -> float:
    """The median of some calls, after those that warm up."""
    for _ in range(WARM_UP):
        function()
    return median(seconds(function, device) for _ in range(repeats))

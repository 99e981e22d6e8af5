"""Start ranks with torchrun, give all the same task, and collect what each of them found.

A demo that needs several ranks holds both sides in one file. ``run`` calls ``launch``, which is
``torchrun --standalone --nproc-per-node N --module runnable_demos.NAME``; in each rank the file is the
main module and calls ``work``. On a cluster the same module is started by hand:

    torchrun --nnodes 2 --nproc-per-node 8 … --module runnable_demos.NAME --task '{"width": 4096}'

where rank 0 prints a JSON list with what each rank found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.utils._python_dispatch import TorchDispatchMode

from runnable_demos.lab import lifetime

Report = dict[str, Any]
"""What one rank found: JSON values by name."""


def launch(module: str, ranks: int, task: Mapping[str, Any]) -> list[Report]:
    """Run ``module`` in ``ranks`` processes of this machine; their reports, by rank.

    Raises ``RuntimeError`` with the first error where a rank fails, or where CUDA devices are too few.
    """
    from torch.distributed.run import main as torchrun  # noqa: PLC0415 - ranks have no use for it

    if task["device"] == "cuda" and torch.cuda.device_count() < ranks:
        raise RuntimeError(
            f"{ranks} ranks need {ranks} CUDA devices, and there are {torch.cuda.device_count()}"
        )
    with TemporaryDirectory() as folder:
        try:
            torchrun(
                [
                    "--standalone",
                    f"--nproc-per-node={ranks}",
                    "--module",
                    module,
                    f"--task={json.dumps(task)}",
                    f"--reports={folder}",
                    f"--parent={os.getpid()}",
                ]
            )
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            said: Any = failure.message  # a string, or a dictionary where the rank wrote a file
            reason = said["message"] if isinstance(said, dict) else said
            raise RuntimeError(f"rank {rank} failed: {reason}") from error
        return [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(ranks)]


@record
def work(measure: Callable[[Mapping[str, Any]], Report], defaults: Mapping[str, Any]) -> None:
    """In a rank: join the others, measure, and hand over the report. Does not return.

    ``measure`` receives ``defaults`` updated by ``--task``.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", type=json.loads, default={}, help="values by name, as JSON")
    parser.add_argument("--reports", type=Path, help="folder for a file a rank; else rank 0 prints")
    parser.add_argument("--parent", type=int, help="the process with which this one ends")
    options = parser.parse_args()
    if options.parent is not None:
        lifetime.end_with(options.parent)
    task = {**defaults, **options.task}
    torch.manual_seed(task["seed"])
    if task["device"] == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    on_cpu = task["device"] == "cpu"
    dist.init_process_group(_one_thread_gloo() if on_cpu else "nccl")
    with _Settled() if on_cpu else nullcontext():
        report = measure(task)
    if options.reports is not None:
        (options.reports / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    else:
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, report)
        if dist.get_rank() == 0:
            print(json.dumps(reports, indent=1))
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a thread that gloo leaves behind may abort the interpreter's own way out


# --- exact bytes with gloo ---


def _one_thread_gloo() -> str:
    """Register gloo with one worker thread, in place of two, as a backend; returns its name."""

    def create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_default_device()]
        options._timeout = timeout
        options._threads = 1
        return dist.ProcessGroupGloo(store, rank, size, options)

    dist.Backend.register_backend("gloo1", create, devices=["cpu"])
    return "gloo1"


class _Settled(TorchDispatchMode):
    """Waits after each collective until gloo has let go of its tensors.

    A worker thread of gloo holds a message for a moment after the collective is done, so that a
    buffer which was freed might be counted or not. One thread works in order: when a collective
    that was issued later is over, the message has been dropped. (A barrier would not do. It holds
    all work that is still in progress.)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._nothing = torch.zeros(1)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        alone = ("c10d::barrier", "c10d::send", "c10d::recv_")  # no message left, or no worker's
        if func.namespace == "c10d" and func._schema.name not in alone:
            dist.all_reduce(self._nothing)
        return out

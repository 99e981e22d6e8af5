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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

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
                ]
            )
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            raise RuntimeError(f"rank {rank} failed: {failure.message}") from error
        return [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(ranks)]


@record
def work(measure: Callable[[Mapping[str, Any]], Report], defaults: Mapping[str, Any]) -> None:
    """In a rank: join the others, measure, and hand over the report. Does not return.

    ``measure`` receives ``defaults`` updated by ``--task``.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", type=json.loads, default={}, help="values by name, as JSON")
    parser.add_argument("--reports", type=Path, help="folder for a file a rank; else rank 0 prints")
    options = parser.parse_args()
    task = {**defaults, **options.task}
    torch.manual_seed(task["seed"])
    if task["device"] == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if task["device"] == "cuda" else "gloo")
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

"""``proofdeck demo record-gpu``."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.markup import escape

from generator.commands.shared.bars import Bars
from generator.commands.shared.exits import (
    ENVIRONMENT,
    USAGE,
    explained,
    interruptible,
    show_traceback,
    stop,
)
from generator.commands.shared.options import CARDS, BaseOption, DemosOption, EvidenceOption
from generator.lab import freshness, laboratory
from generator.lab.laboratory import Laboratory
from generator.lab.runs import SECONDS, Order, RunFailed, run, this_gpu
from generator.terminal import OUT

NAME = "demo record-gpu"
PLACE = 10


def command(
    within: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Begin nothing after these.")
    ] = 480.0,
    cards: BaseOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
) -> None:
    """Record here every demo that gains from a GPU, the most valuable first; fresh ones are skipped."""
    lab = laboratory.of_base(cards, demos, evidence)
    with explained():
        there = lab.discover()
    kept, _ = lab.load()
    failed = False
    with interruptible():
        gpu = this_gpu()
        if gpu is None:
            stop(USAGE, "there is no CUDA device", "record on a machine that has one")
        deadline = time.monotonic() + within
        for turn in freshness.turns(there, kept, gpu):
            left = deadline - time.monotonic()
            if turn.state == "recorded":
                said = "fresh"
            elif left <= 0:
                said = "left, since time is up"
            else:
                said = _record(lab, turn.demo, min(left, SECONDS))
                failed |= said.startswith("failed")
            OUT.print(f"{turn.demo}: {escape(said)}", soft_wrap=True)
    raise typer.Exit(ENVIRONMENT if failed else 0)


def _record(lab: Laboratory, name: str, seconds: float) -> str:
    """Record a demo on the GPU, and say what came of it; one that has to have more GPUs is no failure."""
    try:
        with Bars([name]) as bars:
            found = run(Order(name, device="cuda"), lab.demos, bars.progress, bars.note, seconds)
    except RunFailed as reason:
        show_traceback(reason)
        return f"{'left' if reason.code == USAGE else 'failed'}: {reason}"
    return f"recorded {lab.path(lab.save(found))}"

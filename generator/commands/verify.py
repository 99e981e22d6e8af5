"""``proofdeck verify``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from generator.commands.shared.bars import Bars
from generator.commands.shared.exits import (
    USAGE,
    WRONG,
    exit_code,
    explained,
    interruptible,
    show_traceback,
    stop,
)
from generator.commands.shared.options import (
    CARDS,
    BaseOption,
    DemosOption,
    Device,
    EvidenceOption,
    JsonOption,
    LimitOption,
)
from generator.lab import laboratory, verify
from generator.lab.runs import SECONDS, Order, run_all
from generator.lab.verify import Verification
from generator.problems import json_text
from generator.terminal import OUT, echo
from runnable_demos.lab.metrics import Record

NAME = "verify"
PLACE = 1
COLOURS = {"agrees": "green", "recorded": "cyan", "differs": "red", "failed": "red"}


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Demos.", show_default="all")] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep what is found.")] = False,
    device: Annotated[Device, typer.Option(help="Whose evidence is verified.")] = Device.cpu,
    limit: LimitOption = SECONDS,
    cards: BaseOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all demos again at full size, and compare with the evidence and with every card."""
    lab = laboratory.of_base(cards, demos, evidence)
    with explained():
        there = lab.discover()
        if demos and not there:
            stop(USAGE, f"there is no demo in {demos} (--demos)", "Name the folder of the demos.")
        if record:
            lab.refuse_packaged()
        chosen = verify.choose(there, names or (), device.value)
    before, _ = lab.load()
    with interruptible():
        with Bars(chosen, quiet=as_json) as bars:
            orders = [Order(name, device=device.value) for name in chosen]
            found = run_all(orders, lab.demos, bars.progress, bars.note, bars.done, limit)
        if record:
            for each in found.values():
                if isinstance(each, Record):
                    lab.save(each)
    verdict = verify.conclude(lab, cards, found, before, named=bool(names), recorded=record)
    (_print_json if as_json else _print)(verdict)
    raise typer.Exit(_exit_code(verdict))


def _exit_code(verdict: Verification) -> int:
    codes = [
        each.failed.code if each.failed else WRONG if each.state == "differs" else 0
        for each in verdict.outcomes
    ]
    return max([*codes, exit_code(verdict.problems)])


def _print(verdict: Verification) -> None:
    for each in verdict.outcomes:
        colour = COLOURS[each.state]
        OUT.print(f"[{colour}]{each.state:>8}[/{colour}]  {each.demo}", soft_wrap=True)
        if each.failed:
            OUT.print(f"          {escape(str(each.failed))}", soft_wrap=True)
            if each.failed.hint:
                OUT.print(f"          hint: {escape(each.failed.hint)}", soft_wrap=True)
            show_traceback(each.failed)
        for difference in each.differences:
            OUT.print(f"          {escape(str(difference))}", soft_wrap=True)
    # One line a fact, not one a demo: a whole base is verified on one machine.
    elsewhere = dict.fromkeys(str(fact) for each in verdict.outcomes for fact in each.environment)
    for fact in elsewhere:
        OUT.print(f"    note  another environment: {escape(fact)}", soft_wrap=True)
    for problem in verdict.problems:
        OUT.print(escape(str(problem)), soft_wrap=True)
    counts = Counter(each.state for each in verdict.outcomes)
    OUT.print(", ".join(f"{count} {state}" for state, count in counts.items()) or "no demos")


def _print_json(verdict: Verification) -> None:
    demos = [
        {
            "demo": each.demo,
            "state": each.state,
            "error": str(each.failed) if each.failed else None,
            "differences": [asdict(change) for change in each.differences],
            "environment": [asdict(change) for change in each.environment],
        }
        for each in verdict.outcomes
    ]
    echo(json_text({"demos": demos, "problems": [asdict(each) for each in verdict.problems]}))

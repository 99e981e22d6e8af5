"""``proofdeck verify``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from generator.commands.shared.bars import Bars
from generator.commands.shared.base import cache_beside
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
    FenceLimitOption,
    JsonOption,
    LimitOption,
)
from generator.lab import fences, laboratory, verify
from generator.lab.fences import FenceOutcome
from generator.lab.runs import SECONDS, Order, run_all
from generator.lab.verify import Outcome, Verification
from generator.library import library
from generator.problems import json_text
from generator.terminal import OUT, echo
from runnable_demos.lab.metrics import Record

NAME = "verify"
PLACE = 1
COLOURS = {"agrees": "green", "recorded": "cyan", "differs": "red", "failed": "red"}


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Demos, and cards whose fences are run.", show_default="all"),
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep what is found.")] = False,
    device: Annotated[Device, typer.Option(help="Whose evidence is verified.")] = Device.cpu,
    limit: LimitOption = SECONDS,
    fence_limit: FenceLimitOption = fences.SECONDS,
    cards: BaseOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all demos again at full size, and the fences of cards; compare with the evidence and with every card."""
    lab = laboratory.of_base(cards, demos, evidence)
    with explained():
        there = lab.discover()
        if demos and not there:
            stop(USAGE, f"there is no demo in {demos} (--demos)", "Name the folder of the demos.")
        if record:
            lab.refuse_packaged()
        read, _ = library.read(cards, evidence=lab.evidence, cache=cache_beside(cards))
        fenced = [card for card in read.cards if card.fences] if read else []
        written = fences.chosen(fenced, names or (), device.value)
        chosen = verify.choose(there, names or (), device.value, {each.id for each in fenced})
    if device is Device.cuda and not chosen and not written:
        hint = "Leave --device out to verify the evidence of the CPU."
        stop(USAGE, f"no demo in {lab.demos} gains from a GPU (--device cuda)", hint)
    (before, _), (printed, _) = lab.load(), lab.load_fences()
    with interruptible():
        with Bars([*chosen, *fences.names(written)], quiet=as_json) as bars:
            orders = [Order(name, device=device.value) for name in chosen]
            found = run_all(orders, lab.demos, bars.progress, bars.note, bars.done, limit)
            ran = fences.run_all(written, bars.done, fence_limit)
        if record:
            for each in found.values():
                if isinstance(each, Record):
                    lab.save(each)
            fences.record(written, ran, printed)
    outcomes = fences.judged(written, ran, printed, recorded=record)
    verdict = verify.conclude(
        lab, cards, found, before, named=bool(names), recorded=record, fences=outcomes
    )
    (_print_json if as_json else _print)(verdict)
    raise typer.Exit(_exit_code(verdict))


def _exit_code(verdict: Verification) -> int:
    codes = [
        each.failed.code if each.failed else WRONG if each.state == "differs" else 0
        for each in verdict.outcomes
    ]
    differs = any(each.state == "differs" for each in verdict.fences)
    return max([*codes, WRONG * differs, exit_code(verdict.problems)])


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
    for fence in verdict.fences:
        colour = COLOURS[fence.state]
        OUT.print(f"[{colour}]{fence.state:>8}[/{colour}]  {fence.name}", soft_wrap=True)
    # One line a fact, not one a demo: a whole base is verified on one machine.
    ran: list[Outcome | FenceOutcome] = [*verdict.outcomes, *verdict.fences]
    elsewhere = dict.fromkeys(str(fact) for each in ran for fact in each.environment)
    for fact in elsewhere:
        OUT.print(f"    note  another environment: {escape(fact)}", soft_wrap=True)
    for problem in verdict.problems:
        OUT.print(escape(str(problem)), soft_wrap=True)
    counts = Counter(each.state for each in ran)
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
    fences = [
        {"card": each.card, "line": each.fence.place.line, "state": each.state}
        for each in verdict.fences
    ]
    problems = [asdict(each) for each in verdict.problems]
    echo(json_text({"demos": demos, "fences": fences, "problems": problems}))

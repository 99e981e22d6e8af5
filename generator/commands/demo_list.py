"""``proofdeck demo list``."""

from __future__ import annotations

import json
from typing import Any

from rich.markup import escape
from rich.table import Table

from generator.commands.shared.exits import explained
from generator.commands.shared.options import (
    CARDS,
    BaseOption,
    DemosOption,
    EvidenceOption,
    JsonOption,
    LanguageOption,
    language,
)
from generator.evidence.evidence import Evidence
from generator.lab import freshness, laboratory
from generator.terminal import OUT
from runnable_demos.lab.discovery import Demo

NAME = "demo list"
PLACE = 8


def command(
    cards: BaseOption = CARDS,
    demos: DemosOption = None,
    evidence: EvidenceOption = None,
    lang: LanguageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every demo and the state of its evidence."""
    lab = laboratory.of_base(cards, demos, evidence)
    kept, _ = lab.load()
    with explained():
        rows = [(demo, _states(kept, name)) for name, demo in lab.discover().items()]
    if as_json:
        OUT.print_json(json.dumps([_data(*row) for row in rows], ensure_ascii=False))
        return
    words = language(lang)
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("demo", "title", "metrics", "cpu", "gpu"):
        table.add_column(column, no_wrap=column != "title")
    for demo, states in rows:
        table.add_row(*_cells(demo, states, words))
    OUT.print(table)


def _states(kept: Evidence, demo: str) -> dict[str, dict[str, Any]]:
    """What is recorded of a demo, by device: the state, and the day and size of a record."""
    states: dict[str, dict[str, Any]] = {}
    for device in freshness.devices(kept, demo):
        states[device] = {"state": freshness.state(kept, demo, device)}
        if record := kept.records.get((demo, device)):
            metrics = len(record.result.metrics)
            states[device] |= {"recorded": record.recorded, "metrics": metrics}
    return states


def _data(demo: Demo, states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": demo.name,
        "title": demo.title,
        "question": demo.question,
        "requires": demo.requires,
        "gpu": demo.gpu,
        "evidence": states,
    }


def _cells(demo: Demo, states: dict[str, dict[str, Any]], lang: str) -> tuple[str, ...]:
    """A demo's row: of each device the day of its record, or why there is none to rely on."""
    days = {
        device: each["recorded"] if each["state"] == "recorded" else each["state"]
        for device, each in states.items()
    }
    cpu = days.pop("cpu")
    gpus = [f"{name} {day}" for name, day in days.items()] or ["missing"] * bool(demo.gpu)
    count = str(states["cpu"].get("metrics", ""))
    return demo.name, escape(demo.title[lang]), count, cpu, ", ".join(gpus)

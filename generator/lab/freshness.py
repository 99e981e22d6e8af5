"""What is recorded of a demo on a device, and whether that is still its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from generator.evidence.evidence import Evidence
from runnable_demos.lab.discovery import Demo

State = Literal["missing", "broken", "stale", "recorded"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One demo that waits for a GPU, and the state of its record there."""

    demo: str
    state: State


def state(evidence: Evidence, demo: str, device: str) -> State:
    """Whether ``demo`` has a record on ``device`` that can be read, and that it has not outgrown."""
    key = (demo, device)
    if key not in evidence.records:
        return "broken" if key in evidence.broken else "missing"
    return "stale" if key in evidence.stale else "recorded"


def devices(evidence: Evidence, demo: str) -> tuple[str, ...]:
    """The devices of a demo's records, broken ones too; the CPU first, recorded there or not."""
    there = {device for name, device in evidence.records.keys() | evidence.broken if name == demo}
    return ("cpu", *sorted(there - {"cpu"}))


def gaining(demos: Mapping[str, Demo]) -> tuple[str, ...]:
    """The demos that gain from a GPU, in the order of ``demos``."""
    return tuple(name for name, demo in demos.items() if demo.gpu is not None)


def turns(demos: Mapping[str, Demo], evidence: Evidence, gpu: str) -> tuple[Turn, ...]:
    """The demos that gain from a GPU, the most valuable first, with their records on ``gpu``."""
    ordered = sorted(gaining(demos), key=lambda name: (demos[name].gpu or 0, name))
    return tuple(Turn(name, state(evidence, name, gpu)) for name in ordered)

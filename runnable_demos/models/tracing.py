"""What happens in a training step of a stack of layers, in order, and how much is alive meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from runnable_demos.lab.measure import LiveMemory
from runnable_demos.models.stacks import Step, measure_step, run_layers, run_segments

Moment = Literal["forward", "recompute", "backward"]


@dataclass(frozen=True, slots=True)
class Event:
    """Layer ``layer`` (from 1) runs, runs again or gets its gradient.

    ``live`` are the most bytes alive from then until the next event.
    """

    moment: Moment
    layer: int
    live: int


class Traced(nn.Module):
    """A layer that notes what happens to it; a second run of its forward is a recomputation."""

    def __init__(self, layer: nn.Module, note: Callable[[Moment], None]) -> None:
        super().__init__()
        self.layer = layer
        self.note = note
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        self.note("recompute" if self.runs else "forward")
        self.runs += 1
        y: Tensor = self.layer(x)
        y.register_hook(lambda _: self.note("backward"))
        return y


def trace_step(
    layers: Sequence[nn.Module], lengths: Sequence[int] | None, shape: Sequence[int], device: str
) -> tuple[Step, list[Event]]:
    """A step with segments of ``lengths``, or without checkpoints, and all that happened in it."""
    live = LiveMemory()
    log: list[tuple[Moment, int, int]] = []  # what, which layer, and the place in live's timeline

    def traced(number: int, layer: nn.Module) -> Traced:
        return Traced(layer, lambda moment: log.append((moment, number, len(live.timeline))))

    stack = [traced(number, layer) for number, layer in enumerate(layers, start=1)]

    def forward(x: Tensor) -> Tensor:
        return run_layers(stack, x) if lengths is None else run_segments(stack, lengths, x)

    step = measure_step(forward, layers, shape, device, live)
    live_bytes = [sum(now) for now in live.timeline]
    ends = [begin for _, _, begin in log[1:]] + [len(live_bytes)]
    return step, [
        Event(moment, number, max(live_bytes[begin - 1 : end]))
        for (moment, number, begin), end in zip(log, ends, strict=True)
    ]

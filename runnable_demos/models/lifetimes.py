"""When each output of a stack's layers is alive, over the actions of a training step.

An action is a layer's forward, its forward again, or the arrival of its gradient. The layers end in a
ReLU (``stacks.Layer``), which saves its output and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import storage_key
from runnable_demos.lab.mechanisms import Span
from runnable_demos.models.tracing import Event, trace_step


@dataclass(frozen=True, slots=True)
class Life:
    """``x_layer`` is alive from within action ``born`` until within action ``gone``, from 1 on."""

    layer: int
    born: int
    gone: int


class _Lives(TorchDispatchMode):
    """Follows the storages of x_0 … x_L, the outputs of ReLUs, through the actions of a step.

    A recomputation stops within its last ReLU, whose output no layer returns: it is seen here alone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.action = self.layer = 0
        self.alive: dict[int, tuple[int, int]] = {}
        self.ended: list[Life] = []

    def begin(self, layer: int) -> None:
        """The next action, at ``layer``."""
        self.action += 1
        self.layer = layer

    def follow(self, layer: int, x: Tensor) -> None:
        """Note when ``x`` dies, unless it is followed already."""
        key = storage_key(x)
        if key not in self.alive:
            self.alive[key] = (layer, self.action)
            when_freed(x, self._end, key)

    def _end(self, key: int) -> None:
        self.ended.append(Life(*self.alive.pop(key), self.action))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; within an action a ReLU's output is its layer's."""
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.relu.default and self.action:
            self.follow(self.layer, out)
        return out


class _Followed(nn.Module):
    """A layer that tells ``lives`` when it runs, and when its gradient arrives."""

    def __init__(self, number: int, layer: nn.Module, lives: _Lives) -> None:
        super().__init__()
        self.number, self.layer, self.lives = number, layer, lives

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        if not torch.is_grad_enabled():  # before the step begins
            return self.layer(x)  # type: ignore[no-any-return]
        self.lives.begin(self.number)
        if self.number == 1:
            self.lives.follow(0, x)
        y: Tensor = self.layer(x)
        y.register_hook(lambda _: self.lives.begin(self.number))
        return y


def lifetimes(
    layers: Sequence[nn.Module], lengths: Sequence[int] | None, shape: Sequence[int], device: str
) -> tuple[list[Event], list[Life]]:
    """All actions of a step with segments of ``lengths``, or without, and when each x is alive."""
    lives = _Lives()
    followed = [_Followed(number, layer, lives) for number, layer in enumerate(layers, start=1)]
    with lives:
        _, log = trace_step(followed, lengths, shape, device)
    return log, sorted(lives.ended, key=lambda life: (life.layer, life.born))


def spans(log: Sequence[Event], lives: Sequence[Life], first: int, kept: str) -> list[Span]:
    """A row of actions, ``first``, and below it a row for each x; one that waits for its backward is ``kept``.

    One that is made again is ``rebuilt``, one that the forward lets go ``dropped``.
    """
    found = []
    for moment, run in itertools.groupby(enumerate(log), key=lambda each: each[1].moment):
        actions = list(run)
        ends = [actions[at][1].layer for at in (0, -1)]
        label = "–".join(dict.fromkeys(map(str, ends)))
        found.append(Span(first, moment, actions[0][0], actions[-1][0] + 1, label))
    backward = next(at for at, event in enumerate(log, start=1) if event.moment == "backward")
    for life in lives:
        again = log[life.born - 1].moment == "recompute"
        kind = "rebuilt" if again else kept if life.gone >= backward else "dropped"
        found.append(Span(first + 1 + life.layer, kind, life.born - 1, life.gone))
    return found

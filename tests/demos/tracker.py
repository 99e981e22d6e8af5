"""Peaks by PyTorch's own memory tracker, which shares no code with the demos' meter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker


def tracked_step(
    step: Callable[[Tensor], object], layers: Sequence[nn.Module], shape: Sequence[int]
) -> int:
    """Bytes at the peak of ``step``, beside weights, gradients and the batch.

    ``step`` gets an input that is itself computed, as where a stack stands in a network.
    """
    for layer in layers:
        for p in layer.parameters():
            p.grad = torch.zeros_like(p)
    z = torch.randn(*shape, requires_grad=True)
    z.grad = torch.zeros_like(z)
    tracker = MemTracker()
    tracker.track_external(*layers, z, z.grad)
    with tracker:
        before = tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]
        step(z * 1.0)
    peak: int = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    return peak - before


def tracked_peak(
    forward: Callable[[Tensor], Tensor], layers: Sequence[nn.Module], shape: Sequence[int]
) -> int:
    """The same of a forward and backward, with a weighted sum as the loss."""
    with torch.no_grad():
        weight = torch.ones_like(forward(torch.zeros(*shape)))

    def loss(y: Tensor) -> Tensor:
        return (y * weight).sum()

    tracked = [nn.ParameterList([weight.requires_grad_(False)]), *layers]

    def step(x: Tensor) -> None:
        y = forward(x)
        del x
        total = loss(y)
        del y
        total.backward()

    return tracked_step(step, tracked, shape)


class Tracked:
    """In place of ``LiveMemory`` where a demo asks for the peak of a step: PyTorch's own tracker."""

    def __init__(self, *, model: nn.Module | None = None, inputs: Tensor | None = None) -> None:
        self._tracker = MemTracker()
        self._tracker.track_external(*(t for t in (model, inputs) if t is not None))

    def __enter__(self) -> Tracked:
        self._tracker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tracker.__exit__(*error)

    @property
    def peak(self) -> int:
        """Bytes at the peak, what is tracked from outside among them."""
        total: int = self._tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        return total

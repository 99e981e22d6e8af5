"""A stack of layers, cut into checkpointed segments, and what one training step of it needs.

Notation of the checkpointing demos: ``L`` layers; ``a`` the bytes of one layer's output;
segments of ``n_1, n_2, …`` layers, ``k`` each where they are equal. A checkpointed segment keeps
its input alone and runs its layers again when the backward reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.measure import LiveMemory, count_flops

Activation = Literal["relu", "gelu"]
Forward = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """Linear, then an activation, then dropout: ``(B, d)`` to ``(B, d)``.

    Linear saves its input. ReLU saves its output, which is the next layer's input: ``s = 1``
    tensor a layer. GELU saves its own input: ``s = 2``.
    """

    def __init__(self, width: int, activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation: Forward = F.relu if activation == "relu" else F.gelu
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, d)``."""
        y = self.activation(self.linear(x))
        return F.dropout(y, self.dropout, self.training) if self.dropout else y


class HalfLayer(nn.Module):
    """A residual stream in fp32 beside a linear layer in bf16: b/a = 1/2.

    The addition and the casts save nothing; Linear saves its input in bf16.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, d)``."""
        y: Tensor = x + self.linear(x.bfloat16()).float()
        return y


def run_layers(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Apply ``layers`` one after another; everything that they save is kept."""
    for layer in layers:
        x = layer(x)
    return x


def equal_segments(layers: int, k: int) -> tuple[int, ...]:
    """Lengths of segments of ``k`` layers; the last one is shorter where ``k`` does not divide."""
    whole, rest = divmod(layers, k)
    return (k,) * whole + ((rest,) if rest else ())


# --8<-- [start:segments]
def run_segments(
    layers: Sequence[nn.Module],
    lengths: Sequence[int],
    x: Tensor,
    *,
    keep_last: bool = False,
    preserve_rng_state: bool = False,
) -> Tensor:
    """Apply ``layers`` with a checkpoint around each segment, but the last if ``keep_last``.

    ``lengths`` add up to the number of layers. Set ``preserve_rng_state`` where they are random.
    PyTorch's default sets it always, and keeps a copy of the CPU generator's state for each
    checkpoint: 5,056 bytes, which no real network notices and which would drown these stacks.
    """
    stops = list(accumulate(lengths))
    for length, stop in zip(lengths, stops, strict=True):
        segment = partial(run_layers, layers[stop - length : stop])
        kept = keep_last and stop == stops[-1]
        again = partial(
            checkpoint, segment, use_reentrant=False, preserve_rng_state=preserve_rng_state
        )
        x = segment(x) if kept else again(x)
    return x


# --8<-- [end:segments]


@dataclass(frozen=True, slots=True)
class Step:
    """Bytes of one training step, beside parameters, their gradients, and the batch.

    ``held`` lies between the forward and the backward. ``peak`` is the most at once; of it,
    ``activations`` were computed in the forward or again, ``in_flight`` are gradients of
    activations.
    """

    held: int
    peak: int
    activations: int
    in_flight: int


def draw_input(shape: Sequence[int], device: str) -> Tensor:
    """A leaf that asks for a gradient: what lies before the stack is trained as well."""
    return torch.randn(*shape, device=device, requires_grad=True)


def measure_step(
    forward: Forward,
    layers: Sequence[nn.Module],
    shape: Sequence[int],
    device: str,
    live: LiveMemory | None = None,
) -> Step:
    """One forward and backward of ``forward`` on an input of ``shape``.

    The input is itself computed, as an inner layer's is, so that only the graph keeps it. The loss
    is a weighted sum: two scalars (8 bytes) of it are in every peak. Pass a ``live`` of your own
    to read it meanwhile.
    """
    for layer in layers:
        for p in layer.parameters():
            p.grad = torch.zeros_like(p)  # a step after the first: gradients have their place
    z = draw_input(shape, device)
    z.grad = torch.zeros_like(z)
    with torch.no_grad():
        weight = torch.ones_like(run_layers(layers, z))
    live = live or LiveMemory()
    with live:
        x = z * 1.0
        y = forward(x)
        del x
        loss = (y * weight).sum()
        del y
        held = live.current - loss.untyped_storage().nbytes()
        loss.backward()
    return Step(held, live.peak, live.at_peak["activations"], live.at_peak["other"])


def step_flops(forward: Forward, shape: Sequence[int], device: str) -> int:
    """FLOPs of one forward and backward, the input's gradient among them."""
    z = draw_input(shape, device)
    return count_flops(lambda: forward(z * 1.0).sum().backward())

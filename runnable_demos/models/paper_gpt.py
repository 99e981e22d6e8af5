"""A GPT layer as Korthikanti et al. 2022 count it: ``(s, b, h)``, 16 bits, dropout, written-out scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.lab.measure import fake, saved_tensors


@dataclass(frozen=True, slots=True)
class Shape:
    """Length ``s``, batch ``b``, width ``h``, heads ``a``."""

    s: int
    b: int
    h: int
    a: int


GPT3 = Shape(s=2048, b=1, h=12288, a=96)

Dropout = Literal["mask", "cpu", "none"]


@dataclass(frozen=True, slots=True)
class Departures:
    """What may depart from the paper: the dtype, dropout's kernel, the attention core, the mask.

    ``dropout``: ``mask`` saves booleans, as CUDA does; ``cpu`` is ``F.dropout`` on the CPU;
    ``none`` has no dropout. ``fused`` takes PyTorch's flash kernel for the attention core (without
    its dropout). ``masked_fill`` masks by a boolean tensor in place of adding −∞.
    """

    dtype: torch.dtype = torch.bfloat16
    dropout: Dropout = "mask"
    fused: bool = False
    masked_fill: bool = False


PAPER = Departures()


def drop(x: Tensor, how: Dropout) -> Tensor:
    """Dropout at 0.1, in one of three ways."""
    if how == "mask":
        return torch.native_dropout(x, 0.1, True)[0]
    return F.dropout(x, 0.1) if how == "cpu" else x


class PaperAttention(nn.Module):
    """Multi-head self-attention, ``(s, b, h)`` to ``(s, b, h)``, with its output dropout."""

    def __init__(self, shape: Shape, variant: Departures) -> None:
        super().__init__()
        self.heads, self.variant = shape.a, variant
        self.qkv = nn.Linear(shape.h, 3 * shape.h, dtype=variant.dtype)
        self.out = nn.Linear(shape.h, shape.h, dtype=variant.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The layout keeps ``b·a`` one dimension, so that Q, K and V are views of one tensor."""
        s, b, h = x.shape
        a, d = self.heads, h // self.heads
        Q, K, V = self.qkv(x).view(s, b * a, 3 * d).split(d, dim=-1)  # (s, b·a, d) each
        Q, K, V = (t.transpose(0, 1) for t in (Q, K, V))  # (b·a, s, d)
        context = self.fused(Q, K, V, b) if self.variant.fused else self.core(Q, K, V)
        merged = context.transpose(0, 1).reshape(s, b, h)  # (s, b, h)
        return drop(self.out(merged), self.variant.dropout)

    def core(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        """Scores, causal mask, softmax, dropout, product with V."""
        # --8<-- [start:core]
        s, d = Q.shape[1:]
        above = torch.ones(s, s, dtype=torch.bool, device=Q.device).triu(1)
        if self.variant.masked_fill:
            S = torch.bmm(Q, K.mT).mul(1 / math.sqrt(d)).masked_fill(above, -math.inf)
        else:
            mask = torch.zeros(s, s, dtype=Q.dtype, device=Q.device).masked_fill(above, -math.inf)
            S = torch.baddbmm(mask, Q, K.mT, alpha=1 / math.sqrt(d))  # (b·a, s, s)
        return torch.bmm(drop(torch.softmax(S, -1), self.variant.dropout), V)
        # --8<-- [end:core]

    def fused(self, Q: Tensor, K: Tensor, V: Tensor, b: int) -> Tensor:
        """PyTorch's own kernel, which wants ``(b, a, s, d)``."""
        Q, K, V = (t.unflatten(0, (b, self.heads)) for t in (Q, K, V))
        return F.scaled_dot_product_attention(Q, K, V, is_causal=True).flatten(0, 1)


class PaperMLP(nn.Module):
    """h → 4h → h with GELU, and its output dropout."""

    def __init__(self, shape: Shape, variant: Departures) -> None:
        super().__init__()
        self.variant = variant
        self.up = nn.Linear(shape.h, 4 * shape.h, dtype=variant.dtype)
        self.down = nn.Linear(4 * shape.h, shape.h, dtype=variant.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(s, b, h)`` to ``(s, b, h)``."""
        return drop(self.down(F.gelu(self.up(x))), self.variant.dropout)


class PaperBlock(nn.Module):
    """A pre-norm GPT layer."""

    def __init__(self, shape: Shape, variant: Departures) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.h, dtype=variant.dtype)
        self.attention = PaperAttention(shape, variant)
        self.norm2 = nn.LayerNorm(shape.h, dtype=variant.dtype)
        self.mlp = PaperMLP(shape, variant)

    def forward(self, x: Tensor) -> Tensor:
        """``(s, b, h)`` to ``(s, b, h)``."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


PaperPart = Callable[[Shape, Departures], nn.Module]


def paper_layer_bytes(
    shape: Shape, variant: Departures = PAPER, part: PaperPart = PaperBlock, real: str | None = None
) -> int:
    """Bytes that ``part`` saves for its backward, parameters left out.

    On fake tensors, unless ``real`` names a device. The input is itself computed, as between layers.
    """
    # --8<-- [start:layer-bytes]
    with nullcontext() if real else fake():
        with torch.device(real or "cpu"):
            module = part(shape, variant)
            leaf = torch.zeros(shape.s, shape.b, shape.h, dtype=variant.dtype, requires_grad=True)
        x = leaf * 1.0
        with saved_tensors(exclude=module.parameters()) as saved:
            module(x)
        return saved.bytes
    # --8<-- [end:layer-bytes]


def repeated(layers: int) -> PaperPart:
    """A part that is ``layers`` blocks; one set of weights serves all, as weights are not counted."""
    return lambda shape, variant: nn.Sequential(*[PaperBlock(shape, variant)] * layers)

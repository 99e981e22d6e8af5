"""A Llama-style decoder: RMSNorm, rotary positions, grouped queries, SwiGLU, no dropout, no biases.

Not a demo itself: the demos on modern blocks and on forecasts measure it.
Its sizes are those of Llama 2; ``Variant`` chooses how attention, gate and norm are executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.measure import fake, saved_tensors


@dataclass(frozen=True, slots=True)
class Size:
    """Width ``h``, SwiGLU's width ``f``, layers ``L``, heads ``a``, key-value heads ``g``, vocabulary ``V``."""

    h: int
    f: int
    L: int
    a: int
    g: int
    V: int = 32000


LLAMA_7B = Size(h=4096, f=11008, L=32, a=32, g=32)
LLAMA_13B = Size(h=5120, f=13824, L=40, a=40, g=40)
LLAMA_70B = Size(h=8192, f=28672, L=80, a=64, g=8)


Norm = Literal["eager", "functional", "fused"]


@dataclass(frozen=True, slots=True)
class Variant:
    """How a block is executed; what it computes is the same.

    ``attention``: ``flash`` is PyTorch's fused kernel, ``math`` makes the N×N matrices.
    ``gate``: ``composed`` is ``silu(x) * y``, ``fused`` recomputes ``silu(x)`` in the backward.
    ``norm``: ``fused`` is written by hand and saves its input and 1/rms, as one GPU kernel does;
    ``functional`` is ``F.rms_norm``, which the CPU composes step by step in fp32; ``eager`` is the
    module of Hugging Face's Llama, step by step in fp32, rounded before the weight.
    """

    attention: Literal["flash", "math"] = "flash"
    gate: Literal["composed", "fused"] = "composed"
    norm: Norm = "fused"
    dtype: torch.dtype = torch.bfloat16


DEFAULT = Variant()


class FusedRMSNorm(torch.autograd.Function):
    """``x / rms(x) · w``; saves ``x`` and 1/rms, a number a row in fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, eps: float) -> Tensor:
        """``(…, h)`` to ``(…, h)``."""
        r = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return (x * r).to(x.dtype) * w

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        """With n = x r: dx = r (dn − n · mean(n ∘ dn)), dw = Σ dy ∘ n."""
        x, w, r = ctx.saved_tensors
        n = x * r
        dn = dy * w
        dx = r * (dn - n * (n * dn).mean(-1, keepdim=True))
        dw = (dy * n).flatten(0, -2).sum(0)
        return dx.to(x.dtype), dw.to(w.dtype), None


class FusedGate(torch.autograd.Function):
    """``silu(x) ∘ y``; saves ``x`` and ``y`` and recomputes the rest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        """Two tensors of one shape to a third."""
        ctx.save_for_backward(x, y)
        return F.silu(x) * y

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
        """The derivative of silu(x) is σ(x) (1 + x (1 − σ(x)))."""
        x, y = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dz * y * s * (1 + x * (1 - s)), dz * x * s


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension."""

    def __init__(self, h: int, variant: Variant) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(h, dtype=variant.dtype))
        self.how, self.eps = variant.norm, 1e-5

    def forward(self, x: Tensor) -> Tensor:
        """``(…, h)`` to ``(…, h)``."""
        # --8<-- [start:norm]
        if self.how == "fused":
            norm = cast(Callable[..., Tensor], FusedRMSNorm.apply)
            return norm(x, self.weight, self.eps)
        if self.how == "functional":
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)
        # --8<-- [end:norm]


def rotary(s: int, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``(s, 1, d)`` for positions 0 to s − 1, base 10,000."""
    frequency = 10000.0 ** (-torch.arange(0, d, 2) / d)
    angle = torch.outer(torch.arange(s), frequency).repeat(1, 2)[:, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of features of ``x``, ``(b, s, heads, d)``, by their position's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention with ``a`` query heads that share ``g`` key-value heads."""

    def __init__(self, size: Size, variant: Variant) -> None:
        super().__init__()
        self.size, self.math = size, variant.attention == "math"
        d = size.h // size.a
        linear = partial(nn.Linear, bias=False, dtype=variant.dtype)
        self.q, self.k = linear(size.h, size.h), linear(size.h, size.g * d)
        self.v, self.o = linear(size.h, size.g * d), linear(size.h, size.h)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``(b, s, h)`` to ``(b, s, h)``."""
        b, s, h = x.shape
        a, g = self.size.a, self.size.g
        Q = rotate(self.q(x).view(b, s, a, -1), cos, sin)
        K = rotate(self.k(x).view(b, s, g, -1), cos, sin)
        V = self.v(x).view(b, s, g, -1)
        Q, K, V = (t.transpose(1, 2) for t in (Q, K, V))  # (b, heads, s, d)
        if self.math:
            O = self.composed(Q, K, V)
        else:
            O = F.scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True)
        y: Tensor = self.o(O.transpose(1, 2).reshape(b, s, h))
        return y

    def composed(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        """Scores, causal mask, softmax, product: with every key-value head copied for its queries."""
        a, g = self.size.a, self.size.g
        if g < a:
            K, V = K.repeat_interleave(a // g, dim=1), V.repeat_interleave(a // g, dim=1)
        s, d = Q.shape[-2:]
        above = torch.ones(s, s, dtype=torch.bool, device=Q.device).triu(1)
        mask = torch.zeros(s, s, dtype=Q.dtype, device=Q.device).masked_fill(above, -math.inf)
        return torch.softmax((Q / math.sqrt(d)) @ K.mT + mask, dim=-1) @ V


class SwiGLU(nn.Module):
    """``down(silu(gate(x)) ∘ up(x))`` through a width of ``f``."""

    def __init__(self, size: Size, variant: Variant) -> None:
        super().__init__()
        self.fused = variant.gate == "fused"
        linear = partial(nn.Linear, bias=False, dtype=variant.dtype)
        self.gate, self.up = linear(size.h, size.f), linear(size.h, size.f)
        self.down = linear(size.f, size.h)

    def forward(self, x: Tensor) -> Tensor:
        """``(b, s, h)`` to ``(b, s, h)``."""
        gate, up = self.gate(x), self.up(x)
        fused = cast(Callable[..., Tensor], FusedGate.apply)
        y: Tensor = self.down(fused(gate, up) if self.fused else F.silu(gate) * up)
        return y


class LlamaBlock(nn.Module):
    """One pre-norm layer."""

    def __init__(self, size: Size, variant: Variant) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(size.h, variant), RMSNorm(size.h, variant)
        self.attention = Attention(size, variant)
        self.mlp = SwiGLU(size, variant)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``(b, s, h)`` to ``(b, s, h)``."""
        x = x + self.attention(self.norm1(x), cos, sin)
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Llama(nn.Module):
    """Embedding, ``L`` blocks, norm, output layer and cross-entropy in fp32."""

    def __init__(self, size: Size, variant: Variant = DEFAULT, checkpointed: bool = False) -> None:
        super().__init__()
        self.size, self.dtype, self.checkpointed = size, variant.dtype, checkpointed
        self.embedding = nn.Embedding(size.V, size.h, dtype=variant.dtype)
        self.blocks = nn.ModuleList(LlamaBlock(size, variant) for _ in range(size.L))
        self.norm = RMSNorm(size.h, variant)
        self.head = nn.Linear(size.h, size.V, bias=False, dtype=variant.dtype)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of ``(b, s)`` tokens against ``(b, s)`` targets."""
        cos, sin = rotary(tokens.shape[1], self.size.h // self.size.a, self.dtype)
        cos, sin = cos.to(tokens.device), sin.to(tokens.device)
        x = self.embedding(tokens)
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, cos, sin, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, cos, sin)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


LlamaPart = Callable[[Size, Variant], nn.Module]


def llama_layer_bytes(
    size: Size,
    b: int,
    s: int,
    variant: Variant = DEFAULT,
    part: LlamaPart = LlamaBlock,
    real: str | None = None,
) -> int:
    """Bytes that ``part`` saves for its backward; parameters and rotary tables are left out.

    On fake tensors, unless ``real`` names a device. The input is itself computed, as between layers.
    """
    with nullcontext() if real else fake():
        with torch.device(real or "cpu"):
            module = part(size, variant)
            leaf = torch.zeros(b, s, size.h, dtype=variant.dtype, requires_grad=True)
            tables = rotary(s, size.h // size.a, variant.dtype)
        x = leaf * 1.0
        arguments: tuple[Tensor, ...] = (x, *tables) if part in (LlamaBlock, Attention) else (x,)
        with saved_tensors(exclude=[*module.parameters(), *tables]) as saved:
            module(*arguments)
        return saved.bytes

"""A pre-norm Transformer block, and a small GPT of such blocks.

Notation: ``B`` sequences of ``N`` tokens, width ``h``, ``a`` heads, vocabulary ``V``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Pre-norm attention and a GELU MLP of 4h: ``(B, N, h)`` to ``(B, N, h)``, with ``a`` heads.

    ``dropout`` falls on what attention and the MLP give. PyTorch's fused kernel computes attention,
    so that nothing of N × N is kept.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias)
        self.proj = nn.Linear(width, width, bias)
        self.up = nn.Linear(width, 4 * width, bias)
        self.down = nn.Linear(4 * width, width, bias)
        self.dropout = nn.Dropout(dropout)

    def attend(self, qkv: Tensor) -> Tensor:
        """The attention core: ``(B, N, 3h)`` to ``(B, N, h)``."""
        B, N, _ = qkv.shape
        q, k, v = qkv.view(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)  # (B, a, N, h/a)
        return context.transpose(1, 2).reshape(B, N, -1)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, h)`` to ``(B, N, h)``."""
        x = x + self.dropout(self.proj(self.attend(self.qkv(self.norm1(x)))))
        y: Tensor = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return y


@dataclass(frozen=True, slots=True)
class GPTSize:
    """Layers, width ``h``, heads ``a`` and vocabulary ``V`` of a GPT."""

    layers: int
    width: int
    heads: int
    vocabulary: int


class GPT(nn.Module):
    """Tokens ``(B, N)`` to logits ``(B, N, V)``, through causal blocks."""

    def __init__(self, size: GPTSize) -> None:
        super().__init__()
        self.embed = nn.Embedding(size.vocabulary, size.width)
        blocks = (Block(size.width, size.heads, causal=True) for _ in range(size.layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token."""
        logits: Tensor = self.head(self.norm(self.blocks(self.embed(tokens))))
        return logits


def build(size: GPTSize, device: str) -> GPT:
    """The model on a device, with random fp32 weights."""
    with torch.device(device):
        return GPT(size)


def make_tokens(vocabulary: int, batch: int, length: int, device: str) -> Tensor:
    """A batch ``(B, N + 1)`` of random tokens: each is to predict the next."""
    return torch.randint(vocabulary, (batch, length + 1), device=device)

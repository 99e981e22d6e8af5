"""Tensor parallelism's moves: rows are gathered for a matrix and summed behind one, each way and back."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

Group = dist.ProcessGroup


def gather(part: Tensor, group: Group | None = None, dim: int = 0) -> Tensor:
    """What all ranks of ``group``, or simply all, hold of a tensor, side by side along ``dim``.

    Nothing is sent where there is one rank alone.
    """
    n = dist.get_world_size(group)
    if n == 1:
        return part
    whole = part.new_empty(part.shape[0] * n, *part.shape[1:])
    dist.all_gather_single(whole, part.contiguous(), group=group)
    return torch.cat(whole.chunk(n), dim) if dim else whole


def scatter(summand: Tensor, group: Group | None = None, dim: int = 0) -> Tensor:
    """Of the sum of all ranks' tensors, this rank's part along ``dim``."""
    n = dist.get_world_size(group)
    if n == 1:
        return summand
    rows = torch.cat(summand.chunk(n, dim)) if dim else summand.contiguous()
    part = rows.new_empty(rows.shape[0] // n, *rows.shape[1:])
    dist.reduce_scatter_single(part, rows, group=group)
    return part


class GatherLinear(torch.autograd.Function):
    """g and the matrix behind it: all-gather, then ``Y Wᵀ``; reduce-scatter in the backward.

    It keeps this rank's rows of Y alone and gathers the others again in the backward.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, group: Group) -> Tensor:
        """``(s/t, b, h)`` and ``(k, h)`` to ``(s, b, k)``."""
        ctx.save_for_backward(y, weight)
        ctx.group = group
        return F.linear(gather(y, group), weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of this rank's rows, and of its columns of the weight."""
        y, weight = ctx.saved_tensors
        grad = grads[0]
        rows = gather(y, ctx.group).flatten(0, -2)
        return scatter(grad @ weight, ctx.group), grad.flatten(0, -2).mT @ rows, None


class Scatter(torch.autograd.Function):
    """ḡ: reduce-scatter in the forward, all-gather in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """``(s, b, h)``, a summand on each rank, to this rank's rows of the sum."""
        ctx.group = group
        return scatter(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """All rows of the gradient."""
        return gather(grads[0], ctx.group), None

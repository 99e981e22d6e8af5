"""A Llama-like network that a plan divides among real ranks, with ZeRO-1 over all replicas.

Tensor parallelism has sequence parallelism, context parallelism gathers keys, experts exchange tokens.
There is no dropout, and no embedding: a stage of a pipeline is layers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.models.plans import Job, Plan
from runnable_demos.models.split import GatherLinear, Group, Scatter, gather, scatter

# --- who is where --------------------------------------------------------------------------------


def place(plan: Plan, rank: int) -> dict[str, int]:
    """A rank's coordinates: TP runs fastest, then CP, DP and PP; EP divides the ranks of DP."""
    inner = plan.tp * plan.cp
    return {
        "tp": rank % plan.tp,
        "cp": rank // plan.tp % plan.cp,
        "dp": rank // inner % plan.dp,
        "ep": rank // inner % plan.ep,
        "pp": rank // (inner * plan.dp),
    }


SHARED = {
    "tp": ("cp", "dp", "pp"),
    "cp": ("tp", "dp", "pp"),
    "pp": ("tp", "cp", "dp"),
    "dp": ("tp", "pp"),  # all replicas of the dense weights, those of CP too
    "edp": ("tp", "pp", "ep"),
}
"""The ranks of a group agree in these coordinates; those of EP lie side by side."""


def members(plan: Plan, axis: str, ranks_: int) -> list[tuple[int, ...]]:
    """All groups of an axis."""
    if axis == "ep":
        return [tuple(range(i, i + plan.ep)) for i in range(0, ranks_, plan.ep)]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(ranks_):
        found.setdefault(tuple(place(plan, rank)[k] for k in SHARED[axis]), []).append(rank)
    return [tuple(group) for group in found.values()]


# --- layers that talk ----------------------------------------------------------------------------


def exchange(x: Tensor, group: Group) -> Tensor:
    """All-to-all: the n-th part of ``x`` to rank n, and one from each in return."""
    if group.size() == 1:
        return x
    x = x.contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    return out


class Exchange(torch.autograd.Function):
    """All-to-all over EP, both ways; reduce-scatter over TP is ``split.Scatter``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """Tokens to the rank of their expert, or back."""
        ctx.group = group
        return exchange(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients go the other way."""
        return exchange(grads[0], ctx.group), None


class Norm(torch.autograd.Function):
    """RMSNorm that keeps its input and one number a token, as a fused kernel does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """``(s, b, h)`` to the same."""
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """By the normalised input."""
        x, weight, r = ctx.saved_tensors
        n, g = x * r, grads[0] * weight
        return r * (g - n * (g * n).mean(-1, keepdim=True)), (grads[0] * n).flatten(0, -2).sum(0)


class Attend(torch.autograd.Function):
    """Causal attention of this rank's queries over all keys, which are gathered over CP each time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, group: Group) -> Tensor:
        """``q`` is ``(s/c, b, g, a/g, d)``, ``kv`` ``(s/c, b, g, 2, d)``."""
        ctx.save_for_backward(q, kv)
        ctx.group = group
        return Attend.core(q, gather(kv, group), group)

    @staticmethod
    def core(q: Tensor, kv: Tensor, group: Group) -> Tensor:
        """Softmax over the keys up to each query's own position."""
        first = group.rank() * q.shape[0]
        k, v = kv.unbind(-2)
        scores = torch.einsum("sbgqd,tbgd->bgqst", q, k) * q.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(first + 1)
        P = scores.masked_fill(later.to(q.device), -torch.inf).softmax(-1)
        return torch.einsum("bgqst,tbgd->sbgqd", P, v)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Keys are gathered again; their gradients are summed over CP."""
        q, kv = ctx.saved_tensors
        with torch.enable_grad():
            mine = q.detach().requires_grad_()
            whole = gather(kv, ctx.group).detach().requires_grad_()
            out = Attend.core(mine, whole, ctx.group)
        dq, dkv = torch.autograd.grad(out, (mine, whole), grads[0])
        return dq, scatter(dkv, ctx.group), None


# --- the parts -----------------------------------------------------------------------------------


def weights(seed: int, job: Job, j: int) -> dict[str, Tensor]:
    """The j-th layer, the same on every rank: rows of qkv and of up are ordered so that parts are whole."""
    random = torch.Generator().manual_seed(1000 * seed + j)
    h, rows, experts = job.width, (job.heads + 2 * job.keys) * job.depth, (job.experts,)
    stack = experts if job.experts else ()
    shapes = {
        "norms": (2, h),
        "qkv": (rows, h),
        "out": (h, job.heads * job.depth),
        "up": (*stack, 2 * job.inner, h),
        "down": (*stack, h, job.inner),
    }
    return {name: torch.randn(shape, generator=random) * 0.2 for name, shape in shapes.items()}


def cut(name: str, whole: Tensor, plan: Plan, at: Mapping[str, int]) -> Tensor:
    """A rank's part of a weight, or of its gradient."""
    if name == "norms":
        return whole
    if whole.dim() == 3:
        return whole.chunk(plan.ep)[at["ep"]]
    return whole.chunk(plan.tp, 1 if name in ("out", "down") else 0)[at["tp"]]


class Shared:
    """Parameters with one group of replicas: flat, with gradients beside, and Adam on one slice."""

    def __init__(self, parts: Sequence[Tensor], group: Group) -> None:
        self.group = group
        self.flat = torch.cat([p.flatten() for p in parts])
        self.grad = torch.zeros_like(self.flat)
        sizes = [p.numel() for p in parts]
        self.parameters = []
        for p, w, g in zip(parts, self.flat.split(sizes), self.grad.split(sizes), strict=True):
            parameter_ = w.view_as(p).requires_grad_()
            parameter_.grad = g.view_as(p)
            self.parameters.append(parameter_)
        self.shard = self.mine(self.flat).requires_grad_()
        self.optimizer = torch.optim.Adam([self.shard], foreach=False)

    def mine(self, flat: Tensor) -> Tensor:
        """The slice of this rank."""
        return flat.detach().chunk(self.group.size())[self.group.rank()]

    def step(self) -> None:
        """ZeRO-1: reduce-scatter the gradients, update a slice, all-gather the weights."""
        self.mine(self.grad).copy_(scatter(self.grad, self.group))
        self.shard.grad = self.mine(self.grad)
        self.optimizer.step()
        self.flat.detach().copy_(gather(self.shard.detach().clone(), self.group))


class Part:
    """What one rank has of the model: the layers of its stage, cut by TP and EP."""

    def __init__(
        self, seed: int, job: Job, plan: Plan, groups: Mapping[str, Group], rank: int
    ) -> None:
        self.job, self.plan, self.groups, self.at = job, plan, groups, place(plan, rank)
        depth = job.layers // plan.pp
        self.range = range(self.at["pp"] * depth, (self.at["pp"] + 1) * depth)
        wholes = [weights(seed, job, j) for j in self.range]
        parts = [{n: cut(n, w, plan, self.at).clone() for n, w in each.items()} for each in wholes]
        self.names = [(j, n) for j, each in enumerate(parts) for n in each]
        sparse = [(j, n) for j, n in self.names if parts[j][n].dim() == 3]
        self.order = [[key for key in self.names if key not in sparse], sparse]
        self.shared = [
            Shared([parts[j][n] for j, n in keys], groups[axis])
            for keys, axis in zip(self.order, ("dp", "edp"), strict=True)
            if keys
        ]
        self.layers: list[dict[str, Tensor]] = [{} for _ in parts]
        for keys, shared in zip(self.order, self.shared, strict=False):
            for (j, n), parameter_ in zip(keys, shared.parameters, strict=True):
                self.layers[j][n] = parameter_

    def forward(self, x: Tensor) -> Tensor:
        """Rows of this rank, ``(s/(c·t), 1, h)``, through its layers."""
        job, tp, d = self.job, self.groups["tp"], self.job.depth
        for w in self.layers:
            y = Norm.apply(x, w["norms"][0])  # type: ignore[no-untyped-call]
            qkv = GatherLinear.apply(y, w["qkv"], tp)  # type: ignore[no-untyped-call]
            heads = qkv.view(*qkv.shape[:2], -1, job.heads // job.keys + 2, d)
            q, kv = heads[..., :-2, :], heads[..., -2:, :]
            o = Attend.apply(q, kv, self.groups["cp"]).flatten(2)  # type: ignore[no-untyped-call]
            x = x + Scatter.apply(F.linear(o, w["out"]), tp)  # type: ignore[no-untyped-call]
            y = Norm.apply(x, w["norms"][1])  # type: ignore[no-untyped-call]
            x = x + (self.experts(y, w) if job.experts else self.mlp(y, w))
        return x

    def mlp(self, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """SwiGLU, by columns and then by rows; gate and up lie side by side."""
        both = GatherLinear.apply(y, w["up"], self.groups["tp"])  # type: ignore[no-untyped-call]
        gate, up = both.unflatten(-1, (-1, 2)).unbind(-1)
        out = F.linear(F.silu(gate) * up, w["down"])
        return Scatter.apply(out, self.groups["tp"])  # type: ignore[no-untyped-call,no-any-return]

    def experts(self, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """Token i goes to expert i mod E, so that all have as many; there and back by all-to-all."""
        e, ep, group = self.job.experts, self.plan.ep, self.groups["ep"]
        tokens = y.view(-1, e, y.shape[-1]).transpose(0, 1).contiguous()  # (E, s/E, h)
        came = Exchange.apply(tokens, group)  # type: ignore[no-untyped-call]
        mine = came.unflatten(0, (ep, -1)).transpose(0, 1).flatten(1, 2)  # (E/ep, ep·s/E, h)
        gate, up = torch.bmm(mine, w["up"].mT).unflatten(-1, (-1, 2)).unbind(-1)
        out = torch.bmm(F.silu(gate) * up, w["down"].mT)
        back = out.unflatten(1, (ep, -1)).transpose(0, 1).flatten(0, 1)
        home = Exchange.apply(back, group)  # type: ignore[no-untyped-call]
        return home.transpose(0, 1).reshape(y.shape)  # type: ignore[no-any-return]

    def reduce_norms(self) -> None:
        """Under TP with sequence parallelism each rank has the norms' gradients by its own rows."""
        if self.plan.tp > 1:
            for w in self.layers:
                dist.all_reduce(w["norms"].grad, group=self.groups["tp"])

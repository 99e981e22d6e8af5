"""The ZeRO stages as PyTorch has them: what wraps a model, and which optimizer goes with it.

    stage 0   DistributedDataParallel, Adam
    stage 1   DistributedDataParallel, ZeroRedundancyOptimizer over Adam
    stage 2   fully_shard(reshard_after_forward=False), Adam
    stage 3   fully_shard(reshard_after_forward=True), Adam

``fully_shard`` (FSDP2) shards every state by rows and gathers one unit at a time for its use; a unit
here is one child of the model. What the stages differ in is how long the gathered weights stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam, Optimizer


def stack(layers: int, width: int, device: str) -> nn.Sequential:
    """``layers`` equal matrices without biases, Ψ = layers · width² parameters in fp32."""
    return nn.Sequential(
        *(nn.Linear(width, width, bias=False, device=device) for _ in range(layers))
    )


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A wrapped model with its optimizer."""

    module: nn.Module
    optimizer: Optimizer

    @property
    def parameters(self) -> list[Tensor]:
        """What the optimizer updates; not ``module.parameters()``, which may be gathered ones."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def states(self) -> list[Any]:
        """What the optimizer keeps on this rank."""
        inner = getattr(self.optimizer, "optim", self.optimizer)
        return list(inner.state.values())

    def step(self, batch: Tensor) -> None:
        """One step of training on this rank's part of the batch."""
        self.module(batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


# --8<-- [start:stages]
def ddp(model: nn.Module, *, views: bool = True) -> Wrapped:
    """Stage 0. With ``views`` the gradients live in the buckets that are reduced."""
    module = DistributedDataParallel(model, gradient_as_bucket_view=views)
    return Wrapped(module, Adam(module.parameters(), foreach=False))


def ddp_zero1(model: nn.Module) -> Wrapped:
    """Stage 1: each rank updates the parameters that it is given, and broadcasts them."""
    module = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Wrapped(module, ZeroRedundancyOptimizer(module.parameters(), Adam, foreach=False))


def fsdp(model: nn.Module, *, reshard: bool = True, **options: Any) -> Wrapped:
    """Stages 2 and 3: every child is a unit, the rest belongs to the root."""
    for unit in model.children():
        fully_shard(unit, reshard_after_forward=reshard, **options)
    fully_shard(model, reshard_after_forward=reshard, **options)
    return Wrapped(model, Adam(model.parameters(), foreach=False))


# --8<-- [end:stages]


STAGES: tuple[Callable[[nn.Module], Wrapped], ...] = (
    ddp,
    ddp_zero1,
    partial(fsdp, reshard=False),
    partial(fsdp, reshard=True),
)


def whole(parameter: Tensor) -> Tensor:
    """A parameter's full value on every rank, sharded or not."""
    gather = getattr(parameter, "full_tensor", None)
    value: Tensor = gather() if gather is not None else parameter
    return value.detach()


def flat(trainer: Wrapped) -> Tensor:
    """All weights of a trainer in one vector, the same on each rank."""
    return torch.cat([whole(p).flatten() for p in trainer.parameters])

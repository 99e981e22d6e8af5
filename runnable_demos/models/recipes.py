"""A small GPT trained by Adam, by the recipe of mixed precision, and what a step of it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab.measure import CATEGORIES, Category, LiveMemory, storage_bytes
from runnable_demos.models.gpt import GPTSize, build


@dataclass(frozen=True)
class Recipe:
    """In which precision weights, gradients and the optimizer's own copy are held."""

    name: str
    weights: torch.dtype = torch.float32
    autocast: bool = False
    master: bool = False
    fp32_gradients: Literal["no", "instead", "too"] = "no"


BF16 = torch.bfloat16
RECIPES = (
    Recipe("fp32"),
    Recipe("amp", autocast=True),
    Recipe("bf16", BF16),
    Recipe("bf16_master", BF16, master=True),
    Recipe("bf16_master_fp32_grads", BF16, master=True, fp32_gradients="instead"),
    Recipe("bf16_master_both_grads", BF16, master=True, fp32_gradients="too"),
)


class Trainer:
    """A GPT and Adam, by one recipe; ``backward`` and ``update`` are the halves of a step."""

    def __init__(self, size: GPTSize, recipe: Recipe, device: str) -> None:
        self.recipe = recipe
        self.device = device
        self.model = build(size, device)
        self.weights: list[Tensor] = list(self.model.parameters())
        for w in self.weights:  # ``Module.to`` would swap tensors, which fake ones refuse
            w.data = w.data.to(recipe.weights)
        self.masters = [w.detach().float() for w in self.weights] if recipe.master else []
        stepped = self.masters or self.weights
        # With 16-bit gradients alone the update goes tensor by tensor, as a fused kernel would.
        one_by_one = recipe.master and recipe.fp32_gradients == "no"
        groups = [[p] for p in stepped] if one_by_one else [stepped]
        self.optimizers = [torch.optim.Adam(group, foreach=True) for group in groups]
        if recipe.fp32_gradients == "instead":
            for w, m in zip(self.weights, self.masters, strict=True):
                w.register_post_accumulate_grad_hook(lambda w, m=m: move_gradient(w, m))

    def backward(self, tokens: Tensor) -> None:
        """Forward and backward; afterwards every gradient is there, in the form that is kept."""
        kind = torch.device(self.device).type
        with torch.autocast(kind, BF16, enabled=self.recipe.autocast):
            logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        if self.recipe.fp32_gradients == "too":
            for w, m in zip(self.weights, self.masters, strict=True):
                m.grad = gradient(w).float()

    def update(self) -> None:
        """Step, and set the gradients to None."""
        # --8<-- [start:update]
        if len(self.optimizers) > 1:
            for w, m, optimizer in zip(self.weights, self.masters, self.optimizers, strict=True):
                m.grad = gradient(w).float()
                optimizer.step()
                m.grad = None
        else:
            self.optimizers[0].step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        for p in (*self.weights, *self.masters):
            p.grad = None
        # --8<-- [end:update]

    def gradients(self) -> list[Tensor]:
        """Every gradient that is held."""
        return [p.grad for p in (*self.weights, *self.masters) if p.grad is not None]

    def moments(self) -> list[object]:
        """Adam's state: m, v and a step counter a tensor."""
        return [optimizer.state for optimizer in self.optimizers]


def gradient(weight: Tensor) -> Tensor:
    """The gradient that a backward has left."""
    assert weight.grad is not None
    return weight.grad


def move_gradient(weight: Tensor, master: Tensor) -> None:
    """Add the 16-bit gradient to the fp32 one and drop it, as soon as it is there."""
    arrived = gradient(weight).float()
    master.grad = arrived if master.grad is None else master.grad + arrived
    weight.grad = None


@dataclass(frozen=True)
class Breakdown:
    """One step: bytes of each part once all gradients are there, and the peak by category."""

    parameters: int
    held: Mapping[str, int]
    peak: int
    at_peak: Mapping[Category, int]
    timeline: list[dict[Category, int]]
    update_peak: int
    """The most bytes alive during the update alone."""


def breakdown(trainer: Trainer, tokens: Tensor) -> Breakdown:
    """Measure the second step of a new trainer: Adam's state appears in the first."""
    trainer.backward(tokens)
    trainer.update()
    # --8<-- [start:held]
    with LiveMemory(model=trainer.model, inputs=tokens) as live:
        live.register("optimizer", [trainer.masters, trainer.moments()])
        start = len(live.timeline)
        trainer.backward(tokens)
        live.register("gradients", trainer.gradients())
        held = {
            "weights": storage_bytes(trainer.weights),
            "gradients": storage_bytes(trainer.gradients()),
            "master": storage_bytes(trainer.masters),
            "moments": storage_bytes(trainer.moments()),
        }
        # --8<-- [end:held]
        live.reset_peak()
        trainer.update()
    numbers = sum(w.numel() for w in trainer.weights)
    timeline = [by_category(row) for row in live.timeline[start:]]
    peak = max(timeline, key=lambda row: sum(row.values()))
    return Breakdown(numbers, held, sum(peak.values()), peak, timeline, live.peak)


def by_category(row: tuple[int, ...]) -> dict[Category, int]:
    """One row of a timeline by name; the batch is too small for a category of its own."""
    named = dict(zip(CATEGORIES, row, strict=True))
    named["other"] += named.pop("inputs")
    return named

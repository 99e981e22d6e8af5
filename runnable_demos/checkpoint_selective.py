"""Within one transformer block, what should be kept and what computed again?

The lesson is ``lessons/checkpoint_selective.en.md`` (中文: ``lessons/checkpoint_selective.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory, count_flops
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import Block

TITLE: Text = {"zh": "选择性重算", "en": "Selective recompute"}
QUESTION: Text = {
    "zh": "一个 Transformer 块里，哪些张量值得留，哪些应该重算？",
    "en": "Within a transformer block, which tensors are worth keeping and which should be computed again?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "前向之后、反向之前仍然存活的字节，含块的输入",
  "bytes alive between forward and backward, the block's input among them",
]
[method.metrics]
held_all = ["B/token", "不设检查点，每个 token 持有", "held a token without a checkpoint"]
held_full = ["B/token", "整块重算，每个 token 持有", "held a token with full recompute"]
held_core = ["B/token", "只重算注意力核心，每个 token 持有", "held a token, attention core recomputed"]
held_products = [
  "B/token",
  "只留前五个矩阵乘的输出，每个 token 持有",
  "held a token with the outputs of all products but down",
]
held_no_scores = ["B/token", "再放弃分数，每个 token 持有", "held a token when the scores are given up, too"]
core_share_of_bytes = ["", "注意力核心占全部持有字节", "share of all held bytes that is the attention core's"]

[[method]]
kind = "exact"
how = ["FlopCounterMode 计数", "counted by FlopCounterMode"]
[method.metrics]
repeated_full = ["", "整块重算占一步的 FLOPs", "full recompute over a step's FLOPs"]
repeated_core = ["", "只重算注意力核心占一步的 FLOPs", "recompute of the attention core over a step's FLOPs"]
repeated_products = [
  "",
  "只留前五个矩阵乘的输出时重复的 FLOPs",
  "FLOPs repeated when the outputs of all products but down are kept",
]
repeated_no_scores = ["", "只重算分数占一步的 FLOPs", "recompute of the scores over a step's FLOPs"]
price_scores = ["", "放弃一字节分数要重复的 FLOPs", "FLOPs repeated for a byte of scores given up"]
price_up = ["", "放弃一字节 up 输出要重复的 FLOPs", "FLOPs repeated for a byte of up's output given up"]
price_ratio = ["", "两者之比", "the second over the first"]
last_product_saves_nothing = [
  "",
  "留不留 down 的输出，重复的 FLOPs 都一样",
  "as many FLOPs are repeated with the output of down kept as without it",
]

[[method]]
kind = "computed"
how = ["六个矩阵乘的全部子集", "all subsets of the six products"]
[method.metrics]
plans_measured = ["", "实测的保留集合数", "sets of kept outputs that were measured"]

[[method]]
kind = "exact"
how = ["逐对比较", "compared pair by pair"]
[method.metrics]
plans_on_frontier = ["", "帕累托前沿上的集合数", "of which on the Pareto frontier"]

[figure.frontier]
title = ["留下的字节与重复的 FLOPs", "Bytes kept against FLOPs repeated"]
x = {label = ["每个 token 持有的字节", "bytes held a token"], unit = "B/token"}
y = {label = ["重复的 FLOPs / 一步", "FLOPs repeated / step"]}
[figure.frontier.series]
pareto = ["theory", "帕累托前沿", "Pareto frontier"]
subsets = ["measured", "六个矩阵乘的子集", "subsets of the six products"]
core = ["measured", "只重算注意力核心", "attention core alone"]
none = ["measured", "不设检查点", "no checkpoint"]

[figure.choices]
title = ["留哪些、重做哪些：按字节与按 FLOPs", "What is kept, what runs again: by bytes and by FLOPs"]
x = {label = ["占整条的份额", "share of the strip"]}
y = {label = ["留下的输出", "outputs kept"]}
[figure.choices.series]
kept = ["bar", "留下", "kept"]
again = ["bar", "放弃，重做", "given up, run again"]
[figure.choices.places]
bytes = ["按字节", "by bytes"]
flops = ["按 FLOPs", "by FLOPs"]
all = ["全部", "all"]
no_scores = ["S 以外", "all but S"]
context = ["只有 C", "only C"]
nothing = ["都不留", "none"]
"""


@dataclass(frozen=True)
class Config:
    """One sequence through one block."""

    tokens: int = parameter(512, {"zh": "序列长度 s", "en": "sequence length s"}, 8, 8192)
    width: int = parameter(256, {"zh": "隐藏宽度 h", "en": "hidden width h"}, 8, 8192)
    heads: int = parameter(8, {"zh": "头数 a", "en": "heads a"}, 1, 128)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(tokens=64, width=32, heads=4), "full": Config()}

PRODUCTS = ("qkv", "scores", "context", "proj", "up", "down")
"""The block's matrix products, in the order in which it calls them."""

aten = torch.ops.aten


class ScoresBlock(Block):
    """A block without biases for one sequence, ``(s, h)``, whose attention writes its scores out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, bias=False)
        self.recompute_core = False

    def attend(self, qkv: Tensor) -> Tensor:
        """The attention core, checkpointed by itself or not: ``(s, 3h)`` to ``(s, h)``."""
        if not self.recompute_core:
            return self.core(qkv)
        y: Tensor = checkpoint(self.core, qkv, use_reentrant=False, preserve_rng_state=False)
        return y

    def core(self, qkv: Tensor) -> Tensor:
        """Two matrix products with ``(a, s, s)`` scores and a softmax between them."""
        s, width = qkv.shape[0], qkv.shape[1] // 3
        # --8<-- [start:attention]
        q, k, v = qkv.view(s, 3, self.heads, width // self.heads).permute(1, 2, 0, 3)
        scores = torch.bmm(q * (width // self.heads) ** -0.5, k.transpose(1, 2))
        context = torch.bmm(scores.softmax(dim=-1), v)
        return context.transpose(0, 1).reshape(s, width)
        # --8<-- [end:attention]


class Keep:
    """A selective policy: keep the outputs of some of the block's products, recompute all else."""

    def __init__(self, kept: frozenset[str]) -> None:
        self.kept = kept
        self.calls = {False: 0, True: 0}

    def __call__(self, context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        """Count the products as they come, in the forward and again in the recomputation."""
        # --8<-- [start:policy]
        if op not in (aten.mm.default, aten.bmm.default):
            return CheckpointPolicy.PREFER_RECOMPUTE
        name = PRODUCTS[self.calls[context.is_recompute]]
        self.calls[context.is_recompute] += 1
        return (
            CheckpointPolicy.MUST_SAVE if name in self.kept else CheckpointPolicy.PREFER_RECOMPUTE
        )
        # --8<-- [end:policy]


def keeping(block: nn.Module, kept: frozenset[str]) -> Callable[[Tensor], Tensor]:
    """The block under a checkpoint that keeps the outputs of the products in ``kept``."""

    def forward(x: Tensor) -> Tensor:
        contexts = partial(create_selective_checkpoint_contexts, Keep(kept))
        y: Tensor = checkpoint(
            block, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
        return y

    return forward


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes held between forward and backward, and FLOPs repeated in the backward."""

    held: int
    flops: int


def measure(forward: Callable[[Tensor], Tensor], config: Config) -> tuple[int, int]:
    """Bytes that ``forward`` holds for the backward, its input among them, and FLOPs of a whole step."""
    leaf = torch.ones(
        config.tokens,
        config.width,
        dtype=torch.bfloat16,
        device=config.device,
        requires_grad=True,
    )
    # --8<-- [start:held]
    with LiveMemory() as live:
        x = leaf * 1.0
        y = forward(x)
        del x
        held = live.current - y.untyped_storage().nbytes()
        del y
    return held, count_flops(lambda: forward(leaf * 1.0).sum().backward())
    # --8<-- [end:held]


def frontier(points: dict[frozenset[str], Point]) -> list[frozenset[str]]:
    """The sets that no other one beats in both bytes and FLOPs, by rising bytes."""
    # --8<-- [start:frontier]
    best: list[frozenset[str]] = []
    for kept in sorted(points, key=lambda k: (points[k].held, points[k].flops)):
        if not best or points[kept].flops < points[best[-1]].flops:
            best.append(kept)
    return best
    # --8<-- [end:frontier]


LETTERS = {"qkv": "Q", "scores": "S", "context": "C", "proj": "P", "up": "U"}
"""The products whose outputs a backward needs, as the strips of the figure call them; X is the block's input."""


def strips(points: dict[frozenset[str], Point]) -> list[Span]:
    """Four choices, each as a strip of bytes and as a strip of FLOPs, kept products apart from repeated ones.

    A product is as wide as what it adds when it alone is kept, and as what it then spares.
    """
    nothing, useful = frozenset[str](), frozenset(LETTERS)
    choices = (useful, useful - {"scores"}, frozenset({"context"}), nothing)
    lone = {name: points[frozenset({name})] for name in LETTERS}
    held = {"": points[nothing].held} | {
        name: point.held - points[nothing].held for name, point in lone.items()
    }
    flops = {name: points[nothing].flops - point.flops for name, point in lone.items()}
    spans: list[Span] = []
    for first, widths in ((1, held), (2 + len(choices), flops)):
        whole = sum(widths.values())
        for row, kept in enumerate(choices, first):
            done = 0
            for name, width in widths.items():
                kind = "kept" if name in kept or not name else "again"
                spans.append(
                    Span(row, kind, done / whole, (done + width) / whole, LETTERS.get(name, "X"))
                )
                done += width
    return spans


def run(config: Config, progress: Progress) -> Result:
    """Measure every set of kept products, no checkpoint, and a checkpoint around the attention core."""
    found = Mechanisms(MEASURES, config)
    token = config.tokens
    torch.manual_seed(config.seed)
    block = ScoresBlock(config.width, config.heads).to(config.device, torch.bfloat16)

    progress(0.0, "no checkpoint")
    all_held, step = measure(block, config)
    found["held_all"] = all_held / token

    points: dict[frozenset[str], Point] = {}
    choices = list(product((False, True), repeat=len(PRODUCTS)))
    for i, flags in enumerate(choices):
        kept = frozenset(name for name, flag in zip(PRODUCTS, flags, strict=True) if flag)
        progress(i / len(choices), f"keep {', '.join(sorted(kept)) or 'nothing'}")
        held, flops = measure(keeping(block, kept), config)
        points[kept] = Point(held, flops - step)
    best = frontier(points)
    found["plans_measured"] = len(points)
    found["plans_on_frontier"] = len(best)

    full = points[frozenset()]
    found["held_full"] = full.held / token
    found["repeated_full"] = full.flops / step
    # Nobody's backward needs the output of down: recompute stops before it.
    found["last_product_saves_nothing"] = all(
        points[kept].flops == points[kept | {"down"}].flops for kept in points
    )
    useful = frozenset(PRODUCTS) - {"down"}
    nothing_repeated = points[useful]
    found["held_products"] = nothing_repeated.held / token
    found["repeated_products"] = nothing_repeated.flops / step
    no_scores = points[useful - {"scores"}]
    found["held_no_scores"] = no_scores.held / token
    found["repeated_no_scores"] = no_scores.flops / step

    def price(name: str) -> float:
        """FLOPs repeated for each byte that is given up with one product's output."""
        without = points[useful - {name}]
        return (without.flops - nothing_repeated.flops) / (nothing_repeated.held - without.held)

    found["price_scores"], found["price_up"] = price("scores"), price("up")
    found["price_ratio"] = price("up") / price("scores")

    progress(1.0, "the attention core alone")
    block.recompute_core = True
    held, flops = measure(block, config)
    core = Point(held, flops - step)
    found["held_core"] = core.held / token
    found["repeated_core"] = core.flops / step
    found["core_share_of_bytes"] = (all_held - core.held) / all_held

    def line(name: str, costs: Iterable[Point]) -> Line:
        ends = [(cost.held / token, cost.flops / step) for cost in costs]
        return Line(name, [held for held, _ in ends], [share for _, share in ends])

    found.draw(
        "frontier",
        line("pareto", (points[kept] for kept in best)),
        line("subsets", points.values()),
        line("core", [core]),
        line("none", [Point(all_held, 0)]),
    )
    choices_shown = ("all", "no_scores", "context", "nothing")
    found.lanes("choices", strips(points), rows=["bytes", *choices_shown, "flops", *choices_shown])
    return found.result()

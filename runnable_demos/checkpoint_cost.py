"""What does recompute cost, in FLOPs and in time, and as a share of what?

The lesson is ``lessons/checkpoint_cost.en.md`` (中文: ``lessons/checkpoint_cost.zh.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint_sequential, set_checkpoint_early_stop
from torch.utils.flop_counter import flop_registry

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import count_flops, fake
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import seconds
from runnable_demos.models.gpt import Block
from runnable_demos.models.stacks import (
    Forward,
    Layer,
    draw_input,
    equal_segments,
    run_layers,
    run_segments,
)

GPU = 6
TITLE: Text = {"zh": "重算代价", "en": "What recompute costs"}
QUESTION: Text = {
    "zh": "重算多花多少 FLOPs 和时间？何时少于三分之一，何时多于？",
    "en": "How many FLOPs and how much time does recompute add; when less than a third, when more?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "FlopCounterMode 在伪张量上计数；分母是不设检查点的一步",
  "counted by FlopCounterMode on fake tensors; over a step without checkpoints",
]
[method.metrics]
relu_overhead = ["", "Linear + ReLU，{segment} 层一段，重算占一步", "segments of {segment} Linear + ReLU: recompute over a step"]
bare_overhead = ["", "纯 Linear，{segment} 层一段，重算占一步", "segments of {segment} Linear alone: recompute over a step"]
bare_each_overhead = ["", "纯 Linear，每层一段，重算占一步", "a segment for each Linear: recompute over a step"]
bare_no_early_stop_overhead = [
  "",
  "纯 Linear，{segment} 层一段，不提前停，重算占一步",
  "segments of {segment} Linear, without early stop: recompute over a step",
]
no_input_gradient_overhead = [
  "",
  "输入不要梯度，重算占一步",
  "an input that asks for no gradient: recompute over a step",
]
sequential_overhead = [
  "",
  "checkpoint_sequential，{even} 段，重算占一步",
  "checkpoint_sequential in {even} segments: recompute over a step",
]
sequential_one_overhead = [
  "",
  "checkpoint_sequential，1 段，重算占一步",
  "checkpoint_sequential in one segment: recompute over a step",
]
frozen_overhead = ["", "权重全部冻结，重算占一步", "all weights frozen: recompute over a step"]
lora_overhead = [
  "",
  "LoRA，秩 {rank}，重算占一步",
  "LoRA of rank {rank}: recompute over a step",
]
frozen_bottom_overhead = [
  "",
  "只训练最后一层，每层一段，重算占一步",
  "only the last layer trained, a segment a layer: recompute over a step",
]
block_overhead = ["", "Transformer 块，重算占一步", "a transformer block: recompute over a step"]
block_pair_overhead = ["", "两个块一段，重算占一步", "segments of two blocks: recompute over a step"]
block_no_early_stop_overhead = [
  "",
  "Transformer 块，不提前停，重算占一步",
  "a transformer block without early stop: recompute over a step",
]
block_flash_overhead = [
  "",
  "Transformer 块，融合注意力，重算占一步",
  "a transformer block with fused attention: recompute over a step",
]
backward_over_forward = ["", "块的反向 / 前向", "backward over forward of a block"]
backward_over_forward_flash = [
  "",
  "融合注意力的块，反向 / 前向",
  "backward over forward of a block with fused attention",
]
hfu_over_mfu = ["", "HFU / MFU，不提前停", "HFU over MFU, without early stop"]
hfu_over_mfu_early_stop = ["", "HFU / MFU，提前停", "HFU over MFU, with early stop"]

[[method]]
kind = "exact"
how = ["重算的 FLOPs 除以一层的 FLOPs", "FLOPs of recompute over those of a layer"]
[method.metrics]
sequential_uneven_kept = [
  "",
  "checkpoint_sequential，{layers} 层 {uneven} 段，不重算的层数",
  "layers of {layers} that checkpoint_sequential in {uneven} segments does not run again",
]

[[method]]
kind = "measured"
how = [
  "四个块，h = {timed_h}，N = {timed_n}，两种步交替计时 {repeats} 次，各取中位数",
  "four blocks, h = {timed_h}, N = {timed_n}, both steps timed in turn {repeats} times, the median of each",
]
[method.metrics]
block_time_overhead = ["", "每块一个检查点，一步多花的时间", "time that a checkpoint a block adds to a step"]

[figure.flops]
title = ["一步的 FLOPs，以各自的前向为单位", "FLOPs of a step, in forwards"]
x = {label = ["设置", "setting"]}
y = {label = ["FLOPs / 前向", "FLOPs / forward"]}
[figure.flops.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
recompute = ["bar", "重算", "recompute"]
[figure.flops.places]
relu = ["Linear + ReLU，{segment} 层一段", "Linear + ReLU, segments of {segment}"]
bare = ["纯 Linear，{segment} 层一段", "Linear alone, segments of {segment}"]
sequential = ["checkpoint_sequential，{even} 段", "checkpoint_sequential"]
block = ["Transformer 块", "transformer block"]
block_no_early_stop = ["Transformer 块，不提前停", "block, no early stop"]
frozen = ["权重全部冻结", "all weights frozen"]
lora = ["LoRA", "LoRA"]
frozen_bottom = ["只训练最后一层", "only the last layer trained"]

[figure.steps]
title = ["两个块的一步：哪个矩阵乘在何时执行", "A step of two blocks: which product runs when"]
x = {label = ["已执行的 FLOPs / 一次前向", "FLOPs done / one forward"]}
y = {label = ["做法", "way"]}
[figure.steps.series]
forward = ["bar", "前向", "forward"]
recompute = ["bar", "重算", "recomputation"]
backward = ["bar", "反向", "backward"]
[figure.steps.places]
none = ["不设", "none"]
whole = ["重算到底", "to the end"]
early = ["提前停止", "early stop"]
kept = ["留最后一块", "last kept"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A linear stack and a transformer block, both on fake tensors; a smaller block to be timed."""

    layers: int = parameter(
        12, {"zh": "线性栈层数 L", "en": "layers L of the linear stack"}, 4, 100
    )
    segment: int = parameter(4, {"zh": "段长 k", "en": "segment length k"}, 1, 100)
    width: int = parameter(512, {"zh": "线性栈宽度", "en": "width of the linear stack"}, 8, 16384)
    rank: int = parameter(8, {"zh": "LoRA 秩", "en": "rank of LoRA"}, 1, 512)
    hidden: int = parameter(4096, {"zh": "块的宽度 h", "en": "width h of a block"}, 16, 16384)
    tokens: int = parameter(4096, {"zh": "序列长度 N", "en": "sequence length N"}, 16, 131072)
    heads: int = parameter(32, {"zh": "头数", "en": "heads"}, 1, 128)
    timed_hidden: int = parameter(
        256, {"zh": "计时的块的宽度与序列长", "en": "width and length of the timed block"}, 16, 8192
    )
    repeats: int = parameter(45, {"zh": "计时次数", "en": "times each step is timed"}, 1, 100)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(width=64, rank=4, hidden=64, tokens=64, heads=4, timed_hidden=32, repeats=1),
    "full": Config(),
}


@dataclass(frozen=True, slots=True)
class Account:
    """FLOPs of one step: the forward, the backward, and what is computed again."""

    forward: int
    backward: int
    recompute: int

    @property
    def overhead(self) -> float:
        """What is computed again over the step without it."""
        return self.recompute / (self.forward + self.backward)


def account(plain: Forward, checkpointed: Forward, x: Tensor) -> Account:
    """Count a step of ``plain`` on ``x``, and the same with checkpoints."""
    # --8<-- [start:account]
    forward = count_flops(lambda: plain(x))
    step = count_flops(lambda: plain(x).sum().backward())
    again = count_flops(lambda: checkpointed(x).sum().backward())
    return Account(forward, step - forward, again - step)
    # --8<-- [end:account]


def segmented(layers: Sequence[nn.Module], k: int, x: Tensor) -> Account:
    """The account of a stack with segments of ``k`` layers."""
    lengths = equal_segments(len(layers), k)
    return account(partial(run_layers, layers), partial(run_segments, layers, lengths), x)


# --8<-- [start:lora]
class LoRALayer(nn.Module):
    """A frozen linear layer with a trained product of two thin ones beside it, then ReLU."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, d)``."""
        return F.relu(self.base(x) + self.up(self.down(x)))


# --8<-- [end:lora]


def linear_accounts(config: Config) -> dict[str, Account]:
    """Stacks of linear layers: what follows the product, who stops early, what is frozen."""
    L, k, d = config.layers, config.segment, config.width
    x = draw_input((64, d), "cpu")  # the batch cancels
    data = x.detach()

    def layers() -> list[nn.Module]:
        return [Layer(d) for _ in range(L)]

    relu = layers()
    bare = [nn.Linear(d, d) for _ in range(L)]
    frozen = [layer.requires_grad_(False) for layer in layers()]
    bottom = layers()
    for layer in bottom[:-1]:
        layer.requires_grad_(False)
    lora = [LoRALayer(d, config.rank) for _ in range(L)]

    def sequential(segments: int) -> Account:
        stack = nn.Sequential(*relu)
        forward = partial(checkpoint_sequential, stack, segments, use_reentrant=False)
        return account(partial(run_layers, relu), lambda x: forward(input=x), x)

    accounts = {
        "relu": segmented(relu, k, x),
        "bare": segmented(bare, k, x),
        "bare_each": segmented(bare, 1, x),
        "no_input_gradient": segmented(relu, 1, data),
        "sequential": sequential(L // k),
        "sequential_one": sequential(1),
        "sequential_uneven": sequential(L // 2 - 1),
        "frozen": segmented(frozen, k, x),
        "frozen_bottom": segmented(bottom, 1, data),
        "lora": segmented(lora, k, x),
    }
    with set_checkpoint_early_stop(False):
        accounts["bare_no_early_stop"] = segmented(bare, k, x)
    return accounts


def block_accounts(config: Config) -> dict[str, Account]:
    """Transformer blocks: attention written out, or fused; early stop, or none."""
    blocks = [Block(config.hidden, config.heads) for _ in range(2)]
    x = draw_input((1, config.tokens, config.hidden), "cpu")
    with sdpa_kernel(SDPBackend.MATH):
        accounts = {"block": segmented(blocks, 1, x), "block_pair": segmented(blocks, 2, x)}
        with set_checkpoint_early_stop(False):
            accounts["block_no_early_stop"] = segmented(blocks, 1, x)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        accounts["block_flash"] = segmented(blocks, 1, x)
    return accounts


# --- which product runs when ---------------------------------------------------------------------

PRODUCTS = ("q", "", "", "", "u", "d")
"""The products of a block, in the order of its forward; each has two in the backward.

Named are ``qkv``, ``up`` and ``down``; scores, values and ``proj`` are too small for a letter.
"""


class Products(TorchDispatchMode):
    """Notes each product: its FLOPs, and whether it runs in the forward, in the backward, or again.

    The backward runs with grad mode off; what runs again within it needs a graph, and has it on.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.in_backward = False
        self.log: list[tuple[str, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation, and note it if it is a product."""
        out = func(*args, **(kwargs or {}))
        if count := flop_registry.get(func._overloadpacket):
            again = "recompute" if torch.is_grad_enabled() else "backward"
            kind = again if self.in_backward else "forward"
            self.log.append((kind, int(count(*args, **(kwargs or {}), out_val=out))))
        return out


def log_products(forward: Forward, x: Tensor) -> list[tuple[str, int]]:
    """All products of one step, in order."""
    products = Products()
    with products:
        loss = forward(x).sum()
        products.in_backward = True
        loss.backward()
    return products.log


def product_spans(row: int, log: Sequence[tuple[str, int]], unit: int) -> list[Span]:
    """One span for each product, those of the backward in pairs; ``unit`` FLOPs are one."""
    spans: list[Span] = []
    done = 0
    for kind, run in groupby(log, key=lambda each: each[0]):
        flops = [each for _, each in run]
        names = PRODUCTS
        if kind == "backward":
            names = PRODUCTS[::-1]
            flops = [sum(pair) for pair in zip(flops[::2], flops[1::2], strict=True)]
        for number, each in enumerate(flops):
            name = names[number % len(names)]
            spans.append(Span(row, kind, done / unit, (done + each) / unit, name))
            done += each
    return spans


def draw_products(config: Config, found: Mechanisms) -> None:
    """Two blocks, a segment each: without checkpoints, run to the end, stopped early, the last one kept."""
    blocks = [Block(config.hidden, config.heads) for _ in range(2)]
    x = draw_input((1, config.tokens, config.hidden), "cpu")
    each = partial(run_segments, blocks, (1, 1))
    with sdpa_kernel(SDPBackend.MATH):
        logs = {"none": log_products(partial(run_layers, blocks), x)}
        with set_checkpoint_early_stop(False):
            logs["whole"] = log_products(each, x)
        logs["early"] = log_products(each, x)
        logs["kept"] = log_products(partial(each, keep_last=True), x)
    unit = sum(flops for kind, flops in logs["none"] if kind == "forward")
    parts = [
        span for row, log in enumerate(logs.values()) for span in product_spans(row, log, unit)
    ]
    found.lanes("steps", parts, rows=logs)


# --- time ----------------------------------------------------------------------------------------


def timed_block(config: Config) -> tuple[int, int, int]:
    """Width, length and heads of the block that is timed: on a GPU the large one."""
    if config.device == "cuda":
        return config.hidden, config.tokens, config.heads
    return config.timed_hidden, config.timed_hidden, 4


def time_overhead(config: Config) -> float:
    """Seconds added by a checkpoint a block over a step without, medians of ``repeats``.

    A GPU has to be kept busy: small blocks would time the launches of its kernels.
    """
    hidden, tokens, heads = timed_block(config)
    blocks = [Block(hidden, heads).to(config.device) for _ in range(4)]
    x = draw_input((1, tokens, hidden), config.device)

    def taken(forward: Forward) -> float:
        return seconds(lambda: forward(x).sum().backward(), config.device)

    # --8<-- [start:time]
    plain = partial(run_layers, blocks)
    # As PyTorch does it by default, the generator's state kept and set again.
    each = partial(run_segments, blocks, (1,) * len(blocks), preserve_rng_state=True)
    taken(plain), taken(each)  # the first calls initialise
    times = [(taken(plain), taken(each)) for _ in range(config.repeats)]
    return median(t for _, t in times) / median(t for t, _ in times) - 1
    # --8<-- [end:time]


SETTINGS = (
    "relu",
    "bare",
    "sequential",
    "block",
    "block_no_early_stop",
    "frozen",
    "lora",
    "frozen_bottom",
)
"""Those that the figure shows."""


def run(config: Config, progress: Progress) -> Result:
    """Count all, time one."""
    L, k = config.layers, config.segment
    timed_h, timed_n, _ = timed_block(config)
    found = Mechanisms(
        MEASURES, config, even=L // k, uneven=L // 2 - 1, timed_h=timed_h, timed_n=timed_n
    )

    progress(0.0, "linear stacks")
    with fake():
        accounts = linear_accounts(config)
        progress(0.3, "transformer blocks")
        accounts |= block_accounts(config)
        draw_products(config, found)
    uneven = accounts.pop("sequential_uneven")
    found["sequential_uneven_kept"] = L - uneven.recompute // (uneven.forward // L)
    for name, cost in accounts.items():
        found[f"{name}_overhead"] = cost.overhead
    block, flash = accounts["block"], accounts["block_flash"]
    found["backward_over_forward"] = block.backward / block.forward
    found["backward_over_forward_flash"] = flash.backward / flash.forward
    found["hfu_over_mfu"] = 1 + accounts["block_no_early_stop"].overhead
    found["hfu_over_mfu_early_stop"] = 1 + block.overhead

    shown = [accounts[name] for name in SETTINGS]
    x = range(len(shown))
    found.draw(
        "flops",
        Line("forward", x, [cost.forward / cost.forward for cost in shown]),
        Line("backward", x, [cost.backward / cost.forward for cost in shown]),
        Line("recompute", x, [cost.recompute / cost.forward for cost in shown]),
        places=SETTINGS,
    )

    progress(0.6, "seconds")
    found["block_time_overhead"] = time_overhead(config)
    progress(1.0, "done")
    return found.result()

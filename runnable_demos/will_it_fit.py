"""Will a fine-tuning run fit? The sum of a few parts, held against real steps to the byte.

The lesson is ``lessons/will_it_fit.en.md`` (中文: ``lessons/will_it_fit.zh.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import torch
from bitsandbytes.nn import Linear4bit  # type: ignore[attr-defined]
from torch import Tensor, nn

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import (
    CATEGORIES,
    Category,
    LiveMemory,
    saved_tensors,
    storage_bytes,
)
from runnable_demos.lab.measure import fake as shapes_alone
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import DEFAULT, LLAMA_7B, Llama, LlamaBlock, Size, rotary

TITLE: Text = {"zh": "放得下吗", "en": "Will it fit?"}
QUESTION: Text = {
    "zh": "全参、LoRA、QLoRA：开跑之前写下的合计，与真实一步的峰值一样吗？",
    "en": "Full fine-tuning, LoRA and QLoRA: does a sum written down before the run equal the "
    "peak of a real step?",
}
REQUIRES = ("bitsandbytes",)

MEASURES = """
[[method]]
kind = "exact"
how = [
  "小 Llama 真实训练，bf16，主权重与 Adam 为 fp32，第二步里存活字节的峰值（LiveMemory）",
  "a small Llama trains for real in bf16, with fp32 masters and Adam; peak of the live bytes of its second step (LiveMemory)",
]
[method.metrics]
full_plain_peak = ["B", "全参，不设检查点", "full, no checkpoints"]
full_checkpointed_peak = ["B", "全参，每层一个检查点", "full, one checkpoint per layer"]
lora_plain_peak = ["B", "LoRA，不设检查点", "LoRA, no checkpoints"]
lora_checkpointed_peak = ["B", "LoRA，每层一个检查点", "LoRA, one checkpoint per layer"]
qlora_plain_peak = ["B", "QLoRA，不设检查点", "QLoRA, no checkpoints"]
qlora_checkpointed_peak = ["B", "QLoRA，每层一个检查点", "QLoRA, one checkpoint per layer"]

[[method]]
kind = "exact"
how = [
  "合计只由模型的尺寸算出：算损失那一刻与更新那一刻各一个，取大的；六次真实运行的峰值与它逐字节比较",
  "a sum comes from the sizes alone: one for the loss, one for the update, the larger counts; the peaks of six real runs, each compared with its own byte by byte",
]
[method.metrics]
sums_hold = ["", "六次运行都与合计逐字节相等", "all six runs equal their sum to the byte"]

[[method]]
kind = "exact"
how = [
  "小 Llama 真实训练第二步的峰值，按类别；激活与临时量（logits 在内）占其中多少",
  "peak of the second real step of a small Llama by category: the share of activations and temporaries, logits among them",
]
[method.metrics]
full_activations_share = ["", "全参，不设检查点：激活与 logits 占峰值", "full, no checkpoints: activations and logits over the peak"]
lora_activations_share = ["", "LoRA，不设检查点：激活与 logits 占峰值", "LoRA, no checkpoints: activations and logits over the peak"]
qlora_activations_share = ["", "QLoRA，不设检查点：激活与 logits 占峰值", "QLoRA, no checkpoints: activations and logits over the peak"]

[[method]]
kind = "exact"
how = [
  "真实的第二步，设检查点与不设检查点的峰值之比",
  "peak of the second real step with checkpoints over that without",
]
[method.metrics]
full_checkpointed_ratio = ["", "全参：设检查点之后", "full: with checkpoints"]
lora_checkpointed_ratio = ["", "LoRA：设检查点之后", "LoRA: with checkpoints"]
qlora_checkpointed_ratio = ["", "QLoRA：设检查点之后", "QLoRA: with checkpoints"]

[[method]]
kind = "exact"
how = ["存储的字节除以参数量", "bytes of storages over the number of parameters"]
[method.metrics]
frozen_bytes_per_param = ["B/param", "LoRA：每个冻结的参数", "LoRA: a frozen parameter"]
trained_bytes_per_param = ["B/param", "LoRA：每个训练的参数，权重、梯度、主权重与两个矩", "LoRA: a trained parameter, its weight, gradient, master and moments"]
nf4_bytes_per_param = ["B/param", "bitsandbytes 的 NF4 加双重量化，一个 4096 × 4096 的矩阵", "NF4 with double quantisation by bitsandbytes, a matrix of 4096 × 4096"]

[[method]]
kind = "exact"
how = [
  "Llama 2 7B 的一层，秩 16 的旁路挂在全部七个矩阵上；为反向保存的字节，与全参的一层之比；fake 张量，bf16",
  "a layer of Llama 2 7B with adapters of rank 16 on all seven matrices: bytes saved for the backward over those of full fine-tuning; fake tensors, bf16",
]
[method.metrics]
lora_layer_ratio = ["", "LoRA 的一层与全参的一层，激活之比", "activations of a layer, LoRA over full"]

[figure.steps]
title = ["三种做法各一步里存活的字节", "Bytes alive over one step of each method"]
x = {label = ["一步的进度：全参 0–1，LoRA 1–2，QLoRA 2–3", "share of a step: full 0–1, LoRA 1–2, QLoRA 2–3"]}
y = {label = ["存活字节", "bytes alive"], unit = "B"}
[figure.steps.series]
parameters = ["area", "权重", "weights"]
optimizer = ["area", "主权重与矩", "master weights and moments"]
gradients = ["area", "梯度", "gradients"]
activations = ["area", "激活", "activations"]
other = ["area", "临时量", "temporaries"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A small Llama with as many tokens as it is wide, as 4,096 of each have it in Llama 2 7B."""

    width: int = parameter(64, {"zh": "宽度 h", "en": "width h"}, 64, 1024)
    gate: int = parameter(172, {"zh": "SwiGLU 的宽度 f", "en": "SwiGLU's width f"}, 64, 4096)
    layers: int = parameter(6, {"zh": "层数 L", "en": "layers L"}, 1, 64)
    heads: int = parameter(4, {"zh": "头数 a", "en": "heads a"}, 1, 64)
    vocabulary: int = parameter(500, {"zh": "词表 V", "en": "vocabulary V"}, 16, 50000)
    tokens: int = parameter(64, {"zh": "token 数 T", "en": "tokens T"}, 8, 4096)
    rank: int = parameter(2, {"zh": "旁路的秩 r", "en": "rank of the adapters r"}, 1, 256)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(gate=128, layers=2, vocabulary=400, tokens=32, rank=1),
    "full": Config(),
}
Way = Literal["full", "lora", "qlora"]
SCHEDULES = {"plain": False, "checkpointed": True}


# --- the three methods ---------------------------------------------------------------------------

BF16 = torch.bfloat16
linear = partial(nn.Linear, bias=False, dtype=BF16)


class Adapted(nn.Module):
    """A frozen matrix and beside it a trained product of two thin ones: ``base(x) + B(A(x)) · 2``."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.A, self.B = linear(base.in_features, rank), linear(rank, base.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """``(…, in)`` to ``(…, out)``."""
        y: Tensor = self.base(x) + self.B(self.A(x)) * 2.0
        return y


def four_bit(full: nn.Linear) -> Linear4bit:
    """The matrix in NF4, its scales quantised once more: bitsandbytes quantises as it is moved."""
    low = Linear4bit(
        full.in_features, full.out_features, bias=False, compute_dtype=BF16, quant_type="nf4"
    )
    low.weight.data = full.weight.data
    return low.to("cpu")


def adapt(block: nn.Module, way: Way, rank: int) -> None:
    """Adapters on all matrices of a layer."""
    for part in (block.attention, block.mlp):
        for name, matrix in list(part.named_children()):  # type: ignore[union-attr]
            base = four_bit(matrix) if way == "qlora" else matrix
            setattr(part, name, Adapted(base, rank))


def build(size: Size, way: Way, rank: int) -> Llama:
    """The model, with whatever is not to be trained frozen."""
    model = Llama(size)
    if way != "full":
        for p in model.parameters():
            p.requires_grad_(False)
        for block in model.blocks:
            adapt(block, way, rank)
    return model


def scales(model: nn.Module) -> Iterator[Tensor]:
    """What stands beside 4-bit weights: scales, scales of the scales, and the two code tables."""
    for module in model.modules():
        if isinstance(module, Linear4bit):
            q = module.weight.quant_state  # type: ignore[attr-defined]
            yield from (q.absmax, q.offset, q.code, q.state2.absmax, q.state2.code)


# --- a real step ---------------------------------------------------------------------------------

Row = dict[Category, int]


@dataclass(frozen=True, slots=True)
class Step:
    """The second step of a run: its peak by category, and what was alive after each event."""

    at_peak: Row
    timeline: list[Row]

    @property
    def peak(self) -> int:
        """All bytes of the peak."""
        return sum(self.at_peak.values())

    def share(self, *categories: Category) -> float:
        """The share of some categories."""
        return sum(self.at_peak[c] for c in categories) / self.peak


@dataclass
class Trainer:
    """A model in bf16; fp32 masters of what is trained, and Adam on those, one tensor at a time."""

    model: Llama
    trained: list[nn.Parameter] = field(init=False)
    masters: list[Tensor] = field(init=False)
    adams: list[torch.optim.Optimizer] = field(init=False)

    def __post_init__(self) -> None:
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.masters = [p.detach().float() for p in self.trained]
        self.adams = [torch.optim.AdamW([m], fused=True) for m in self.masters]

    @torch.no_grad()
    def update(self) -> None:
        """A gradient goes to fp32 only for its own update, and is dropped afterwards."""
        # --8<-- [start:update]
        for p, master, adam in zip(self.trained, self.masters, self.adams, strict=True):
            assert p.grad is not None
            master.grad = p.grad.float()
            adam.step()
            p.copy_(master)
            p.grad = master.grad = None
        # --8<-- [end:update]

    def step(self, tokens: Tensor) -> None:
        """Forward, backward, update."""
        self.model(tokens, tokens).backward()
        self.update()

    def states(self) -> list[object]:
        """What the optimizer keeps: masters, moments and step counters."""
        return [self.masters, [list(a.state.values()) for a in self.adams]]


def second_step(trainer: Trainer, tokens: Tensor) -> Step:
    """What is alive while ``trainer``, which has had a step before, takes another one."""
    # --8<-- [start:second]
    with LiveMemory(model=trainer.model, inputs=tokens) as live:
        live.register("parameters", list(scales(trainer.model)))
        live.register("optimizer", trainer.states())
        begun = len(live.timeline)
        live.reset_peak()
        trainer.step(tokens)
    rows: list[Row] = [dict(zip(CATEGORIES, row, strict=True)) for row in live.timeline[begun:]]
    return Step(live.at_peak, rows)
    # --8<-- [end:second]


# --- the sum -------------------------------------------------------------------------------------


def foretold(size: Size, T: int, way: Way, rank: int, checkpointed: bool) -> int:
    """The peak of a step, from the sizes alone."""
    h, f, L, a, V = size.h, size.f, size.L, size.a, size.V
    k = h // a * size.g  # width of keys and values
    shapes = [(h, h), (h, k), (h, k), (h, h), (h, f), (h, f), (f, h)]
    matrices, norms, table = L * sum(i * o for i, o in shapes), (2 * L + 1) * h, V * h
    adapters = L * sum(rank * (i + o) for i, o in shapes)
    if way == "full":
        trained, tensors = matrices + norms + 2 * table, 9 * L + 3
        weights, largest = 2 * trained, table
    else:
        trained, tensors, largest = adapters, 14 * L, rank * h  # the first one that is updated
        base = sum(L * nf4(i * o) for i, o in shapes) if way == "qlora" else 2 * matrices
        weights = base + 2 * (norms + 2 * table + adapters)
    states = weights + 12 * trained + 4 * tensors  # and a step counter a tensor

    # --8<-- [start:layer-bytes]
    layer = T * (12 * h + 8 * f + 4 * k + 4 * a + 8)
    last = T * (2 * h + 4)  # what the norm before the output layer keeps
    if way == "full":
        last += 2 * T * h  # the output layer's input, for its weight
    else:
        layer += 2 * T * rank * len(shapes)
    # --8<-- [end:layer-bytes]
    kept = L * layer
    if checkpointed:
        kept = 2 * T * h * L
    elif way != "full":
        kept -= T * (2 * h + 4)  # nothing below the first adapter needs a gradient
    # --8<-- [start:two-moments]
    tables, batch, loss = 4 * T * (h // a), 8 * T, 8
    at_loss = states + kept + last + 12 * T * V + tables + batch + loss
    at_update = states + 2 * trained + 4 * largest + batch
    return max(at_loss, at_update)
    # --8<-- [end:two-moments]


def nf4(n: int) -> int:
    """Bytes of ``n`` weights: 4 bits each, a byte for 64, 4 for 256 of those, the tables."""
    blocks = n // 64
    return n // 2 + blocks + 4 * -(-blocks // 256) + 4 * (16 + 256 + 1)


# --- the demo ------------------------------------------------------------------------------------

SHOWN: tuple[Category, ...] = ("parameters", "optimizer", "gradients", "activations", "other")


def real_steps(config: Config, found: Findings) -> dict[str, Step]:
    """The second step of every method and schedule; what a parameter costs is read off on the way."""
    size = Size(
        config.width, config.gate, config.layers, config.heads, config.heads, config.vocabulary
    )
    tokens = torch.randint(size.V, (1, config.tokens))
    steps, equal = dict[str, Step](), True
    for way in get_args(Way):
        trainer = Trainer(build(size, way, config.rank))
        trainer.step(tokens)
        for schedule, trainer.model.checkpointed in SCHEDULES.items():
            step = second_step(trainer, tokens)
            told = foretold(size, config.tokens, way, config.rank, trainer.model.checkpointed)
            found[f"{way}_{schedule}_peak"] = step.peak
            equal &= step.peak == told
            steps[f"{way}_{schedule}"] = step
        found[f"{way}_activations_share"] = steps[f"{way}_plain"].share("activations", "other")
        found[f"{way}_checkpointed_ratio"] = step.peak / steps[f"{way}_plain"].peak
        if way == "lora":
            tell_parameters(trainer, tokens, found)
    found["sums_hold"] = equal
    return steps


def tell_parameters(trainer: Trainer, tokens: Tensor, found: Findings) -> None:
    """Bytes of a frozen and of a trained parameter."""
    frozen = [p for p in trainer.model.parameters() if not p.requires_grad]
    trainer.model(tokens, tokens).backward()
    held = [trainer.trained, [p.grad for p in trainer.trained], trainer.states()]
    found["frozen_bytes_per_param"] = storage_bytes(frozen) / sum(p.numel() for p in frozen)
    trained = sum(p.numel() for p in trainer.trained)
    counters = 4 * len(trainer.trained)
    found["trained_bytes_per_param"] = (storage_bytes(held) - counters) / trained


def layer_saved(way: Way) -> int:
    """What a layer of Llama 2 7B keeps for its backward, with 4,096 tokens; on fake tensors."""
    with shapes_alone():
        block = LlamaBlock(LLAMA_7B, DEFAULT)
        if way != "full":
            block.requires_grad_(False)
            adapt(block, way, 16)
        tables = rotary(4096, LLAMA_7B.h // LLAMA_7B.a, BF16)
        x = torch.zeros(1, 4096, LLAMA_7B.h, dtype=BF16, requires_grad=True) * 1.0
        with saved_tensors(exclude=[*block.parameters(), *tables]) as saved:
            block(x, *tables)
    return saved.bytes


def draw(steps: dict[str, Step], found: Findings, points: int = 40) -> None:
    """Each method's step without checkpoints, of whose events the fullest are kept."""
    xs, rows = list[float](), list[Row]()
    for number, way in enumerate(get_args(Way)):
        line = steps[f"{way}_plain"].timeline
        stride = -(-len(line) // points)
        for i in range(0, len(line), stride):
            at = max(range(i, min(i + stride, len(line))), key=lambda n: sum(line[n].values()))
            xs.append(number + (at + 1) / len(line))
            rows.append(line[at])
    found.draw("steps", *(Line(c, xs, [row[c] for row in rows]) for c in SHOWN))


def run(config: Config, progress: Progress) -> Result:
    """Six real runs and their sums, then what a 4-bit weight and a layer with adapters cost."""
    found = Findings(MEASURES, config)
    torch.manual_seed(config.seed)
    progress(0.0, "six runs")
    draw(real_steps(config, found), found)
    progress(0.8, "NF4")
    matrix = four_bit(linear(4096, 4096))
    held = storage_bytes([matrix.weight, list(scales(matrix))])
    found["nf4_bytes_per_param"] = held / 4096**2
    progress(0.9, "7B")
    found["lora_layer_ratio"] = layer_saved("lora") / layer_saved("full")
    progress(1.0, "")
    return found.result()

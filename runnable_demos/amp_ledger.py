"""What does autocast halve, what does it leave alone, and what does it add?

The question
    ``torch.autocast`` runs matrix products in bf16 while weights stay fp32.
    Which bytes of a step shrink by that, and from how many tokens on is the whole thing a gain?

The model
    One pre-norm block of width ``h`` with ``a`` heads keeps, in bytes for each token,

                                     fp32        autocast      bf16
        two LayerNorm inputs          8h            8h           4h      the residual stream
        two LayerNorm outputs         8h            4h           4h
        q, k, v                      12h            6h           6h
        attention's output            4h            2h           2h
        GELU's input and output      32h           16h          16h
        logsumexp, mean and 1/σ     4a + 16       4a + 16      4a + 8

    and under autocast once more, for all tokens together, ``2 · 12h²`` bytes: the bf16 copies of
    the four weights, which the backward needs. With n tokens autocast keeps less than fp32 once

        28h · n > 24h²,     that is  n > 6h/7.

The measurement
    Bytes saved for the backward, by kind, over n; the weights' copies in autocast's cache, with the
    backward inside and outside its context, and without any; and one step of a whole model with
    Adam, whose peak with few tokens is the update, when the copies are gone. Three blocks
    show when each copy is made and freed: in the usual order, with the backward inside the context,
    and with checkpoints.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import LiveMemory, Saved, fake, saved_tensors, storage_key
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import Block, GPTSize, make_tokens
from runnable_demos.models.recipes import RECIPES, Recipe, Trainer, breakdown

TITLE: Text = {"zh": "混合精度账本", "en": "The AMP ledger"}
QUESTION: Text = {
    "zh": "autocast 让哪些字节减半，哪些原样不动，又添了哪些？多少 token 以上才划算？",
    "en": "Which bytes does autocast halve, which does it leave alone and which does it add? "
    "From how many tokens on does it pay?",
}

Mode = Literal["fp32", "amp", "bf16"]
MODES: tuple[Mode, ...] = get_args(Mode)

MEASURES = """
[[method]]
kind = "exact"
how = [
  "同一个小 GPT 与 Adam 的第二步，伪张量，逐次分配、释放跟踪存活字节",
  "second step of one small GPT with Adam on fake tensors, live bytes followed allocation by allocation",
]
[method.metrics]
states_ratio = ["", "模型状态，autocast 比 fp32", "model states, autocast over fp32"]
states_bytes_per_param = ["B/param", "autocast 的模型状态", "model states under autocast"]
peak_ratio = ["", "整步峰值，autocast 比 fp32", "peak of a whole step, autocast over fp32"]
bf16_peak_ratio = ["", "整步峰值，纯 bf16 比 fp32", "peak of a whole step, bf16 throughout over fp32"]
few_tokens_peak_ratio = [
  "",
  "只有 64 个 token 时，整步峰值，autocast 比 fp32",
  "peak of a whole step with 64 tokens, autocast over fp32",
]

[[method]]
kind = "exact"
how = [
  "不求梯度的前向，32 个 token，逐次分配、释放跟踪存活字节，加上权重",
  "a forward without gradients of 32 tokens, live bytes followed allocation by allocation, and the weights",
]
[method.metrics]
evaluation_ratio = [
  "",
  "评估的峰值，autocast 比 fp32",
  "peak of an evaluation, autocast over fp32",
]

[[method]]
kind = "exact"
how = ["反向之后逐个读 dtype", "dtypes read after the backward"]
[method.metrics]
gradients_are_fp32 = ["", "autocast 之下参数的梯度都是 fp32", "all gradients of parameters are fp32"]

[[method]]
kind = "exact"
how = [
  "saved_tensors_hooks，按存储去重，不含参数；一个 block 的前向",
  "saved_tensors_hooks, each storage once, without parameters; the forward of one block",
]
[method.metrics]
fp32_saved_bytes_per_token = ["B/token", "每个 token 保存的激活，fp32", "activations saved for each token, fp32"]
amp_saved_bytes_per_token = [
  "B/token",
  "每个 token 保存的激活，autocast bf16",
  "activations saved for each token, autocast bf16",
]
bf16_saved_bytes_per_token = [
  "B/token",
  "每个 token 保存的激活，纯 bf16",
  "activations saved for each token, bf16 throughout",
]
amp_activation_ratio = [
  "",
  "激活，autocast 比 fp32，不计权重副本",
  "activations, autocast over fp32, copies of weights aside",
]
bf16_activation_ratio = ["", "激活，纯 bf16 比 fp32", "activations, bf16 throughout over fp32"]
weight_copy_bytes_per_param = [
  "B/param",
  "图里保存的权重副本，对矩阵权重",
  "copies of weights in the graph, for each matrix weight",
]
few_tokens_ratio = [
  "",
  "只有 h/8 个 token 时，保存的总字节，autocast 比 fp32",
  "all bytes saved with h/8 tokens, autocast over fp32",
]
shared_weight_copies_cached = [
  "",
  "同一权重用四次，有缓存：副本数",
  "copies of a weight used four times, with the cache",
]
shared_weight_copies_uncached = [
  "",
  "同一权重用四次，无缓存：副本数",
  "copies of a weight used four times, without the cache",
]

[[method]]
kind = "exact"
how = ["对 token 数二分，比较两种精度保存的总字节", "bisection over tokens, comparing all bytes saved"]
[method.metrics]
break_even_tokens = [
  "token",
  "autocast 开始比 fp32 少存的 token 数",
  "tokens from which autocast keeps less than fp32",
]

[[method]]
kind = "exact"
how = [
  "对 token 数二分、比较两种精度保存的总字节，所得 token 数除以宽度",
  "tokens found by bisection, comparing all bytes saved, divided by the width",
]
[method.metrics]
break_even_over_width = [
  "",
  "autocast 开始比 fp32 少存的 token 数与宽度之比",
  "tokens from which autocast keeps less than fp32, over the width",
]

[[method]]
kind = "exact"
how = ["反向结束后仍存活的字节，减去梯度", "bytes still alive after the backward, gradients aside"]
[method.metrics]
inside_left_bytes_per_param = [
  "B/param",
  "反向写在 autocast 里：反向后残留",
  "backward inside autocast: left behind",
]
outside_left_bytes_per_param = [
  "B/param",
  "反向写在 autocast 外：反向后残留",
  "backward outside autocast: left behind",
]

[[method]]
kind = "exact"
how = ["saved_tensors_hooks 读出的字节除以分数个数", "bytes read by saved_tensors_hooks over the number of scores"]
[method.metrics]
softmax_fp32_bytes_per_score = [
  "B",
  "fp32 的 softmax 与其后的乘法：每个分数保存",
  "softmax and the product after it in fp32: saved for each score",
]
softmax_amp_bytes_per_score = [
  "B",
  "bf16 分数、fp32 softmax、bf16 乘法：每个分数保存",
  "bf16 scores, fp32 softmax, bf16 product: saved for each score",
]

[figure.kinds]
title = [
  "一个 block 为反向保存的字节（n = {tokens}，h = {width}）",
  "Bytes that one block saves for the backward (n = {tokens}, h = {width})",
]
x = {label = ["精度", "precision"]}
y = {label = ["保存的字节", "bytes saved"], unit = "B"}
[figure.kinds.series]
fp32 = ["bar", "fp32 激活", "activations in fp32"]
bf16 = ["bar", "bf16 激活", "activations in bf16"]
copies = ["bar", "权重的 bf16 副本", "bf16 copies of weights"]
[figure.kinds.places]
fp32 = ["fp32", "fp32"]
amp = ["autocast bf16", "autocast bf16"]
bf16 = ["纯 bf16", "bf16 throughout"]

[figure.crossing]
title = [
  "token 太少时，权重副本盖过激活的节省（h = {width}）",
  "With few tokens the copies of weights outweigh what activations save (h = {width})",
]
x = {label = ["token 数 n", "tokens n"]}
y = {label = ["保存的字节", "bytes saved"], unit = "B"}
[figure.crossing.series]
fp32_measured = ["measured", "fp32，实测", "fp32, measured"]
fp32_theory = ["theory", "fp32，理论", "fp32, theory"]
amp_measured = ["measured", "autocast bf16，实测", "autocast bf16, measured"]
amp_theory = ["theory", "autocast bf16，理论", "autocast bf16, theory"]

[figure.copies]
title = [
  "三层走一步：权重的 16 位副本何时在",
  "A step of three layers: when the 16-bit copies of weights are there",
]
x = {label = ["第几个动作", "action"]}
y = {label = ["写法和各层", "way and layers"]}
[figure.copies.series]
copy = ["bar", "该层权重的 16 位副本", "16-bit copies of a layer's weights"]
gradient = ["bar", "已有 fp32 梯度的层", "layers that have their fp32 gradients"]
forward = ["bar", "前向（各层）", "forward (layers)"]
leave = ["bar", "退出 autocast", "autocast is left"]
backward = ["bar", "反向（各层）", "backward (layers)"]
[figure.copies.places]
outside = ["反向在外", "backward outside"]
inside = ["反向在内", "backward inside"]
checkpoints = ["检查点", "checkpoints"]
copy_1 = ["副本 1", "copy 1"]
copy_2 = ["副本 2", "copy 2"]
copy_3 = ["副本 3", "copy 3"]
gradients = ["梯度", "gradients"]
"""


@dataclass(frozen=True)
class Config:
    """One block and its tokens; the whole model has ``layers`` of them."""

    layers: int = parameter(4, {"zh": "层数 L", "en": "layers L"}, 1, 48)
    width: int = parameter(256, {"zh": "宽度 h", "en": "width h"}, 28, 8192)
    heads: int = parameter(4, {"zh": "头数 a", "en": "heads a"}, 1, 64)
    tokens: int = parameter(2048, {"zh": "token 数 n", "en": "tokens n"}, 32, 65536)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=2, width=64, heads=2, tokens=512), "full": Config()}


# --- what a block keeps --------------------------------------------------------------------------


def make_block(config: Config, mode: Mode) -> Block:
    """A block; autocast keeps its weights in fp32."""
    with torch.device(config.device):
        block = Block(config.width, config.heads, causal=True)
    return block.bfloat16() if mode == "bf16" else block


def autocast(config: Config, mode: Mode, cache: bool = True) -> torch.autocast:
    """The context of ``mode``."""
    return torch.autocast(
        torch.device(config.device).type,
        torch.bfloat16,
        enabled=mode == "amp",
        cache_enabled=cache,
    )


def keep(config: Config, mode: Mode, tokens: int) -> Saved:
    """What one block saves for the backward of ``tokens`` tokens, parameters aside."""
    block = make_block(config, mode)
    z = torch.randn(1, tokens, config.width, device=config.device)
    z = (z.bfloat16() if mode == "bf16" else z).requires_grad_()
    with saved_tensors(block.parameters()) as saved, autocast(config, mode):
        block(z * 1.0)  # an inner layer: its input is an activation, too
    return saved


def weight_copies(config: Config, saved: Saved, tokens: int) -> int:
    """Bytes of the saved 16-bit copies of weights, known by their shapes."""
    h = config.width
    shapes = {(h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)}
    assert tokens not in (h, 3 * h, 4 * h), "an activation would look like a weight"
    return sum(
        t.nbytes
        for t in saved.tensors
        if not t.shared and t.dtype is torch.bfloat16 and t.shape in shapes
    )


def break_even(config: Config) -> int:
    """The fewest tokens with which autocast keeps fewer bytes than fp32."""

    def pays(tokens: int) -> bool:
        with fake():
            on_cpu = replace(config, device="cpu")
            return keep(on_cpu, "amp", tokens).bytes < keep(on_cpu, "fp32", tokens).bytes

    low, high = 0, 1  # it does not pay at low, it does at high
    while not pays(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


# --- autocast's cache ----------------------------------------------------------------------------


def left_after_backward(config: Config, inside: bool) -> int:
    """Bytes of casts that are alive after the backward, run inside the context or after it."""
    block = make_block(config, "amp")
    x = torch.randn(1, 32, config.width, device=config.device)
    for p in block.parameters():
        p.grad = torch.zeros_like(p)
    with LiveMemory() as live:
        with autocast(config, "amp"):
            loss = block(x).square().sum()
            if inside:
                loss.backward()
                del loss
                return live.current
        loss.backward()
        del loss
        return live.current


def copies_of_a_shared_weight(config: Config, cache: bool) -> int:
    """How many 16-bit copies of one weight a graph keeps that uses the weight four times."""
    h = config.width
    layer = nn.Linear(h, h, bias=False, device=config.device)
    x = torch.randn(h // 2, h, device=config.device, requires_grad=True)
    with saved_tensors(layer.parameters()) as saved, autocast(config, "amp", cache):
        for _ in range(4):
            x = layer(x)
    return sum(t.shape == (h, h) and not t.shared for t in saved.tensors)


def evaluation_peak(config: Config, mode: Mode) -> int:
    """Bytes of the weights of all blocks, and the most that a forward without gradients adds."""
    blocks = [make_block(config, mode) for _ in range(config.layers)]
    x = torch.randn(1, 32, config.width, device=config.device)
    with LiveMemory() as live, torch.no_grad(), autocast(config, mode):
        for block in blocks:
            x = block(x)
        peak = live.peak
    return peak + sum(p.nbytes for block in blocks for p in block.parameters())


# --- when the copies are there -------------------------------------------------------------------

Way = Literal["outside", "inside", "checkpoints"]
WAYS: tuple[Way, ...] = get_args(Way)
"""Backward outside autocast, inside it, and outside it with each block checkpointed."""
BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Action:
    """What happens next: a block's forward or backward, or leaving autocast (block 0)."""

    kind: Literal["forward", "leave", "backward"]
    block: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A 16-bit copy of a weight of ``block``, from within action ``born`` until within ``gone``."""

    block: int
    born: int
    gone: int


class CopyWatch(TorchDispatchMode):
    """Sees each cast of a matrix of ``blocks`` to 16 bits, and when its storage is freed."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = {
            storage_key(p): number
            for number, block in enumerate(blocks, start=1)
            for p in block.parameters()
            if p.dim() == 2
        }
        self.actions: list[Action] = []
        self.copies: list[Copy] = []

    def begin(self, kind: Literal["forward", "leave", "backward"], block: int = 0) -> None:
        """The next action."""
        self.actions.append(Action(kind, block))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; follow what it makes where it casts a weight."""
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and out.dtype is torch.bfloat16:
            block = self.owner.get(storage_key(args[0]))
            if block:
                when_freed(out, self._freed, block, len(self.actions))
        return out

    def _freed(self, block: int, born: int) -> None:
        self.copies.append(Copy(block, born, len(self.actions)))


def watch_copies(config: Config, way: Way) -> tuple[list[Action], list[Copy], list[int]]:
    """One step of three blocks: its actions, all copies of weights, and when block 1, 2, 3 has gradients."""
    blocks = [make_block(config, "amp") for _ in range(BLOCKS)]
    watch = CopyWatch(blocks)
    arrived: dict[int, int] = {}

    def note(block: int, _: Tensor) -> None:
        arrived[block] = len(watch.actions)

    for number, block in enumerate(blocks, start=1):
        for p in block.parameters():
            p.register_post_accumulate_grad_hook(partial(note, number))
    x = torch.randn(1, 32, config.width, device=config.device)
    with watch:
        with autocast(config, "amp"):
            for number, block in enumerate(blocks, start=1):
                watch.begin("forward", number)
                checked = way == "checkpoints"
                x = checkpoint(block, x, use_reentrant=False) if checked else block(x)
                x.register_hook(lambda _, number=number: watch.begin("backward", number))
            loss = x.square().sum()
            if way == "inside":
                loss.backward()
            watch.begin("leave")
        if way != "inside":
            loss.backward()
    return watch.actions, watch.copies, [arrived[number] for number in range(1, BLOCKS + 1)]


def draw_copies(config: Config, found: Mechanisms) -> None:
    """For each way a row of actions, one for each block's copies, and one for the gradients."""
    spans: list[Span] = []
    rows: list[str] = []
    for way in WAYS:
        actions, copies, arrived = watch_copies(config, way)
        first, end = len(rows), len(actions)
        rows += [way, *(f"copy_{n}" for n in range(1, BLOCKS + 1)), "gradients"]
        for kind, run in itertools.groupby(enumerate(actions), key=lambda each: each[1].kind):
            part = list(run)
            numbers = [action.block for _, action in part if action.block]
            label = f"{numbers[0]}–{numbers[-1]}" if numbers else ""
            spans.append(Span(first, kind, part[0][0], part[-1][0] + 1, label))
        for block in range(1, BLOCKS + 1):  # the four matrices of a block, cast within one action
            lives = {(c.born, c.gone) for c in copies if c.block == block}
            spans += [Span(first + block, "copy", born - 1, gone) for born, gone in sorted(lives)]
        for at in sorted(set(arrived)):
            have = [block for block in range(1, BLOCKS + 1) if arrived[block - 1] <= at]
            until = min((later for later in arrived if later > at), default=end + 1)
            label = "–".join(dict.fromkeys(map(str, (have[-1], have[0]))))
            spans.append(Span(first + BLOCKS + 1, "gradient", at - 1, until - 1, label))
    found.lanes("copies", spans, rows)


def softmax_bytes(config: Config, cast: bool) -> float:
    """Bytes that softmax and the product after it save for one attention score.

    ``cast``: the scores are bf16, softmax runs in fp32 as CUDA's autocast has it, and the product
    takes bf16 again. It is written out here, because the CPU's autocast leaves softmax alone.
    """
    n, d = config.width, 8
    scores = torch.randn(n, n, device=config.device, requires_grad=True)
    value = torch.randn(n, d, device=config.device, requires_grad=True)
    exclude = [value]
    if cast:
        scores, value = scores.bfloat16(), value.bfloat16()
        exclude.append(value)
    with saved_tensors(exclude) as saved:
        weights = torch.softmax(scores.float(), -1)
        (weights.bfloat16() if cast else weights) @ value
    return saved.bytes / (n * n)


# --- the run -------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Measure what a block keeps, what the cache holds, and a whole step."""
    found = Mechanisms(MEASURES, config)
    measure_saved(config, found)
    progress(0.2, "break-even")
    measure_break_even(config, found)

    progress(0.5, "the cache")
    weights = 12 * config.width**2
    found["inside_left_bytes_per_param"] = left_after_backward(config, inside=True) / weights
    found["outside_left_bytes_per_param"] = left_after_backward(config, inside=False) / weights
    found["shared_weight_copies_cached"] = copies_of_a_shared_weight(config, cache=True)
    found["shared_weight_copies_uncached"] = copies_of_a_shared_weight(config, cache=False)
    evaluation = {mode: evaluation_peak(config, mode) for mode in MODES[:2]}
    found["evaluation_ratio"] = evaluation["amp"] / evaluation["fp32"]
    found["softmax_fp32_bytes_per_score"] = softmax_bytes(config, cast=False)
    found["softmax_amp_bytes_per_score"] = softmax_bytes(config, cast=True)
    draw_copies(config, found)

    progress(0.6, "a whole step")
    measure_step(config, found)
    progress(1.0, "")
    return found.result()


def measure_saved(config: Config, found: Findings) -> None:
    """What one block saves for each token, by kind; the copies of weights are told apart."""
    n = config.tokens
    saved = {mode: keep(config, mode, n) for mode in MODES}
    copies: dict[Mode, int] = {"fp32": 0, "amp": weight_copies(config, saved["amp"], n), "bf16": 0}
    activations = {mode: saved[mode].bytes - copies[mode] for mode in MODES}
    for mode in MODES:
        found[f"{mode}_saved_bytes_per_token"] = activations[mode] / n
    found["amp_activation_ratio"] = activations["amp"] / activations["fp32"]
    found["bf16_activation_ratio"] = activations["bf16"] / activations["fp32"]
    found["weight_copy_bytes_per_param"] = copies["amp"] / (12 * config.width**2)

    def total(mode: Mode, dtype: torch.dtype) -> int:
        return sum(t.nbytes for t in saved[mode].tensors if t.dtype is dtype and not t.shared)

    places = range(len(MODES))
    halves = [total(mode, torch.bfloat16) - copies[mode] for mode in MODES]
    found.draw(
        "kinds",
        Line("fp32", places, [total(mode, torch.float32) for mode in MODES]),
        Line("bf16", places, halves),
        Line("copies", places, [copies[mode] for mode in MODES]),
        places=MODES,
    )


def measure_break_even(config: Config, found: Findings) -> None:
    """From how many tokens on autocast keeps less, and how much more it keeps with few."""
    h, a = config.width, config.heads
    crossing = break_even(config)
    found["break_even_tokens"] = crossing
    found["break_even_over_width"] = crossing / h
    few = max(1, h // 8)
    found["few_tokens_ratio"] = keep(config, "amp", few).bytes / keep(config, "fp32", few).bytes

    ticks = [max(1, h * eighths // 8) for eighths in range(1, 17, 3)]
    small = 4 * a + 16
    found.draw(
        "crossing",
        Line("fp32_measured", ticks, [keep(config, "fp32", n).bytes for n in ticks]),
        Line("fp32_theory", ticks, [(64 * h + small) * n for n in ticks]),
        Line("amp_measured", ticks, [keep(config, "amp", n).bytes for n in ticks]),
        Line("amp_theory", ticks, [(36 * h + small) * n + 24 * h * h for n in ticks]),
    )


def measure_step(config: Config, found: Findings) -> None:
    """Model states and the peak of a whole step, autocast and bf16 over fp32.

    On fake tensors for the CPU: most processors multiply in bf16 a hundred times slower than in fp32.
    """
    few = replace(config, tokens=64)
    with fake() if config.device == "cpu" else nullcontext():
        fp32, amp, bf16 = (breakdown(*begin(config, recipe)) for recipe in RECIPES[:3])
        short, short_amp = (breakdown(*begin(few, recipe)).peak for recipe in RECIPES[:2])
    states = sum(amp.held.values())
    found["states_ratio"] = states / sum(fp32.held.values())
    found["states_bytes_per_param"] = states / amp.parameters
    found["gradients_are_fp32"] = gradient_dtypes(few) == {torch.float32}
    found["peak_ratio"] = amp.peak / fp32.peak
    found["bf16_peak_ratio"] = bf16.peak / fp32.peak
    found["few_tokens_peak_ratio"] = short_amp / short


def begin(config: Config, recipe: Recipe) -> tuple[Trainer, Tensor]:
    """A small GPT that has not stepped yet, and its batch in sequences of 64 tokens."""
    size = GPTSize(config.layers, config.width, config.heads, vocabulary=4 * config.width)
    trainer = Trainer(size, recipe, config.device)
    return trainer, make_tokens(size.vocabulary, config.tokens // 64, 64, config.device)


def gradient_dtypes(config: Config) -> set[torch.dtype]:
    """The dtypes of all gradients after a backward under autocast."""
    trainer, tokens = begin(config, RECIPES[1])
    trainer.backward(tokens)
    return {gradient.dtype for gradient in trainer.gradients()}

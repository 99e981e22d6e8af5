"""What does a checkpoint store, what does it compute again, when, and are the gradients the same?

The lesson is ``lessons/activation_checkpointing.en.md`` (中文: ``lessons/activation_checkpointing.zh.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import allocator_peak
from runnable_demos.lab.mechanisms import Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import Block
from runnable_demos.models.lifetimes import lifetimes, spans
from runnable_demos.models.stacks import (
    Forward,
    Layer,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
    step_flops,
)
from runnable_demos.models.tracing import Event, Moment, trace_step

GPU = 5
TITLE: Text = {
    "zh": "激活检查点：12 层分 3 段",
    "en": "Activation checkpointing: 12 layers in 3 segments",
}
QUESTION: Text = {
    "zh": "检查点存下什么、何时重算什么？梯度与不设检查点时逐位相等吗？",
    "en": "What does a checkpoint store, what does it compute again and when, "
    "and are the gradients the same bit by bit?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "同一随机种子，逐张量 torch.equal，每块一段与 k 块一段都比",
  "torch.equal tensor by tensor with equal seeds, for segments of one block and of k",
]
[method.metrics]
gradients_bit_equal = [
  "",
  "无 dropout，损失与全部梯度逐位相等",
  "loss and all gradients bit-equal, without dropout",
]
gradients_bit_equal_dropout = [
  "",
  "有 dropout，损失与全部梯度逐位相等",
  "loss and all gradients bit-equal, with dropout",
]
loss_equal_without_rng_state = [
  "",
  "不恢复随机数状态，损失仍然相等",
  "without restoring the random state, the loss is still equal",
]
gradients_wrong_without_rng_state = [
  "",
  "不恢复随机数状态，梯度不等",
  "without restoring the random state, gradients differ",
]

[[method]]
kind = "exact"
how = [
  "存储的实时字节除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
  "live bytes of storages over the bytes of one layer's output, without parameters and their gradients; checkpoints with preserve_rng_state=False",
]
[method.metrics]
held_none = ["", "不设检查点，前向结束时持有的份数", "activations held after the forward without checkpoints"]
held_segments = ["", "分段后，前向结束时持有的份数", "activations held after the forward with segments"]
peak_none = ["", "不设检查点的峰值份数", "peak without checkpoints"]
peak_segments = ["", "分段后的峰值份数", "peak with segments"]
peak_each = ["", "每层一段的峰值份数", "peak with a segment a layer"]
peak_last_kept = ["", "末段不设检查点的峰值份数", "peak with the last segment left alone"]

[[method]]
kind = "exact"
how = ["各层自记的动作", "what the layers noted of themselves"]
[method.metrics]
layers_recomputed = ["", "重算的层次数", "layers that run again"]
first_recomputed = ["", "最先重算的层", "layer that runs again first"]
last_recomputed = ["", "最后重算的层", "layer that runs again last"]
peak_segment = ["", "峰值出现在第几段", "segment in whose backward the peak falls"]

[[method]]
kind = "exact"
how = ["FlopCounterMode 计数", "counted by FlopCounterMode"]
[method.metrics]
recompute_overhead = ["", "重算占不设检查点一步的 FLOPs", "FLOPs of recompute over a step without checkpoints"]
recompute_overhead_last_kept = ["", "末段不设检查点时的同一比例", "the same with the last segment left alone"]
block_recompute_overhead = [
  "",
  "每块一个检查点，重算占一步的 FLOPs",
  "FLOPs of recompute over a step, with a checkpoint a block",
]

[[method]]
kind = "exact"
how = ["前向与反向之间存活的字节除以 token 数与块数", "bytes live between forward and backward over tokens and blocks"]
[method.metrics]
block_held_none = ["B/token", "不设检查点，每块每个 token 持有", "held a token and block without checkpoints"]
block_held_each = ["B/token", "每块一个检查点，每块每个 token 持有", "held a token and block with a checkpoint a block"]
block_held_ratio = ["", "两者之比", "the first over the second"]

[[method]]
kind = "exact"
how = ["一步之内的实时峰值，不计参数与参数梯度", "live peak of a step, without parameters and their gradients"]
[method.metrics]
block_peak_ratio = ["", "峰值之比：不设检查点 / 每块一个", "ratio of peaks: without checkpoints over one a block"]

[[method]]
kind = "measured"
how = [
  "第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
only = "gpu"
[method.metrics]
block_none_allocated = [
  "B",
  "不设检查点，一步分配的峰值",
  "peak that a step allocates, without checkpoints",
]
block_each_allocated = [
  "B",
  "每块一个检查点，一步分配的峰值",
  "peak that a step allocates, with a checkpoint a block",
]

[figure.order]
title = ["哪一层在何时运行", "Which layer runs when"]
x = {label = ["第几个动作", "action"]}
y = {label = ["层", "layer"]}
[figure.order.series]
forward = ["measured", "前向", "forward"]
backward = ["measured", "反向", "backward"]
recompute = ["measured", "重算第 {nth} 段", "recompute segment {nth}"]

[figure.live]
title = ["一步之中存活的激活", "Activations alive during a step"]
x = {label = ["第几个动作", "action"]}
y = {label = ["存活字节 / 一层输出", "live bytes / one layer's output"]}
[figure.live.series]
none = ["step", "不设检查点", "no checkpoints"]
segments = ["step", "{k} 层一段", "segments of {k}"]

[figure.lifetimes]
title = [
  "每层的输出何时存活：全部存下，与 {k} 层一段、只存各段的输入",
  "When each layer's output is alive: all kept, and segments of {k} that keep their inputs alone",
]
x = {label = ["第几个动作", "action"]}
y = {label = ["激活 x", "activation x"]}
[figure.lifetimes.series]
saved = ["bar", "存着，等反向来用", "kept for the backward"]
rebuilt = ["bar", "反向里重算出来的", "computed again in the backward"]
dropped = ["bar", "用完就丢", "dropped once used"]
forward = ["bar", "前向（各层）", "forward (layers)"]
recompute = ["bar", "重算（各层）", "recompute (layers)"]
backward = ["bar", "反向（各层）", "backward (layers)"]
[figure.lifetimes.places]
none = ["全部存下", "all kept"]
segments = ["{k} 层一段", "segmented"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The textbook's stack, and one of transformer blocks."""

    layers: int = parameter(12, {"zh": "层数 L", "en": "layers L"}, 2, 200)
    segment: int = parameter(4, {"zh": "段长 k", "en": "segment length k"}, 1, 200)
    batch: int = parameter(2048, {"zh": "批大小", "en": "batch"}, 1, 65536)
    width: int = parameter(32, {"zh": "层宽", "en": "width of a layer"}, 2, 4096)
    tokens: int = parameter(256, {"zh": "序列长度 N", "en": "sequence length N"}, 2, 8192)
    hidden: int = parameter(64, {"zh": "块的宽度 h", "en": "width h of a block"}, 8, 4096)
    heads: int = parameter(4, {"zh": "头数", "en": "heads"}, 1, 64)
    dropout: float = parameter(0.1, {"zh": "丢弃率", "en": "dropout rate"}, 0.01, 0.9)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(batch=128, width=8, tokens=16, hidden=16, heads=2), "full": Config()}


# --8<-- [start:gradients]
def loss_and_gradients(
    forward: Forward, layers: Sequence[nn.Module], x: Tensor, seed: int
) -> list[Tensor]:
    """The loss, the gradient of ``x`` and those of all parameters, after seeding dropout."""
    torch.manual_seed(seed)
    x = x.clone().requires_grad_()
    loss = forward(x).square().mean()
    parameters = [p for layer in layers for p in layer.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss, [x, *parameters])]


def bit_equal(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether all tensors agree in every bit."""
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# --8<-- [end:gradients]


def compare_gradients(
    config: Config, blocks: Sequence[Block], segments: Sequence[int], found: Findings
) -> None:
    """Loss and gradients with checkpoints and without, by segments of one block and of k."""
    x = torch.randn(1, config.tokens, config.hidden, device=config.device)
    plain = partial(run_layers, blocks)
    each = (1,) * len(blocks)
    for name, rate in (
        ("gradients_bit_equal", 0.0),
        ("gradients_bit_equal_dropout", config.dropout),
    ):
        for block in blocks:
            block.dropout.p = rate
        reference = loss_and_gradients(plain, blocks, x, config.seed)
        found[name] = all(
            bit_equal(
                reference,
                loss_and_gradients(
                    partial(run_segments, blocks, lengths, preserve_rng_state=True),
                    blocks,
                    x,
                    config.seed,
                ),
            )
            for lengths in (each, segments)
        )
    # --8<-- [start:forgetful]
    # The forward is the same; the recomputation drops other numbers.
    forgetful = loss_and_gradients(partial(run_segments, blocks, each), blocks, x, config.seed)
    found["loss_equal_without_rng_state"] = torch.equal(reference[0], forgetful[0])
    found["gradients_wrong_without_rng_state"] = not bit_equal(reference[1:], forgetful[1:])
    # --8<-- [end:forgetful]


def draw_steps(
    none: Sequence[Event], log: Sequence[Event], k: int, a: int, found: Findings
) -> None:
    """Which layer runs when, and the most bytes alive during each action, in activations."""
    runs: dict[tuple[Moment, int], list[tuple[int, int]]] = {}
    for t, event in enumerate(log, start=1):
        segment = (event.layer - 1) // k + 1 if event.moment == "recompute" else 0
        runs.setdefault((event.moment, segment), []).append((t, event.layer))
    lines = []
    for (moment, segment), points in runs.items():
        times, numbers = zip(*points, strict=True)
        lines.append(Line(moment, times, numbers, {"nth": segment} if segment else {}))
    found.draw("order", *lines)
    found.draw(
        "live",
        Line("none", range(1, len(none) + 1), [event.live / a for event in none]),
        Line("segments", range(1, len(log) + 1), [event.live / a for event in log]),
    )


def draw_lifetimes(
    layers: Sequence[nn.Module], segments: Sequence[int], config: Config, found: Mechanisms
) -> None:
    """Both ways of training, one above the other, over the same actions."""
    xs = range(len(layers) + 1)
    shape = config.batch, config.width
    none, checkpointed = (
        lifetimes(layers, lengths, shape, config.device) for lengths in (None, segments)
    )
    parts = [*spans(*none, 0, "saved"), *spans(*checkpointed, 1 + len(xs), "saved")]
    found.lanes("lifetimes", parts, rows=["none", *xs, "segments", *xs])


def run(config: Config, progress: Progress) -> Result:
    """The textbook's example, traced; then transformer blocks."""
    L, k, device = config.layers, min(config.segment, config.layers), config.device
    found = Mechanisms(MEASURES, config, k=k)
    segments = equal_segments(L, k)

    progress(0.0, f"{L} layers in segments of {k}")
    shape: tuple[int, ...] = (config.batch, config.width)
    a = config.batch * config.width * 4  # bytes of one layer's output
    # --8<-- [start:trace]
    layers = [Layer(config.width).to(device) for _ in range(L)]
    none, none_log = trace_step(layers, None, shape, device)
    found["held_none"], found["peak_none"] = none.held / a, none.peak / a
    step, log = trace_step(layers, segments, shape, device)
    found["held_segments"], found["peak_segments"] = step.held / a, step.peak / a
    each = measure_step(partial(run_segments, layers, (1,) * L), layers, shape, device)
    found["peak_each"] = each.peak / a
    kept = partial(run_segments, layers, segments, keep_last=True)
    found["peak_last_kept"] = measure_step(kept, layers, shape, device).peak / a
    # --8<-- [end:trace]

    again = [event.layer for event in log if event.moment == "recompute"]
    found["layers_recomputed"] = len(again)
    found["first_recomputed"], found["last_recomputed"] = again[0], again[-1]
    found["peak_segment"] = (max(log, key=lambda event: event.live).layer - 1) // k + 1
    draw_steps(none_log, log, k, a, found)
    draw_lifetimes(layers, segments, config, found)

    # --8<-- [start:flops]
    flops = step_flops(partial(run_layers, layers), shape, device)
    checkpointed = partial(run_segments, layers, segments)
    found["recompute_overhead"] = (step_flops(checkpointed, shape, device) - flops) / flops
    found["recompute_overhead_last_kept"] = (step_flops(kept, shape, device) - flops) / flops
    # --8<-- [end:flops]

    progress(0.4, "transformer blocks")
    shape = (1, config.tokens, config.hidden)
    blocks = [Block(config.hidden, config.heads).to(device) for _ in range(L)]
    plain, checkpointed = partial(run_layers, blocks), partial(run_segments, blocks, (1,) * L)
    none = measure_step(plain, blocks, shape, device)
    each = measure_step(checkpointed, blocks, shape, device)
    found["block_held_none"] = none.held / config.tokens / L
    found["block_held_each"] = each.held / config.tokens / L
    found["block_held_ratio"] = none.held / each.held
    found["block_peak_ratio"] = none.peak / each.peak
    flops = step_flops(plain, shape, device)
    found["block_recompute_overhead"] = (step_flops(checkpointed, shape, device) - flops) / flops

    progress(0.7, "gradients")
    compare_gradients(config, blocks, segments, found)
    if device == "cuda":
        x = torch.randn(*shape, device=device)

        def train(forward: Forward) -> None:
            forward(x).sum().backward()

        found["block_none_allocated"] = allocator_peak(partial(train, plain))
        found["block_each_allocated"] = allocator_peak(partial(train, checkpointed))
    progress(1.0, "done")
    return found.result()

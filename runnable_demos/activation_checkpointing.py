"""What does a checkpoint store, what does it compute again, when, and are the gradients the same?

The question
    The textbook example: 12 layers in 3 segments of 4. Between forward and backward only the three
    segment inputs are held. Which layers run again, in which order, and when is memory at its peak?

The model
    Layer i saves its input x_{i−1}; ReLU saves its output x_i, which is the next layer's input.
    Without checkpoints x_0 … x_12 are held. With them x_0, x_4 and x_8; the backward enters the
    last segment first, rebuilds x_9 … x_12, and frees them before it goes on to x_5 … x_8:

        L/k + k  activations at the peak, in place of  L + 1

    both with two more in flight: the gradient that comes in, and what is being made from it.

The measurement
    Each layer notes when it runs, when it runs again and when its gradient arrives, with the bytes
    that are live then. A stack of transformer blocks shows the same with what a real layer holds
    inside, and compares loss and gradients bit by bit, with dropout and without.

The result
    Bit-equal; the last segment's rebuilding is the peak; every layer runs once more, 1/3 of a
    step's FLOPs, unless the last segment is left alone, at the same peak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from runnable_demos.measure import LiveMemory, allocator_peak
from runnable_demos.metrics import Axis, Figure, Metric, Progress, Result, Series, Text, parameter
from runnable_demos.stacks import (
    Block,
    Forward,
    Layer,
    Step,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
    step_flops,
)

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

Moment = Literal["forward", "recompute", "backward"]


@dataclass(frozen=True, slots=True)
class Event:
    """Layer ``layer`` (from 1) runs, runs again or gets its gradient.

    ``live`` are the most bytes alive from then until the next event.
    """

    moment: Moment
    layer: int
    live: int


class Traced(nn.Module):
    """A layer that notes what happens to it; a second run of its forward is a recomputation."""

    def __init__(self, layer: nn.Module, note: Callable[[Moment], None]) -> None:
        super().__init__()
        self.layer = layer
        self.note = note
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        self.note("recompute" if self.runs else "forward")
        self.runs += 1
        y: Tensor = self.layer(x)
        y.register_hook(lambda _: self.note("backward"))
        return y


def trace_step(
    layers: Sequence[nn.Module], lengths: Sequence[int] | None, shape: Sequence[int], device: str
) -> tuple[Step, list[Event]]:
    """A step with segments of ``lengths``, or without checkpoints, and all that happened in it."""
    live = LiveMemory()
    log: list[tuple[Moment, int, int]] = []  # what, which layer, and the place in live's timeline

    def traced(number: int, layer: nn.Module) -> Traced:
        return Traced(layer, lambda moment: log.append((moment, number, len(live.timeline))))

    stack = [traced(number, layer) for number, layer in enumerate(layers, start=1)]

    def forward(x: Tensor) -> Tensor:
        return run_layers(stack, x) if lengths is None else run_segments(stack, lengths, x)

    step = measure_step(forward, layers, shape, device, live)
    live_bytes = [sum(now) for now in live.timeline]
    ends = [begin for _, _, begin in log[1:]] + [len(live_bytes)]
    return step, [
        Event(moment, number, max(live_bytes[begin - 1 : end]))
        for (moment, number, begin), end in zip(log, ends, strict=True)
    ]


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


def order_figure(log: Sequence[Event], k: int) -> Figure:
    """Which layer runs when: time to the right, layers upward."""
    runs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for t, event in enumerate(log, start=1):
        segment = (event.layer - 1) // k + 1 if event.moment == "recompute" else 0
        runs.setdefault((event.moment, segment), []).append((float(t), float(event.layer)))
    names = {"forward": "前向", "backward": "反向"}
    series = []
    for (moment, segment), points in runs.items():
        times, layers = zip(*points, strict=True)
        label: Text = (
            {"zh": f"重算第 {segment} 段", "en": f"recompute segment {segment}"}
            if segment
            else {"zh": names[moment], "en": moment}
        )
        series.append(Series(label, times, layers))
    return Figure(
        "order",
        {"zh": "哪一层在何时运行", "en": "Which layer runs when"},
        Axis({"zh": "第几个动作", "en": "action"}),
        Axis({"zh": "层", "en": "layer"}),
        tuple(series),
    )


def live_figure(logs: Sequence[tuple[Text, Sequence[Event]]], activation: int) -> Figure:
    """The most bytes alive during each action, in activations."""
    return Figure(
        "live",
        {"zh": "一步之中存活的激活", "en": "Activations alive during a step"},
        Axis({"zh": "第几个动作", "en": "action"}),
        Axis({"zh": "存活字节 / 一层输出", "en": "live bytes / one layer's output"}),
        tuple(
            Series(
                label,
                tuple(float(t) for t, _ in enumerate(log, start=1)),
                tuple(event.live / activation for event in log),
                "step",
            )
            for label, log in logs
        ),
    )


def allocated(blocks: Sequence[nn.Module], shape: Sequence[int], device: str) -> tuple[Metric, ...]:
    """On a GPU: how far a step raises the allocator's peak, with and without checkpoints."""
    x = torch.randn(*shape, device=device)

    def metric(name: str, forward: Forward, zh: str, en: str) -> Metric:
        label = {"zh": f"{zh}，一步分配的峰值", "en": f"peak that a step allocates, {en}"}
        return allocator_peak(f"block_{name}_allocated", label, lambda: forward(x).sum().backward())

    return (
        metric("none", partial(run_layers, blocks), "不设检查点", "without checkpoints"),
        metric(
            "each",
            partial(run_segments, blocks, (1,) * len(blocks)),
            "每块一个检查点",
            "with a checkpoint a block",
        ),
    )


def run(config: Config, progress: Progress) -> Result:
    """The textbook's example, traced; then transformer blocks."""
    L, k, device = config.layers, min(config.segment, config.layers), config.device
    segments = equal_segments(L, k)

    progress(0.0, f"{L} layers in segments of {k}")
    shape = (config.batch, config.width)
    a = config.batch * config.width * 4  # bytes of one layer's output
    layers = [Layer(config.width).to(device) for _ in range(L)]
    plain = partial(run_layers, layers)
    checkpointed = partial(run_segments, layers, segments)
    kept = partial(run_segments, layers, segments, keep_last=True)
    none, none_log = trace_step(layers, None, shape, device)
    step, log = trace_step(layers, segments, shape, device)
    each = measure_step(partial(run_segments, layers, (1,) * L), layers, shape, device)
    last_kept = measure_step(kept, layers, shape, device)
    flops = step_flops(plain, shape, device)
    again = [event.layer for event in log if event.moment == "recompute"]
    peak_segment = (max(log, key=lambda event: event.live).layer - 1) // k + 1

    progress(0.4, "transformer blocks")
    block_shape = (1, config.tokens, config.hidden)
    blocks = [Block(config.hidden, config.heads).to(device) for _ in range(L)]
    block_plain = partial(run_layers, blocks)
    block_each = partial(run_segments, blocks, (1,) * L)
    block_none = measure_step(block_plain, blocks, block_shape, device)
    block_step = measure_step(block_each, blocks, block_shape, device)
    block_flops = step_flops(block_plain, block_shape, device)
    block_again = step_flops(block_each, block_shape, device) - block_flops

    progress(0.7, "gradients")
    x = torch.randn(*block_shape, device=device)
    equal = {}
    for name, rate in (("plain", 0.0), ("dropout", config.dropout)):
        for block in blocks:
            block.dropout.p = rate
        reference = loss_and_gradients(block_plain, blocks, x, config.seed)
        equal[name] = all(
            bit_equal(
                reference,
                loss_and_gradients(
                    partial(run_segments, blocks, lengths, preserve_rng_state=True),
                    blocks,
                    x,
                    config.seed,
                ),
            )
            for lengths in ((1,) * L, segments)
        )
    forgetful = loss_and_gradients(block_each, blocks, x, config.seed)
    on_gpu = allocated(blocks, block_shape, device) if device == "cuda" else ()
    progress(1.0, "done")

    live: Text = {
        "zh": "存储的实时字节除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
        "en": "live bytes of storages over the bytes of one layer's output, "
        "without parameters and their gradients; checkpoints with preserve_rng_state=False",
    }
    bits: Text = {
        "zh": "同一随机种子，逐张量 torch.equal，每块一段与 k 块一段都比",
        "en": "torch.equal tensor by tensor with equal seeds, for segments of one block and of k",
    }
    traced: Text = {"zh": "各层自记的动作", "en": "what the layers noted of themselves"}
    counted: Text = {"zh": "FlopCounterMode 计数", "en": "counted by FlopCounterMode"}
    block_bytes: Text = {
        "zh": "前向与反向之间存活的字节除以词元数与块数",
        "en": "bytes live between forward and backward over tokens and blocks",
    }

    def activations(name: str, value: int, zh: str, en: str) -> Metric:
        return Metric(name, value / a, "", "exact", {"zh": zh, "en": en}, live)

    def fact(name: str, value: bool, zh: str, en: str) -> Metric:
        return Metric(name, value, "", "exact", {"zh": zh, "en": en}, bits)

    def count(name: str, value: int, zh: str, en: str) -> Metric:
        return Metric(name, value, "", "exact", {"zh": zh, "en": en}, traced)

    def share(name: str, value: int, whole: int, zh: str, en: str) -> Metric:
        return Metric(name, value / whole, "", "exact", {"zh": zh, "en": en}, counted)

    return Result(
        metrics=(
            fact(
                "gradients_bit_equal",
                equal["plain"],
                "无 dropout，损失与全部梯度逐位相等",
                "loss and all gradients bit-equal, without dropout",
            ),
            fact(
                "gradients_bit_equal_dropout",
                equal["dropout"],
                "有 dropout，损失与全部梯度逐位相等",
                "loss and all gradients bit-equal, with dropout",
            ),
            fact(
                "loss_equal_without_rng_state",
                torch.equal(reference[0], forgetful[0]),
                "不恢复随机数状态，损失仍然相等",
                "without restoring the random state, the loss is still equal",
            ),
            fact(
                "gradients_wrong_without_rng_state",
                not bit_equal(reference[1:], forgetful[1:]),
                "不恢复随机数状态，梯度不等",
                "without restoring the random state, gradients differ",
            ),
            activations(
                "held_none",
                none.held,
                "不设检查点，前向结束时持有的份数",
                "activations held after the forward without checkpoints",
            ),
            activations(
                "held_segments",
                step.held,
                "分段后，前向结束时持有的份数",
                "activations held after the forward with segments",
            ),
            activations("peak_none", none.peak, "不设检查点的峰值份数", "peak without checkpoints"),
            activations("peak_segments", step.peak, "分段后的峰值份数", "peak with segments"),
            activations(
                "peak_each", each.peak, "每层一段的峰值份数", "peak with a segment a layer"
            ),
            activations(
                "peak_last_kept",
                last_kept.peak,
                "末段不设检查点的峰值份数",
                "peak with the last segment left alone",
            ),
            count(
                "layers_recomputed",
                len(again),
                "重算的层次数",
                "layers that run again",
            ),
            count("first_recomputed", again[0], "最先重算的层", "layer that runs again first"),
            count("last_recomputed", again[-1], "最后重算的层", "layer that runs again last"),
            count(
                "peak_segment",
                peak_segment,
                "峰值出现在第几段",
                "segment in whose backward the peak falls",
            ),
            share(
                "recompute_overhead",
                step_flops(checkpointed, shape, device) - flops,
                flops,
                "重算占不设检查点一步的 FLOPs",
                "FLOPs of recompute over a step without checkpoints",
            ),
            share(
                "recompute_overhead_last_kept",
                step_flops(kept, shape, device) - flops,
                flops,
                "末段不设检查点时的同一比例",
                "the same with the last segment left alone",
            ),
            Metric(
                "block_held_none",
                block_none.held / config.tokens / L,
                "B/token",
                "exact",
                {
                    "zh": "不设检查点，每块每词元持有",
                    "en": "held a token and block without checkpoints",
                },
                block_bytes,
            ),
            Metric(
                "block_held_each",
                block_step.held / config.tokens / L,
                "B/token",
                "exact",
                {
                    "zh": "每块一个检查点，每块每词元持有",
                    "en": "held a token and block with a checkpoint a block",
                },
                block_bytes,
            ),
            Metric(
                "block_held_ratio",
                block_none.held / block_step.held,
                "",
                "exact",
                {"zh": "两者之比", "en": "the first over the second"},
                block_bytes,
            ),
            Metric(
                "block_peak_ratio",
                block_none.peak / block_step.peak,
                "",
                "exact",
                {
                    "zh": "峰值之比：不设检查点 / 每块一个",
                    "en": "ratio of peaks: without checkpoints over one a block",
                },
                {
                    "zh": "一步之内的实时峰值，不计参数与参数梯度",
                    "en": "live peak of a step, without parameters and their gradients",
                },
            ),
            share(
                "block_recompute_overhead",
                block_again,
                block_flops,
                "每块一个检查点，重算占一步的 FLOPs",
                "FLOPs of recompute over a step, with a checkpoint a block",
            ),
            *on_gpu,
        ),
        figures=(
            order_figure(log, k),
            live_figure(
                (
                    ({"zh": "不设检查点", "en": "no checkpoints"}, none_log),
                    ({"zh": f"{k} 层一段", "en": f"segments of {k}"}, log),
                ),
                a,
            ),
        ),
    )

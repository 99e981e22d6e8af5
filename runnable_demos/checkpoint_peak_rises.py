"""Checkpoints are on, and the peak has not fallen, or has even risen. Why?

The lesson is ``lessons/checkpoint_peak_rises.en.md`` (中文: ``lessons/checkpoint_peak_rises.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, UntypedStorage, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import Category, LiveMemory
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.stacks import (
    HalfLayer,
    Layer,
    draw_input,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
)

TITLE: Text = {"zh": "重算后峰值反而升高", "en": "When the peak rises"}
QUESTION: Text = {
    "zh": "设了检查点，峰值为什么不降反升？各怎么改？",
    "en": "With checkpoints on, why can the peak stay or even rise, and what fixes it?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步之内存储的实时峰值除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
  "live peak of a step over the bytes of one layer's output, without parameters and their gradients; checkpoints with preserve_rng_state=False",
]
[method.metrics]
boundary_none = ["", "重边界：不设检查点", "heavy boundary: no checkpoints"]
boundary_checkpointed = ["", "重边界：每层一个检查点", "heavy boundary: a checkpoint a layer"]
boundary_mended = [
  "",
  "重边界：{segment} 层一段",
  "heavy boundary: segments of {segment}",
]
outside_none = ["", "段外引用：不设检查点", "references outside: no checkpoints"]
outside_checkpointed = [
  "",
  "段外引用：{segment} 层一段",
  "references outside: segments of {segment}",
]
outside_mended = ["", "段外引用：不留中间输出", "references outside: no state kept"]
arguments_none = ["", "大入参：不设检查点", "large arguments: no checkpoints"]
arguments_checkpointed = ["", "大入参：由入参传入", "large arguments: passed in"]
arguments_mended = ["", "大入参：在段内生成", "large arguments: made inside"]
remainder_none = ["", "余数：不设检查点", "remainder: no checkpoints"]
remainder_checkpointed = [
  "",
  "余数：checkpoint_sequential 分 {singles} 段",
  "remainder: checkpoint_sequential in {singles}",
]
remainder_mended = ["", "余数：分 {even} 段", "remainder: in {even}"]
outside_one = ["", "段外引用：整网一段", "references outside: one segment"]
remainder_one_more = [
  "",
  "余数：checkpoint_sequential 分 {one_more} 段",
  "remainder: checkpoint_sequential in {one_more}",
]

[[method]]
kind = "exact"
how = ["两次实测的峰值之比", "two measured peaks"]
[method.metrics]
boundary_ratio = ["", "重边界：设了检查点 / 不设", "heavy boundary: with checkpoints over without"]
outside_ratio = ["", "段外引用：设了检查点 / 不设", "references outside: with checkpoints over without"]
arguments_ratio = ["", "大入参：设了检查点 / 不设", "large arguments: with checkpoints over without"]
remainder_ratio = ["", "余数：设了检查点 / 不设", "remainder: with checkpoints over without"]
double_backward_ratio = ["", "二阶求导：分段 / 不设检查点", "double backward: segments over none"]
logits_ratio = ["", "词表很大：分段 / 不设检查点", "large vocabulary: segments over none"]
plain_ratio = ["", "同样的网络、没有这些原因：分段 / 不设", "the same stack without a cause"]

[figure.causes]
title = ["四种原因与改法", "Four causes and their fixes"]
x = {label = ["原因", "cause"]}
y = {label = ["峰值 / 不设检查点", "peak / without checkpoints"]}
[figure.causes.series]
checkpointed = ["measured", "设了检查点", "with checkpoints"]
fixed = ["measured", "改过之后", "fixed"]
[figure.causes.places]
boundary = ["重边界", "heavy boundary"]
outside = ["段外引用", "references outside"]
arguments = ["大入参", "large arguments"]
remainder = ["余数", "remainder"]

[figure.alive]
title = ["峰值那一刻，什么还存活", "What is alive at the moment of the peak"]
x = {label = ["存活字节 / 一层输出", "live bytes / one layer's output"]}
y = {label = ["原因", "cause"]}
[figure.alive.series]
kept = ["bar", "前向留下来的", "left by the forward"]
rebuilt = ["bar", "反向里重建的", "rebuilt in the backward"]
flight = ["bar", "在途的梯度", "gradients in flight"]
[figure.alive.places]
boundary = ["重边界", "heavy boundary"]
outside = ["段外引用", "references outside"]
arguments = ["大入参", "large arguments"]
remainder = ["余数", "remainder"]
none = ["不设", "none"]
checkpointed = ["设检查点", "checkpoints"]
one = ["整网一段", "one segment"]
fixed = ["改过之后", "fixed"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """One stack on which all is tried; one layer's output is ``batch`` × ``width`` numbers."""

    layers: int = parameter(24, {"zh": "层数 L", "en": "layers L"}, 4, 200)
    segment: int = parameter(6, {"zh": "段长 k", "en": "segment length k"}, 1, 200)
    batch: int = parameter(1024, {"zh": "批大小", "en": "batch"}, 1, 65536)
    width: int = parameter(16, {"zh": "宽度", "en": "width"}, 2, 4096)
    vocabulary: int = parameter(2048, {"zh": "词表大小", "en": "vocabulary"}, 2, 262144)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(layers=12, segment=4, batch=128, width=8, vocabulary=256),
    "full": Config(),
}

safe = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


class Origins(LiveMemory):
    """Live memory that tells what a recomputation makes from what the forward has left.

    These steps register no inputs: what is made with grad mode on, once the backward has begun,
    goes by that category.
    """

    begun = False

    # --8<-- [start:origins]
    def _follow(self, tree: object, known: Container[int] = ()) -> None:
        self.begun |= not torch.is_grad_enabled()
        super()._follow(tree, known)

    def _add(self, storage: UntypedStorage, category: Category) -> None:
        super()._add(storage, "inputs" if self.begun and category == "activations" else category)

    # --8<-- [end:origins]

    def at_peak_by_origin(self) -> dict[str, int]:
        """The bytes at the peak: left by the forward, rebuilt, gradients in flight."""
        parts = self.at_peak
        return {
            "kept": parts["activations"],
            "rebuilt": parts["inputs"],
            "flight": parts["other"],
        }


Watch = Callable[[str], LiveMemory]
"""A fresh meter for one way of doing a step."""


def unwatched(_: str) -> LiveMemory:
    """Of which nobody asks more than the peak."""
    return LiveMemory()


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes at the peak: without checkpoints, with them, and with the fix."""

    none: int
    checkpointed: int
    fixed: int


def peak_of(
    layers: Sequence[nn.Module],
    config: Config,
    step: Callable[[Tensor], None],
    live: LiveMemory | None = None,
) -> int:
    """Live peak of ``step``, which gets a computed input that nothing else holds."""
    for layer in layers:
        for p in layer.parameters():
            p.grad = torch.zeros_like(p)  # a step after the first: gradients have their place
    z = draw_input((config.batch, config.width), config.device)
    z.grad = torch.zeros_like(z)
    live = live or LiveMemory()
    with live:
        step(z * 1.0)
    return live.peak


# --- what raises the peak ------------------------------------------------------------------------


def heavy_boundary(config: Config, watch: Watch = unwatched) -> Case:
    """An fp32 residual stream around bf16 layers; the fix is longer segments."""
    layers = [HalfLayer(config.width).to(config.device) for _ in range(config.layers)]
    shape = (config.batch, config.width)

    def peak(way: str, forward: Callable[[Tensor], Tensor]) -> int:
        return measure_step(forward, layers, shape, config.device, watch(way)).peak

    def segments(k: int) -> Callable[[Tensor], Tensor]:
        return partial(run_segments, layers, equal_segments(config.layers, k))

    return Case(
        peak("none", partial(run_layers, layers)),
        peak("checkpointed", segments(1)),
        peak("fixed", segments(config.segment)),
    )


def hidden_states(layers: Sequence[nn.Module], x: Tensor) -> list[Tensor]:
    """The outputs of all layers, as a model returns them that is asked for its hidden states."""
    states = []
    for layer in layers:
        x = layer(x)
        states.append(x)
    return states


def held_outside(config: Config, watch: Watch = unwatched) -> tuple[Case, int]:
    """The caller keeps every hidden state; the fix is to keep the last alone.

    Also returned is the peak with one segment around the stack.
    """
    layers = [Layer(config.width).to(config.device) for _ in range(config.layers)]

    def step(k: int | None, x: Tensor) -> None:
        # --8<-- [start:outside]
        states: list[Tensor] = []
        for length in equal_segments(config.layers, k or config.layers):
            run = partial(hidden_states, layers[len(states) : len(states) + length])
            states += safe(run, x) if k else run(x)
            x = states[-1]
        loss = x.sum()
        del x
        loss.backward()
        # --8<-- [end:outside]

    def lean_step(x: Tensor) -> None:
        lengths = equal_segments(config.layers, config.segment)
        run_segments(layers, lengths, x).sum().backward()

    def peak(way: str, k: int | None) -> int:
        return peak_of(layers, config, partial(step, k), watch(way))

    fixed = peak_of(layers, config, lean_step, watch("fixed"))
    case = Case(peak("none", None), peak("checkpointed", config.segment), fixed)
    return case, peak("one", config.layers)


def large_arguments(config: Config, watch: Watch = unwatched) -> Case:
    """Each layer adds a fresh tensor to its input; the fix is to make it inside."""
    layers = [nn.Linear(config.width, config.width) for _ in range(config.layers)]
    for layer in layers:
        layer.to(config.device)
    shape = (config.batch, config.width)

    def offset(i: int) -> Tensor:
        return torch.full(shape, 0.1 * i, device=config.device)

    def given(start: int, x: Tensor, *offsets: Tensor) -> Tensor:
        for i, tensor in enumerate(offsets, start):
            x = layers[i](x + tensor)
        return x

    def made(start: int, stop: int, x: Tensor) -> Tensor:
        for i in range(start, stop):
            x = layers[i](x + offset(i))
        return x

    def step(way: str, x: Tensor) -> None:
        # --8<-- [start:arguments]
        for start in range(0, config.layers, config.segment):
            stop = min(start + config.segment, config.layers)
            if way == "none":
                x = made(start, stop, x)
            elif way == "checkpointed":
                x = safe(partial(given, start), x, *(offset(i) for i in range(start, stop)))
            else:
                x = safe(partial(made, start, stop), x)
        # --8<-- [end:arguments]
        loss = x.sum()
        del x
        loss.backward()

    none, given_, made_ = (
        peak_of(layers, config, partial(step, way), watch(way))
        for way in ("none", "checkpointed", "fixed")
    )
    return Case(none, given_, made_)


def remainder(config: Config, watch: Watch = unwatched) -> tuple[Case, int]:
    """``checkpoint_sequential`` with more and more segments; the fix is a number that divides.

    ``checkpointed`` is half the layers and one more, so that chunks are single layers; also
    returned is the peak with one segment more than the fix.
    """
    layers = [Layer(config.width).to(config.device) for _ in range(config.layers)]
    stack = nn.Sequential(*layers)
    shape = (config.batch, config.width)

    def peak(way: str, segments: int) -> int:
        def forward(x: Tensor) -> Any:
            return checkpoint_sequential(
                stack, segments, x, use_reentrant=False, preserve_rng_state=False
            )

        return measure_step(forward, layers, shape, config.device, watch(way)).peak

    even, plain = config.layers // config.segment, partial(run_layers, layers)
    none = measure_step(plain, layers, shape, config.device, watch("none")).peak
    case = Case(none, peak("checkpointed", config.layers // 2 + 1), peak("fixed", even))
    return case, peak("one_more", even + 1)


# --- what leaves it where it is ------------------------------------------------------------------


def double_backward(config: Config) -> tuple[int, int]:
    """A gradient that is differentiated again: without checkpoints, and with segments."""
    layers = [Layer(config.width, "gelu").to(config.device) for _ in range(config.layers)]

    def step(lengths: tuple[int, ...] | None, x: Tensor) -> None:
        y = run_segments(layers, lengths, x) if lengths else run_layers(layers, x)
        gradient = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
        loss = gradient.square().sum()
        del y, gradient
        loss.backward()

    segments = equal_segments(config.layers, config.segment)
    return (
        peak_of(layers, config, partial(step, None)),
        peak_of(layers, config, partial(step, segments)),
    )


def large_logits(config: Config) -> tuple[int, int]:
    """A head as wide as a vocabulary behind the stack: without checkpoints, and with segments."""
    layers = [Layer(config.width).to(config.device) for _ in range(config.layers)]
    head = nn.Linear(config.width, config.vocabulary).to(config.device)
    target = torch.zeros(config.batch, dtype=torch.long, device=config.device)

    def step(lengths: tuple[int, ...] | None, x: Tensor) -> None:
        y = run_segments(layers, lengths, x) if lengths else run_layers(layers, x)
        F.cross_entropy(head(y), target).backward()

    segments = equal_segments(config.layers, config.segment)
    return (
        peak_of([*layers, head], config, partial(step, None)),
        peak_of([*layers, head], config, partial(step, segments)),
    )


SHOWN: dict[str, tuple[str, ...]] = {
    "boundary": ("none", "checkpointed", "fixed"),
    "outside": ("none", "checkpointed", "one", "fixed"),
    "arguments": ("none", "checkpointed", "fixed"),
    "remainder": ("none", "checkpointed", "fixed"),
}
"""The rows of the figure, cause by cause."""


def draw_alive(lives: dict[tuple[str, str], Origins], a: int, found: Mechanisms) -> None:
    """One bar for each way of each cause, made of what is alive at its peak."""
    rows: list[str] = []
    bars: list[Span] = []
    for cause, ways in SHOWN.items():
        rows.append(cause)
        for way in ways:
            at = 0.0
            for kind, part in lives[cause, way].at_peak_by_origin().items():
                if part:
                    bars.append(Span(len(rows), kind, at, at + part / a))
                    at += part / a
            rows.append(way)
    found.lanes("alive", bars, rows=rows)


def run(config: Config, progress: Progress) -> Result:
    """Four causes with their fixes, and two reasons for a peak that stays."""
    L, k = config.layers, config.segment
    found = Mechanisms(MEASURES, config, singles=L // 2 + 1, even=L // k, one_more=L // k + 1)
    a = config.batch * config.width * 4  # bytes of one layer's output

    lives: dict[tuple[str, str], Origins] = {}

    def watch(cause: str, way: str) -> LiveMemory:
        lives[cause, way] = Origins()
        return lives[cause, way]

    cases: dict[str, Case] = {}
    progress(0.0, "heavy boundary")
    cases["boundary"] = heavy_boundary(config, partial(watch, "boundary"))
    progress(0.2, "held outside")
    cases["outside"], outside_one = held_outside(config, partial(watch, "outside"))
    found["outside_one"] = outside_one / a
    found["plain_ratio"] = cases["outside"].fixed / cases["outside"].none
    progress(0.4, "large arguments")
    cases["arguments"] = large_arguments(config, partial(watch, "arguments"))
    progress(0.5, "remainder")
    cases["remainder"], one_more = remainder(config, partial(watch, "remainder"))
    found["remainder_one_more"] = one_more / a
    for name, case in cases.items():
        found[f"{name}_none"] = case.none / a
        found[f"{name}_checkpointed"] = case.checkpointed / a
        found[f"{name}_mended"] = case.fixed / a
        found[f"{name}_ratio"] = case.checkpointed / case.none

    progress(0.7, "double backward, logits")
    double_none, double = double_backward(config)
    found["double_backward_ratio"] = double / double_none
    logits_none, logits = large_logits(config)
    found["logits_ratio"] = logits / logits_none

    x = range(len(cases))
    found.draw(
        "causes",
        Line("checkpointed", x, [case.checkpointed / case.none for case in cases.values()]),
        Line("fixed", x, [case.fixed / case.none for case in cases.values()]),
        places=cases,
    )
    draw_alive(lives, a, found)
    progress(1.0, "done")
    return found.result()

"""How far apart should checkpoints stand? The peak over the segment length, theory and measurement.

The question
    L equal layers in segments of k. Short segments keep many inputs, long ones rebuild much at
    once. Which k has the lowest peak, what is it, and do segments have to be equal at all?

The model
    A layer saves ``s`` tensors of one size: s = 1 for Linear + ReLU (each saves what the next
    shares), s = 2 for Linear + GELU. When the backward enters segment i of ``m``, the inputs of
    segments 1 … i are held and the n_i layers of segment i are rebuilt:

        peak = max over i of  i + s·n_i − c + 2

    in units of one layer's output. c = 1 for GELU, whose last output nobody needs, and 0 for ReLU.
    The 2 are in flight: the gradient that comes in and what is being made beside it.
    For equal segments that is L/k + s·k, with its minimum 2√(sL) at k = √(L/s).
    Let i + s·n_i be the same for all i instead, and about √(2sL) is enough.

The measurement
    The live peak of a real step for k = 1, 2, … and all divisors, for both activations; for one
    segment around the whole model; for decreasing segments. FLOPs are counted.

    Nine layers in segments of 1, 3 and 9 note when each output is made, freed and made again.

The result
    U-shaped, and flat near its bottom; k = L and, at s = 1, k = 1 save nothing; every k costs the
    same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt

from runnable_demos.lab.findings import Line
from runnable_demos.lab.mechanisms import Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.lifetimes import lifetimes, spans
from runnable_demos.models.stacks import (
    Activation,
    Layer,
    Step,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
    step_flops,
)

TITLE: Text = {"zh": "检查点间隔", "en": "Checkpoint spacing"}
QUESTION: Text = {
    "zh": "L 个等大的层，每段 k 层，峰值怎样随 k 变？最优的 k 是多少？不等长会更好吗？",
    "en": "With L equal layers in segments of k, how does the peak depend on k, which k is best, "
    "and are unequal segments better?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步之内存储的实时峰值除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
  "live peak of a step over the bytes of one layer's output, without parameters and their gradients; checkpoints with preserve_rng_state=False",
]
[method.metrics]
peak_none_s1 = ["", "不设检查点的峰值，s = 1", "peak without checkpoints, s = 1"]
peak_one_s1 = ["", "每层一段的峰值，s = 1", "peak with a segment a layer, s = 1"]
peak_root_s1 = ["", "k = √L 的峰值，s = 1", "peak at k = √L, s = 1"]
peak_best_s1 = ["", "等长段的最低峰值，s = 1", "lowest equal peak, s = 1"]
peak_decreasing_s1 = ["", "递减分段的峰值，s = 1", "peak with decreasing segments, s = 1"]
peak_none_s2 = ["", "不设检查点的峰值，s = 2", "peak without checkpoints, s = 2"]
peak_one_s2 = ["", "每层一段的峰值，s = 2", "peak with a segment a layer, s = 2"]
peak_root_s2 = ["", "k = √L 的峰值，s = 2", "peak at k = √L, s = 2"]
peak_best_s2 = ["", "等长段的最低峰值，s = 2", "lowest equal peak, s = 2"]
peak_decreasing_s2 = ["", "递减分段的峰值，s = 2", "peak with decreasing segments, s = 2"]

[[method]]
kind = "exact"
how = [
  "前向结束、反向之前存活的字节，除以一层输出的字节，不计参数与参数梯度",
  "bytes alive after the forward and before the backward, over the bytes of one layer's output, without parameters and their gradients",
]
[method.metrics]
held_root_s1 = ["", "k = √L，前向结束时持有，s = 1", "held after the forward at k = √L, s = 1"]

[[method]]
kind = "exact"
how = [
  "一步的实时峰值减去前向结束时存活的字节，除以一层输出的字节",
  "live peak of the step less what is alive after the forward, over the bytes of one layer's output",
]
[method.metrics]
rebuilt_root_s1 = ["", "k = √L，峰值比持有的多，s = 1", "peak beyond what is held, at k = √L, s = 1"]

[[method]]
kind = "exact"
how = ["在测过的段长中取峰值最低者", "the lowest peak among the lengths measured"]
[method.metrics]
best_from_s1 = ["", "最低峰值的最小段长，s = 1", "shortest segment at the lowest peak, s = 1"]
best_to_s1 = ["", "最低峰值的最大段长，s = 1", "longest segment at the lowest peak, s = 1"]
best_from_s2 = ["", "最低峰值的最小段长，s = 2", "shortest segment at the lowest peak, s = 2"]
best_to_s2 = ["", "最低峰值的最大段长，s = 2", "longest segment at the lowest peak, s = 2"]

[[method]]
kind = "computed"
how = ["由 i + s·n_i 相等算出的分段", "the segments for which i + s·n_i is even, worked out"]
[method.metrics]
longest_decreasing_s1 = ["", "递减分段的首段层数，s = 1", "layers in the first of the decreasing segments, s = 1"]
longest_decreasing_s2 = ["", "递减分段的首段层数，s = 2", "layers in the first of the decreasing segments, s = 2"]

[[method]]
kind = "exact"
how = ["按字节比较两次实测的峰值", "two measured peaks, compared in bytes"]
[method.metrics]
whole_saves_nothing_s1 = [
  "",
  "整网一段的峰值等于不设检查点，s = 1",
  "one segment around the model peaks as no checkpoint does, s = 1",
]
whole_saves_nothing_s2 = [
  "",
  "整网一段的峰值等于不设检查点，s = 2",
  "one segment around the model peaks as no checkpoint does, s = 2",
]
one_saves_nothing_s1 = [
  "",
  "每层一段的峰值等于不设检查点，s = 1",
  "a segment a layer peaks as no checkpoint does, s = 1",
]
last_kept_same_peak = ["", "末段不设检查点，峰值不变", "leaving the last segment alone does not change the peak"]

[[method]]
kind = "exact"
how = [
  "FlopCounterMode 计数，除以不设检查点一步的 FLOPs",
  "counted by FlopCounterMode, over a step without checkpoints",
]
[method.metrics]
recompute_overhead = ["", "k = √L 时重算的 FLOPs", "FLOPs of recompute at k = √L"]
recompute_overhead_last_kept = [
  "",
  "k = √L 而末段不设检查点时重算的 FLOPs",
  "FLOPs of recompute at k = √L with the last segment left alone",
]
same_cost_for_every_k = [
  "",
  "每层一段、√L、整网一段、递减分段，重算的 FLOPs 相同",
  "a segment a layer, √L, the whole model and decreasing segments repeat as many FLOPs",
]

[figure.u_curve]
title = ["峰值随段长的 U 形", "The U of the peak over the segment length"]
x = {label = ["段长 k", "segment length k"], scale = "log2"}
y = {label = ["峰值 / 一层输出", "peak / one layer's output"], scale = "log2"}
[figure.u_curve.series]
theory = ["theory", "理论 L/k + sk，s = {s}", "theory L/k + sk, s = {s}"]
measured = ["measured", "实测，s = {s}", "measured, s = {s}"]

[figure.lifetimes]
title = [
  "{small} 层、s = 1，段长 1、{root}、{small}：每层的输出何时存活",
  "{small} layers, s = 1, in segments of 1, {root} and {small}: when each output is alive",
]
x = {label = ["第几个动作", "action"]}
y = {label = ["激活 x", "activation x"]}
[figure.lifetimes.series]
held = ["bar", "段输入，一直留着", "segment input, held"]
rebuilt = ["bar", "反向里重建的", "rebuilt in the backward"]
dropped = ["bar", "前向用完就释放", "freed in the forward"]
forward = ["bar", "前向（各层）", "forward (layers)"]
recompute = ["bar", "重算（各层）", "recompute (layers)"]
backward = ["bar", "反向（各层）", "backward (layers)"]
[figure.lifetimes.places]
short = ["k = 1", "k = 1"]
best = ["k = {root}", "k = {root}"]
long = ["k = {small}", "k = {small}"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The stack; one layer's output is ``batch`` × ``width`` numbers."""

    layers: int = parameter(100, {"zh": "层数 L", "en": "layers L"}, 2, 400)
    batch: int = parameter(1024, {"zh": "批大小", "en": "batch"}, 1, 65536)
    width: int = parameter(16, {"zh": "宽度", "en": "width"}, 2, 4096)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=12, batch=128, width=8), "full": Config()}

SAVED: Mapping[Activation, int] = {"relu": 1, "gelu": 2}
"""Tensors that a layer saves, s."""


def decreasing_segments(layers: int, s: int, peak: int) -> tuple[int, ...]:
    """Segments of falling length: segment i takes as many layers as ``i + s·n ≤ peak`` allows.

    The last one is cut, so that the lengths add up to ``layers``; where ``peak`` is too low they
    add up to less.
    """
    lengths: list[int] = []
    while sum(lengths) < layers and peak - len(lengths) - 1 >= s:
        longest = (peak - len(lengths) - 1) // s
        lengths.append(min(longest, layers - sum(lengths)))
    return tuple(lengths)


def leanest_decreasing(layers: int, s: int) -> tuple[int, ...]:
    """Decreasing segments at the lowest peak that holds all ``layers``."""
    peak = s + 1
    while sum(decreasing_segments(layers, s, peak)) < layers:
        peak += 1
    return decreasing_segments(layers, s, peak)


@dataclass(frozen=True, slots=True)
class Curve:
    """What was measured for one activation, by segment length."""

    none: Step
    equal: Mapping[int, Step]
    decreasing: Step
    lengths: tuple[int, ...]

    @property
    def best(self) -> list[int]:
        """The segment lengths at the lowest peak."""
        lowest = min(step.peak for step in self.equal.values())
        return [k for k, step in self.equal.items() if step.peak == lowest]


def sweep(config: Config, activation: Activation, tell: Callable[[int], None]) -> Curve:
    """Measure all segment lengths up to 1.5 √L, all divisors, and decreasing segments."""
    L = config.layers
    layers = [Layer(config.width, activation).to(config.device) for _ in range(L)]
    shape = (config.batch, config.width)
    ks = sorted({*range(1, 3 * isqrt(L) // 2 + 1), *(k for k in range(1, L + 1) if L % k == 0)})

    def measure(lengths: tuple[int, ...]) -> Step:
        forward = partial(run_segments, layers, lengths)
        return measure_step(forward, layers, shape, config.device)

    equal = {}
    for k in ks:
        tell(k)
        equal[k] = measure(equal_segments(L, k))
    lengths = leanest_decreasing(L, SAVED[activation])
    none = measure_step(partial(run_layers, layers), layers, shape, config.device)
    return Curve(none, equal, measure(lengths), lengths)


def overheads(config: Config) -> dict[str, float]:
    """FLOPs of recompute over a step without it, by segmentation (of a stack with ReLU)."""
    L, root = config.layers, isqrt(config.layers)
    layers = [Layer(config.width, "relu").to(config.device) for _ in range(L)]
    shape = (config.batch, config.width)
    step = step_flops(partial(run_layers, layers), shape, config.device)

    def overhead(lengths: tuple[int, ...], keep_last: bool = False) -> float:
        forward = partial(run_segments, layers, lengths, keep_last=keep_last)
        return (step_flops(forward, shape, config.device) - step) / step

    return {
        "one": overhead((1,) * L),
        "root": overhead(equal_segments(L, root)),
        "whole": overhead((L,)),
        "decreasing": overhead(leanest_decreasing(L, 1)),
        "last_kept": overhead(equal_segments(L, root), keep_last=True),
    }


SMALL = 9
"""Layers whose lifetimes are drawn: a square, and few enough for a row each."""


def draw_lifetimes(config: Config, found: Mechanisms) -> None:
    """A short, the best and the longest segment, one below another, over the same actions."""
    xs = range(SMALL + 1)
    ways = {"short": 1, "best": isqrt(SMALL), "long": SMALL}
    parts = []
    for number, k in enumerate(ways.values()):
        layers = [Layer(config.width).to(config.device) for _ in range(SMALL)]
        shape = config.batch, config.width
        log, lives = lifetimes(layers, equal_segments(SMALL, k), shape, config.device)
        parts += spans(log, lives, number * (1 + len(xs)), "held")
    found.lanes("lifetimes", parts, rows=[row for name in ways for row in (name, *xs)])


def run(config: Config, progress: Progress) -> Result:
    """Both curves, their ends and their bottoms, and what each costs."""
    found = Mechanisms(MEASURES, config, small=SMALL, root=isqrt(SMALL))
    L, root = config.layers, isqrt(config.layers)
    a = config.batch * config.width * 4  # bytes of one layer's output
    curves: dict[Activation, Curve] = {}
    activations: tuple[Activation, ...] = ("relu", "gelu")
    for share, activation in zip((0.0, 0.45), activations, strict=True):

        def tell(k: int, share: float = share, activation: str = activation) -> None:
            progress(share + 0.45 * k / L, f"{activation}, k = {k}")

        curve = curves[activation] = sweep(config, activation, tell)
        s, best = SAVED[activation], curve.best
        found[f"peak_none_s{s}"] = curve.none.peak / a
        found[f"peak_one_s{s}"] = curve.equal[1].peak / a
        found[f"peak_root_s{s}"] = curve.equal[root].peak / a
        found[f"peak_best_s{s}"] = curve.equal[best[0]].peak / a
        found[f"best_from_s{s}"], found[f"best_to_s{s}"] = best[0], best[-1]
        found[f"peak_decreasing_s{s}"] = curve.decreasing.peak / a
        found[f"longest_decreasing_s{s}"] = curve.lengths[0]
        found[f"whole_saves_nothing_s{s}"] = curve.equal[L].peak == curve.none.peak

    relu = curves["relu"]
    at_root = relu.equal[root]
    found["held_root_s1"] = at_root.held / a
    found["rebuilt_root_s1"] = (at_root.peak - at_root.held) / a
    found["one_saves_nothing_s1"] = relu.equal[1].peak == relu.none.peak

    progress(0.9, "FLOPs")
    cost = overheads(config)
    found["recompute_overhead"] = cost["root"]
    found["recompute_overhead_last_kept"] = cost["last_kept"]
    everywhere = {cost["one"], cost["root"], cost["whole"], cost["decreasing"]}
    found["same_cost_for_every_k"] = len(everywhere) == 1

    layers = [Layer(config.width).to(config.device) for _ in range(L)]
    last_kept = measure_step(
        partial(run_segments, layers, equal_segments(L, root), keep_last=True),
        layers,
        (config.batch, config.width),
        config.device,
    )
    found["last_kept_same_peak"] = last_kept.peak == at_root.peak

    lines = []
    for activation, curve in curves.items():
        s, ks = SAVED[activation], list(curve.equal)
        measured = [step.peak / a for step in curve.equal.values()]
        lines.append(Line("theory", ks, [L / k + s * k for k in ks], {"s": s}))
        lines.append(Line("measured", ks, measured, {"s": s}))
    found.draw("u_curve", *lines)
    draw_lifetimes(config, found)
    progress(1.0, "done")
    return found.result()

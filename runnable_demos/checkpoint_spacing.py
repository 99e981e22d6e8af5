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

The result
    U-shaped, and flat near its bottom; k = L and, at s = 1, k = 1 save nothing; every k costs the
    same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isqrt

from runnable_demos.metrics import Axis, Figure, Metric, Progress, Result, Series, Text, parameter
from runnable_demos.stacks import (
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


def curve_figure(curves: Mapping[Activation, Curve], L: int, a: int) -> Figure:
    """Peak over segment length: the model as a line, the measurements as marks."""
    series = []
    for activation, curve in curves.items():
        s, ks = SAVED[activation], list(curve.equal)
        series += [
            Series(
                {"zh": f"理论 L/k + sk，s = {s}", "en": f"theory L/k + sk, s = {s}"},
                tuple(map(float, ks)),
                tuple(L / k + s * k for k in ks),
                "theory",
            ),
            Series(
                {"zh": f"实测，s = {s}", "en": f"measured, s = {s}"},
                tuple(map(float, ks)),
                tuple(step.peak / a for step in curve.equal.values()),
            ),
        ]
    return Figure(
        "u_curve",
        {"zh": "峰值随段长的 U 形", "en": "The U of the peak over the segment length"},
        Axis({"zh": "段长 k", "en": "segment length k"}, scale="log2"),
        Axis({"zh": "峰值 / 一层输出", "en": "peak / one layer's output"}, scale="log2"),
        tuple(series),
    )


def run(config: Config, progress: Progress) -> Result:
    """Both curves, their ends and their bottoms, and what each costs."""
    L = config.layers
    root = isqrt(L)
    a = config.batch * config.width * 4  # bytes of one layer's output
    curves: dict[Activation, Curve] = {}
    activations: tuple[Activation, ...] = ("relu", "gelu")
    for share, activation in zip((0.0, 0.45), activations, strict=True):

        def tell(k: int, share: float = share, activation: str = activation) -> None:
            progress(share + 0.45 * k / L, f"{activation}, k = {k}")

        curves[activation] = sweep(config, activation, tell)
    progress(0.9, "FLOPs")
    cost = overheads(config)
    layers = [Layer(config.width).to(config.device) for _ in range(L)]
    last_kept = measure_step(
        partial(run_segments, layers, equal_segments(L, root), keep_last=True),
        layers,
        (config.batch, config.width),
        config.device,
    )
    progress(1.0, "done")

    live: Text = {
        "zh": "一步之内存储的实时峰值除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
        "en": "live peak of a step over the bytes of one layer's output, "
        "without parameters and their gradients; checkpoints with preserve_rng_state=False",
    }
    searched: Text = {
        "zh": "在测过的段长中取峰值最低者",
        "en": "the lowest peak among the lengths measured",
    }
    counted: Text = {
        "zh": "FlopCounterMode 计数，除以不设检查点一步的 FLOPs",
        "en": "counted by FlopCounterMode, over a step without checkpoints",
    }
    equal_bytes: Text = {
        "zh": "按字节比较两次实测的峰值",
        "en": "two measured peaks, compared in bytes",
    }

    def count(name: str, value: int, zh: str, en: str, how: Text) -> Metric:
        return Metric(name, value, "", "exact", {"zh": zh, "en": en}, how)

    def overhead(name: str, key: str, zh: str, en: str) -> Metric:
        return Metric(name, cost[key], "", "exact", {"zh": zh, "en": en}, counted)

    metrics: list[Metric] = []
    for activation, curve in curves.items():
        s = SAVED[activation]
        tag = f"s{s}"

        def peak(name: str, step: Step, zh: str, en: str, s: int = s) -> Metric:
            label = {"zh": f"{zh}，s = {s}", "en": f"{en}, s = {s}"}
            return Metric(name, step.peak / a, "", "exact", label, live)

        best = curve.best
        metrics += [
            peak(f"peak_none_{tag}", curve.none, "不设检查点的峰值", "peak without checkpoints"),
            peak(
                f"peak_one_{tag}", curve.equal[1], "每层一段的峰值", "peak with a segment a layer"
            ),
            peak(f"peak_root_{tag}", curve.equal[root], "k = √L 的峰值", "peak at k = √L"),
            peak(f"peak_best_{tag}", curve.equal[best[0]], "等长段的最低峰值", "lowest equal peak"),
            peak(
                f"peak_decreasing_{tag}",
                curve.decreasing,
                "递减分段的峰值",
                "peak with decreasing segments",
            ),
            count(
                f"best_from_{tag}",
                best[0],
                f"最低峰值的最小段长，s = {s}",
                f"shortest segment at the lowest peak, s = {s}",
                searched,
            ),
            count(
                f"best_to_{tag}",
                best[-1],
                f"最低峰值的最大段长，s = {s}",
                f"longest segment at the lowest peak, s = {s}",
                searched,
            ),
            Metric(
                f"longest_decreasing_{tag}",
                curve.lengths[0],
                "",
                "computed",
                {
                    "zh": f"递减分段的首段层数，s = {s}",
                    "en": f"layers in the first of the decreasing segments, s = {s}",
                },
                {
                    "zh": "由 i + s·n_i 相等算出的分段",
                    "en": "the segments for which i + s·n_i is even, worked out",
                },
            ),
            count(
                f"whole_saves_nothing_{tag}",
                curve.equal[L].peak == curve.none.peak,
                f"整网一段的峰值等于不设检查点，s = {s}",
                f"one segment around the model peaks as no checkpoint does, s = {s}",
                equal_bytes,
            ),
        ]
    at_root = curves["relu"].equal[root]
    metrics += [
        Metric(
            "held_root_s1",
            at_root.held / a,
            "",
            "exact",
            {
                "zh": "k = √L，前向结束时持有，s = 1",
                "en": "held after the forward at k = √L, s = 1",
            },
            live,
        ),
        Metric(
            "rebuilt_root_s1",
            (at_root.peak - at_root.held) / a,
            "",
            "exact",
            {
                "zh": "k = √L，峰值比持有的多，s = 1",
                "en": "peak beyond what is held, at k = √L, s = 1",
            },
            live,
        ),
        count(
            "one_saves_nothing_s1",
            curves["relu"].equal[1].peak == curves["relu"].none.peak,
            "每层一段的峰值等于不设检查点，s = 1",
            "a segment a layer peaks as no checkpoint does, s = 1",
            equal_bytes,
        ),
        count(
            "last_kept_same_peak",
            last_kept.peak == at_root.peak,
            "末段不设检查点，峰值不变",
            "leaving the last segment alone does not change the peak",
            equal_bytes,
        ),
        overhead(
            "recompute_overhead", "root", "k = √L 时重算的 FLOPs", "FLOPs of recompute at k = √L"
        ),
        overhead(
            "recompute_overhead_last_kept",
            "last_kept",
            "k = √L 而末段不设检查点时重算的 FLOPs",
            "FLOPs of recompute at k = √L with the last segment left alone",
        ),
        count(
            "same_cost_for_every_k",
            len({cost["one"], cost["root"], cost["whole"], cost["decreasing"]}) == 1,
            "每层一段、√L、整网一段、递减分段，重算的 FLOPs 相同",
            "a segment a layer, √L, the whole model and decreasing segments repeat as many FLOPs",
            counted,
        ),
    ]
    return Result(tuple(metrics), (curve_figure(curves, L, a),))

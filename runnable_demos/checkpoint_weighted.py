"""Where should checkpoints stand when boundaries and layers weigh differently, or unequally?

The lesson is ``lessons/checkpoint_weighted.en.md`` (中文: ``lessons/checkpoint_weighted.zh.md``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, product
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, UntypedStorage, nn

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import Category, LiveMemory
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.stacks import (
    HalfLayer,
    Layer,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
)
from runnable_demos.models.tracing import trace_step

TITLE: Text = {"zh": "非均匀最优", "en": "Unequal segments"}
QUESTION: Text = {
    "zh": "边界与层内大小不同、各层大小不等时，检查点该设在哪里？",
    "en": "Where should checkpoints stand when boundaries and layers weigh differently, "
    "or unequally?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步之内存储的实时峰值除以一份边界的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
  "live peak of a step over the bytes of one boundary, without parameters and their gradients; checkpoints with preserve_rng_state=False",
]
[method.metrics]
half_none = [
  "",
  "fp32 残差流，b/a = 0.5，不设检查点的峰值",
  "fp32 residual stream, b/a = 0.5: peak, no checkpoints",
]
half_root = ["", "fp32 残差流，b/a = 0.5，k = √L 的峰值", "fp32 residual stream, b/a = 0.5: peak at k = √L"]
half_equal = ["", "fp32 残差流，b/a = 0.5，等长段最低峰值", "fp32 residual stream, b/a = 0.5: lowest equal peak"]
half_unequal = [
  "",
  "fp32 残差流，b/a = 0.5，递减分段的峰值",
  "fp32 residual stream, b/a = 0.5: peak with decreasing segments",
]
relu_none = ["", "Linear + ReLU，b/a = 1，不设检查点的峰值", "Linear + ReLU, b/a = 1: peak, no checkpoints"]
relu_root = ["", "Linear + ReLU，b/a = 1，k = √L 的峰值", "Linear + ReLU, b/a = 1: peak at k = √L"]
relu_equal = ["", "Linear + ReLU，b/a = 1，等长段最低峰值", "Linear + ReLU, b/a = 1: lowest equal peak"]
relu_unequal = [
  "",
  "Linear + ReLU，b/a = 1，递减分段的峰值",
  "Linear + ReLU, b/a = 1: peak with decreasing segments",
]
gelu_none = ["", "Linear + GELU，b/a = 2，不设检查点的峰值", "Linear + GELU, b/a = 2: peak, no checkpoints"]
gelu_root = ["", "Linear + GELU，b/a = 2，k = √L 的峰值", "Linear + GELU, b/a = 2: peak at k = √L"]
gelu_equal = ["", "Linear + GELU，b/a = 2，等长段最低峰值", "Linear + GELU, b/a = 2: lowest equal peak"]
gelu_unequal = [
  "",
  "Linear + GELU，b/a = 2，递减分段的峰值",
  "Linear + GELU, b/a = 2: peak with decreasing segments",
]
mlp_none = [
  "",
  "四倍宽 MLP，b/a = 9，不设检查点的峰值",
  "MLP of four times the width, b/a = 9: peak, no checkpoints",
]
mlp_root = ["", "四倍宽 MLP，b/a = 9，k = √L 的峰值", "MLP of four times the width, b/a = 9: peak at k = √L"]
mlp_equal = ["", "四倍宽 MLP，b/a = 9，等长段最低峰值", "MLP of four times the width, b/a = 9: lowest equal peak"]
mlp_unequal = [
  "",
  "四倍宽 MLP，b/a = 9，递减分段的峰值",
  "MLP of four times the width, b/a = 9: peak with decreasing segments",
]

[[method]]
kind = "exact"
how = ["在测过的等长段中取峰值最低者", "the lowest peak among the equal lengths measured"]
[method.metrics]
half_best_from = ["", "fp32 残差流，b/a = 0.5，最优段长起", "fp32 residual stream, b/a = 0.5: best k from"]
half_best_to = ["", "fp32 残差流，b/a = 0.5，最优段长止", "fp32 residual stream, b/a = 0.5: best k to"]
relu_best_from = ["", "Linear + ReLU，b/a = 1，最优段长起", "Linear + ReLU, b/a = 1: best k from"]
relu_best_to = ["", "Linear + ReLU，b/a = 1，最优段长止", "Linear + ReLU, b/a = 1: best k to"]
gelu_best_from = ["", "Linear + GELU，b/a = 2，最优段长起", "Linear + GELU, b/a = 2: best k from"]
gelu_best_to = ["", "Linear + GELU，b/a = 2，最优段长止", "Linear + GELU, b/a = 2: best k to"]
mlp_best_from = ["", "四倍宽 MLP，b/a = 9，最优段长起", "MLP of four times the width, b/a = 9: best k from"]
mlp_best_to = ["", "四倍宽 MLP，b/a = 9，最优段长止", "MLP of four times the width, b/a = 9: best k to"]

[[method]]
kind = "exact"
how = ["两次实测的峰值之比", "two measured peaks"]
[method.metrics]
narrowing_equal_over_none = [
  "",
  "收窄的金字塔，最优等长段的峰值 / 不设检查点",
  "narrowing pyramid: best equal segments over no checkpoints",
]
narrowing_unequal_over_none = [
  "",
  "收窄的金字塔，最优分段的峰值 / 不设检查点",
  "narrowing pyramid: best segments over no checkpoints",
]
widening_equal_over_none = [
  "",
  "变宽的金字塔，最优等长段的峰值 / 不设检查点",
  "widening pyramid: best equal segments over no checkpoints",
]
widening_unequal_over_none = [
  "",
  "变宽的金字塔，最优分段的峰值 / 不设检查点",
  "widening pyramid: best segments over no checkpoints",
]

[[method]]
kind = "computed"
how = ["算法给出的切法", "as the algorithm cuts"]
[method.metrics]
narrowing_first_length = [
  "",
  "收窄的金字塔，最优分段的首段层数",
  "narrowing pyramid: layers in the first of the best segments",
]
narrowing_last_length = [
  "",
  "收窄的金字塔，最优分段的末段层数",
  "narrowing pyramid: layers in the last of the best segments",
]
widening_first_length = [
  "",
  "变宽的金字塔，最优分段的首段层数",
  "widening pyramid: layers in the first of the best segments",
]
widening_last_length = [
  "",
  "变宽的金字塔，最优分段的末段层数",
  "widening pyramid: layers in the last of the best segments",
]

[[method]]
kind = "exact"
how = [
  "两座金字塔各按 √L 分段与最优分段跑一步，实时峰值的字节与公式比较",
  "live peaks of a step of both pyramids, with segments of √L and with the best ones, against the formula's bytes",
]
[method.metrics]
peaks_as_foretold = ["", "金字塔的峰值与公式逐字节相等", "peaks of the pyramids equal the formula to the byte"]

[[method]]
kind = "computed"
how = ["至多九层，枚举全部切法", "up to nine layers, all cuts enumerated"]
[method.metrics]
equals_brute_force = ["", "随机小例上与穷举同样低", "as low as brute force in every random case"]

[[method]]
kind = "computed"
how = ["由设置给定", "as configured"]
[method.metrics]
cases = ["", "与穷举对照的例数", "cases compared with brute force"]

[figure.strategies]
title = ["各种分段的峰值", "Peaks by strategy"]
x = {label = ["网络", "stack"]}
y = {label = ["峰值 / 不设检查点", "peak / without checkpoints"]}
[figure.strategies.series]
root = ["measured", "每 √L 层一段", "segments of √L"]
equal = ["measured", "最优的等长段", "best equal segments"]
unequal = ["measured", "最优的不等长段", "best unequal segments"]
[figure.strategies.places]
half = ["b/a = 0.5", "b/a = 0.5"]
relu = ["b/a = 1", "b/a = 1"]
gelu = ["b/a = 2", "b/a = 2"]
mlp = ["b/a = 9", "b/a = 9"]
narrowing = ["收窄", "narrowing"]
widening = ["变宽", "widening"]

[figure.balance]
title = ["每段反向时的最高水位", "The highest level in each segment's backward"]
x = {label = ["第几段", "segment"]}
y = {label = ["存活字节 / 一层输出", "live bytes / one layer's output"]}
[figure.balance.series]
root = ["measured", "每 √L 层一段", "segments of √L"]
unequal = ["measured", "递减分段", "decreasing segments"]

[figure.levels]
title = [
  "反向处理每一段时，最满的一刻什么还存活",
  "What is alive at the fullest moment of each segment's backward",
]
x = {label = ["存活字节 / 一层输出", "live bytes / one layer's output"]}
y = {label = ["第几段", "segment"]}
[figure.levels.series]
kept = ["bar", "前向留下的边界", "boundaries left by the forward"]
rebuilt = ["bar", "这一段重建的", "rebuilt in this segment"]
flight = ["bar", "在途的梯度", "gradients in flight"]
[figure.levels.places]
root = ["等长", "equal"]
unequal = ["递减", "decreasing"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """Equal stacks of four kinds of layers, two pyramids, and random small cases."""

    layers: int = parameter(36, {"zh": "等大层数 L", "en": "equal layers L"}, 4, 200)
    width: int = parameter(16, {"zh": "层宽", "en": "width"}, 2, 4096)
    stages: int = parameter(4, {"zh": "金字塔级数", "en": "stages of a pyramid"}, 1, 6)
    stage_layers: int = parameter(6, {"zh": "每级层数", "en": "layers of a stage"}, 1, 40)
    batch: int = parameter(1024, {"zh": "批大小", "en": "batch"}, 1, 65536)
    cases: int = parameter(
        200, {"zh": "与穷举对照的随机例", "en": "random cases against brute force"}, 1, 2000
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(layers=16, width=8, stages=3, stage_layers=2, batch=256, cases=20),
    "full": Config(),
}


# --- layers --------------------------------------------------------------------------------------


class MLPLayer(nn.Module):
    """Linear to four times the width, GELU, Linear back: b/a = 9 (x, and twice the wide one)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, d)``."""
        y: Tensor = self.down(F.gelu(self.up(x)))
        return y


KINDS: Mapping[str, Callable[[int], nn.Module]] = {
    "half": HalfLayer,
    "relu": partial(Layer, activation="relu"),
    "gelu": partial(Layer, activation="gelu"),
    "mlp": MLPLayer,
}
WEIGHT: Mapping[str, float] = {"half": 0.5, "relu": 1.0, "gelu": 2.0, "mlp": 9.0}
"""b/a, by kind of layer."""


# --- where to cut --------------------------------------------------------------------------------


def decreasing_segments(layers: int, weight: float) -> tuple[int, ...]:
    """Lengths that make ``i + weight·n_i`` as even and as low as whole numbers allow."""
    peak = weight + 1
    while True:
        lengths: list[int] = []
        while sum(lengths) < layers:
            longest = int((peak - len(lengths) - 1) // weight)
            if longest < 1:
                break
            lengths.append(min(longest, layers - sum(lengths)))
        if sum(lengths) == layers:
            return tuple(lengths)
        peak += 0.5


# --8<-- [start:cost]
def segment_cost(sizes: Sequence[int], start: int, stop: int) -> int:
    """c(start, stop): bytes at the fullest moment of a segment's backward, beside the boundaries."""
    rebuilt = list(accumulate(sizes[start + 1 : stop + 1]))
    return max(r + 2 * o for r, o in zip(rebuilt, sizes[start + 1 : stop + 1], strict=True))


def foretell(sizes: Sequence[int], lengths: Sequence[int]) -> int:
    """Bytes at the peak of segments of ``lengths``; ``sizes`` are those of x_0 … x_L."""
    peak = held = 0
    for start, stop in pairwise([0, *accumulate(lengths)]):
        held += sizes[start]
        peak = max(peak, held + segment_cost(sizes, start, stop))
    return peak


# --8<-- [end:cost]


def cut(sizes: Sequence[int], peak: int) -> tuple[int, ...] | None:
    """Lengths whose peak is at most ``peak`` bytes; None where there are none."""
    layers = len(sizes) - 1
    # --8<-- [start:cut]
    held = {0: 0}  # f
    before: dict[int, int] = {}
    for stop in range(1, layers + 1):
        for start in range(stop):
            if start not in held:
                continue
            boundary = held[start] + sizes[start]
            fits = boundary + segment_cost(sizes, start, stop) <= peak
            if fits and boundary < held.get(stop, boundary + 1):
                held[stop], before[stop] = boundary, start
    if layers not in held:
        return None
    cuts = [layers]
    while cuts[-1] > 0:
        cuts.append(before[cuts[-1]])
    # --8<-- [end:cut]
    return tuple(b - a for a, b in pairwise(reversed(cuts)))


def best_cut(sizes: Sequence[int]) -> tuple[int, ...]:
    """Lengths at the lowest peak of all."""
    low, high = 0, foretell(sizes, (len(sizes) - 1,))  # not enough; enough
    while high - low > 1:
        middle = (low + high) // 2
        if cut(sizes, middle) is None:
            low = middle
        else:
            high = middle
    lengths = cut(sizes, high)
    assert lengths is not None
    return lengths


def all_cuts(layers: int) -> Iterator[tuple[int, ...]]:
    """All 2^(L − 1) ways to cut a stack."""
    for flags in product((False, True), repeat=layers - 1):
        bounds = [0, *(i for i, flag in enumerate(flags, 1) if flag), layers]
        yield tuple(b - a for a, b in pairwise(bounds))


def agrees_with_brute_force(cases: int, seed: int) -> bool:
    """Whether ``best_cut`` is as low as the lowest of all cuts, for random sizes of 1 to 9 layers."""
    # --8<-- [start:brute-force]
    draw = random.Random(seed)
    for _ in range(cases):
        layers = draw.randint(1, 9)
        sizes = [draw.randint(1, 50) for _ in range(layers + 1)]
        lowest = min(foretell(sizes, lengths) for lengths in all_cuts(layers))
        if foretell(sizes, best_cut(sizes)) != lowest:
            return False
    return True
    # --8<-- [end:brute-force]


# --- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes at the peak, by strategy; ``best_k`` are the equal lengths at the lowest peak."""

    none: int
    root: int
    equal: int
    best_k: tuple[int, ...]
    unequal: int
    lengths: tuple[int, ...]


def compare(
    layers: Sequence[nn.Module], lengths: tuple[int, ...], shape: tuple[int, int], device: str
) -> Peaks:
    """Peaks of a stack without checkpoints, with equal segments of all lengths, and with ``lengths``."""
    L = len(layers)

    def peak(segments: tuple[int, ...]) -> int:
        forward = partial(run_segments, layers, segments)
        return measure_step(forward, layers, shape, device).peak

    ks = sorted({*range(1, 3 * isqrt(L) // 2 + 2), *(k for k in range(1, L + 1) if L % k == 0)})
    peaks = {k: peak(equal_segments(L, k)) for k in ks}
    lowest = min(peaks.values())
    none = measure_step(partial(run_layers, layers), layers, shape, device).peak
    best_k = tuple(k for k, value in peaks.items() if value == lowest)
    return Peaks(none, peaks[isqrt(L)], lowest, best_k, peak(lengths), lengths)


def pyramid(config: Config, widening: bool) -> list[int]:
    """Widths w_0 … w_L: the first stage is the widest and each has half the width of the one before."""
    widths = [
        config.width * 2**stage
        for stage in reversed(range(config.stages))
        for _ in range(config.stage_layers)
    ]
    widths = [widths[0], *widths]
    return widths[::-1] if widening else widths


def segment_peaks(
    layers: Sequence[nn.Module], lengths: tuple[int, ...], shape: tuple[int, int], device: str
) -> tuple[float, ...]:
    """The most alive while each segment is rebuilt and used, in activations; first segment first."""
    _, log = trace_step(layers, lengths, shape, device)
    stops = list(accumulate(lengths))
    highest = [0.0] * len(lengths)
    for event in log:
        if event.moment == "recompute":
            segment = next(i for i, stop in enumerate(stops) if event.layer <= stop)
            highest[segment] = max(highest[segment], event.live / (4 * shape[0] * shape[1]))
    return tuple(highest)


class Levels(LiveMemory):
    """Live memory that keeps the fullest moment of each segment's backward, by origin.

    These steps register no inputs: what a recomputation makes goes by that category.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun = False  # the backward
        self.segment = 0  # that was rebuilt last, from 1 on
        self.fullest: dict[int, tuple[int, int, int]] = {}
        """Bytes left by the forward, rebuilt, and of gradients in flight."""

    def _follow(self, tree: object, known: Container[int] = ()) -> None:
        self.begun |= not torch.is_grad_enabled()
        super()._follow(tree, known)

    def _add(self, storage: UntypedStorage, category: Category) -> None:
        super()._add(storage, "inputs" if self.begun and category == "activations" else category)

    def _event(self) -> None:
        super()._event()
        now = self.by_category
        parts = (now["activations"], now["inputs"], now["other"])
        if self.segment and sum(parts) > sum(self.fullest.get(self.segment, ())):
            self.fullest[self.segment] = parts


class Told(nn.Module):
    """A layer that tells ``levels`` of which segment it is, when it runs again."""

    def __init__(self, layer: nn.Module, segment: int, levels: Levels) -> None:
        super().__init__()
        self.layer, self.segment, self.levels = layer, segment, levels

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        if self.levels.begun:
            self.levels.segment = self.segment
        y: Tensor = self.layer(x)
        return y


def levels_of(
    layers: Sequence[nn.Module], lengths: tuple[int, ...], shape: tuple[int, int], device: str
) -> Levels:
    """A step with segments of ``lengths``."""
    levels = Levels()
    numbers = [i for i, length in enumerate(lengths, 1) for _ in range(length)]
    told = [Told(layer, i, levels) for layer, i in zip(layers, numbers, strict=True)]
    measure_step(partial(run_segments, told, lengths), layers, shape, device, levels)
    return levels


def draw_levels(ways: Mapping[str, Levels], a: int, found: Mechanisms) -> None:
    """A bar for each segment, one way of cutting below another."""
    rows: list[str | int] = []
    bars: list[Span] = []
    for name, levels in ways.items():
        rows.append(name)
        for segment, parts in sorted(levels.fullest.items()):
            ends = [part / a for part in accumulate(parts)]
            starts = [0.0, *ends[:-1]]
            kinds = ("kept", "rebuilt", "flight")
            bars += [Span(len(rows), *bar) for bar in zip(kinds, starts, ends, strict=True)]
            rows.append(segment)
    found.lanes("levels", bars, rows=rows)


def run(config: Config, progress: Progress) -> Result:
    """Equal layers of four weights; pyramids; the algorithm against brute force."""
    found = Mechanisms(MEASURES, config)
    L, device = config.layers, config.device
    shape = (config.batch, config.width)
    a = config.batch * config.width * 4  # bytes of one boundary

    peaks: dict[str, Peaks] = {}
    for i, (kind, make) in enumerate(KINDS.items()):
        progress(i / 6, f"equal layers, b/a = {WEIGHT[kind]:g}")
        layers = [make(config.width).to(device) for _ in range(L)]
        p = peaks[kind] = compare(layers, decreasing_segments(L, WEIGHT[kind]), shape, device)
        found[f"{kind}_none"] = p.none / a
        found[f"{kind}_root"] = p.root / a
        found[f"{kind}_equal"] = p.equal / a
        found[f"{kind}_unequal"] = p.unequal / a
        found[f"{kind}_best_from"], found[f"{kind}_best_to"] = p.best_k[0], p.best_k[-1]

    foretold = True
    for i, name in enumerate(("narrowing", "widening"), 4):
        progress(i / 6, f"{name} pyramid")
        widths = pyramid(config, widening=name == "widening")
        sizes = [config.batch * w * 4 for w in widths]
        stack = [nn.Sequential(nn.Linear(v, w), nn.ReLU()).to(device) for v, w in pairwise(widths)]
        lengths = best_cut(sizes)
        p = peaks[name] = compare(stack, lengths, (config.batch, widths[0]), device)
        found[f"{name}_equal_over_none"] = p.equal / p.none
        found[f"{name}_unequal_over_none"] = p.unequal / p.none
        found[f"{name}_first_length"], found[f"{name}_last_length"] = lengths[0], lengths[-1]
        loss = 8  # bytes: the loss and its gradient
        root = equal_segments(len(stack), isqrt(len(stack)))
        foretold &= p.unequal == foretell(sizes, lengths) + loss
        foretold &= p.root == foretell(sizes, root) + loss
    found["peaks_as_foretold"] = foretold

    x = range(len(peaks))
    found.draw(
        "strategies",
        Line("root", x, [p.root / p.none for p in peaks.values()]),
        Line("equal", x, [p.equal / p.none for p in peaks.values()]),
        Line("unequal", x, [p.unequal / p.none for p in peaks.values()]),
        places=peaks,
    )

    # Rising from segment to segment for equal lengths, even for decreasing ones.
    layers = [Layer(config.width).to(device) for _ in range(L)]
    lines = []
    for name, lengths in (
        ("root", equal_segments(L, isqrt(L))),
        ("unequal", peaks["relu"].lengths),
    ):
        levels = segment_peaks(layers, lengths, shape, device)
        lines.append(Line(name, range(1, len(levels) + 1), levels))
    found.draw("balance", *lines)
    cuts = {"root": equal_segments(L, isqrt(L)), "unequal": peaks["relu"].lengths}
    ways = {name: levels_of(layers, lengths, shape, device) for name, lengths in cuts.items()}
    draw_levels(ways, a, found)

    progress(0.95, "brute force")
    found["equals_brute_force"] = agrees_with_brute_force(config.cases, config.seed)
    found["cases"] = config.cases
    progress(1.0, "done")
    return found.result()

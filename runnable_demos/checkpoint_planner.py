"""Which layers should a stack of unequal layers recompute, so that a step fits in a byte budget?

The lesson is ``lessons/checkpoint_planner.en.md`` (中文: ``lessons/checkpoint_planner.zh.md``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from math import isqrt

import torch
import torch._functorch.config as functorch_config
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_module
from torch._functorch.compilers import nop
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory, count_flops, fake
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.stacks import run_layers, step_flops

TITLE: Text = {"zh": "让程序规划检查点", "en": "Letting a program place the checkpoints"}
QUESTION: Text = {
    "zh": "给定字节预算，各层大小不等，重算哪些层才能让一步放得下、又重复最少的 FLOPs？",
    "en": "Given a budget in bytes and layers of unequal size, which ones should be recomputed "
    "so that a step fits and repeats the fewest FLOPs?",
}


MEASURES = """
[[method]]
kind = "exact"
how = [
  "预测来自伪张量上的分段画像，实测来自真实张量",
  "forecast from segments profiled on fake tensors, measured on real ones",
]
[method.metrics]
peaks_as_predicted = [
  "",
  "前沿上每个方案的峰值与重算量都等于预测",
  "peak and repeated FLOPs of every plan on the frontier equal the forecast",
]

[[method]]
kind = "computed"
how = ["动态规划留下的标号", "labels that the dynamic program leaves"]
[method.metrics]
plans_on_frontier = ["", "帕累托前沿上的方案数", "plans on the Pareto frontier"]

[[method]]
kind = "computed"
how = [
  "至多六层，随机画像与随机预算，枚举全部方案",
  "up to six layers, random profiles and budgets, all plans enumerated",
]
[method.metrics]
equals_brute_force = ["", "随机小例上与穷举同价", "as cheap as brute force on every random case"]

[[method]]
kind = "computed"
how = ["由设置给定", "as configured"]
[method.metrics]
random_cases = ["", "与穷举对照的例数", "cases compared with brute force"]

[[method]]
kind = "exact"
how = ["真实张量上读存储的实时字节", "live bytes of storages on real tensors"]
[method.metrics]
peak_kept = ["B", "全部保留的峰值", "peak with everything kept"]
peak_each_block = ["B", "每层一个检查点的峰值", "peak with a checkpoint a block"]
peak_root = ["B", "每 √N 层一段的峰值", "peak with segments of √N layers"]
peak_whole = ["B", "整网一段的峰值", "peak with one segment"]
peak_leanest = ["B", "最省方案的峰值", "peak of the leanest plan"]
peak_planned = ["B", "预算等于 √N 峰值时的峰值", "planned peak on the budget of √N"]

[[method]]
kind = "exact"
how = ["FlopCounterMode 逐算子累计", "summed by FlopCounterMode, operator by operator"]
[method.metrics]
overhead_each_block = ["", "每层一个检查点的重算", "repeated with a checkpoint a block"]
overhead_root = ["", "每 √N 层一段的重算", "repeated with segments of √N layers"]
overhead_leanest = ["", "最省方案的重算", "repeated by the leanest plan"]
overhead_planned = ["", "预算等于 √N 峰值时的重算", "repeated on the budget of √N"]

[[method]]
kind = "exact"
how = [
  "PyTorch 自动预算设为一半，逐层编译，同样的口径",
  "PyTorch's own budget at one half, compiled layer by layer, read the same way",
]
[method.metrics]
peak_layerwise = ["B", "预算一半、逐层编译时的峰值", "peak with half the budget, layer by layer"]
overhead_layerwise = ["", "这时的重算", "repeated with half the budget, layer by layer"]
overhead_within = ["", "前沿在同一峰值之内的重算", "repeated by the frontier within the same peak"]

[[method]]
kind = "exact"
how = ["同一网络、同样的峰值与 FLOPs 口径", "the same network, peaks and FLOPs read the same way"]
[method.metrics]
partitioner_dominated = [
  "",
  "整网编译时，PyTorch 自动预算的每个点都不优于前沿",
  "with one graph, no point of PyTorch's own budget is better than the frontier",
]

[figure.frontier]
title = ["峰值与重算：规划的前沿", "Peak against recompute: the planner's frontier"]
x = {label = ["步内激活峰值", "activation peak of a step"], unit = "B"}
y = {label = ["重复的 FLOPs / 一步", "FLOPs repeated / step"]}
[figure.frontier.series]
forecast = ["theory", "规划，预测", "planned, forecast"]
planned = ["measured", "规划，实测", "planned, measured"]
uniform = ["measured", "等长分段", "equal segments"]
partitioner = ["measured", "PyTorch 自动预算，整网编译", "PyTorch's own budget, one graph"]
layerwise = ["measured", "PyTorch 自动预算，逐层编译", "PyTorch's own budget, layer by layer"]

[figure.plans]
title = ["预算逐步收紧，留下哪些层", "Which layers are kept as the budget falls"]
kind = "computed"
x = {label = ["各层，宽度是它存的字节", "layers, as wide as what they save"], unit = "B"}
y = {label = ["预算 / 全留的峰值（%）", "budget / peak with all kept (%)"]}
[figure.plans.series]
kept = ["bar", "保留", "kept"]
again = ["bar", "重算", "recomputed"]
[figure.plans.places]
root = ["每段 √N", "√N per segment"]
leanest = ["最省", "leanest"]
"""


@dataclass(frozen=True)
class Config:
    """Sizes of the stack; widths are drawn from ``seed``."""

    layers: int = parameter(8, {"zh": "层数 N", "en": "layers N"}, 2, 12)
    batch: int = parameter(256, {"zh": "批大小 B", "en": "batch B"}, 1, 4096)
    unit: int = parameter(64, {"zh": "宽度的单位", "en": "unit of the widths"}, 8, 512)
    random_cases: int = parameter(
        300, {"zh": "与穷举对照的随机小例", "en": "random cases against brute force"}, 1, 2000
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=4, batch=32, unit=16, random_cases=40), "full": Config()}


# --- plans -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Layers ``start`` to ``stop`` (exclusive), recomputed as one, or one layer that is kept."""

    start: int
    stop: int
    recompute: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """What one segment costs: bytes held for the backward, both peaks in bytes, FLOPs repeated."""

    held: int
    forward_peak: int
    backward_peak: int
    flops: int


Plan = tuple[Segment, ...]
Profiles = Mapping[Segment, Profile]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a plan will do: its peak in bytes and the FLOPs that it repeats."""

    peak: int
    flops: int


# --8<-- [start:forecast]
def forecast(plan: Plan, profiles: Profiles) -> Forecast:
    """The peak of a step under ``plan`` and what it repeats, from the profiles of its segments."""
    held = peak = flops = 0
    for segment in plan:
        cost = profiles[segment]
        peak = max(peak, held + cost.forward_peak, held + cost.backward_peak)
        held += cost.held
        flops += cost.flops
    return Forecast(peak, flops)


# --8<-- [end:forecast]


@dataclass(frozen=True, slots=True)
class _Label:
    held: int
    peak: int
    flops: int
    plan: Plan


def _pareto(labels: Sequence[_Label]) -> list[_Label]:
    """The labels of which no other one is at least as good in bytes held, peak and FLOPs."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda x: (x.flops, x.peak, x.held)):
        if not any(best.held <= label.held and best.peak <= label.peak for best in kept):
            kept.append(label)
    return kept


def frontier(layers: int, profiles: Profiles) -> tuple[tuple[Plan, Forecast], ...]:
    """Every plan that is the cheapest at its peak, from no recompute to the lowest peak that there is.

    Exact: a plan that a label excludes cannot become better by what follows it, since what follows adds the
    same FLOPs and the same bytes on top of both.
    """
    labels: list[list[_Label]] = [[] for _ in range(layers + 1)]
    labels[0] = [_Label(0, 0, 0, ())]
    ending: list[list[Segment]] = [[] for _ in range(layers + 1)]
    for segment in sorted(profiles):
        ending[segment.stop].append(segment)
    # --8<-- [start:frontier]
    for stop in range(1, layers + 1):
        labels[stop] = _pareto(
            [
                _Label(
                    held=before.held + cost.held,
                    peak=max(
                        before.peak,
                        before.held + cost.forward_peak,
                        before.held + cost.backward_peak,
                    ),
                    flops=before.flops + cost.flops,
                    plan=(*before.plan, segment),
                )
                for segment in ending[stop]
                for cost in (profiles[segment],)
                for before in labels[segment.start]
            ]
        )
    # --8<-- [end:frontier]
    found: list[tuple[Plan, Forecast]] = []
    for label in labels[layers]:  # by rising FLOPs
        if not found or label.peak < found[-1][1].peak:
            found.append((label.plan, Forecast(label.peak, label.flops)))
    return tuple(found)


def choose(layers: int, profiles: Profiles, budget: int) -> Plan | None:
    """The plan with the fewest repeated FLOPs whose peak is at most ``budget`` bytes; None if none fits."""
    fitting = (plan for plan, cost in frontier(layers, profiles) if cost.peak <= budget)
    return next(fitting, None)


def all_plans(layers: int) -> Iterator[Plan]:
    """Every plan for ``layers`` layers, for brute force: 2^(N-1) ways to cut, each part recomputed or kept."""
    for cuts in product((False, True), repeat=layers - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), layers]
        parts = list(pairwise(bounds))
        # A kept part of several layers is the same plan as its layers kept one by one.
        choices = [(True, False) if stop - start == 1 else (True,) for start, stop in parts]
        for flags in product(*choices):
            yield tuple(
                Segment(*part, recompute=flag) for part, flag in zip(parts, flags, strict=True)
            )


def agrees_with_brute_force(cases: int, seed: int) -> bool:
    """Whether ``choose`` is as cheap as the best of all plans, on random profiles of up to six layers."""
    draw = random.Random(seed)
    for _ in range(cases):
        layers = draw.randint(1, 6)
        profiles = {
            segment: Profile(*(draw.randint(0, 30) for _ in range(4)))
            for plan in all_plans(layers)
            for segment in plan
        }
        budget = draw.randint(10, 90)
        fitting = [
            cost.flops
            for cost in (forecast(plan, profiles) for plan in all_plans(layers))
            if cost.peak <= budget
        ]
        plan = choose(layers, profiles, budget)
        if (plan is None) != (not fitting):
            return False
        if plan is not None:
            cost = forecast(plan, profiles)
            if cost.peak > budget or cost.flops != min(fitting):
                return False
    return True


# --- the stack and its steps -------------------------------------------------------------------------------


class UnevenBlock(nn.Module):
    """LayerNorm, up, GELU, down: ``(B, d)`` to ``(B, e)`` through a hidden width ``h``."""

    def __init__(self, d: int, h: int, e: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, h)
        self.down = nn.Linear(h, e)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, e)``."""
        y: Tensor = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return y


# --8<-- [start:apply]
def apply_plan(layers: Sequence[nn.Module], plan: Plan, x: Tensor) -> Tensor:
    """The forward pass of the stack under ``plan``."""
    for segment in plan:
        step = partial(run_layers, layers[segment.start : segment.stop])
        x = (
            checkpoint(step, x, use_reentrant=False, preserve_rng_state=False)
            if segment.recompute
            else step(x)
        )
    return x


# --8<-- [end:apply]


@dataclass(frozen=True, slots=True)
class _Peaks:
    held: int
    forward_peak: int
    backward_peak: int


def measure_peaks(
    layers: Sequence[nn.Module], forward: Callable[[Tensor], Tensor], batch: int, width: int
) -> _Peaks:
    """Bytes that one step of ``forward`` holds and reaches, beside parameters, gradients and batch.

    The input of ``forward`` is itself computed, as an inner layer's is, so that only the graph keeps it.
    ``z`` stands for all that comes before and ``weight`` for all that comes after.
    """
    parameters = [p for layer in layers for p in layer.parameters()]
    for p in parameters:
        p.grad = torch.zeros_like(p)  # a training step after the first
    z = torch.ones(batch, width, requires_grad=True, device=parameters[0].device)
    z.grad = torch.zeros_like(z)
    with torch.no_grad():
        weight = torch.ones_like(run_layers(layers, z))
    with LiveMemory() as live:
        x = z * 1.0
        y = forward(x)
        del x
        forward_peak = live.peak
        held = live.current - y.untyped_storage().nbytes()
        loss = (y * weight).sum()
        del y
        live.reset_peak()
        loss.backward()
        backward_peak = live.peak
    return _Peaks(held, forward_peak, backward_peak)


def profile_segments(
    stack: Callable[[], list[UnevenBlock]], batch: int, device: str
) -> dict[Segment, Profile]:
    """Profile every kept layer and every checkpointed run of layers.

    On fake tensors for the CPU; a fake CUDA tensor would follow other kernels, so CUDA is profiled for real.
    """
    profiles: dict[Segment, Profile] = {}
    with fake() if device == "cpu" else nullcontext():
        layers = stack()
        for start in range(len(layers)):
            width = layers[start].norm.normalized_shape[0]
            for stop in range(start + 1, len(layers) + 1):
                part = layers[start:stop]
                once = step_flops(partial(run_layers, part), (batch, width), device)
                for recompute in (False, True) if stop == start + 1 else (True,):
                    whole = (Segment(0, stop - start, recompute),)
                    forward = partial(apply_plan, part, whole)
                    step = measure_peaks(part, forward, batch, width)
                    repeated = (
                        step_flops(forward, (batch, width), device) - once if recompute else 0
                    )
                    profiles[Segment(start, stop, recompute)] = Profile(
                        step.held, step.forward_peak, step.backward_peak, repeated
                    )
    return profiles


def measure_partitioner(
    layers: Sequence[nn.Module], share: float, batch: int, width: int, apart: bool
) -> Forecast:
    """The same step, cut by PyTorch's min-cut partitioner with ``activation_memory_budget=share``.

    ``apart`` makes a graph of each layer, in place of one for the whole stack.

    The graphs that it makes are run operator by operator, so that kernels are the same as elsewhere here.
    Its forward is the ordinary one; what it repeats shows as more FLOPs in its backward.
    """
    with functorch_config.patch(activation_memory_budget=share):
        compiled = nn.Sequential(
            *(
                aot_module(
                    part,
                    fw_compiler=nop,
                    bw_compiler=nop,
                    partition_fn=min_cut_rematerialization_partition,
                )
                for part in (layers if apart else [nn.Sequential(*layers)])
            )
        )
        x = torch.ones(batch, width, requires_grad=True, device=next(layers[0].parameters()).device)
        compiled(x).sum().backward()  # the first call compiles, on fake tensors that are no memory
        step = measure_peaks(layers, compiled, batch, width)
        own, plain = compiled(x).sum(), run_layers(layers, x).sum()
    return Forecast(
        max(step.forward_peak, step.backward_peak),
        count_flops(own.backward) - count_flops(plain.backward),
    )


def uniform(layers: int, length: int) -> Plan:
    """Checkpointed segments of ``length`` layers; the last one may be shorter."""
    return tuple(
        Segment(start, min(start + length, layers), recompute=True)
        for start in range(0, layers, length)
    )


BUDGETS = (100, 90, 80, 70, 60, 50, 40)
"""Budgets of the figure, each in percent of the peak with everything kept."""


def plan_spans(plans: Sequence[Plan], profiles: Profiles) -> list[Span]:
    """One row for each plan: its segments over the layers, each layer as wide as what it holds when kept."""
    layers = plans[0][-1].stop
    edges = [0]
    for i in range(layers):
        edges.append(edges[-1] + profiles[Segment(i, i + 1, recompute=False)].held)
    spans: list[Span] = []
    for row, plan in enumerate(plans):
        for segment in plan:
            first, last = segment.start + 1, segment.stop
            label = str(first) if first == last else f"{first}–{last}"
            kind = "again" if segment.recompute else "kept"
            spans.append(Span(row, kind, edges[segment.start], edges[segment.stop], label))
    return spans


def run(config: Config, progress: Progress) -> Result:
    """Profile, plan, apply the plans, and compare each with what really happens."""
    found = Mechanisms(MEASURES, config)
    draw = random.Random(config.seed)
    n = config.layers
    widths = [draw.randint(1, 4) * config.unit for _ in range(n + 1)]
    hidden = [draw.randint(2, 12) * config.unit for _ in range(n)]

    def stack() -> list[UnevenBlock]:
        with torch.device(config.device):
            return [
                UnevenBlock(d, h, e) for d, h, e in zip(widths, hidden, widths[1:], strict=False)
            ]

    progress(0.0, "profile the segments on fake tensors")
    profiles = profile_segments(stack, config.batch, config.device)
    best = frontier(n, profiles)
    found["plans_on_frontier"] = len(best)

    layers, shape = stack(), (config.batch, widths[0])
    step_without = step_flops(partial(run_layers, layers), shape, config.device)

    def measured(plan: Plan) -> Forecast:
        def forward(x: Tensor) -> Tensor:
            return apply_plan(layers, plan, x)

        step = measure_peaks(layers, forward, config.batch, widths[0])
        flops = step_flops(forward, shape, config.device) - step_without
        return Forecast(max(step.forward_peak, step.backward_peak), flops)

    progress(0.4, "apply the plans")
    real = [measured(plan) for plan, _ in best]
    found["peaks_as_predicted"] = all(a == b for (_, a), b in zip(best, real, strict=True))
    found["peak_kept"] = real[0].peak
    found["peak_leanest"] = real[-1].peak
    found["overhead_leanest"] = real[-1].flops / step_without

    by_length = {length: measured(uniform(n, length)) for length in range(1, n + 1)}
    each, root = by_length[1], by_length[max(1, isqrt(n))]
    found["peak_each_block"] = each.peak
    found["overhead_each_block"] = each.flops / step_without
    found["peak_root"] = root.peak
    found["overhead_root"] = root.flops / step_without
    found["peak_whole"] = by_length[n].peak

    chosen = choose(n, profiles, root.peak)
    assert chosen is not None  # √N spacing itself fits in this budget
    planned = measured(chosen)
    found["peak_planned"] = planned.peak
    found["overhead_planned"] = planned.flops / step_without

    progress(0.7, "PyTorch's partitioner")
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    partitioned, layerwise = (
        [measure_partitioner(layers, share, config.batch, widths[0], apart) for share in shares]
        for apart in (False, True)
    )
    found["partitioner_dominated"] = all(
        any(own.peak <= other.peak and own.flops <= other.flops for own in real)
        for other in partitioned
    )
    add_layerwise(layerwise[shares.index(0.5)], real, step_without, found)

    progress(0.8, "brute force")
    found["equals_brute_force"] = agrees_with_brute_force(config.random_cases, config.seed)
    found["random_cases"] = config.random_cases

    costs = {
        "forecast": [cost for _, cost in best],
        "planned": real,
        "uniform": list(by_length.values()),
        "partitioner": partitioned,
        "layerwise": layerwise,
    }
    found.draw("frontier", *(frontier_line(*each, step_without) for each in costs.items()))
    draw_plans(n, best, profiles, found)
    progress(1.0, "done")
    return found.result()


def add_layerwise(half: Forecast, real: Sequence[Forecast], step: int, found: Mechanisms) -> None:
    """Half of PyTorch's own budget, layer by layer, beside the frontier within the same peak."""
    within = [own.flops for own in real if own.peak <= half.peak]
    found["peak_layerwise"] = half.peak
    found["overhead_layerwise"] = half.flops / step
    found["overhead_within"] = min(within, default=real[-1].flops) / step


def frontier_line(name: str, costs: Iterable[Forecast], step: int) -> Line:
    """Peaks, and the FLOPs of recomputation over those of a ``step`` without."""
    points = [(cost.peak, cost.flops / step) for cost in costs]
    return Line(name, [peak for peak, _ in points], [share for _, share in points])


def draw_plans(
    n: int, best: Sequence[tuple[Plan, Forecast]], profiles: Profiles, found: Mechanisms
) -> None:
    """The planner's choice within each budget, then √N spacing and the plan with the lowest peak."""
    shown = [
        (percent, plan)
        for percent in BUDGETS
        for plan in [p for p, cost in best if cost.peak <= best[0][1].peak * percent // 100][:1]
    ]
    rows = [uniform(n, max(1, isqrt(n))), best[-1][0]]
    found.lanes(
        "plans",
        plan_spans([*(plan for _, plan in shown), *rows], profiles),
        rows=[*(percent for percent, _ in shown), "root", "leanest"],
    )

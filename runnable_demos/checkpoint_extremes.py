"""How little memory can a backward do with, and what does each step below √L cost?

The question
    One checkpoint at the input is said to make activation memory O(1). It does not. What does, how
    often do layers then run, and what is the best that can be done with a given number of slots?

The model
    A *slot* holds one activation; x_0 takes one of the ``s``. An *advance* runs a layer and keeps
    nothing. Each layer is *taped* once: run with grad, and differentiated at once. With l layers
    behind a stored activation, put the next one j layers on, reverse what lies behind it with one
    slot less, then the j layers before it with all slots:

        p(l, s) = min over j of  j + p(l − j, s − 1) + p(j, s),    p(1, s) = 0,  p(l, 1) = l(l − 1)/2

    Griewank and Walther solved it. With β(s, r) = C(s + r, s) and the r for which
    β(s, r − 1) < l ≤ β(s, r),

        p(l, s) = r·l − β(s + 1, r − 1)

    and no layer runs more than r times before it is taped. s = 1 recomputes from the input for
    every layer; s = l is a checkpoint at each.

The measurement
    The schedule is executed on a real stack: advances are counted, the live peak is read, gradients
    are compared bit by bit. Beside it one segment around the whole stack and recursive halving by
    nested ``torch.utils.checkpoint``.

The result
    One segment saves nothing. One slot needs L(L − 1)/2 advances at a peak that does not depend on
    L. Halving runs L·(1 + log₂L) layers, about half of that with PyTorch's early stop, less with the
    second half of each level left alone, and Revolve fewest at the same peak.
    Where layers are thin, segments of √L run fewer than Revolve does: they tape many at once. So they
    do where a layer saves nine times its output; but their lowest peak is then high, and Revolve goes
    far below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import comb, isqrt

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.stacks import (
    Forward,
    Layer,
    draw_input,
    equal_segments,
    measure_step,
    run_layers,
    run_segments,
)

TITLE: Text = {
    "zh": "极端调度：一段、O(1) 与 Revolve",
    "en": "Extremes: one segment, O(1), Revolve",
}
QUESTION: Text = {
    "zh": "激活显存能压到多低？每压低一步，要多跑多少层前向？",
    "en": "How low can activation memory go, and how many more layer forwards does each step cost?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步之内存储的实时峰值除以一层输出的字节，不计参数与参数梯度；检查点一律 preserve_rng_state=False",
  "live peak of a step over the bytes of one layer's output, without parameters and their gradients; checkpoints with preserve_rng_state=False",
]
[method.metrics]
none_peak = ["", "不设检查点的峰值", "peak without checkpoints"]
one_segment_peak = ["", "整网一段的峰值", "peak with one segment"]
one_slot_peak = ["", "一个槽的峰值", "peak with one slot"]
halving_peak = ["", "递归对半的峰值", "peak with recursive halving"]
halving_first_peak = ["", "只包前一半的递归对半的峰值", "peak when halving with the second half left alone"]
thick_segments_peak = [
  "",
  "一层存九份的层：等长分段的最低峰值",
  "layers that save nine outputs: lowest peak of equal segments",
]
thick_revolve_few_peak = [
  "",
  "一层存九份的层：Revolve 用 {s} 个槽的峰值",
  "layers that save nine outputs: peak of Revolve with {s} slots",
]
revolve_peak = [
  "",
  "Revolve，{s} 个槽的峰值",
  "peak, {s} slots",
]
root_peak = ["", "每 √L 层一段的峰值", "peak with segments of √L"]
slot_a_layer_peak = ["", "每层一个槽的峰值", "peak with a slot a layer"]

[[method]]
kind = "exact"
how = ["按字节比较", "compared in bytes"]
[method.metrics]
one_segment_saves_nothing = ["", "整网一段的峰值等于不设检查点", "one segment peaks as no checkpoint does"]
one_slot_peak_is_constant = ["", "层数减半，一个槽的峰值不变", "with half the layers, one slot has the same peak"]

[[method]]
kind = "exact"
how = [
  "执行时逐次计数：推进与求导各算一次层前向",
  "counted while executing: an advance and a taping are one layer forward each",
]
[method.metrics]
one_segment_forwards = ["", "整网一段的层前向", "layer forwards, one segment"]
one_slot_forwards = ["", "一个槽的层前向", "layer forwards with one slot"]
one_slot_extra_forwards = ["", "一个槽多出的层前向", "layer forwards that one slot adds"]
halving_forwards = ["", "递归对半的层前向", "layer forwards when halving"]
halving_no_early_stop_forwards = [
  "",
  "递归对半、不提前停的层前向",
  "layer forwards when halving without early stop",
]
halving_first_forwards = [
  "",
  "只包前一半的递归对半的层前向",
  "layer forwards when halving with the second half left alone",
]
thick_segments_forwards = [
  "",
  "一层存九份的层：等长分段在最低峰值处的层前向",
  "layers that save nine outputs: layer forwards of equal segments at their lowest peak",
]
thick_revolve_forwards = [
  "",
  "一层存九份的层：峰值不高于等长分段时，Revolve 的层前向",
  "layers that save nine outputs: layer forwards of Revolve at no higher peak than equal segments",
]
two_slots_forwards = ["", "两个槽的层前向", "layer forwards, two slots"]
revolve_forwards = [
  "",
  "Revolve，{s} 个槽的层前向",
  "forwards, {s} slots",
]
root_forwards = ["", "每 √L 层一段的层前向", "forwards with segments of √L"]
revolve_as_root_forwards = [
  "",
  "Revolve 与 √L 分段峰值相同时的层前向",
  "forwards of Revolve at the peak of segments of √L",
]
slot_a_layer_forwards = ["", "每层一个槽的层前向", "forwards, a slot a layer"]

[[method]]
kind = "exact"
how = ["执行计数与 p(L, s) 比较", "executed counts against p(L, s)"]
[method.metrics]
executed_is_optimal = [
  "",
  "执行的推进次数都等于动态规划的最优值",
  "advances executed equal the optimum by dynamic programming, for all slots tried",
]

[[method]]
kind = "computed"
how = [
  "两者各自算出推进次数，逐例比较，不执行",
  "advances worked out by both and compared case by case, not executed",
]
[method.metrics]
binomial_is_optimal = [
  "",
  "二项式调度对所有小例都等于动态规划",
  "the binomial schedule equals dynamic programming in every small case",
]

[[method]]
kind = "computed"
how = [
  "l ≤ {cases}、s ≤ l 的全部组合",
  "every l up to {cases} with every s up to l",
]
[method.metrics]
cases = ["", "对照的例数", "cases compared"]

[[method]]
kind = "exact"
how = ["逐张量 torch.equal", "torch.equal tensor by tensor"]
[method.metrics]
gradients_bit_equal = ["", "各种调度的全部梯度逐位相等", "all gradients bit-equal under every schedule"]

[figure.forwards]
title = ["槽数与前向次数", "Slots against forwards"]
x = {label = ["槽数 s", "slots s"], scale = "log2"}
y = {label = ["每层的前向次数", "forwards of a layer"], scale = "log2"}
[figure.forwards.series]
theory = ["theory", "二项式公式", "binomial formula"]
executed = ["measured", "执行计数", "executed and counted"]

[figure.schedule]
title = [
  "{shown} 层的链，只留输入与 {few} 个槽：哪一层何时运行",
  "A chain of {shown} layers, the input alone and {few} slots: which layer runs when",
]
x = {label = ["第几次单层前向", "layer run"]}
y = {label = ["层与槽", "layers and slots"]}
[figure.schedule.series]
stored = ["bar", "槽里存着的激活", "activation in a slot"]
advance = ["bar", "推进：只跑不记", "advance: run, keep nothing"]
tape = ["bar", "求导：带记录地跑，立刻反向", "tape: run with records, differentiate"]
[figure.schedule.places]
one = ["只留输入", "input alone"]
slot1 = ["三槽之 1", "slot 1 of 3"]
slot2 = ["三槽之 2", "slot 2 of 3"]
slot3 = ["三槽之 3", "slot 3 of 3"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The stack, and the slots of the schedule that the card quotes."""

    layers: int = parameter(64, {"zh": "层数 L", "en": "layers L"}, 2, 200)
    slots: int = parameter(5, {"zh": "重点展示的槽数 s", "en": "slots s of the example"}, 1, 200)
    batch: int = parameter(1024, {"zh": "批大小", "en": "batch"}, 1, 65536)
    width: int = parameter(16, {"zh": "宽度", "en": "width"}, 2, 4096)
    cases: int = parameter(
        60, {"zh": "与动态规划对照的最大层数", "en": "most layers compared with the DP"}, 2, 200
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=16, slots=4, batch=128, width=8, cases=20), "full": Config()}


# --- the schedule --------------------------------------------------------------------------------


def beta(s: int, r: int) -> int:
    """β(s, r): the most layers that ``s`` slots reverse when none is advanced over more than r times."""
    return comb(s + r, s) if r >= 0 else 0


def repetitions(layers: int, s: int) -> int:
    """The r for which β(s, r − 1) < layers ≤ β(s, r)."""
    r = 0
    while beta(s, r) < layers:
        r += 1
    return r


def split(layers: int, s: int) -> int:
    """How many layers on the next activation is stored: the binomial choice of Revolve."""
    if s == 1:
        return layers - 1
    r = repetitions(layers, s)
    return min(beta(s, r - 1), layers - beta(s - 1, r - 1))


@cache
def optimum(layers: int, s: int) -> int:
    """p(layers, s), the fewest advances, by dynamic programming over every split."""
    if layers == 1:
        return 0
    if s == 1:
        return layers * (layers - 1) // 2
    return min(j + optimum(layers - j, s - 1) + optimum(j, s) for j in range(1, layers))


def advances(layers: int, s: int) -> int:
    """Advances of the binomial schedule, split by split."""
    if layers == 1:
        return 0
    j = split(layers, s)
    return j + advances(layers - j, max(s - 1, 1)) + advances(j, s)


@dataclass(slots=True)
class Reversal:
    """Forward and backward through ``layers``; counts what it runs.

    ``gradient`` is that of the output of the layer to be reversed next. It stands here and in no
    frame of a call, where each would keep an old one alive.
    """

    layers: Sequence[nn.Module]
    weight: Tensor  # the loss is (y * weight).sum()
    gradient: Tensor | None = None
    advanced: int = 0
    taped: int = 0

    def advance(self, x: Tensor, start: int, stop: int) -> Tensor:
        """``x_start`` to ``x_stop``, keeping nothing."""
        with torch.no_grad():
            for layer in self.layers[start:stop]:
                x = layer(x)
                self.advanced += 1
        return x

    def tape(self, x: Tensor, i: int) -> None:
        """Run layer i on ``x_i`` with grad, and differentiate."""
        x = x.detach().requires_grad_()
        y = self.layers[i](x)
        self.taped += 1
        if self.gradient is None:  # the last layer comes first
            (y * self.weight).sum().backward()
        else:
            y.backward(self.gradient)
        self.gradient = x.grad

    def reverse(self, x: Tensor, start: int, stop: int, s: int) -> None:
        """Reverse the layers from ``start`` to ``stop``; ``x`` is stored in one slot of ``s``."""
        while stop - start > 1:
            middle = start + split(stop - start, s)
            y = self.advance(x, start, middle)
            if s > 1:
                self.reverse(y, middle, stop, s - 1)
            else:  # no slot for it: used at once
                self.tape(y, middle)
            del y
            stop = middle
        self.tape(x, start)


# --- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One way through forward and backward: layer forwards, and the peak in bytes."""

    forwards: int
    peak: int
    gradients: list[Tensor]


def parameters(layers: Sequence[nn.Module]) -> list[nn.Parameter]:
    """All parameters of a stack, in order."""
    return [p for layer in layers for p in layer.parameters()]


def zero_gradients(layers: Sequence[nn.Module]) -> None:
    """Gradients have their place, as in a step after the first."""
    for p in parameters(layers):
        p.grad = torch.zeros_like(p)


def revolve(layers: Sequence[nn.Module], z: Tensor, weight: Tensor, s: int) -> Run:
    """Execute the binomial schedule with ``s`` slots."""
    zero_gradients(layers)
    reversal = Reversal(layers, weight)
    with LiveMemory() as live:
        reversal.reverse(z * 1.0, 0, len(layers), s)
    gradients = [reversal.gradient, *(p.grad for p in parameters(layers))]
    kept = [g.clone() for g in gradients if g is not None]
    return Run(reversal.advanced + reversal.taped, live.peak, kept)


SHOWN, FEW = 8, 3
"""Layers and slots of the schedule that is drawn."""


@dataclass(frozen=True, slots=True)
class Stay:
    """``x_index`` is in a slot from before action ``born`` until within action ``gone - 1``."""

    index: int
    born: int
    gone: int


class Watched(nn.Module):
    """A layer that notes in ``log`` whether it advances or is taped."""

    def __init__(self, number: int, layer: nn.Module, log: list[tuple[str, int]]) -> None:
        super().__init__()
        self.number, self.layer, self.log = number, layer, log

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        self.log.append(("tape" if torch.is_grad_enabled() else "advance", self.number))
        y: Tensor = self.layer(x)
        return y


class Traced(Reversal):
    """A reversal that notes each run of a layer, and how long the storage in each slot is alive."""

    def __init__(self, layers: Sequence[nn.Module], weight: Tensor) -> None:
        self.log: list[tuple[str, int]] = []
        self.stays: list[Stay] = []
        watched = [Watched(number, layer, self.log) for number, layer in enumerate(layers, start=1)]
        super().__init__(watched, weight)

    def reverse(self, x: Tensor, start: int, stop: int, s: int) -> None:
        """Follow what is stored; then as any reversal."""
        born = len(self.log)

        def end() -> None:
            self.stays.append(Stay(start, born, len(self.log)))

        when_freed(x, end)
        super().reverse(x, start, stop, s)


def traced(s: int, shape: Sequence[int], device: str) -> Traced:
    """The schedule of a short chain with ``s`` slots, executed."""
    layers = [Layer(shape[-1]).to(device) for _ in range(SHOWN)]
    zero_gradients(layers)
    trace = Traced(layers, torch.ones(*shape, device=device))
    trace.reverse(torch.ones(*shape, device=device), 0, SHOWN, s)
    return trace


def spans(trace: Traced, slots: int, first: int) -> list[Span]:
    """Rows of slots from ``first`` on, each activation in the lowest that is free; below, the layers."""
    found: list[Span] = []
    free = [0] * slots  # when each slot is free again
    for stay in sorted(trace.stays, key=lambda stay: stay.born):
        slot = next(i for i, until in enumerate(free) if until <= stay.born)
        free[slot] = stay.gone
        found.append(Span(first + slot, "stored", stay.born, stay.gone, f"x{stay.index}"))
    for t, (kind, layer) in enumerate(trace.log):
        found.append(Span(first + slots + layer - 1, kind, t, t + 1))
    return found


def draw_schedule(shape: Sequence[int], device: str, found: Mechanisms) -> None:
    """One slot, and below it a few, over the same axis of layer forwards."""
    numbers = range(1, SHOWN + 1)
    parts = [
        *spans(traced(1, shape, device), 1, 0),
        *spans(traced(FEW, shape, device), FEW, 1 + SHOWN),
    ]
    slots = [f"slot{i}" for i in range(1, FEW + 1)]
    found.lanes("schedule", parts, rows=["one", *numbers, *slots, *numbers])


class Counted(nn.Module):
    """A layer that tells each of its runs."""

    def __init__(self, layer: nn.Module, tell: Callable[[], None]) -> None:
        super().__init__()
        self.layer = layer
        self.tell = tell

    def forward(self, x: Tensor) -> Tensor:
        """That of the layer."""
        self.tell()
        y: Tensor = self.layer(x)
        return y


def halve(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Both halves under a checkpoint each, and so on within them."""
    if len(layers) == 1:
        y: Tensor = layers[0](x)
        return y
    middle = len(layers) // 2
    for half in (layers[:middle], layers[middle:]):
        x = checkpoint(partial(halve, half), x, use_reentrant=False, preserve_rng_state=False)
    return x


def halve_first(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """The first half under a checkpoint, the second left as it is, and so on within both."""
    if len(layers) == 1:
        y: Tensor = layers[0](x)
        return y
    first, second = layers[: len(layers) // 2], layers[len(layers) // 2 :]
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    return halve_first(second, again(partial(halve_first, first), x))


class Thick(nn.Module):
    """Linear, GELU, Linear through four times the width: saves nine times its output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, d)`` to ``(B, d)``."""
        y: Tensor = self.down(nn.functional.gelu(self.up(x)))
        return y


def autograd(
    layers: Sequence[nn.Module],
    wrap: Callable[[Sequence[nn.Module]], Forward],
    z: Tensor,
    weight: Tensor,
) -> Run:
    """A step by autograd with checkpoints as ``wrap`` sets them."""
    count = 0

    def tell() -> None:
        nonlocal count
        count += 1

    stack = [Counted(layer, tell) for layer in layers]
    forward = wrap(stack)
    zero_gradients(layers)
    z = z.clone().requires_grad_()
    (forward(z * 1.0) * weight).sum().backward()
    forwards = count
    gradients = [z.grad, *(p.grad for p in parameters(layers))]
    kept = [g.clone() for g in gradients if g is not None]
    peak = measure_step(forward, layers, z.shape, z.device.type).peak
    return Run(forwards, peak, kept)


def lowest_segments(layers: Sequence[nn.Module], z: Tensor, weight: Tensor) -> Run:
    """The step with equal segments of up to √L layers whose peak is lowest."""

    def step(k: int) -> Run:
        lengths = equal_segments(len(layers), k)
        return autograd(layers, lambda stack: partial(run_segments, stack, lengths), z, weight)

    return min(map(step, range(1, isqrt(len(layers)) + 1)), key=lambda run: run.peak)


def equal(a: Run, b: Run) -> bool:
    """Whether all gradients agree in every bit."""
    return all(torch.equal(x, y) for x, y in zip(a.gradients, b.gradients, strict=True))


def slots_to_try(layers: int, example: int) -> list[int]:
    """Up to 16 slots one by one, then powers of two, up to one a layer."""
    powers = {2**i for i in range(5, layers.bit_length()) if 2**i < layers}
    return sorted({*range(1, min(layers, 16) + 1), *powers, min(example, layers), layers})


def run(config: Config, progress: Progress) -> Result:
    """Execute all, and compare."""
    L, s, device = config.layers, min(config.slots, config.layers), config.device
    found = Mechanisms(MEASURES, config, s=s, shown=SHOWN, few=FEW)
    a = config.batch * config.width * 4  # bytes of one layer's output
    shape = (config.batch, config.width)
    layers = [Layer(config.width).to(device) for _ in range(L)]
    z = draw_input(shape, device).detach()
    weight = torch.randn(*shape, device=device)

    progress(0.0, "autograd")
    none = autograd(layers, lambda stack: partial(run_layers, stack), z, weight)
    one = autograd(layers, lambda stack: partial(run_segments, stack, (L,)), z, weight)
    found["none_peak"] = none.peak / a
    found["one_segment_peak"] = one.peak / a
    found["one_segment_saves_nothing"] = one.peak == none.peak
    found["one_segment_forwards"] = one.forwards

    halved = autograd(layers, lambda stack: partial(halve, stack), z, weight)
    halved_first = autograd(layers, lambda stack: partial(halve_first, stack), z, weight)
    with set_checkpoint_early_stop(False):
        halved_whole = autograd(layers, lambda stack: partial(halve, stack), z, weight)
    found["halving_peak"] = halved.peak / a
    found["halving_forwards"] = halved.forwards
    found["halving_no_early_stop_forwards"] = halved_whole.forwards
    found["halving_first_peak"] = halved_first.peak / a
    found["halving_first_forwards"] = halved_first.forwards

    lengths = equal_segments(L, isqrt(L))
    root = autograd(layers, lambda stack: partial(run_segments, stack, lengths), z, weight)
    found["root_peak"] = root.peak / a
    found["root_forwards"] = root.forwards

    runs: dict[int, Run] = {}
    tried = slots_to_try(L, s)
    for i, slots in enumerate(tried):
        progress(0.2 + 0.5 * i / len(tried), f"Revolve with {slots} slots")
        runs[slots] = revolve(layers, z, weight, slots)
    found["one_slot_peak"] = runs[1].peak / a
    found["one_slot_forwards"] = runs[1].forwards
    found["one_slot_extra_forwards"] = runs[1].forwards - L
    half_stack = revolve(layers[: L // 2], z, weight, 1)
    found["one_slot_peak_is_constant"] = half_stack.peak == runs[1].peak
    found["two_slots_forwards"] = runs[2].forwards
    found["revolve_peak"] = runs[s].peak / a
    found["revolve_forwards"] = runs[s].forwards
    found["slot_a_layer_peak"] = runs[L].peak / a
    found["slot_a_layer_forwards"] = runs[L].forwards
    # As many slots as the memory of √L segments has room for.
    as_root = max(c for c, run in runs.items() if round(run.peak / a) <= round(root.peak / a))
    found["revolve_as_root_forwards"] = runs[as_root].forwards
    everyone = (one, root, halved, halved_first, halved_whole, *runs.values())
    found["gradients_bit_equal"] = all(equal(none, other) for other in everyone)

    progress(0.65, "layers that save nine times their output")
    thick = [Thick(config.width).to(device) for _ in range(L)]
    lowest = lowest_segments(thick, z, weight)
    few = revolve(thick, z, weight, s)
    room = max(0, lowest.peak - few.peak) // a  # a slot more costs one activation
    found["thick_segments_peak"] = lowest.peak / a
    found["thick_segments_forwards"] = lowest.forwards
    found["thick_revolve_few_peak"] = few.peak / a
    found["thick_revolve_forwards"] = revolve(thick, z, weight, min(s + room, L)).forwards

    progress(0.7, "dynamic programming")
    pairs = [(l, c) for l in range(1, config.cases + 1) for c in range(1, l + 1)]
    found["binomial_is_optimal"] = all(advances(l, c) == optimum(l, c) for l, c in pairs)
    found["cases"] = len(pairs)
    executed = all(run.forwards - L == optimum(L, c) for c, run in runs.items())
    found["executed_is_optimal"] = executed

    r = {slots: repetitions(L, slots) for slots in runs}
    theory = [(r[c] * L - beta(c + 1, r[c] - 1) + L) / L for c in runs]
    counts = [run.forwards / L for run in runs.values()]
    found.draw("forwards", Line("theory", list(runs), theory), Line("executed", list(runs), counts))
    draw_schedule(shape, device, found)
    progress(1.0, "done")
    return found.result()

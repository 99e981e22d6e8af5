"""Which in-place operations does autograd accept, and do they save any memory?

The lesson is ``lessons/inplace_ops.en.md`` (中文: ``lessons/inplace_ops.zh.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory, saved_tensors
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "原地操作", "en": "In-place operations"}
QUESTION: Text = {
    "zh": "哪些原地操作安全，哪些报错，哪些悄悄算错？它们省下多少显存？",
    "en": "Which in-place operations are safe, which raise, which are silently wrong, "
    "and what do they save?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "同一组数原地与非原地各算一次梯度，逐位比较，或捕获错误",
  "the gradient in place and out of place on the same numbers, compared bit by bit; errors caught",
]
[method.metrics]
relu_after_linear_safe = ["", "Linear 之后原地 ReLU", "ReLU in place after Linear"]
add_after_linear_safe = ["", "Linear 之后原地加法", "addition in place after Linear"]
mask_before_softmax_safe = ["", "softmax 之前原地掩码", "mask in place before softmax"]
silu_after_linear_safe = ["", "Linear 之后原地 SiLU", "SiLU in place after Linear"]
residual_into_branch_safe = [
  "",
  "残差加到分支上：f += x",
  "residual added to the branch: f += x",
]
residual_into_input_raises = [
  "",
  "残差加到输入上：x += f(x)",
  "residual added to the input: x += f(x)",
]
mask_after_softmax_raises = ["", "softmax 之后原地掩码", "mask in place after softmax"]
scale_after_relu_raises = ["", "ReLU 之后原地乘", "times in place after ReLU"]
row_of_saved_raises = [
  "",
  "经视图改写已保存张量的一行",
  "one row of a saved tensor, through a view",
]
detach_shares_counter_raises = ["", "经 detach() 改写", "through detach()"]
no_grad_counts_raises = ["", "在 no_grad 中改写", "under no_grad"]
data_is_silent_wrong = ["", "经 .data 改写", "through .data"]
hooks_are_silent_wrong = [
  "",
  "pack 钩子返回共用存储的张量之后改写",
  "after a pack hook that kept the same storage",
]
leaf_raises = ["", "叶子张量当场拒绝原地操作", "a leaf refuses on the spot"]

[[method]]
kind = "exact"
how = [
  "Linear、激活、Linear 在输入之外保存的字节除以元素数，fp32",
  "bytes that Linear, activation, Linear save beyond the input, over its elements, fp32",
]
[method.metrics]
relu_saved = ["B", "ReLU，非原地", "ReLU"]
relu_inplace_saved = ["B", "ReLU，原地", "ReLU in place"]
leaky_relu_saved = ["B", "leaky ReLU，非原地", "leaky ReLU"]
leaky_relu_inplace_saved = ["B", "leaky ReLU，原地", "leaky ReLU in place"]
silu_saved = ["B", "SiLU，非原地", "SiLU"]
silu_inplace_saved = ["B", "SiLU，原地", "SiLU in place"]
dropout_saved = ["B", "dropout，非原地", "dropout"]
dropout_inplace_saved = ["B", "dropout，原地", "dropout in place"]

[[method]]
kind = "exact"
how = [
  "h → 4h → h 的前向中同时存活的字节峰值，不含输入与参数，fp32",
  "peak of live bytes in the forward of h → 4h → h, without input and parameters, fp32",
]
[method.metrics]
forward_peak = ["B", "前向峰值", "forward peak"]
inplace_forward_peak = ["B", "原地时的前向峰值", "forward peak in place"]
peak_ratio = ["", "前向峰值之比，原地比非原地", "forward peak, in place over out of place"]

[figure.saved_by_form]
title = ["Linear、激活、Linear 保存的字节", "Saved by Linear, activation, Linear"]
x = {label = ["激活", "activation"]}
y = {label = ["字节/元素", "bytes an element"], unit = "B"}
[figure.saved_by_form.series]
saved = ["bar", "保存的字节", "bytes saved"]
[figure.saved_by_form.places]
relu = ["ReLU", "ReLU"]
relu_inplace = ["ReLU，原地", "ReLU, in place"]
leaky_relu = ["leaky ReLU", "leaky ReLU"]
leaky_relu_inplace = ["leaky ReLU，原地", "leaky ReLU, in place"]
silu = ["SiLU", "SiLU"]
silu_inplace = ["SiLU，原地", "SiLU, in place"]
dropout = ["dropout", "dropout"]
dropout_inplace = ["dropout，原地", "dropout, in place"]

[figure.versions]
title = ["版本计数器：存的是哪一版，反向时是哪一版", "Version counters: what was saved, and what the backward finds"]
x = {label = ["操作，然后反向", "operations, then the backward"]}
y = {label = ["被改写的张量", "tensor that is overwritten"]}
[figure.versions.series]
saved = ["bar", "已保存，没有再改；反向正确", "saved, not changed since; right gradient"]
overwritten = ["bar", "保存之后改写，版本号变了；反向报错", "overwritten since, new version; an error"]
free = ["bar", "没有人保存，可以改写", "saved by nobody, free to write"]
unseen = ["bar", "保存之后改写，版本号没变；反向算错", "overwritten since, old version; wrong gradient"]
[figure.versions.places]
relu = ["① h", "① h"]
mask = ["② p", "② p"]
residual = ["③ x", "③ x"]
data = ["④ y", "④ y"]
first = ["先算", "first"]
write = ["原地写", "in place"]
backward = ["反向", "backward"]
"""


@dataclass(frozen=True)
class Config:
    """The shape of one activation; the hidden layer of the peak's MLP is four times as wide."""

    tokens: int = parameter(256, {"zh": "token 数", "en": "tokens"}, 2, 65536)
    width: int = parameter(256, {"zh": "宽度 h", "en": "width h"}, 8, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(tokens=8, width=16), "full": Config()}

Outcome = Literal["equal", "raises", "wrong"]
Layer = Callable[[Tensor], Tensor]


# --- outcomes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One layer in place and out of place, and the outcome that its metric, ``name``, claims.

    ``equal``: the same gradient, bit by bit. ``raises``: an error in place of a gradient.
    ``wrong``: another gradient, without an error.
    """

    name: str
    outcome: Outcome
    inplace: Layer
    reference: Layer


def chain(*layers: Layer) -> Layer:
    """Apply ``layers`` one after another; nothing else refers to what is between them."""

    def apply(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return apply


# --8<-- [start:residual]
def add_to_input(W: Tensor, x: Tensor) -> Tensor:
    """``x += f(x)``: overwrites what the Linear has saved."""
    f = F.linear(x, W)
    x += f
    return x


def add_to_branch(W: Tensor, x: Tensor) -> Tensor:
    """``f(x) += x``: the same sum, over a tensor that nobody has saved."""
    f = F.linear(x, W)
    f += x
    return f


# --8<-- [end:residual]


def write_row(x: Tensor) -> Tensor:
    """Overwrite one row of a saved output, through a view."""
    y = torch.sigmoid(x)
    y[0] = 0.0
    return y


# --8<-- [start:silent]
def scale_data(x: Tensor) -> Tensor:
    """Change a saved output where autograd does not see it."""
    y = torch.sigmoid(x)
    y.data.mul_(2)
    return y


# --8<-- [end:silent]


def scale_detached(x: Tensor) -> Tensor:
    """Change a saved output through ``detach``, which shares the version counter."""
    y = torch.sigmoid(x)
    y.detach().mul_(2)
    return y


def scale_without_grad(x: Tensor) -> Tensor:
    """Change a saved output under ``no_grad``, which counts versions all the same."""
    y = torch.sigmoid(x)
    with torch.no_grad():
        y.mul_(2)
    return y


def scale_under_hooks(x: Tensor) -> Tensor:
    """Change a saved output that a pack hook has taken out of autograd's hands."""
    with saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        y = torch.sigmoid(x)
    return y.mul_(2)


def cases(W: Tensor) -> tuple[Case, ...]:
    """All of them, for a square ``W``."""
    linear: Layer = partial(F.linear, weight=W)
    twice: Layer = chain(torch.sigmoid, lambda y: y * 2)
    return (
        Case(
            "relu_after_linear_safe", "equal", chain(linear, torch.relu_), chain(linear, torch.relu)
        ),
        Case(
            "add_after_linear_safe",
            "equal",
            chain(linear, lambda y: y.add_(1)),
            chain(linear, lambda y: y + 1),
        ),
        Case(
            "mask_before_softmax_safe",
            "equal",
            chain(linear, lambda s: s.masked_fill_(s > 0, -1e9), lambda s: F.softmax(s, -1)),
            chain(linear, lambda s: s.masked_fill(s > 0, -1e9), lambda s: F.softmax(s, -1)),
        ),
        Case(
            "silu_after_linear_safe",
            "equal",
            chain(linear, partial(F.silu, inplace=True)),
            chain(linear, F.silu),
        ),
        Case(
            "residual_into_branch_safe",
            "equal",
            partial(add_to_branch, W),
            lambda x: F.linear(x, W) + x,
        ),
        Case(
            "residual_into_input_raises",
            "raises",
            partial(add_to_input, W),
            lambda x: x + F.linear(x, W),
        ),
        Case(
            "mask_after_softmax_raises",
            "raises",
            chain(lambda s: F.softmax(s, -1), lambda p: p.masked_fill_(p > 0.1, 0)),
            chain(lambda s: F.softmax(s, -1), lambda p: p.masked_fill(p > 0.1, 0)),
        ),
        Case(
            "scale_after_relu_raises",
            "raises",
            chain(linear, torch.relu_, lambda y: y.mul_(2)),
            chain(linear, torch.relu, lambda y: y * 2),
        ),
        Case(
            "row_of_saved_raises",
            "raises",
            write_row,
            lambda x: torch.cat([torch.zeros_like(x[:1]), torch.sigmoid(x)[1:]]),
        ),
        Case("detach_shares_counter_raises", "raises", scale_detached, twice),
        Case("no_grad_counts_raises", "raises", scale_without_grad, twice),
        Case("data_is_silent_wrong", "wrong", scale_data, twice),
        Case("hooks_are_silent_wrong", "wrong", scale_under_hooks, twice),
    )


def gradient(layer: Layer, x: Tensor) -> Tensor:
    """``∂Σ y²/∂x`` for ``y = layer(x)``; the layer gets a computed tensor, not the leaf itself."""
    (dx,) = torch.autograd.grad(layer(x * 1.0).pow(2).sum(), x)
    return dx


def observe(case: Case, x: Tensor) -> Outcome:
    """What the in-place form really does."""
    # --8<-- [start:observe]
    try:
        dx = gradient(case.inplace, x)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return "raises"
    return "equal" if torch.equal(dx, gradient(case.reference, x)) else "wrong"
    # --8<-- [end:observe]


def leaf_raises(x: Tensor) -> bool:
    """Whether a leaf that asks for a gradient refuses an in-place operation on the spot."""
    try:
        x.add_(1)
    except RuntimeError as error:
        return "leaf Variable" in str(error)
    return False


# --- version counters ----------------------------------------------------------------------------

Do = Callable[[list[Tensor]], Tensor]
"""An operation on all tensors so far; it returns a new one, or one of them."""


@dataclass(frozen=True, slots=True)
class Program:
    """Two operations with their labels; the second writes over one of the tensors so far."""

    name: str
    written: int
    steps: tuple[tuple[str, Do], tuple[str, Do]]
    reference: Layer

    def run(self, x: Tensor, after: Callable[[list[Tensor]], object] = len) -> Tensor:
        """All operations on ``x``; ``after`` each it sees the tensors that there are by then."""
        held, out = [x], x
        for _, do in self.steps:
            out = do(held)
            if all(out is not tensor for tensor in held):
                held.append(out)
            after(held)
        return out


def scale_data_of_last(held: list[Tensor]) -> Tensor:
    """Twice the last tensor, written where autograd does not see it."""
    held[-1].data.mul_(2)
    return held[-1]


def programs(W: Tensor) -> tuple[Program, ...]:
    """One that is safe, two that raise, one that is silently wrong; ``W`` is square."""
    linear: Layer = partial(F.linear, weight=W)
    return (
        Program(
            "relu",
            1,
            (("Linear", lambda held: linear(held[0])), ("ReLU_", lambda held: held[1].relu_())),
            chain(linear, torch.relu),
        ),
        Program(
            "mask",
            1,
            (
                ("softmax", lambda held: F.softmax(held[0], -1)),
                ("fill_", lambda held: held[1].masked_fill_(held[1] > 0.1, 0)),
            ),
            chain(lambda s: F.softmax(s, -1), lambda p: p.masked_fill(p > 0.1, 0)),
        ),
        Program(
            "residual",
            0,
            (
                ("Linear", lambda held: linear(held[0])),
                ("x += f", lambda held: held[0].add_(held[1])),
            ),
            lambda x: x + F.linear(x, W),
        ),
        Program(
            "data",
            1,
            (("sigmoid", lambda held: torch.sigmoid(held[0])), (".data", scale_data_of_last)),
            chain(torch.sigmoid, lambda y: y * 2),
        ),
    )


@dataclass(frozen=True, slots=True)
class State:
    """A tensor after one operation: its version, that which was saved, and what became of what was."""

    version: int
    saved: int | None
    kind: Literal["free", "saved", "overwritten", "unseen"]


def states(program: Program, x: Tensor) -> list[State]:
    """After each operation, the state of the tensor that the second one writes over."""
    packed: dict[int, tuple[int, Tensor]] = {}
    found: list[State] = []

    def pack(tensor: Tensor) -> Tensor:
        key = tensor.untyped_storage().data_ptr()
        packed.setdefault(key, (tensor._version, tensor.detach().clone()))
        return tensor.detach()

    def state(tensor: Tensor) -> State:
        version = tensor._version
        saved = packed.get(tensor.untyped_storage().data_ptr())
        if saved is None:
            return State(version, None, "free")
        if saved[0] != version:
            return State(version, saved[0], "overwritten")
        return State(version, saved[0], "saved" if torch.equal(saved[1], tensor) else "unseen")

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        program.run(x * 1.0, lambda held: found.append(state(held[program.written])))
    return found


def draw_versions(W: Tensor, x: Tensor, found: Mechanisms) -> None:
    """Each program: its two operations and its backward, with the versions of what it overwrites."""
    kinds: dict[Outcome, str] = {"equal": "saved", "raises": "overwritten", "wrong": "unseen"}
    parts: list[Tile] = []
    for row, program in enumerate(programs(W)):
        history = states(program, x)
        for column, ((label, _), now) in enumerate(zip(program.steps, history, strict=True)):
            parts.append(Tile(row, column, now.kind, (label, f"v{now.version}")))
        outcome = observe(Case(program.name, "equal", program.run, program.reference), x)
        sign = "=" if now.saved == now.version else "≠"
        parts.append(Tile(row, 2, kinds[outcome], (f"v{now.saved} {sign} v{now.version}",)))
    rows = [program.name for program in programs(W)]
    found.tiles("versions", parts, rows, ["first", "write", "backward"])


# --- bytes ---------------------------------------------------------------------------------------


def activations() -> dict[str, tuple[Layer, Layer]]:
    """Activation functions, out of place and in place."""
    return {
        "relu": (torch.relu, torch.relu_),
        "leaky_relu": (F.leaky_relu, F.leaky_relu_),
        "silu": (F.silu, partial(F.silu, inplace=True)),
        "dropout": (partial(F.dropout, p=0.1), partial(F.dropout, p=0.1, inplace=True)),
    }


def saved_bytes_per_element(activation: Layer, x: Tensor, W: Tensor) -> float:
    """Bytes an element that Linear, ``activation``, Linear save beyond the input."""
    x = x * 1.0
    linear: Layer = partial(F.linear, weight=W)
    with saved_tensors(exclude=[x, W]) as saved:
        chain(linear, activation, linear)(x)
    return saved.bytes / x.numel()


def forward_peak(activation: Layer, x: Tensor, up: Tensor, down: Tensor) -> int:
    """The most bytes alive beside the input while h → 4h, ``activation``, 4h → h run forward."""
    # --8<-- [start:peak]
    layers = chain(partial(F.linear, weight=up), activation, partial(F.linear, weight=down))
    with LiveMemory() as live:
        layers(x)
    return live.peak
    # --8<-- [end:peak]


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Outcomes, then saved bytes, then the forward's peak."""
    found = Mechanisms(MEASURES, config)
    h = config.width
    generator = torch.Generator().manual_seed(config.seed)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator) / math.sqrt(shape[-1])
        return drawn.to(config.device).requires_grad_()

    x, W, up, down = draw(config.tokens, h), draw(h, h), draw(4 * h, h), draw(h, 4 * h)

    progress(0.0, "outcomes")
    for case in cases(W):
        found[case.name] = observe(case, x) == case.outcome
    found["leaf_raises"] = leaf_raises(x)
    draw_versions(W, x, found)

    progress(0.5, "bytes")
    saved: dict[str, float] = {}
    for name, (out_of_place, inplace) in activations().items():
        saved[name] = saved_bytes_per_element(out_of_place, x, W)
        saved[f"{name}_inplace"] = saved_bytes_per_element(inplace, x, W)
    for form, nbytes in saved.items():
        found[f"{form}_saved"] = nbytes
    bars = Line("saved", range(len(saved)), list(saved.values()))
    found.draw("saved_by_form", bars, places=saved)

    progress(0.9, "peak")
    peak, inplace_peak = (forward_peak(relu, x, up, down) for relu in (torch.relu, torch.relu_))
    found["forward_peak"] = peak
    found["inplace_forward_peak"] = inplace_peak
    found["peak_ratio"] = inplace_peak / peak
    progress(1.0, "")
    return found.result()

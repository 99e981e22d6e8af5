"""How does torch.utils.checkpoint work inside, and where does it stop being transparent?

The question
    A checkpoint is said to change memory and time and nothing else. By what means, and when is that
    not so: which differences raise an error, and which pass in silence?

The model
    Autograd lets one replace what it saves: ``saved_tensors_hooks(pack, unpack)``. A checkpoint
    packs an empty *holder* in place of each tensor. The first holder to be unpacked runs the
    function again, with hooks that put the tensors into the holders in the order of saving, and
    stops by an exception when all are there. ``mini_checkpoint`` is that and the random state.

    What runs again sees the world as it is then. Restored are the input, autocast and PyTorch's
    default random states, and grad mode is on. Not restored are other random states, buffers,
    weights, globals, and the input's own storage where it was overwritten.

The measurement
    Each difference is provoked on purpose. Operators are counted where they run: in the forward,
    and again within the backward. Gradients are compared bit by bit with those of a plain call.

The result
    Forty lines do what PyTorch does, to the bit and to the byte. BatchNorm counts each batch
    twice. NumPy's and one's own generators, and weights changed in between, give wrong gradients
    without a word, and so do an input that was overwritten after it was passed by keyword, in a list
    or by a closure, and a second run that saves more than the first. An input that was passed by
    position, and changed shapes, raise.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks
from torch.utils import checkpoint as torch_checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointError, checkpoint, set_checkpoint_early_stop

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import Block
from runnable_demos.models.stacks import (
    Forward,
    Layer,
    measure_step,
    run_layers,
    run_segments,
)

TITLE: Text = {"zh": "PyTorch 实现", "en": "Inside torch.utils.checkpoint"}
QUESTION: Text = {
    "zh": "torch.utils.checkpoint 内部怎样工作？哪些改动会报错，哪些会悄悄给出错的梯度？",
    "en": "How does torch.utils.checkpoint work inside; which changes raise an error, "
    "and which give wrong gradients in silence?",
}


MEASURES = """
[[method]]
kind = "exact"
how = ["逐张量 torch.equal", "torch.equal tensor by tensor"]
[method.metrics]
mini_gradients_bit_equal = [
  "",
  "四十行的检查点与不设检查点，含 dropout，梯度逐位相等",
  "gradients of the forty lines and of no checkpoint are bit-equal, with dropout",
]
batch_norm_gradients_equal = ["", "BatchNorm 的梯度逐位相等", "BatchNorm's gradients are bit-equal"]
batch_norm_mean_differs = ["", "BatchNorm 的运行均值不等", "BatchNorm's running mean differs"]
numpy_output_equal = ["", "NumPy 掩码：前向输出相等", "NumPy's mask: the output is equal"]
numpy_gradient_wrong = [
  "",
  "NumPy 掩码：梯度错，且没有报错",
  "NumPy's mask: the gradient is wrong, and nothing raises",
]
own_generator_gradient_wrong = [
  "",
  "自建 torch.Generator：梯度错，且没有报错",
  "a torch.Generator of one's own: the gradient is wrong, and nothing raises",
]

[[method]]
kind = "exact"
how = ["12 层 3 段，按字节比较", "12 layers in 3 segments, compared in bytes"]
[method.metrics]
mini_peak_equal = ["", "四十行的检查点与 PyTorch 的峰值逐字节相等", "the forty lines peak at PyTorch's bytes"]

[[method]]
kind = "exact"
how = ["torch.get_rng_state 的字节", "bytes of torch.get_rng_state"]
[method.metrics]
rng_state_bytes = ["B", "每个检查点存下的 CPU 随机数状态", "CPU random state that a checkpoint keeps"]

[[method]]
kind = "exact"
how = ["故意触发一次", "provoked on purpose"]
[method.metrics]
rng_untouched_by_backward = [
  "",
  "反向（含重算）之后，随机数状态不变",
  "after the backward, recompute included, the random state is what it was",
]
reentrant_rejects_autograd_grad = ["", "重入：torch.autograd.grad 报错", "reentrant: torch.autograd.grad raises"]
reentrant_loses_gradients = [
  "",
  "重入：输入不要梯度时，参数的梯度丢失",
  "reentrant: with an input that asks for no gradient, the parameters get none",
]
non_reentrant_keeps_gradients = [
  "",
  "非重入：同样情形参数照样有梯度",
  "non-reentrant: in the same case the parameters get theirs",
]
overwritten_input_raises = [
  "",
  "按位置传的输入被原地改写：报错",
  "an input passed by position, overwritten in place: raises",
]
overwritten_elsewhere_wrong = [
  "",
  "按关键字传、装在列表里、闭包带入的输入被原地改写：梯度都错，且没有报错",
  "an input passed by keyword, in a list or by a closure, overwritten in place: wrong gradients, and nothing raises",
]
overwritten_data_wrong = [
  "",
  "经 .data 改写输入：梯度错，且没有报错",
  "an input overwritten through .data: the gradient is wrong, and nothing raises",
]
changed_weights_raise_without = [
  "",
  "不设检查点，反向前改权重：报错",
  "without checkpoint, weights changed before the backward: raises",
]
changed_weights_accepted = [
  "",
  "设检查点，反向前改权重：照样算出梯度",
  "with a checkpoint, weights changed before the backward: a gradient comes out",
]
surplus_wrong = [
  "",
  "重算开头多一个不改形状的算子：梯度错，且没有报错",
  "one operator more, of the same shape, when run again: the gradient is wrong, and nothing raises",
]
changed_shape_raises = ["", "重算的形状不同：报错", "other shapes when run again: raises"]

[[method]]
kind = "exact"
how = [
  "分派时计数；反向中 grad 模式打开的算子就是重算",
  "counted at dispatch; operators with grad mode on within the backward are recompute",
]
[method.metrics]
ops_forward = ["", "块的前向算子数", "operators of a block"]
ops_again = ["", "非重入：重算的算子数", "non-reentrant: operators that run again"]
ops_again_whole = ["", "不提前停：重算的算子数", "without early stop: operators that run again"]
ops_again_reentrant = ["", "重入：重算的算子数", "reentrant: operators that run again"]

[[method]]
kind = "exact"
how = ["计数", "counted"]
[method.metrics]
graph_nodes = ["", "非重入：前向后的图节点数", "non-reentrant: nodes of the graph after the forward"]
graph_nodes_reentrant = ["", "重入：前向后的图节点数", "reentrant: nodes of the graph after the forward"]
batch_norm_batches = ["", "一步之后 BatchNorm 记下的批数", "batches that BatchNorm has counted after one step"]
hook_calls_before = ["", "一步之中前向前钩子的次数", "calls of a hook before the forward, in one step"]
hook_calls_after = ["", "一步之中前向后钩子的次数", "calls of a hook after the forward, in one step"]
runs_of_two_backwards = [
  "",
  "保留图并反向两次，函数运行的次数",
  "runs of the function with two backwards over a retained graph",
]

[[method]]
kind = "bounded"
how = ["与不设检查点的一步比较", "against a step without checkpoint"]
bound = 1e-6
reason = [
  "两次更新各舍入几次，每次不超过 fp32 的 6e-8",
  "two updates with a few roundings each, none above fp32's 6e-8",
]
[method.metrics]
corrected_mean_error = [
  "",
  "动量改为 1 − √(1 − m) 后，运行均值的相对误差",
  "relative error of the running mean with a momentum of 1 − √(1 − m)",
]

[figure.operators]
title = ["一个块：前向与重算的算子数", "One block: operators, and again"]
x = {label = ["实现", "implementation"]}
y = {label = ["算子数", "operators"]}
[figure.operators.series]
forward = ["bar", "前向", "forward"]
again = ["bar", "重算", "run again"]
[figure.operators.places]
safe = ["非重入", "non-reentrant"]
whole = ["非重入，不提前停", "non-reentrant, no early stop"]
reentrant = ["重入", "reentrant"]

[figure.segment]
title = ["一段前后：什么留着，什么先空着再补", "Around one segment: what is kept, what is left empty and filled again"]
x = {label = ["已跑过的算子", "operators run so far"]}
y = {label = ["算子与张量", "operators and tensors"]}
[figure.segment.series]
forward = ["bar", "前向", "forward"]
recompute = ["bar", "重算", "recomputation"]
backward = ["bar", "反向", "backward"]
kept = ["bar", "留着的张量", "tensor that is kept"]
empty = ["bar", "占位对象，空的", "placeholder, empty"]
filled = ["bar", "补上，用掉为止", "filled, until used"]
[figure.segment.places]
plain = ["不设", "plain"]
checkpointed = ["检查点", "checkpoint"]
input = ["输入", "input"]
rng = ["随机数", "RNG"]
x = ["x", "x"]
w1 = ["W₁", "W₁"]
z = ["z", "z"]
mask = ["掩码", "mask"]
a = ["a", "a"]
w2 = ["W₂", "W₂"]
"""


@dataclass(frozen=True)
class Config:
    """Sizes of the block and the layers on which all is tried."""

    batch: int = parameter(64, {"zh": "批大小", "en": "batch"}, 2, 4096)
    width: int = parameter(32, {"zh": "宽度", "en": "width"}, 4, 1024)
    tokens: int = parameter(64, {"zh": "序列长度", "en": "sequence length"}, 2, 2048)
    heads: int = parameter(4, {"zh": "头数", "en": "heads"}, 1, 32)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(batch=16, width=8, tokens=8, heads=2), "full": Config()}


# --- a checkpoint in forty lines ----------------------------------------------------------------


class Holder:
    """Stands in the graph for a tensor that is not kept; filled when the function runs again."""

    value: Tensor | None = None


class AllThere(Exception):
    """Every holder is filled: there is no need to run on."""


def mini_checkpoint(function: Forward, x: Tensor) -> Tensor:
    """``function(x)``, of which only ``x`` is kept until the backward (CPU random state alone)."""
    holders: list[weakref.ref[Holder]] = []  # in the order of saving
    rng = torch.get_rng_state()

    def pack(_: Tensor) -> Holder:
        holder = Holder()
        holders.append(weakref.ref(holder))
        return holder

    def unpack(holder: Holder) -> Tensor:
        if holder.value is None:
            run_again()
        value, holder.value = holder.value, None  # used once, then free
        assert value is not None  # the function saves in the same order each time
        return value

    def run_again() -> None:
        order = iter(enumerate(holders, 1))

        def fill(tensor: Tensor) -> Tensor:
            saved, ref = next(order)
            if (holder := ref()) is not None:  # None: autograd dropped it, nobody will ask
                holder.value = tensor.detach()
            if saved == len(holders):
                raise AllThere
            return tensor.detach()

        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(rng)
            try:
                with saved_tensors_hooks(fill, lambda tensor: tensor):
                    function(x)
            except AllThere:
                pass

    with saved_tensors_hooks(pack, unpack):
        return function(x)


# --- tools ---------------------------------------------------------------------------------------

safe = partial(checkpoint, use_reentrant=False)
reentrant = partial(checkpoint, use_reentrant=True)


def whole(function: Forward, x: Tensor) -> Tensor:
    """A checkpoint that runs all of ``function`` again."""
    with set_checkpoint_early_stop(False):
        y: Tensor = safe(function, x)
    return y


class CountOps(TorchDispatchMode):
    """Counts operators in the forward, and those that run again: with grad mode on, in the backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.in_backward = False
        self.forward = 0
        self.again = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self.in_backward:
            self.forward += 1
        elif torch.is_grad_enabled():
            self.again += 1
        return func(*args, **(kwargs or {}))


def count_ops(forward: Forward, x: Tensor) -> tuple[int, int]:
    """Operators in the forward, and operators that run again in the backward."""
    gradient = torch.ones_like(x)
    with CountOps() as count:
        y = forward(x)
        count.in_backward = True
        y.backward(gradient)
    return count.forward, count.again


def graph_nodes(y: Tensor) -> int:
    """Nodes of the autograd graph behind ``y``."""
    seen: set[Node] = set()
    stack = [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [parent for parent, _ in node.next_functions]
    return len(seen)


def raises(action: Callable[[], object], error: type[Exception] = RuntimeError) -> bool:
    """Whether ``action`` ends in ``error``."""
    try:
        action()
    except error:
        return True
    return False


def gradient(y: Tensor, x: Tensor) -> Tensor:
    """Gradient of the sum of squares of ``y``, so that it depends on ``y``."""
    return torch.autograd.grad(y.square().sum(), x)[0]


# --- what differs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Norm:
    """A step through BatchNorm: batches it counted, its running mean, all gradients."""

    batches: int
    mean: Tensor
    gradients: list[Tensor]


def batch_norm(config: Config, wrap: Callable[..., Tensor], momentum: float) -> Norm:
    """One step of Linear, BatchNorm, ReLU under ``wrap``."""
    torch.manual_seed(config.seed)
    norm = nn.BatchNorm1d(config.width, momentum=momentum)
    layers = nn.Sequential(nn.Linear(config.width, config.width), norm, nn.ReLU())
    layers.to(config.device)
    x = torch.randn(config.batch, config.width, device=config.device, requires_grad=True)
    gradients = torch.autograd.grad(wrap(layers, x).square().sum(), [x, *layers.parameters()])
    assert norm.running_mean is not None and norm.num_batches_tracked is not None
    return Norm(int(norm.num_batches_tracked), norm.running_mean.clone(), list(gradients))


def same(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether both have the same tensors, bit for bit. Raises ``ValueError`` at unequal lengths."""
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def call(function: Forward, x: Tensor) -> Tensor:
    """No checkpoint."""
    return function(x)


def foreign_random(
    draw: Callable[[], Tensor], seed: Callable[[], object], x: Tensor
) -> tuple[bool, bool]:
    """Dropout by a mask that PyTorch's default generator does not draw: equal output, equal gradient?"""

    def function(x: Tensor) -> Tensor:
        return (x * draw()).relu() * 2

    seed()
    plain = function(x)
    seed()
    again = safe(function, x)
    outputs = torch.equal(plain, again)
    return outputs, torch.equal(gradient(plain, x), gradient(again, x))


def overwritten(
    linear: nn.Module,
    z: Tensor,
    overwrite: Callable[[Tensor], object],
    wrap: Callable[[Forward, Tensor], Tensor] = safe,
) -> bool:
    """Whether the gradient survives that the input is overwritten after the forward."""

    def function(x: Tensor) -> Tensor:
        return F.gelu(linear(x))

    expected = gradient(function(z * 1.0), z)
    x = z * 1.0
    y = wrap(function, x)
    with torch.no_grad():
        overwrite(x)
    return torch.equal(expected, gradient(y, z))


ELSEWHERE: tuple[Callable[[Forward, Tensor], Tensor], ...] = (
    lambda function, x: safe(function, x=x),
    lambda function, x: safe(lambda inputs: function(inputs[0]), [x]),
    lambda function, x: safe(lambda: function(x)),
)
"""Ways to bring an input into a checkpoint, other than by position: by keyword, in a list, by a closure."""


def surplus(x: Tensor, wrap: Callable[[Forward, Tensor], Tensor]) -> bool:
    """Whether the gradient survives that what runs again has one operator more, at its begin."""
    runs = 0

    def function(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return (x if runs == 1 else x.exp()).sin().cos()

    return torch.equal(gradient(x.sin().cos(), x), gradient(wrap(function, x), x))


def stale_weights(config: Config, wrap: Callable[..., Tensor]) -> Tensor:
    """The input's gradient where the weights are changed between forward and backward."""
    torch.manual_seed(config.seed)
    layers = nn.Sequential(
        nn.Linear(config.width, config.width), nn.ReLU(), nn.Linear(config.width, config.width)
    ).to(config.device)
    x = torch.randn(config.batch, config.width, device=config.device, requires_grad=True)
    y = wrap(layers, x)
    with torch.no_grad():
        for p in layers.parameters():
            p.add_(1.0)
    return gradient(y, x)


def changed_shape(linear: nn.Module, x: Tensor) -> None:
    """A function that looks at a global and returns less when it runs again."""
    runs = 0

    def function(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        y: Tensor = F.gelu(linear(x)[:, : x.shape[1] // runs])
        return y

    safe(function, x).sum().backward()


def hook_calls(layers: nn.Module, x: Tensor) -> tuple[int, int]:
    """How often hooks before and after a module's forward are called in one step."""
    calls = {"before": 0, "after": 0}

    def count(when: str, *_: Any) -> None:
        calls[when] += 1

    layers.register_forward_pre_hook(partial(count, "before"))
    layers.register_forward_hook(partial(count, "after"))
    safe(layers, x).sum().backward()
    return calls["before"], calls["after"]


def runs_of_two_backwards(linear: nn.Module, x: Tensor) -> int:
    """How often the function runs with a forward and two backwards over a retained graph."""
    runs = 0

    def function(x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return F.gelu(linear(x))

    y = safe(function, x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return runs


# --- around one segment --------------------------------------------------------------------------

SAVED = ("x", "w1", "z", "mask", "a", "w2")
"""What Linear, GELU, dropout, Linear save, in the order of saving."""


class Watch(TorchDispatchMode):
    """Counts operators from the begin of a segment on, and notes what happens after how many.

    Views do not count. ``what`` are the operators themselves: of the forward, of the second run of
    the segment, of the backward, or of neither (the loss).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inside = self.in_backward = False
        self.what: list[str] = []
        self.born: list[int] = []  # of each saved tensor, or of the placeholder in its stead
        self.filled: dict[int, int] = {}  # by the number of the saved tensor
        self.used: dict[int, int] = {}
        self.kept: dict[str, tuple[int, int]] = {}  # the input, the random state: from, until

    @property
    def now(self) -> int:
        """Operators so far."""
        return len(self.what)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operator; count it, once the segment has begun."""
        out = func(*args, **(kwargs or {}))
        if (self.inside or self.what) and not func.is_view:
            run = "recompute" if self.inside else "backward"
            outside = "forward" if self.inside else "other"
            self.what.append(run if self.in_backward else outside)
        return out

    def save(self) -> int:
        """The number of a tensor that is saved now."""
        self.born.append(self.now)
        return len(self.born) - 1

    def keep(self, name: str, tensor: Tensor) -> None:
        """Note until when ``tensor`` is alive."""
        begin = self.now

        def end() -> None:
            self.kept[name] = (begin, self.now)

        when_freed(tensor, end)


@contextmanager
def watched_placeholders(watch: Watch) -> Iterator[None]:
    """Within, PyTorch's own placeholders tell ``watch`` when they are made, filled and used.

    So does the random state that the forward keeps; the second run fetches one of its own.
    """

    class Handles(dict[int, Any]):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def __setitem__(self, key: int, handle: Any) -> None:
            super().__setitem__(key, handle)
            (watch.used if handle is None else watch.filled)[self.number] = watch.now

    class Placeholder(torch_checkpoint._Holder):
        def __init__(self) -> None:
            self.handles = Handles(watch.save())

    fetch = torch.get_rng_state

    def fetch_and_keep() -> Tensor:
        state = fetch()
        if not watch.in_backward:
            watch.keep("rng", state)
        return state

    with (
        mock.patch.object(torch_checkpoint, "_Holder", Placeholder),
        mock.patch.object(torch, "get_rng_state", fetch_and_keep),
    ):
        yield


def watch_segment(config: Config, checkpointed: bool) -> Watch:
    """Linear, GELU, dropout, Linear: one forward and backward, every saved tensor followed."""
    width = config.width
    first, last = nn.Linear(width, width), nn.Linear(width, width)
    watch = Watch()

    def segment(x: Tensor) -> Tensor:
        watch.inside = True
        try:
            return last(F.dropout(F.gelu(first(x)), 0.1))  # type: ignore[no-any-return]
        finally:
            watch.inside = False

    def pack(tensor: Tensor) -> tuple[int, Tensor]:
        return watch.save(), tensor

    def unpack(saved: tuple[int, Tensor]) -> Tensor:
        watch.used[saved[0]] = watch.now
        return saved[1]

    x = torch.randn(config.batch, width, requires_grad=True).clone()
    one = torch.ones(())
    with watch:
        if checkpointed:
            watch.keep("input", x)
            with watched_placeholders(watch):
                y = safe(segment, x)
                loss = y.sum()
                del x, y
                watch.in_backward = True
                loss.backward(one)
        else:
            with saved_tensors_hooks(pack, unpack):
                y = segment(x)
            loss = y.sum()
            del x, y
            watch.in_backward = True
            loss.backward(one)
    return watch


def segment_spans(watch: Watch, first: int) -> tuple[list[Span], list[str]]:
    """A row of operators, ``first``; the input and the random state, if kept apart; each saved tensor."""
    spans = []
    for kind in ("forward", "recompute", "backward"):
        if kind in watch.what:
            begin = watch.what.index(kind)
            spans.append(Span(first, kind, begin, begin + watch.what.count(kind)))
    rows = ["checkpointed" if watch.filled else "plain"]
    for name, (begin, end) in sorted(watch.kept.items()):
        spans.append(Span(first + len(rows), "kept", begin, end))
        rows.append(name)
    for number, born in enumerate(watch.born):
        row, used = first + len(rows), watch.used[number] + 1  # by the operator that follows
        if watch.filled:
            filled = watch.filled[number]
            spans += [Span(row, "empty", born, filled), Span(row, "filled", filled, used)]
        else:
            spans.append(Span(row, "kept", born, used))
        rows.append(SAVED[number])
    return spans, rows


def draw_segment(config: Config, found: Mechanisms) -> None:
    """One segment without a checkpoint and, below, within PyTorch's."""
    with torch.random.fork_rng(devices=[]):  # what is tried later sees the same random numbers
        plain, checkpointed = (watch_segment(config, which) for which in (False, True))
    above, names = segment_spans(plain, 0)
    below, more = segment_spans(checkpointed, len(names))
    found.lanes("segment", [*above, *below], rows=[*names, *more])


# --- what is measured ----------------------------------------------------------------------------


def compare_forty_lines(config: Config, found: Findings) -> None:
    """``mini_checkpoint`` against no checkpoint, bit by bit, and against PyTorch's, byte by byte."""
    shape, device = (config.batch, config.width), config.device
    layers = [Layer(config.width, "gelu", dropout=0.1).to(device) for _ in range(12)]
    thirds = [partial(run_layers, layers[i : i + 4]) for i in (0, 4, 8)]

    def mini(x: Tensor) -> Tensor:
        for segment in thirds:
            x = mini_checkpoint(segment, x)
        return x

    def step_gradients(forward: Forward) -> list[Tensor]:
        torch.manual_seed(config.seed)
        x = torch.randn(*shape, device=device, requires_grad=True)
        wanted = [x, *(p for layer in layers for p in layer.parameters())]
        return list(torch.autograd.grad(forward(x).square().sum(), wanted))

    plain = partial(run_layers, layers)
    found["mini_gradients_bit_equal"] = same(step_gradients(plain), step_gradients(mini))
    theirs = partial(run_segments, layers, (4, 4, 4), preserve_rng_state=True)
    their_peak = measure_step(theirs, layers, shape, device).peak
    found["mini_peak_equal"] = measure_step(mini, layers, shape, device).peak == their_peak
    found["rng_state_bytes"] = torch.get_rng_state().nbytes


def compare_implementations(config: Config, found: Findings) -> None:
    """A block under the non-reentrant checkpoint and the reentrant one."""
    block = Block(config.width, config.heads).to(config.device)
    x = torch.randn(1, config.tokens, config.width, device=config.device, requires_grad=True)
    ways: dict[str, Forward] = {
        "safe": partial(safe, block),
        "whole": partial(whole, block),
        "reentrant": partial(reentrant, block),
    }
    ops = {name: count_ops(way, x) for name, way in ways.items()}
    found["ops_forward"], found["ops_again"] = ops["safe"]
    found["ops_again_whole"] = ops["whole"][1]
    found["ops_again_reentrant"] = ops["reentrant"][1]
    places = range(len(ops))
    found.draw(
        "operators",
        Line("forward", places, [forward for forward, _ in ops.values()]),
        Line("again", places, [again for _, again in ops.values()]),
        places=ops,
    )
    found["graph_nodes"] = graph_nodes(safe(block, x))
    found["graph_nodes_reentrant"] = graph_nodes(reentrant(block, x))
    found["reentrant_rejects_autograd_grad"] = raises(
        lambda: torch.autograd.grad(reentrant(block, x).sum(), list(block.parameters()))
    )
    data = x.detach()
    found["reentrant_loses_gradients"] = not reentrant(block, data).requires_grad
    found["non_reentrant_keeps_gradients"] = bool(safe(block, data).requires_grad)


def compare_batch_norms(config: Config, found: Findings) -> None:
    """BatchNorm sees each batch twice; a smaller momentum makes up for it."""
    m = 0.1
    plain, doubled = (batch_norm(config, wrap, m) for wrap in (call, safe))
    found["batch_norm_batches"] = doubled.batches
    found["batch_norm_gradients_equal"] = same(plain.gradients, doubled.gradients)
    found["batch_norm_mean_differs"] = not torch.equal(plain.mean, doubled.mean)
    corrected = batch_norm(config, safe, 1 - sqrt(1 - m))
    error = (corrected.mean - plain.mean).abs().max() / plain.mean.abs().max()
    found["corrected_mean_error"] = float(error)


def try_random_states(config: Config, x: Tensor, found: Findings) -> None:
    """PyTorch's default generator is restored, others are not."""
    own = torch.Generator()
    numpy_output, numpy_gradient = foreign_random(
        lambda: torch.from_numpy(np.random.rand(*x.shape) > 0.5).float().to(x.device),
        lambda: np.random.seed(config.seed),
        x,
    )
    found["numpy_output_equal"], found["numpy_gradient_wrong"] = numpy_output, not numpy_gradient
    _, own_gradient = foreign_random(
        lambda: (torch.rand(x.shape, generator=own) > 0.5).float().to(x.device),
        lambda: own.manual_seed(config.seed),
        x,
    )
    found["own_generator_gradient_wrong"] = not own_gradient

    torch.manual_seed(config.seed)
    linear = nn.Linear(config.width, config.width).to(x.device)
    dropped = safe(lambda x: F.dropout(linear(x), 0.5), x)
    state = torch.get_rng_state()
    dropped.sum().backward()
    found["rng_untouched_by_backward"] = torch.equal(state, torch.get_rng_state())


def try_changes(config: Config, x: Tensor, found: Findings) -> None:
    """What is changed between forward and backward, or from run to run; and who is called twice."""
    linear = nn.Linear(config.width, config.width).to(x.device)
    found["overwritten_input_raises"] = raises(lambda: overwritten(linear, x, lambda x: x.mul_(2)))
    found["overwritten_data_wrong"] = not overwritten(linear, x, lambda x: x.data.mul_(2))
    found["overwritten_elsewhere_wrong"] = not any(
        overwritten(linear, x, lambda x: x.mul_(2), wrap) for wrap in ELSEWHERE
    )
    found["surplus_wrong"] = not surplus(x, safe)
    found["changed_weights_raise_without"] = raises(lambda: stale_weights(config, call))
    found["changed_weights_accepted"] = bool(stale_weights(config, safe).isfinite().all())
    found["changed_shape_raises"] = raises(lambda: changed_shape(linear, x), CheckpointError)
    found["runs_of_two_backwards"] = runs_of_two_backwards(linear, x)
    stack = nn.Sequential(nn.Linear(config.width, config.width).to(x.device), nn.GELU(), linear)
    found["hook_calls_before"], found["hook_calls_after"] = hook_calls(stack, x)


def run(config: Config, progress: Progress) -> Result:
    """The forty lines against PyTorch; operators counted; every difference provoked."""
    warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
    found = Mechanisms(MEASURES, config)
    progress(0.0, "forty lines")
    compare_forty_lines(config, found)
    progress(0.3, "operators")
    compare_implementations(config, found)
    draw_segment(config, found)
    progress(0.5, "differences")
    compare_batch_norms(config, found)
    x = torch.randn(config.batch, config.width, device=config.device, requires_grad=True)
    try_random_states(config, x, found)
    try_changes(config, x, found)
    progress(1.0, "done")
    return found.result()

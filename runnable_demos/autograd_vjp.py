"""What does autograd build, and what does each way through it cost: a VJP, a JVP, a Hessian-vector product?

The lesson is ``lessons/autograd_vjp.en.md`` (中文: ``lessons/autograd_vjp.zh.md``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import Lives
from runnable_demos.lab.measure import LiveMemory, count_flops, saved_tensors
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "反向传播、VJP 与 JVP", "en": "Backpropagation, VJP and JVP"}
QUESTION: Text = {
    "zh": "autograd 建了什么图？VJP、JVP、Hessian 乘向量各要多少 FLOPs、各要保存多少字节？",
    "en": "What graph does autograd build, and what do VJP, JVP and HVP cost in FLOPs and bytes?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "FlopCounterMode 计实际执行的矩阵乘，前向不算在内，除以前向的 FLOPs；{layers} 层，逐元素运算不计",
  "matrix products counted by FlopCounterMode, without the forward, divided by the FLOPs of the forward; {layers} layers, element-wise operations not counted",
]
[method.metrics]
vjp_input = ["", "只对输入求 VJP", "VJP with respect to the input alone"]
vjp_weights = ["", "对全部权重求 VJP，输入不要梯度", "VJP with respect to all weights; the input needs no gradient"]
vjp_all = ["", "对输入和全部权重求 VJP", "VJP with respect to the input and all weights"]
jvp_input = ["", "沿输入的方向求 JVP", "JVP along a direction of the input"]
jvp_all = ["", "沿输入和全部权重的方向求 JVP", "JVP along a direction of the input and all weights"]
jvp_input_by_zeros = ["", "只沿输入求 JVP 时，有一个因子全为零的矩阵乘", "matrix products with an all-zero factor, in the JVP along a direction of the input alone"]

[[method]]
kind = "exact"
how = [
  "FlopCounterMode 计实际执行的矩阵乘，前向算在内",
  "matrix products counted by FlopCounterMode, forward included",
]
[method.metrics]
hvp_forward_over_reverse = ["", "先反向再前向求 HVP，除以求一次梯度", "HVP by forward over reverse, divided by one gradient"]
hvp_reverse_over_reverse = ["", "两次反向求 HVP，除以求一次梯度", "HVP by reverse over reverse, divided by one gradient"]
gradient_by_jvps = ["", "{tiny_parameters} 个参数的梯度，用 JVP 求与用反向求之比", "gradient of {tiny_parameters} parameters by JVPs, divided by the same with one backward"]
jacobian_forward = ["", "{inputs} 个输入、{outputs} 个输出的 jacfwd，除以前向", "jacfwd with {inputs} inputs and {outputs} outputs, divided by a forward"]
jacobian_reverse = ["", "{inputs} 个输入、{outputs} 个输出的 jacrev，除以前向", "jacrev with {inputs} inputs and {outputs} outputs, divided by a forward"]

[[method]]
kind = "exact"
how = [
  "LiveMemory 的峰值，以一层的激活为单位，不含输入与权重；只对输入求导",
  "peak by LiveMemory, in activations of one layer, without input and weights; derivatives with respect to the input alone",
]
[method.metrics]
forward_peak = ["", "不求导的前向，{layers} 层", "forward without gradients, {layers} layers"]
vjp_peak = ["", "VJP，{layers} 层", "VJP, {layers} layers"]
vjp_peak_twice = ["", "VJP，{deep} 层", "VJP, {deep} layers"]
jvp_peak = ["", "JVP，{layers} 层", "JVP, {layers} layers"]
jvp_peak_twice = ["", "JVP，{deep} 层", "JVP, {deep} layers"]

[[method]]
kind = "exact"
how = [
  "{deep} 层与 {layers} 层的峰值之差，除以层数之差，以一层的激活为单位；对全部权重求导，权重的梯度算在内",
  "peak of {deep} layers minus peak of {layers}, divided by the difference in layers, in activations of one layer; derivatives with respect to all weights, their gradients counted",
]
[method.metrics]
held_gradient = ["", "torch.autograd.grad 求梯度", "gradient by torch.autograd.grad"]
held_gradient_func = ["", "torch.func.grad 求梯度", "gradient by torch.func.grad"]
held_reverse_over_reverse = ["", "HVP，两次反向", "HVP, reverse over reverse"]
held_forward_over_reverse = ["", "HVP，torch.func.jvp 套 vjp", "HVP, torch.func.jvp of vjp"]
held_forward_over_grad = ["", "HVP，torch.func.jvp 套 grad", "HVP, torch.func.jvp of grad"]

[[method]]
kind = "exact"
how = [
  "实际运行，看结果；节点沿 next_functions 数",
  "observed in an actual run; nodes counted along next_functions",
]
[method.metrics]
graph_nodes = ["", "{layers} 层加平方和损失的图有多少个节点", "nodes in the graph of {layers} layers and a sum-of-squares loss"]
saved_activations = ["", "图里保存的张量，以一层的激活为单位，含输入", "tensors saved in the graph, in activations of one layer, input included"]
runs_in_reverse = ["", "反向按前向的逆序执行各层", "the backward runs the layers in reverse"]
freed_by_backward = ["", "反向之后，保存的张量已释放", "saved tensors are freed by the backward"]
kept_by_retain_graph = ["", "retain_graph=True 之后，保存的张量还在", "saved tensors are kept with retain_graph=True"]
second_backward_refused = ["", "第二次反向报错", "a second backward raises"]
vector_backward_refused = ["", "对向量直接 backward() 报错", "backward() of a vector raises without a vector to start from"]
gradients_accumulate = ["", "两次反向的梯度相加", "gradients of two backwards are added"]
flash_jvp_refused = ["", "CPU 的融合注意力不支持前向模式", "the CPU's fused attention refuses forward mode"]
flash_hvp_refused = ["", "CPU 的融合注意力不支持二次反向", "the CPU's fused attention refuses a second backward"]

[[method]]
kind = "bounded"
how = ["fp64，相对误差", "fp64, relative error"]
bound = 1e-12
reason = ["fp64 的舍入误差，几层的网络", "rounding in fp64, a network of a few layers"]
[method.metrics]
adjoint_error = ["", "u·(J v) 与 (Jᵀ u)·v 之差", "u·(J v) against (Jᵀ u)·v"]
hvp_error = ["", "各种 HVP 与整个 Hessian 乘向量之差", "each HVP against the whole Hessian times the vector"]

[figure.held]
title = ["{drawn} 层：每层的输出保留到什么时候", "{drawn} layers: how long each layer's output is kept"]
x = {label = ["第几个动作", "action"]}
y = {label = ["张量", "tensor"]}
[figure.held.series]
forward = ["bar", "前向（第几层）", "forward (layer)"]
backward = ["bar", "反向（第几层）", "backward (layer)"]
saved = ["bar", "保存着，等反向用", "saved for the backward"]
pair = ["bar", "值与切向量，下一层算完就释放", "value and tangent, freed after the next layer"]
[figure.held.places]
vjp = ["VJP", "VJP"]
jvp = ["JVP", "JVP"]
a_1 = ["输出 1", "output 1"]
a_2 = ["输出 2", "output 2"]
a_3 = ["输出 3", "output 3"]
a_4 = ["输出 4", "output 4"]

[figure.jacobian]
title = ["整个雅可比矩阵的 FLOPs，{inputs} 个输入", "FLOPs of a whole Jacobian, {inputs} inputs"]
x = {label = ["输出数", "outputs"], scale = "log2"}
y = {label = ["FLOPs / 前向", "FLOPs / forward"]}
[figure.jacobian.series]
reverse = ["measured", "jacrev：每行一次 VJP", "jacrev: one VJP per row"]
forward = ["measured", "jacfwd：每列一次 JVP", "jacfwd: one JVP per column"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """``layers`` of ``width`` on ``rows``; many rows, so that a weight is small beside an activation."""

    layers: int = parameter(8, {"zh": "层数 L", "en": "layers L"}, 2, 100)
    width: int = parameter(16, {"zh": "宽度 h", "en": "width h"}, 8, 4096)
    rows: int = parameter(1024, {"zh": "行数 B", "en": "rows B"}, 8, 65536)
    outputs: int = parameter(8, {"zh": "雅可比矩阵的行数", "en": "rows of the Jacobian"}, 1, 1024)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=4, width=8, rows=64), "full": Config()}
DRAWN = 4
"""Layers in the figure of lifetimes."""
TINY = (2, 4)
"""Layers and width of the network whose whole Hessian and forward-mode gradient are formed."""

Function = Callable[..., Any]


# --8<-- [start:net]
def net(x: Tensor, *weights: Tensor) -> Tensor:
    """``(B, h)`` through the layers."""
    for W in weights:
        x = torch.tanh(F.linear(x, W))
    return x


def loss(x: Tensor, *weights: Tensor) -> Tensor:
    """The sum of squares of the outputs."""
    return net(x, *weights).square().sum()


# --8<-- [end:net]


@dataclass(frozen=True, slots=True)
class Problem:
    """A network at a point, with a direction for each tensor."""

    x: Tensor
    weights: tuple[Tensor, ...]
    u: Tensor
    directions: tuple[Tensor, ...]

    @property
    def activation(self) -> int:
        """Bytes of one layer's output."""
        return self.x.nbytes


def problem(layers: int, width: int, rows: int, dtype: torch.dtype = torch.float32) -> Problem:
    """Random weights of scale 1/√h, and random directions."""
    randn = partial(torch.randn, dtype=dtype)
    weights = tuple(randn(width, width) / width**0.5 for _ in range(layers))
    directions = tuple(randn(width, width) for _ in range(layers))
    return Problem(randn(rows, width), weights, randn(rows, width), directions)


# --- the graph -----------------------------------------------------------------------------------


def walk(root: Any) -> list[Any]:
    """Every node of a graph once, from the loss on."""
    nodes, todo = [], [root]
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes:
            nodes.append(node)
            todo += [following for following, _ in node.next_functions]
    return nodes


def refuses(function: Callable[[], object], *errors: type[Exception]) -> bool:
    """Whether it raises."""
    try:
        function()
    except errors:
        return True
    return False


def look_at_graph(p: Problem, found: Mechanisms) -> None:
    """Count its nodes, see in which order they run, and what becomes of what they saved."""
    weights = [W.clone().requires_grad_() for W in p.weights]
    with saved_tensors(exclude=weights) as saved:
        value = loss(p.x, *weights)
    nodes = walk(value.grad_fn)
    found["graph_nodes"] = len(nodes)
    found["saved_activations"] = saved.bytes / p.activation

    layers = sorted(
        (node for node in nodes if node.name() == "TanhBackward0"), key=lambda n: n._sequence_nr()
    )
    ran: list[int] = []
    for number, node in enumerate(layers):
        node.register_prehook(lambda _, number=number: ran.append(number))
    value.backward()
    found["runs_in_reverse"] = ran == list(range(len(layers)))[::-1]
    once = [W.grad.clone() for W in weights if W.grad is not None]
    loss(p.x, *weights).backward()
    found["gradients_accumulate"] = all(
        torch.equal(W.grad, 2 * g) for W, g in zip(weights, once, strict=True) if W.grad is not None
    )

    found["freed_by_backward"] = not survives(p, weights, retain_graph=False)
    found["kept_by_retain_graph"] = survives(p, weights, retain_graph=True)
    value = loss(p.x, *weights)
    value.backward()
    found["second_backward_refused"] = refuses(value.backward, RuntimeError)
    y = net(p.x, *weights)
    found["vector_backward_refused"] = refuses(y.backward, RuntimeError)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        q = torch.randn(1, 2, 16, 8, device=p.x.device)
        attend = lambda q: F.scaled_dot_product_attention(q, q, q).sum()  # noqa: E731
        found["flash_jvp_refused"] = refuses(lambda: jvp(attend, (q,), (q,)), NotImplementedError)
        twice = grad(lambda q: grad(attend)(q).sum())
        found["flash_hvp_refused"] = refuses(lambda: twice(q), RuntimeError)


def survives(p: Problem, weights: Sequence[Tensor], *, retain_graph: bool) -> bool:
    """Whether the first layer's output outlives a backward, with nobody but the graph to hold it."""
    first = net(p.x, weights[0])
    storage = weakref.ref(first.untyped_storage())
    value = loss(first, *weights[1:])
    del first
    value.backward(retain_graph=retain_graph)
    return storage() is not None


# --- FLOPs ---------------------------------------------------------------------------------------


class ProductsByZero(TorchDispatchMode):
    """Counts the FLOPs of products that have a factor of zeros alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count it if it multiplies by nothing."""
        out = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func._overloadpacket)) and not all(t.any() for t in args):
            self.flops += int(count(*args, **(kwargs or {}), out_val=out))
        return out


def add_flops(p: Problem, found: Mechanisms) -> None:
    """What derivatives cost beside the forward, and what Hessian-vector products cost beside a gradient."""
    x, weights = p.x, p.weights
    forward = count_flops(lambda: net(x, *weights))
    of_input = lambda x: net(x, *weights)  # noqa: E731
    of_weights = lambda *w: net(x, *w)  # noqa: E731
    # --8<-- [start:ways]
    ways: dict[str, Function] = {
        "vjp_input": lambda: vjp(of_input, x)[1](p.u),
        "vjp_weights": lambda: vjp(of_weights, *weights)[1](p.u),
        "vjp_all": lambda: vjp(net, x, *weights)[1](p.u),
        "jvp_input": lambda: jvp(of_input, (x,), (p.u,)),
        "jvp_all": lambda: jvp(net, (x, *weights), (p.u, *p.directions)),
    }
    # --8<-- [end:ways]
    for name, way in ways.items():
        found[name] = (count_flops(way) - forward) / forward
    with ProductsByZero() as zeros:
        forwards(p)
    found["jvp_input_by_zeros"] = zeros.flops / forward
    one = count_flops(lambda: gradient(p))
    found["hvp_forward_over_reverse"] = count_flops(lambda: forward_over_reverse(p)) / one
    found["hvp_reverse_over_reverse"] = count_flops(lambda: reverse_over_reverse(p)) / one

    tiny = problem(*TINY, rows=4)
    numbers = tuple(range(len(tiny.weights)))
    columns = jacfwd(lambda *w: loss(tiny.x, *w), argnums=numbers)
    found["gradient_by_jvps"] = count_flops(lambda: columns(*tiny.weights)) / count_flops(
        lambda: gradient(tiny)
    )


def jacobian_flops(config: Config, outputs: int) -> tuple[float, float]:
    """FLOPs of the Jacobian of square layers and a last one with ``outputs``: forwards, backwards."""
    p = problem(config.layers, config.width, 1)
    last = torch.randn(outputs, config.width)
    f: Function = lambda x: F.linear(net(x, *p.weights), last)[0]  # noqa: E731
    forward = count_flops(lambda: f(p.x))
    columns: Function = jacfwd(f)
    rows: Function = jacrev(f)
    return count_flops(lambda: columns(p.x)) / forward, count_flops(lambda: rows(p.x)) / forward


# --- bytes ---------------------------------------------------------------------------------------


def peak(p: Problem, way: Callable[[], object]) -> float:
    """The most that is alive at once beside what was there, in activations of a layer."""
    with LiveMemory() as memory:
        way()
    return memory.peak / p.activation


def plain(p: Problem) -> Tensor:
    """A forward without a graph."""
    with torch.no_grad():
        return net(p.x, *p.weights)


def backwards(p: Problem) -> object:
    """A VJP with respect to the input."""
    return vjp(lambda x: net(x, *p.weights), p.x)[1](p.u)


def forwards(p: Problem) -> object:
    """A JVP along a direction of the input."""
    return jvp(lambda x: net(x, *p.weights), (p.x,), (p.u,))


def trained(p: Problem) -> list[Tensor]:
    """The weights as leaves; views, so that they take no memory."""
    return [W.detach().requires_grad_() for W in p.weights]


def gradient(p: Problem) -> Sequence[Tensor]:
    """By ``torch.autograd``."""
    weights = trained(p)
    return torch.autograd.grad(loss(p.x, *weights), weights)


def gradient_func(p: Problem) -> Sequence[Tensor]:
    """By ``torch.func.grad``, which makes a graph of the backward as well."""
    numbers = tuple(range(len(p.weights)))
    return grad(lambda *w: loss(p.x, *w), argnums=numbers)(*p.weights)  # type: ignore[no-any-return]


def reverse_over_reverse(p: Problem) -> Sequence[Tensor]:
    """HVP: the gradient with a graph of its own, and a VJP through that."""
    weights = trained(p)
    gradients = torch.autograd.grad(loss(p.x, *weights), weights, create_graph=True)
    return torch.autograd.grad(gradients, weights, p.directions)


# --8<-- [start:hvp]
def forward_over_reverse(p: Problem) -> Sequence[Tensor]:
    """HVP: a JVP along a VJP, whose way back runs when its level is closed and so records no graph."""

    def gradients(*weights: Tensor) -> Sequence[Tensor]:
        value, back = vjp(lambda *w: loss(p.x, *w), *weights)  # type: ignore[misc]
        return back(torch.ones_like(value), retain_graph=False)  # type: ignore[no-any-return]

    return jvp(gradients, p.weights, p.directions)[1]  # type: ignore[no-any-return]


# --8<-- [end:hvp]


def forward_over_grad(p: Problem) -> Sequence[Tensor]:
    """HVP as tutorials write it: ``jvp`` of ``torch.func.grad``."""
    numbers = tuple(range(len(p.weights)))
    gradients = grad(lambda *w: loss(p.x, *w), argnums=numbers)
    return jvp(gradients, p.weights, p.directions)[1]  # type: ignore[no-any-return]


HVPS: dict[str, Callable[[Problem], Sequence[Tensor]]] = {
    "reverse_over_reverse": reverse_over_reverse,
    "forward_over_reverse": forward_over_reverse,
    "forward_over_grad": forward_over_grad,
}


def add_bytes(config: Config, found: Mechanisms) -> None:
    """Peaks at one depth and at twice that."""
    L, h, B = config.layers, config.width, config.rows
    shallow, deep = problem(L, h, B), problem(2 * L, h, B)
    found["forward_peak"] = peak(shallow, partial(plain, shallow))
    for name, way in {"vjp": backwards, "jvp": forwards}.items():
        found[f"{name}_peak"] = peak(shallow, partial(way, shallow))
        found[f"{name}_peak_twice"] = peak(deep, partial(way, deep))
    ways = {"gradient": gradient, "gradient_func": gradient_func} | HVPS
    for name, hold in ways.items():
        more = peak(deep, partial(hold, deep)) - peak(shallow, partial(hold, shallow))
        found[f"held_{name}"] = more / L


# --- when each output is alive -------------------------------------------------------------------


def lives_of_vjp(p: Problem) -> Lives:
    """Forward, then backward; a layer's backward begins when the gradient of its output arrives."""
    lives = Lives()
    y, weights = p.x, trained(p)
    for number, W in enumerate(weights, 1):
        lives.begin()
        y = net(y, W)
        lives.follow(number, y)
        y.register_hook(lives.begin)
    y = y.sum()
    y.backward()
    return lives


def lives_of_jvp(p: Problem) -> Lives:
    """Forward alone, every tensor with its tangent."""
    lives = Lives()
    with forward_ad.dual_level():
        y = forward_ad.make_dual(p.x, p.u)
        for number, W in enumerate(p.weights, 1):
            lives.begin()
            y = net(y, W)
            lives.follow(number, forward_ad.unpack_dual(y).primal)
        lives.begin()
        del y
    return lives


def spans(lives: Lives, first: int, kind: str) -> Iterator[Span]:
    """One for each output."""
    for life in sorted(lives.ended, key=lambda life: life.what):
        yield Span(first + int(life.what), kind, life.born - 1, life.gone)


def draw_held(found: Mechanisms) -> None:
    """A VJP above, a JVP below: a row of actions, then a row for each layer's output."""
    n, p = DRAWN, problem(DRAWN, 8, 16)
    layers = range(1, n + 1)
    parts = [Span(0, "forward", i - 1, i, str(i)) for i in layers]
    parts += [Span(0, "backward", 2 * n - i, 2 * n - i + 1, str(i)) for i in layers]
    parts += [Span(n + 1, "forward", i - 1, i, str(i)) for i in layers]
    parts += spans(lives_of_vjp(p), 0, "saved")
    parts += spans(lives_of_jvp(p), n + 1, "pair")
    outputs = [f"a_{i}" for i in layers]
    found.lanes("held", parts, rows=["vjp", *outputs, "jvp", *outputs])


# --- the demo ------------------------------------------------------------------------------------


def errors(config: Config) -> tuple[float, float]:
    """In fp64: J and Jᵀ against one another, and Hessian-vector products against the whole Hessian."""
    p = problem(config.layers, config.width, 4, torch.float64)
    f = lambda x: net(x, *p.weights)  # noqa: E731
    pushed = torch.vdot(p.u.flatten(), jvp(f, (p.x,), (p.u,))[1].flatten())
    pulled = torch.vdot(vjp(f, p.x)[1](p.u)[0].flatten(), p.u.flatten())

    tiny = problem(*TINY, rows=4, dtype=torch.float64)
    numbers = tuple(range(len(tiny.weights)))
    H = hessian(lambda *w: loss(tiny.x, *w), argnums=numbers)(*tiny.weights)
    worst = 0.0
    for i in numbers:
        whole = sum(torch.tensordot(H[i][j], v) for j, v in enumerate(tiny.directions))
        for product in HVPS.values():
            gap = (product(tiny)[i] - whole).abs().max() / whole.abs().max()
            worst = max(worst, gap.item())
    return ((pushed - pulled).abs() / pushed.abs()).item(), worst


def run(config: Config, progress: Progress) -> Result:
    """The graph, then FLOPs, then bytes."""
    L, h = config.layers, config.width
    parameters = TINY[0] * TINY[1] ** 2
    found = Mechanisms(
        MEASURES, config, deep=2 * L, inputs=h, drawn=DRAWN, tiny_parameters=parameters
    )
    progress(0.0, "graph")
    p = problem(L, h, config.rows)
    look_at_graph(p, found)
    draw_held(found)
    progress(0.2, "FLOPs")
    add_flops(p, found)
    found["jacobian_forward"], found["jacobian_reverse"] = jacobian_flops(config, config.outputs)
    counts = [2**i for i in range(8)]
    costs = [jacobian_flops(config, m) for m in counts]
    found.draw(
        "jacobian",
        Line("reverse", counts, [back for _, back in costs]),
        Line("forward", counts, [ahead for ahead, _ in costs]),
    )
    progress(0.5, "bytes")
    add_bytes(config, found)
    progress(0.9, "errors")
    found["adjoint_error"], found["hvp_error"] = errors(config)
    progress(1.0, "")
    return found.result()

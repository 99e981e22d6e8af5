"""What does ``torch.compile`` keep between forward and backward, and what can its memory budget give up?

The lesson is ``lessons/compile_memory.en.md`` (中文: ``lessons/compile_memory.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from functorch.compile import (  # type: ignore[import-untyped]
    aot_function,
    default_partition,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import (
    LiveMemory,
    allocator_peak,
    count_flops,
    fake,
    saved_tensors,
)
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import LlamaBlock, Size, Variant, rotary

TITLE: Text = {"zh": "torch.compile 与显存", "en": "torch.compile and memory"}
QUESTION: Text = {
    "zh": "torch.compile 在前向与反向之间留下什么，显存预算又能让它放弃什么？",
    "en": "What does torch.compile keep between forward and backward, and what can its memory budget give up?",
}
GPU = 8

MEASURES = """
[[method]]
kind = "exact"
how = [
  "fake 张量上为反向保存的字节，参数除外；{tokens:,} 个 token，bf16，编译出的图逐算子执行",
  "bytes saved for the backward on fake tensors, parameters left out; {tokens:,} tokens, bf16, the compiled graph run operator by operator",
]
[method.metrics]
input_bytes = ["B", "MLP 的输入", "the MLP's input"]
eager_saved = ["B", "一层 MLP，eager", "MLP, eager"]
default_saved = ["B", "MLP，默认划分", "MLP, default partition"]
mincut_saved = ["B", "MLP，最小割", "MLP, min-cut"]
budget_90_saved = ["B", "MLP，预算 0.9", "MLP, budget 0.9"]
budget_50_saved = ["B", "MLP，预算 0.5", "MLP, budget 0.5"]
budget_20_saved = ["B", "MLP，预算 0.2", "MLP, budget 0.2"]
budget_0_saved = ["B", "MLP，预算 0", "MLP, budget 0"]
mincut_share = ["", "MLP，最小割占 eager", "MLP, min-cut over eager"]
block_eager_saved = ["B", "一层，eager", "a layer, eager"]
block_fused_saved = ["B", "一层，eager，手写的融合 RMSNorm", "a layer, eager, RMSNorm fused by hand"]
block_mincut_saved = ["B", "一层，最小割", "a layer, min-cut"]
block_budget_saved = ["B", "一层，预算 0.5", "a layer, budget 0.5"]
block_inputs_saved = ["B", "一层，预算 0", "a layer, budget 0"]

[[method]]
kind = "exact"
how = ["FlopCounterMode 计的一步矩阵乘 FLOPs", "FLOPs of a step's matmuls, counted by FlopCounterMode"]
[method.metrics]
mincut_repeated = ["", "MLP，最小割多做的", "MLP, repeated with min-cut"]
budget_90_repeated = ["", "MLP，预算 0.9 多做的", "MLP, repeated with a budget of 0.9"]
budget_50_repeated = ["", "MLP，预算 0.5 多做的", "MLP, repeated with a budget of 0.5"]
budget_20_repeated = ["", "MLP，预算 0.2 多做的", "MLP, repeated with a budget of 0.2"]
budget_0_repeated = ["", "MLP，预算 0 多做的", "MLP, repeated with a budget of 0"]

[[method]]
kind = "exact"
how = ["从编译出的两张图上读出", "read off both compiled graphs"]
[method.metrics]
mincut_values = ["", "最小割留下的大张量", "large values that min-cut keeps"]
eager_values = ["", "默认划分留下的大张量", "large values that the default partition keeps"]
checkpoint_share = [
  "",
  "检查点在编译之内：留到反向的字节是输入的几倍",
  "a checkpoint within the compiled function: bytes kept for the backward, over those of the input",
]
checkpoint_again = [
  "",
  "检查点在编译之内：反向里重做的矩阵乘",
  "a checkpoint within the compiled function: matmuls run again in the backward",
]

[[method]]
kind = "exact"
how = [
  "{layers} 层同样的 MLP 编译成一张图，小的真实张量，逐算子执行，实时字节的峰值，参数与输入除外；与 eager 之比",
  "{layers} such MLPs as one graph, small real tensors, run operator by operator: peak of live bytes without parameters and input, over that of eager",
]
[method.metrics]
stack_mincut_peak = ["", "最小割的峰值", "peak with min-cut"]
stack_20_peak = ["", "预算 0.2 的峰值", "peak with a budget of 0.2"]
stack_0_peak = ["", "预算 0 的峰值", "peak with a budget of 0"]

[[method]]
kind = "exact"
how = [
  "{layers} 层同样的 MLP 编译成一张图：为反向保存的字节，与 eager 之比",
  "{layers} such MLPs as one graph: bytes saved for the backward, over those of eager",
]
[method.metrics]
stack_20_saved = ["", "预算 0.2 保存的", "saved with a budget of 0.2"]
stack_0_saved = ["", "预算 0 保存的", "saved with a budget of 0"]

[[method]]
kind = "exact"
how = ["小的真实张量上与 eager 逐位比较", "small real tensors, compared with eager bit by bit"]
[method.metrics]
gradients_equal = ["", "预算 1、0.5、0：输出与梯度都逐位相等", "budgets of 1, 0.5 and 0: output and gradients are bit-identical"]

[[method]]
kind = "measured"
how = [
  "真卡上的 torch.compile（Inductor），前向加反向",
  "torch.compile (Inductor) on the card, forward and backward",
]
only = "gpu"
[method.metrics]
eager_allocated = ["B", "MLP，eager：分配的峰值", "MLP, eager: peak allocated"]
compiled_allocated = ["B", "MLP，编译后：分配的峰值", "MLP, compiled: peak allocated"]
budget_allocated = ["B", "MLP，预算 0.5：分配的峰值", "MLP, budget 0.5: peak allocated"]
graphs_held = [
  "B",
  "MLP，reduce-overhead：CUDA 图的私有池留着的",
  "MLP, reduce-overhead: held in private pools of CUDA graphs",
]

[figure.crossing]
title = [
  "哪些值从前向留到反向：数字是输入的几倍（bf16）",
  "Which values are kept from forward to backward: numbers are multiples of the input (bf16)",
]
x = {label = ["怎样划分", "how it is partitioned"]}
y = {label = ["值", "value"]}
[figure.crossing.series]
kept = ["bar", "留下", "kept"]
again = ["bar", "反向里重做", "run again"]
unused = ["bar", "反向用不到", "not needed"]
[figure.crossing.places]
eager = ["eager", "eager"]
mincut = ["最小割", "cut"]
b90 = ["0.9", "0.9"]
b50 = ["0.5", "0.5"]
b0 = ["0", "0"]
x = ["x", "x"]
x32 = ["x, fp32", "x, fp32"]
rms = ["1/rms", "1/rms"]
normed = ["x / rms", "x / rms"]
scaled = ["× w", "× w"]
gate = ["gate", "gate"]
silu = ["silu", "silu"]
up = ["up", "up"]
product = ["乘积", "product"]
down = ["down", "down"]

[figure.budget]
title = ["{layers} 层编译成一张图：预算、保存的字节与一步的峰值", "{layers} layers as one graph: budget, bytes saved, and the peak of a step"]
x = {label = ["activation_memory_budget", "activation_memory_budget"]}
y = {label = ["与 eager 之比", "over eager"]}
[figure.budget.series]
saved = ["measured", "前向之后保存的", "saved after the forward"]
peak = ["measured", "一步的峰值", "peak of the step"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The layer that is compiled; by default one of Llama 3 8B."""

    tokens: int = parameter(8192, {"zh": "token 数 s", "en": "tokens s"}, 16, 131072)
    width: int = parameter(4096, {"zh": "宽度 h", "en": "width h"}, 16, 16384)
    inner: int = parameter(14336, {"zh": "MLP 的宽度 f", "en": "the MLP's width f"}, 16, 65536)
    heads: int = parameter(32, {"zh": "头数 a", "en": "heads a"}, 1, 128)
    kv_heads: int = parameter(8, {"zh": "KV 头数 g", "en": "KV heads g"}, 1, 128)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(tokens=64, width=32, inner=112, heads=4, kv_heads=2),
    "full": Config(),
}

BUDGETS = (1.0, 0.9, 0.5, 0.2, 0.0)
STACKED = (1.0, 0.5, 0.2, 0.1, 0.0)
LAYERS = 8
"""Layers of the stack that is compiled as one graph, and its budgets."""
aten = torch.ops.aten
Function = Callable[..., Tensor]


# --8<-- [start:mlp]
def mlp(x: Tensor, w: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """RMSNorm step by step, SwiGLU, residual: ``(s, h)`` to ``(s, h)``."""
    x32 = x.float()
    rms = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-5)
    scaled = w * (x32 * rms).to(x.dtype)
    return x + (F.silu(scaled @ gate) * (scaled @ up)) @ down


# --8<-- [end:mlp]


def operands(tokens: int, width: int, inner: int, device: str = "cpu") -> list[Tensor]:
    """Input and parameters of ``mlp``, in bf16."""
    shapes = ((tokens, width), (width,), (width, inner), (width, inner), (inner, width))
    drawn = [torch.randn(s, dtype=torch.bfloat16, device=device) for s in shapes]
    return [t.mul_(t.shape[0] ** -0.5).requires_grad_() for t in drawn]


# --8<-- [start:compiled]
class Compiled:
    """A function as AOTAutograd compiles it, but for the kernels: its graphs run operator by operator."""

    def __init__(
        self, function: Function, partition: Callable[..., Any], budget: float = 1.0
    ) -> None:
        self.budget = budget
        self.graphs: list[fx.GraphModule] = []
        self.function: Function = aot_function(function, self._keep, self._keep, partition)

    def _keep(self, graph: fx.GraphModule, _: object) -> Any:
        self.graphs.append(graph)
        return make_boxed_func(graph.forward)

    def __call__(self, *args: Tensor) -> Tensor:
        """Its result; the first call compiles."""
        with functorch_config.patch(activation_memory_budget=self.budget):
            return self.function(*args)


# --8<-- [end:compiled]


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes saved for the backward, and FLOPs of a step."""

    saved: int
    flops: int


def cost(function: Function, args: Sequence[Tensor], kept_anyway: Sequence[Tensor]) -> Cost:
    """Both of one function, whose input is itself computed, as between layers."""
    # --8<-- [start:cost]
    x = args[0] * 1.0
    with saved_tensors(exclude=kept_anyway) as saved:
        y = function(x, *args[1:])
    torch.autograd.grad(y, x, torch.ones_like(y))  # compiles the backward
    step = lambda: function(*args).backward(torch.ones_like(args[0]))  # noqa: E731 - one use
    return Cost(saved.bytes, count_flops(step))
    # --8<-- [end:cost]


def ways(function: Function) -> dict[str, Function]:
    """Eager, the default partition, and min-cut at each budget."""
    cut = min_cut_rematerialization_partition
    return {
        "eager": function,
        "default": Compiled(function, default_partition),
        **{f"{b:.2f}": Compiled(function, cut, b) for b in BUDGETS},
    }


# --- what crosses --------------------------------------------------------------------------------

NAMES = {
    "primals_1": "x", "_to_copy": "x32", "rsqrt": "rms", "_to_copy_1": "normed", "mul_1": "scaled",
    "mm": "gate", "silu": "silu", "mm_1": "up", "mul_2": "product", "mm_2": "down",
}  # fmt: skip
"""Values of ``mlp`` by the names of their nodes in the joint graph, in the order of the forward."""
VIEWS = {aten.t.default, aten.detach.default, aten.view.default}


def base(node: fx.Node) -> fx.Node:
    """What a view is a view of."""
    while node.target in VIEWS:
        node = cast(fx.Node, node.args[0])
    return node


def crossing(compiled: Compiled) -> dict[str, str]:
    """For each value: kept for the backward, run again in it, or not needed there."""
    # --8<-- [start:crossing]
    forward, backward = compiled.graphs
    made = {node.name: node for node in forward.graph.nodes}
    wanted = [node for node in backward.graph.nodes if node.users]
    kept = {base(made[n.name]).name for n in wanted if n.op == "placeholder" and n.name in made}
    again = {n.name for n in wanted if n.op == "call_function"} - kept
    # --8<-- [end:crossing]
    return {
        name: "kept" if node in kept else "again" if node in again else "unused"
        for node, name in NAMES.items()
    }


def numbers(compiled: Compiled) -> dict[str, float]:
    """The size of each value, in multiples of the input."""
    made = {
        node.name: node.meta["val"] for node in compiled.graphs[0].graph.nodes if "val" in node.meta
    }
    unit = made["primals_1"].nbytes
    return {name: made[node].nbytes / unit for node, name in NAMES.items()}


def draw_crossing(found: Mechanisms, told: dict[str, Compiled]) -> None:
    """A row for each value, a column for each partition."""
    columns = {"eager": "default", "mincut": "1.00", "b90": "0.90", "b50": "0.50", "b0": "0.00"}
    sizes = numbers(told["default"])
    tiles = [
        Tile(
            row, column, kind, (f"{sizes[name]:g}",) if kind == "kept" and sizes[name] >= 1 else ()
        )
        for column, way in enumerate(columns.values())
        for row, (name, kind) in enumerate(crossing(told[way]).items())
    ]
    found.tiles("crossing", tiles, rows=list(NAMES.values()), columns=list(columns))


# --- the measurements ----------------------------------------------------------------------------


def the_mlp(config: Config, found: Mechanisms) -> None:
    """Bytes and FLOPs of every way at full size, and the figures."""
    with fake():
        args = operands(config.tokens, config.width, config.inner)
        told = ways(mlp)
        costs = {name: cost(way, args, args) for name, way in told.items()}
    eager = costs["eager"]
    found["input_bytes"] = args[0].nbytes
    found["eager_saved"], found["default_saved"] = eager.saved, costs["default"].saved
    cut = {b: costs[f"{b:.2f}"] for b in BUDGETS}
    found["mincut_share"] = cut[1.0].saved / eager.saved
    named = {"mincut": 1.0, "budget_90": 0.9, "budget_50": 0.5, "budget_20": 0.2, "budget_0": 0.0}
    for name, b in named.items():
        found[f"{name}_saved"] = cut[b].saved
        found[f"{name}_repeated"] = cut[b].flops / eager.flops - 1
    compiled = {name: way for name, way in told.items() if isinstance(way, Compiled)}
    for name, way in (("eager", "default"), ("mincut", "1.00")):
        large = {n for n, size in numbers(compiled[way]).items() if size >= 1}
        kinds = crossing(compiled[way])
        found[f"{name}_values"] = sum(kinds[n] == "kept" for n in large)
    draw_crossing(found, compiled)


def functional(block: LlamaBlock, names: list[str], x: Tensor, *rest: Tensor) -> Tensor:
    """A block as a function of its input, two rotary tables and its parameters."""
    named = dict(zip(names, rest[2:], strict=True))
    y: Tensor = torch.func.functional_call(block, named, (x, *rest[:2]))
    return y


def the_layer(config: Config, found: Mechanisms) -> None:
    """A whole layer with attention, its norms as Hugging Face writes them."""
    size = Size(config.width, config.inner, 1, config.heads, config.kv_heads)
    with fake():
        for name, norm, partition, budget in (
            ("eager", "eager", None, 1.0),
            ("fused", "fused", None, 1.0),
            ("mincut", "eager", min_cut_rematerialization_partition, 1.0),
            ("budget", "eager", min_cut_rematerialization_partition, 0.5),
            ("inputs", "eager", min_cut_rematerialization_partition, 0.0),
        ):
            block = LlamaBlock(size, Variant(norm=norm))  # type: ignore[arg-type]
            weights = dict(block.named_parameters())
            tables = rotary(config.tokens, config.width // config.heads, torch.bfloat16)

            layer = partial(functional, block, list(weights))
            way = layer if partition is None else Compiled(layer, partition, budget)
            shape = (1, config.tokens, config.width)
            x = torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True) * 1.0
            with saved_tensors(exclude=[*weights.values(), *tables]) as saved:
                way(x, *tables, *weights.values())
            found[f"block_{name}_saved"] = saved.bytes


def stack(x: Tensor, *parameters: Tensor) -> Tensor:
    """Several ``mlp``, one after another."""
    for i in range(0, len(parameters), 4):
        x = mlp(x, *parameters[i : i + 4])
    return x


def stacked(function: Function, args: Sequence[Tensor]) -> tuple[int, int]:
    """Bytes saved, and the step's peak beside what is there anyway."""
    results(function, args)  # compiles
    with saved_tensors(exclude=args) as saved:
        function(args[0] * 1.0, *args[1:])
    with LiveMemory() as live:
        y = function(args[0] * 1.0, *args[1:])
        torch.autograd.grad(y, args, torch.ones_like(y))
    return saved.bytes, live.peak


def the_stack(config: Config, found: Mechanisms) -> None:
    """What the budget saves, and what the step's peak makes of it."""
    torch.manual_seed(config.seed)
    x, *_ = operands(256, 32, 112)
    args = [x, *(p for _ in range(LAYERS) for p in operands(256, 32, 112)[1:])]
    eager = stacked(stack, args)
    cut = min_cut_rematerialization_partition
    told = {b: stacked(Compiled(stack, cut, b), args) for b in STACKED}
    saved, peak = ({b: pair[i] / eager[i] for b, pair in told.items()} for i in (0, 1))
    found["stack_mincut_peak"], found["stack_20_peak"] = peak[1.0], peak[0.2]
    found["stack_0_peak"] = peak[0.0]
    found["stack_20_saved"], found["stack_0_saved"] = saved[0.2], saved[0.0]
    found.draw(
        "budget",
        Line("saved", STACKED, list(saved.values())),
        Line("peak", STACKED, list(peak.values())),
    )


def results(function: Function, args: Sequence[Tensor]) -> list[Tensor]:
    """Output and gradients."""
    y = function(*args)
    return [y.detach(), *torch.autograd.grad(y, args, torch.ones_like(y))]


def on_real_tensors(config: Config, found: Mechanisms) -> None:
    """Bits of every way, and a checkpoint within the compiled function."""
    torch.manual_seed(config.seed)
    args = operands(48, 32, 80)
    truth = results(mlp, args)
    cut = min_cut_rematerialization_partition
    found["gradients_equal"] = all(
        all(map(torch.equal, results(Compiled(mlp, cut, b), args), truth)) for b in (1.0, 0.5, 0.0)
    )
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=cut)
    inside = partial(checkpoint, mlp, use_reentrant=False)
    y = torch.compile(inside, backend=backend, fullgraph=True)(*args)
    torch.autograd.grad(y, args, torch.ones_like(y))
    parameters = {p.shape for p in args[1:]}
    crossed = {n.name: n.meta["val"] for n in graphs[1].graph.nodes if n.op == "placeholder"}
    found["checkpoint_share"] = (
        sum(
            t.nbytes
            for name, t in crossed.items()
            if not name.startswith("tangents") and t.shape not in parameters
        )
        / args[0].nbytes
    )
    again = [node for node in graphs[1].graph.nodes if node.target is aten.mm.default]
    # The backward has a product for each of six gradients; whatever is more runs again.
    found["checkpoint_again"] = len(again) - 2 * 3


def on_the_card(config: Config, found: Mechanisms) -> None:
    """On a GPU: peaks of eager and of Inductor, and what CUDA graphs keep in pools of their own."""
    args = operands(config.tokens, config.width, config.inner, config.device)
    found["eager_allocated"] = allocator_peak(lambda: results(mlp, args))
    for name, budget in (("compiled", 1.0), ("budget", 0.5)):
        torch._dynamo.reset()
        with functorch_config.patch(activation_memory_budget=budget):
            fast = torch.compile(mlp)
            found[f"{name}_allocated"] = allocator_peak(partial(results, fast, args))
    torch._dynamo.reset()
    graphed = torch.compile(mlp, mode="reduce-overhead")
    for _ in range(4):  # warm-up, recording, replay
        results(graphed, args)
    found["graphs_held"] = sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) != (0, 0)
    )


def run(config: Config, progress: Progress) -> Result:
    """The MLP, a whole layer, then real tensors."""
    found = Mechanisms(MEASURES, config, layers=LAYERS)
    progress(0.0, "MLP")
    the_mlp(config, found)
    progress(0.5, "layer")
    the_layer(config, found)
    progress(0.6, "stack")
    the_stack(config, found)
    progress(0.8, "bits")
    on_real_tensors(config, found)
    if config.device == "cuda":
        progress(0.9, "card")
        on_the_card(config, found)
    progress(1.0, "")
    return found.result()

"""Why are a block's matrices split by columns first and by rows second?

The lesson is ``lessons/tensor_parallel_split.en.md`` (中文: ``lessons/tensor_parallel_split.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.lab import collectives, ranks
from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models import split

TITLE: Text = {"zh": "列切与行切", "en": "Column then row"}
QUESTION: Text = {
    "zh": "MLP 和注意力的矩阵为什么先按列切、再按行切？换个次序要多通信多少？",
    "en": "Why are a block's matrices split by columns, then by rows? How much more do other orders send?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "{ranks} 个真实进程，一次前向或反向里实际发出的 all-reduce 次数；没有别的集合通信",
  "{ranks} real ranks: all-reduces issued in a forward or backward; there is no other collective",
]
[method.metrics]
mlp_forward = [
  "",
  "MLP，先列后行：前向的 all-reduce 次数",
  "MLP, columns then rows: all-reduces of the forward",
]
mlp_backward = [
  "",
  "MLP，先列后行：反向的 all-reduce 次数",
  "MLP, columns then rows: all-reduces of the backward",
]
attention_forward = [
  "",
  "注意力，按头切：前向的 all-reduce 次数",
  "attention split by heads: all-reduces of the forward",
]
attention_backward = [
  "",
  "注意力，按头切：反向的 all-reduce 次数",
  "attention split by heads: all-reduces of the backward",
]

[[method]]
kind = "exact"
how = [
  "PyTorch 的 ColwiseParallel 与 RowwiseParallel，由 PyTorch 的 CommDebugMode 计数",
  "PyTorch's ColwiseParallel and RowwiseParallel, counted by PyTorch's CommDebugMode",
]
[method.metrics]
torch_forward = [
  "",
  "PyTorch 的 TP，同一个 MLP：前向的集合通信次数",
  "PyTorch's TP of the same MLP: collectives of the forward",
]
torch_backward = [
  "",
  "PyTorch 的 TP，同一个 MLP：反向的集合通信次数",
  "PyTorch's TP of the same MLP: collectives of the backward",
]

[[method]]
kind = "exact"
how = [
  "实际发出的集合通信的字节，all-reduce 算两遍，除以 sh 个 fp64 元素的字节；单位 sh·(t−1)/t",
  "bytes of the collectives issued, an all-reduce twice, over those of sh in fp64: units of sh·(t−1)/t",
]
[method.metrics]
column_row_forward = ["", "先列后行：前向的通信量", "columns then rows: volume of the forward"]
column_row_volume = ["", "先列后行：前向加反向的通信量", "columns then rows: volume, forward and backward"]
column_column_volume = ["", "先列后列：前向加反向的通信量", "columns then columns: volume, forward and backward"]
row_row_volume = ["", "先行后行：前向加反向的通信量", "rows then rows: volume, forward and backward"]
row_column_forward = ["", "先行后列：前向的通信量", "rows then columns: volume of the forward"]
row_column_volume = ["", "先行后列：前向加反向的通信量", "rows then columns: volume, forward and backward"]
row_column_over = ["", "先行后列的通信量是先列后行的几倍", "volume of rows then columns over columns then rows"]

[[method]]
kind = "exact"
how = [
  "用手写的环代替 all-reduce，数每个进程实际发送的字节，除以 sh 个元素的字节；最大的进程",
  "a ring written by hand in place of all-reduce: bytes that a rank sends over those of sh, the largest rank",
]
[method.metrics]
ring_forward = [
  "",
  "先列后行，t = {ranks}：前向每个进程发出几份 sh",
  "columns then rows, t = {ranks}: times sh that a rank sends in the forward",
]
ring_backward = [
  "",
  "先列后行，t = {ranks}：反向每个进程发出几份 sh",
  "columns then rows, t = {ranks}: times sh that a rank sends in the backward",
]

[[method]]
kind = "exact"
how = [
  "MLP 的前向为反向保存的元素，不含参数，除以 sh；最大的进程",
  "elements that the MLP's forward saves, without parameters, over sh; the fullest rank",
]
[method.metrics]
whole_saved = ["", "不切：保存的激活 / sh", "not split: activations saved / sh"]
column_row_saved = [
  "",
  "先列后行：每个进程保存的激活 / sh",
  "columns then rows: activations saved on a rank / sh",
]
row_column_saved = [
  "",
  "先行后列：每个进程保存的激活 / sh",
  "rows then columns: activations saved on a rank / sh",
]

[[method]]
kind = "exact"
how = [
  "每个进程持有的参数个数，四种次序里最多的；键值头的份数由全部进程相加",
  "parameters that a rank holds, the most of all orders; copies of key-value heads are added up over all ranks",
]
[method.metrics]
parameter_share = ["", "MLP：一个进程的参数占全部的比例", "MLP: a rank's parameters over all of them"]
kv_copies = [
  "",
  "{few} 个键值头，t = {ranks}：每个头有几份",
  "{few} key-value heads, t = {ranks}: copies of each head",
]

[[method]]
kind = "bounded"
how = [
  "fp64，与不切的模块比较：输出、输入的梯度与全部权重的梯度，四种次序与注意力",
  "fp64, against the module in one piece: output, input's and weights' gradients, of all orders and attention",
]
bound = 1e-12
reason = [
  "部分和以不同次序相加，fp64 舍入约 1e-16，乘以项数仍远小于 1e-12",
  "partial sums are added in another order: fp64 rounds at 1e-16, times the terms",
]
[method.metrics]
error = ["", "最大相对误差", "largest relative error"]

[[method]]
kind = "exact"
how = ["故意写错（或改对），与不切的模块比较", "written wrongly on purpose (or corrected), against the unsplit module"]
[method.metrics]
bias_extra = [
  "",
  "行切的偏置加在 all-reduce 之前：多加了几次",
  "a row split's bias before the all-reduce: times too often that it is added",
]
gelu_of_parts_differs = [
  "",
  "先行切，不归约就做 GELU：结果不同",
  "rows first, GELU without the reduction: the result differs",
]
fused_cut_differs = [
  "",
  "融合的 gate-up 权重直接 chunk：结果不同",
  "a fused gate-up weight cut by a plain chunk: the result differs",
]
fused_cut_right = [
  "",
  "gate 与 up 各自切再拼：与不切一致",
  "gate and up cut separately, then joined: the same result",
]
kv_unsummed_differs = [
  "",
  "复制的键值头不汇总梯度：梯度不同",
  "copies of a key-value head, gradients not summed: the gradient differs",
]

[figure.orders]
title = ["每层 MLP 的通信量，按两个矩阵的切法", "What an MLP sends, by how its two matrices are split"]
x = {label = ["第一个矩阵 → 第二个矩阵", "first matrix → second matrix"]}
y = {label = ["通信量，单位 sh·(t−1)/t", "volume in sh·(t−1)/t"]}
[figure.orders.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
[figure.orders.places]
column_row = ["列→行", "col→row"]
column_column = ["列→列", "col→col"]
row_row = ["行→行", "row→row"]
row_column = ["行→列", "row→col"]

[figure.column_then_row]
title = [
  "前向里每张卡手上的张量：上为先列后行，下为先行后列",
  "What each rank holds in the forward: columns then rows above, rows then columns below",
]
x = {label = ["前向的步骤", "steps of the forward"]}
y = {label = ["切法与卡", "order and rank"]}
[figure.column_then_row.series]
whole = ["bar", "完整，各卡相同", "whole, the same on all"]
columns = ["bar", "只有自己的几列", "its own columns"]
summand = ["bar", "完整大小，但只是部分和", "full size, but a partial sum"]
nothing = ["bar", "不通信", "nothing to send"]
[figure.column_then_row.places]
input = ["X", "X"]
first = ["×A", "×A"]
between = ["通信", "send"]
gelu = ["GELU", "GELU"]
second = ["×B", "×B"]
leave = ["通信", "send"]
cr0 = ["列→行 0", "col→row 0"]
cr1 = ["1", "1"]
rc0 = ["行→列 0", "row→col 0"]
rc1 = ["1", "1"]
"""


@dataclass(frozen=True)
class Config:
    """An MLP and an attention sublayer on ``ranks`` ranks."""

    ranks: int = parameter(4, {"zh": "并行度 t", "en": "degree t"}, 2, 8)
    tokens: int = parameter(16, {"zh": "token 数 s", "en": "tokens s"}, 4, 8192)
    width: int = parameter(64, {"zh": "宽度 h", "en": "width h"}, 16, 8192)
    heads: int = parameter(8, {"zh": "查询头数 a", "en": "query heads a"}, 2, 128)
    few: int = parameter(
        2, {"zh": "少于卡数的键值头数", "en": "fewer key-value heads than ranks"}, 1, 8
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, tokens=8, width=32, heads=4, few=1), "full": Config()}


# --- what passes between the ranks: each function moves the last dimension -----------------------


def same(x: Tensor) -> Tensor:
    """Nothing is sent."""
    return x.view_as(x)


def mine(x: Tensor) -> Tensor:
    """Of a whole that all ranks have, this rank's columns; nothing is sent."""
    return x.chunk(dist.get_world_size(), -1)[dist.get_rank()].contiguous()


def total(x: Tensor) -> Tensor:
    """All-reduce: the sum of all ranks' tensors."""
    x = x.clone()
    dist.all_reduce(x)
    return x


def gather(x: Tensor) -> Tensor:
    """All-gather: the columns of all ranks side by side."""
    return split.gather(x, dim=-1)


def scatter(x: Tensor) -> Tensor:
    """Reduce-scatter: of the sum of all ranks' tensors, this rank's columns."""
    return split.scatter(x, dim=-1)


def ring(x: Tensor) -> Tensor:
    """All-reduce by 2 (t − 1) sends to the next rank: first the sums travel, then what they came to."""
    t, rank = dist.get_world_size(), dist.get_rank()
    flat = x.flatten().clone()
    parts = flat.chunk(t)
    arriving = torch.empty_like(parts[0])
    for hop in range(2 * (t - 1)):
        out, into = parts[(rank - hop) % t], parts[(rank - hop - 1) % t]
        pair = [
            dist.P2POp(dist.isend, out, (rank + 1) % t),
            dist.P2POp(dist.irecv, arriving, (rank - 1) % t),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        into.copy_(into + arriving if hop < t - 1 else arriving)
    return flat.view_as(x)


Move = Callable[[Tensor], Tensor]


class Pass(torch.autograd.Function):
    """One way in the forward, another in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Move, back: Move) -> Tensor:
        """The activation moves."""
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Its gradient moves."""
        return ctx.back(grads[0]), None, None


Way = tuple[Move, Move]


def go(x: Tensor, way: Way) -> Tensor:
    """Send ``x`` that way."""
    out: Tensor = Pass.apply(x, *way)  # type: ignore[no-untyped-call]
    return out


# --- the modules, split --------------------------------------------------------------------------

# The dimension by which A and B are split, as ``F.linear`` has them (columns are dimension 0), and
# what is sent: into A, between A and B, behind B.
# --8<-- [start:orders]
ORDERS: dict[str, tuple[int, int, Way, Way, Way]] = {
    "column_row": (0, 1, (same, total), (same, same), (total, same)),
    "column_column": (0, 0, (same, total), (gather, scatter), (gather, mine)),
    "row_row": (1, 1, (mine, gather), (scatter, gather), (total, same)),
    "row_column": (1, 0, (mine, gather), (total, total), (gather, mine)),
    "ring": (0, 1, (same, ring), (same, same), (ring, same)),
}
# --8<-- [end:orders]


def part(weight: Tensor, dim: int) -> Tensor:
    """Of a weight, what this rank has, as a leaf."""
    t, rank = dist.get_world_size(), dist.get_rank()
    return weight.detach().chunk(t, dim)[rank].clone().requires_grad_()


def mlp(x: Tensor, A: Tensor, B: Tensor, order: str, seen: list[Tensor] | None = None) -> Tensor:
    """``(s, h)``, the same on each rank, to the same; ``A`` and ``B`` are this rank's parts.

    ``seen`` is told what this rank has in hand, step by step.
    """
    # --8<-- [start:mlp]
    first, _, enter, between, leave = ORDERS[order]
    steps = [go(x, enter)]
    steps.append(F.linear(steps[-1], A))
    if first == 0:  # whole columns: GELU at once, on this rank's own
        gelu = F.gelu(steps[-1])
        steps += [gelu, go(gelu, between)]
    else:  # partial sums: GELU only of their sum
        steps.append(go(steps[-1], between))
        steps.append(F.gelu(steps[-1]))
    steps.append(F.linear(steps[-1], B))
    steps.append(go(steps[-1], leave))
    # --8<-- [end:mlp]
    if seen is not None:
        seen += [step.detach() for step in steps]
    return steps[-1]


def attend(x: Tensor, qkv: Sequence[Tensor], out: Tensor, d: int, *, split: bool) -> Tensor:
    """Causal attention; ``qkv`` and ``out`` hold whole heads of ``d`` columns, all or this rank's."""
    entered = go(x, (same, total)) if split else x
    q, k, v = (F.linear(entered, w).unflatten(-1, (-1, d)).transpose(0, 1)[None] for w in qkv)
    O = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    y = F.linear(O[0].transpose(0, 1).flatten(1), out)
    return go(y, (total, same)) if split else y


def swiglu(x: Tensor, fused: Tensor, down: Tensor) -> Tensor:
    """Gate and up in one weight: the upper half of its rows is the gate."""
    gate, up = F.linear(x, fused).chunk(2, -1)
    out: Tensor = F.linear(F.silu(gate) * up, down)
    return out


# --- in each rank --------------------------------------------------------------------------------


class Given:
    """What all ranks start from: the same input and weights."""

    def __init__(self, config: Config) -> None:
        generator = torch.Generator().manual_seed(config.seed)

        def draw(*shape: int) -> Tensor:
            x = torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5
            leaf: Tensor = x.to(config.device).requires_grad_()
            return leaf

        s, h, d = config.tokens, config.width, config.width // config.heads
        self.x, self.A, self.B = draw(s, h), draw(4 * h, h), draw(h, 4 * h)
        self.q, self.out = draw(h, h), draw(h, h)
        self.kv = {n: [draw(n * d, h), draw(n * d, h)] for n in (config.heads, config.few)}
        self.fused, self.down, self.bias = draw(4 * h, h), draw(h, 2 * h), draw(h)


def gradients(y: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of a loss that is the sum of squares."""
    return list(torch.autograd.grad(y.square().sum(), leaves))


def counted(forward: Callable[[], Tensor], leaves: Sequence[Tensor]) -> dict[str, Any]:
    """The collectives of a forward and of its backward, as ``[kind, bytes]``, and what they gave."""
    # --8<-- [start:count]
    with collectives.Collectives() as there:
        y = forward()
    with collectives.Collectives() as back:
        grads = gradients(y, leaves)
    calls = {
        way: [[call.kind, call.nbytes] for call in mode.calls]
        for way, mode in (("forward", there), ("backward", back))
    }
    # --8<-- [end:count]
    return {"calls": calls, "found": [y.detach(), *grads]}


def state(held: Tensor, truth: Tensor) -> str:
    """What a rank holds of a tensor of the module in one piece; found out by comparing, on all ranks."""
    if held.shape != truth.shape:
        assert torch.allclose(held, mine(truth))
        return "columns"
    summed = total(held)
    if torch.allclose(held, truth):
        return "whole"
    assert torch.allclose(summed, truth)
    return "summand"


def orders(given: Given) -> ranks.Report:
    """Each order of the MLP: its calls, its error, what it saves, and what is in hand step by step."""
    hidden = F.linear(given.x, given.A)
    gelu = F.gelu(hidden)
    whole = F.linear(gelu, given.B)
    truth = [whole.detach(), *gradients(whole, [given.x, given.A, given.B])]
    report: ranks.Report = {"errors": [], "calls": {}, "saved": {}, "steps": {}, "parameters": []}
    for order, (first, second, *_) in ORDERS.items():
        x, A, B = given.x.detach().requires_grad_(), part(given.A, first), part(given.B, second)
        seen: list[Tensor] = []
        with saved_tensors([A, B]) as saved:
            mlp(x, A, B, order, seen)
        run_ = counted(lambda x=x, A=A, B=B, o=order: mlp(x, A, B, o), [x, A, B])  # type: ignore[misc]
        expected = [*truth[:2], part(truth[2], first), part(truth[3], second)]
        report["errors"] += [
            relative(a, b.detach()) for a, b in zip(run_["found"], expected, strict=True)
        ]
        report["calls"][order] = run_["calls"]
        report["saved"][order] = saved.bytes // given.x.element_size()
        steps = [given.x, hidden, gelu if first == 0 else hidden, gelu, whole, whole]
        report["steps"][order] = [
            [state(held, t.detach()), *held.shape] for held, t in zip(seen, steps, strict=True)
        ]
        report["parameters"].append((A.numel() + B.numel()) / (given.A.numel() + given.B.numel()))
    with saved_tensors([given.A, given.B]) as saved:
        F.linear(F.gelu(F.linear(given.x, given.A)), given.B)
    report["saved"]["whole"] = saved.bytes // given.x.element_size()
    return report


def attention(given: Given, d: int, kv_heads: int) -> ranks.Report:
    """Attention by heads; where heads are fewer than ranks each is copied to several of them."""
    t, rank = dist.get_world_size(), dist.get_rank()
    copies = max(1, t // kv_heads)
    leaves = [given.x, given.q, *given.kv[kv_heads], given.out]
    whole = attend(leaves[0], leaves[1:4], leaves[4], d, split=False)
    x, q, out = given.x.detach().requires_grad_(), part(given.q, 0), part(given.out, 1)
    own = rank // copies  # which share of the key-value heads this rank has
    kv = [w.detach().chunk(t // copies)[own].clone().requires_grad_() for w in given.kv[kv_heads]]
    run_ = counted(lambda: attend(x, [q, *kv], out, d, split=True), [x, q, *kv, out])
    y, dx, dq, dk, dv, dout = run_["found"]
    alone = dk.clone()
    group, _ = dist.new_subgroups(group_size=copies)  # ranks that have the same heads
    for each in (dk, dv):
        dist.all_reduce(each, group=group)
    truth = [whole.detach(), *gradients(whole, leaves)]
    expected = [*truth[:2], part(truth[2], 0), *(g.chunk(t // copies)[own] for g in truth[3:5])]
    expected.append(part(truth[5], 1).detach())
    pairs = zip([y, dx, dq, dk, dv, dout], expected, strict=True)
    return {
        "calls": run_["calls"],
        "errors": [relative(a, b.detach()) for a, b in pairs],
        "copies": sum(w.numel() for w in kv) / sum(w.numel() for w in given.kv[kv_heads]),
        "unsummed": relative(alone, truth[3].chunk(t // copies)[own]) > 0.01,
    }


def mistakes(given: Given) -> ranks.Report:
    """Four ways to get it wrong, none of which raises."""
    with torch.no_grad():
        A, B = part(given.A, 0), part(given.B, 1)
        early = total(F.linear(torch.zeros_like(F.linear(given.x, A)), B, given.bias))
        extra = (early / given.bias).mean() - 1
        hidden = F.linear(given.x, given.A)
        parts = F.linear(mine(given.x), part(given.A, 1))
        truth = swiglu(given.x, given.fused, given.down)
        cut, down = part(given.fused, 0), part(given.down, 1)
        right = torch.cat([part(half, 0) for half in given.fused.chunk(2)])
        return {
            "bias": round(float(extra), 9),
            "gelu": relative(total(F.gelu(parts)), F.gelu(hidden)),
            "cut": relative(total(swiglu(given.x, cut, down)), truth),
            "right": relative(total(swiglu(given.x, right, down)), truth),
        }


def library(given: Given, device: str) -> ranks.Report:
    """PyTorch's own tensor parallelism of the same MLP: collectives of forward and backward."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - slow
    from torch.distributed.tensor.debug import CommDebugMode  # noqa: PLC0415
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    h = given.x.shape[1]
    module = nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h)).double().to(device)
    parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with CommDebugMode() as there:
        y = module(given.x.detach().requires_grad_())
    with CommDebugMode() as back:
        y.square().sum().backward()
    return {"forward": there.get_total_counts(), "backward": back.get_total_counts()}


def measure(task: Mapping[str, object]) -> ranks.Report:
    """Everything, from the same input and weights on each rank."""
    config = Config(**task)  # type: ignore[arg-type]
    given = Given(config)
    d = config.width // config.heads
    return {
        "mlp": orders(given),
        "attention": attention(given, d, config.heads),
        "few": attention(given, d, config.few),
        "mistakes": mistakes(given),
        "torch": library(given, config.device),
    }


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once; all of them send alike."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.tensor_parallel_split", config.ranks, asdict(config))
    sh = config.tokens * config.width

    layers = {
        "mlp": [r["mlp"]["calls"]["column_row"] for r in reports],
        "attention": [r["attention"]["calls"] for r in reports],
    }
    for sublayer, calls in layers.items():
        for way in ("forward", "backward"):
            assert all(kind == "all_reduce" for each in calls for kind, _ in each[way])
            found[f"{sublayer}_{way}"] = max(len(each[way]) for each in calls)
    found["torch_forward"] = max(r["torch"]["forward"] for r in reports)
    found["torch_backward"] = max(r["torch"]["backward"] for r in reports)

    def volume(order: str, *ways: str) -> float:
        """Elements through a rank, the one that sends most, in units of sh (t − 1)/t."""
        sent = [r["mlp"]["calls"][order] for r in reports]
        calls = [[(k, n) for way in ways for k, n in each[way]] for each in sent]
        return max(map(collectives.volume, calls)) / (8 * sh)

    both = "forward", "backward"
    names = [order for order in ORDERS if order != "ring"]
    for order in names:
        found[f"{order}_volume"] = volume(order, *both)
    for order in ("column_row", "row_column"):
        found[f"{order}_forward"] = volume(order, "forward")
        found[f"{order}_saved"] = max(r["mlp"]["saved"][order] for r in reports) / sh
    found["row_column_over"] = volume("row_column", *both) / volume("column_row", *both)
    found["whole_saved"] = max(r["mlp"]["saved"]["whole"] for r in reports) / sh
    for way in both:
        sent = [sum(n for k, n in r["mlp"]["calls"]["ring"][way] if k == "send") for r in reports]
        found[f"ring_{way}"] = max(sent) / (8 * sh)

    found["parameter_share"] = max(share for r in reports for share in r["mlp"]["parameters"])
    found["kv_copies"] = sum(r["few"]["copies"] for r in reports)
    kinds = ("mlp", "attention", "few")
    found["error"] = max(e for r in reports for kind in kinds for e in r[kind]["errors"])
    wrong = [r["mistakes"] for r in reports]
    found["bias_extra"] = max(w["bias"] for w in wrong)
    found["gelu_of_parts_differs"] = all(w["gelu"] > 0.01 for w in wrong)
    found["fused_cut_differs"] = all(w["cut"] > 0.01 for w in wrong)
    found["fused_cut_right"] = all(w["right"] < 1e-12 for w in wrong)
    found["kv_unsummed_differs"] = any(r["few"]["unsummed"] for r in reports)

    places = range(len(names))
    found.draw(
        "orders",
        *(Line(way, places, [volume(order, way) for order in names]) for way in both),
        places=names,
    )
    steps = ["input", "first", "between", "gelu", "second", "leave"]
    found.tiles("column_then_row", tiles(reports[:2]), ["cr0", "cr1", "rc0", "rc1"], steps)
    progress(1.0, "done")
    return found.result()


def tiles(reports: Sequence[ranks.Report]) -> list[Tile]:
    """Two ranks under both orders: what each has in hand, and its shape."""
    found = []
    for group, order in enumerate(("column_row", "row_column")):
        for rank, report in enumerate(reports):
            steps = [
                (kind, "×".join(map(str, shape))) for kind, *shape in report["mlp"]["steps"][order]
            ]
            if len(report["mlp"]["calls"][order]["forward"]) == 1:  # the one at the end
                steps[2] = ("nothing", "")
            found += [
                Tile(2 * group + rank, column, kind, (shape,) if shape else ())
                for column, (kind, shape) in enumerate(steps)
            ]
    return found


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

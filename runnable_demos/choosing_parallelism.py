"""How do you divide a model among many devices, and what does each way hold and send?

The question
    Tensor (TP), context (CP), pipeline (PP), expert (EP) and data parallelism (DP) multiply to the number
    of devices. Each divides something else and talks to other ranks. Which product fits, and what is it worth?

The model
    A Llama-style layer with sequence parallelism and no dropout. On a rank, with n = dp·cp and ZeRO-1:

        states        (P + G) · Ψ_r + O · Ψ_r / n      Ψ_r = L/pp · (matrices/tp + norms), experts/ep
        activations   layer · L/pp / (tp·cp) · in flight, min(m, pp) on the first stage
        sent by TP    m · L/pp · 10 · (s/cp)·h · (tp−1)/tp, and an all-reduce of the norms' gradients
        sent by CP    m · L/pp · 6 · s·(keys/tp) · (cp−1)/cp
        sent by EP    m · L/pp · 4 · s·k·h · (ep−1)/ep        tokens there and back, both ways
        sent by PP    m · s·h/(tp·cp), forward and backward
        sent by DP    (G + P) · Ψ_r · (n−1)/n              experts: n/ep in place of n

The measurement
    Four real ranks train a small Transformer divided in five ways. All bytes held, and all bytes sent
    in each group, are read off and compared with these formulas, gradients with those of one rank.
    The chooser evaluates the same formulas for a 70B model on 64 GPUs.

The result
    The formulas to the byte. Which plan is the fastest turns on whether data-parallel traffic is hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from runnable_demos.lab import ranks
from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors, storage_bytes
from runnable_demos.lab.mechanisms import Box, Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "并行怎么配", "en": "Choosing parallelism"}
QUESTION: Text = {
    "zh": "TP、CP、PP、EP、DP 各让每张卡少存什么、多发什么，哪种乘积放得下又最快？",
    "en": "What do TP, CP, PP, EP and DP each hold and send on a rank, and which product fits and is fastest?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "{ranks} 个真实进程，fp32，Adam 按 ZeRO-1 分片：参数、梯度与优化器状态的字节，最满的进程，除以全模型的参数个数",
  "{ranks} real ranks, fp32, Adam sharded as ZeRO-1: bytes of parameters, gradients and optimizer states on the fullest rank, over all parameters of the model",
]
[method.metrics]
tp_dp_states = ["B/param", "TP 2 × DP 2：模型状态", "TP 2 × DP 2: model states"]
pp_dp_states = ["B/param", "PP 2 × DP 2：模型状态", "PP 2 × DP 2: model states"]
tp_pp_states = ["B/param", "TP 2 × PP 2：模型状态", "TP 2 × PP 2: model states"]
tp_cp_states = ["B/param", "TP 2 × CP 2：模型状态", "TP 2 × CP 2: model states"]
ep_dp_states = ["B/param", "DP 4，专家 EP 2：模型状态", "DP 4, experts EP 2: model states"]

[[method]]
kind = "exact"
how = [
  "为尚未到来的反向而保存的字节，各时刻的最大值，最满的进程，除以单卡上一个微批的",
  "bytes saved for backwards still to come, the most at any time on the fullest rank, over those of one micro-batch on one rank",
]
[method.metrics]
tp_dp_activations = ["", "TP 2 × DP 2：激活", "TP 2 × DP 2: activations"]
pp_dp_activations = ["", "PP 2 × DP 2，1F1B：激活", "PP 2 × DP 2, 1F1B: activations"]
tp_pp_activations = ["", "TP 2 × PP 2，1F1B：激活", "TP 2 × PP 2, 1F1B: activations"]
tp_cp_activations = ["", "TP 2 × CP 2：激活", "TP 2 × CP 2: activations"]
ep_dp_activations = ["", "DP 4，专家 EP 2：激活", "DP 4, experts EP 2: activations"]

[[method]]
kind = "exact"
how = [
  "一步里 0 号进程在该组发出的字节：每次集合通信的消息按环折算，收发按 send",
  "bytes that rank 0 sends in that group in a step: each collective's message as on a ring, messages by send",
]
[method.metrics]
tp_dp_tp_sent = ["B", "TP 2 × DP 2：TP 组", "TP 2 × DP 2: TP group"]
tp_dp_dp_sent = ["B", "TP 2 × DP 2：DP 组", "TP 2 × DP 2: DP group"]
pp_dp_pp_sent = ["B", "PP 2 × DP 2：PP 组", "PP 2 × DP 2: PP group"]
pp_dp_dp_sent = ["B", "PP 2 × DP 2：DP 组", "PP 2 × DP 2: DP group"]
tp_cp_tp_sent = ["B", "TP 2 × CP 2：TP 组", "TP 2 × CP 2: TP group"]
tp_cp_cp_sent = ["B", "TP 2 × CP 2：CP 组（K、V 与它们的梯度）", "TP 2 × CP 2: CP group, K and V and their gradients"]
ep_dp_ep_sent = ["B", "DP 4，专家 EP 2：EP 组", "DP 4, experts EP 2: EP group"]
ep_dp_dp_sent = ["B", "DP 4，专家 EP 2：DP 组", "DP 4, experts EP 2: DP group"]

[[method]]
kind = "exact"
how = [
  "五种配法、四个进程：存下的与发出的字节逐项等于闭式",
  "five plans on four ranks: each number of bytes held and sent equals its closed form",
]
[method.metrics]
as_computed = ["", "字节全部与公式相等", "all bytes equal the formulas"]

[[method]]
kind = "bounded"
how = ["fp32，归约后的梯度，与单卡整批计算的相比", "fp32: reduced gradients against one rank's with the whole batch"]
bound = 1e-5
reason = [
  "求和次序不同，fp32 舍入约 6e-8，乘以项数仍小于 1e-5",
  "sums in another order: fp32 rounds at 6e-8, times the terms",
]
[method.metrics]
error = ["", "五种配法的梯度：最大相对误差", "gradients under the five plans: largest relative error"]

[[method]]
kind = "computed"
how = [
  "70B、64 张卡、每步 32 条序列，逐一代入同样的公式，TP×CP 不出一台机器；时间为计算加通信，4 成峰值算力，不含注意力核心",
  "70B on 64 GPUs, 32 sequences a step, the same formulas plan by plan, TP×CP within a node; time is computation and traffic, at 40% of the rated FLOP/s, without the attention core",
]
[method.metrics]
plans = ["", "能整除的配法总数", "plans that divide evenly"]
plans_that_fit = ["", "放得下、且留一成余量的配法", "plans that fit and leave a tenth free"]
exposed_tp = ["", "通信全不重叠：最快的 TP", "no traffic hidden: fastest TP"]
exposed_cp = ["", "通信全不重叠：最快的 CP", "no traffic hidden: fastest CP"]
exposed_pp = ["", "通信全不重叠：最快的 PP", "no traffic hidden: fastest PP"]
exposed_step = ["s", "通信全不重叠：最快的一步", "no traffic hidden: fastest step"]
exposed_bytes = ["B", "通信全不重叠：最快的配法每张卡", "no traffic hidden: the fastest plan, on a GPU"]
hidden_tp = ["", "数据并行的通信藏进计算：最快的 TP", "data-parallel traffic hidden: fastest TP"]
hidden_cp = ["", "数据并行的通信藏进计算：最快的 CP", "data-parallel traffic hidden: fastest CP"]
hidden_pp = ["", "数据并行的通信藏进计算：最快的 PP", "data-parallel traffic hidden: fastest PP"]
hidden_step = ["s", "数据并行的通信藏进计算：最快的一步", "data-parallel traffic hidden: fastest step"]
plain_tp = ["", "不用 CP，通信全不重叠：最快的 TP", "without CP, no traffic hidden: fastest TP"]
plain_pp = ["", "不用 CP，通信全不重叠：最快的 PP", "without CP, no traffic hidden: fastest PP"]
near = [
  "",
  "通信全不重叠：比最快的慢不到 5% 的配法，连它自己",
  "no traffic hidden: plans less than 5% slower than the fastest, itself among them",
]

[figure.held]
title = ["四个进程各存哪一份，四种配法", "Which part each of four ranks holds, under four plans"]
x = {label = ["配法", "plan"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.held.series]
weights = ["bar", "参数（专家除外）", "weights but experts"]
experts = ["bar", "专家", "experts"]
optimizer = ["bar", "优化器状态", "optimizer states"]
activations = ["bar", "每份副本一个微批的激活", "activations, one micro-batch per replica"]
[figure.held.places]
tp_dp = ["TP 2 × DP 2", "TP 2 × DP 2"]
pp_dp = ["PP 2 × DP 2", "PP 2 × DP 2"]
tp_cp = ["TP 2 × CP 2", "TP 2 × CP 2"]
ep_dp = ["DP 4, EP 2", "DP 4, EP 2"]

[figure.steps]
title = ["70B、64 张卡、每步 32 条序列：六种配法的一步，通信全不重叠", "70B, 64 GPUs, 32 sequences a step: six plans, no traffic hidden"]
kind = "computed"
x = {label = ["配法", "plan"]}
y = {label = ["一步的时间", "time of a step"], unit = "s"}
[figure.steps.series]
compute = ["bar", "计算", "computation"]
bubble = ["bar", "气泡", "bubble"]
layers = ["bar", "TP 与 CP 的通信", "TP and CP traffic"]
data = ["bar", "PP 与 DP 的通信", "PP and DP traffic"]
[figure.steps.places]
tp8_pp4 = ["TP8 PP4 DP2", "TP8 PP4 DP2"]
tp8_pp2 = ["TP8 PP2 DP4", "TP8 PP2 DP4"]
tp4_cp2_pp4 = ["TP4 CP2 PP4 DP2", "TP4 CP2 PP4 DP2"]
tp8_dp8 = ["TP8 DP8", "TP8 DP8"]
tp8_zero3 = ["TP8 ZeRO-3×8", "TP8 ZeRO-3×8"]
cp8_zero3 = ["CP8 ZeRO-3×64", "CP8 ZeRO-3×64"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A small Transformer of ``layers`` on four ranks, one sequence a micro-batch, four a step."""

    ranks: int = parameter(4, {"zh": "进程数", "en": "ranks"}, 4, 4)
    layers: int = parameter(4, {"zh": "层数 L", "en": "layers L"}, 2, 64)
    width: int = parameter(32, {"zh": "宽度 h", "en": "width h"}, 16, 8192)
    length: int = parameter(16, {"zh": "序列长度 s", "en": "sequence length s"}, 8, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=2, width=16, length=8), "full": Config()}


# --- formulas ------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How many ranks share what; their product but for ``ep``, which divides ``dp``, is all devices."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 1


class Job(NamedTuple):
    """A model, a sequence, how many of them a step takes, and bytes an element of each state."""

    layers: int
    width: int
    heads: int
    keys: int  # heads of keys and values
    depth: int  # width of a head
    inner: int  # width of the MLP, or of an expert
    length: int
    batch: int
    vocabulary: int = 0
    experts: int = 0
    chosen: int = 1
    weight: int = 4
    gradient: int = 4
    optimizer: int = 8
    element: int = 4
    statistics: int = 0  # bytes a head and token that attention keeps


def local(job: Job, plan: Plan) -> tuple[float, float]:
    """Parameters of a rank: those that all replicas have, and those of its experts."""
    matrices = 2 * job.width * job.depth * (job.heads + job.keys)
    mlp = 3 * job.width * job.inner
    dense = (matrices + (0 if job.experts else mlp)) / plan.tp + 2 * job.width
    ends = 2 * job.vocabulary * job.width / (plan.tp * plan.pp)  # embedding and head, taken as even
    return job.layers / plan.pp * dense + ends, job.layers / plan.pp * job.experts / plan.ep * mlp


def states(job: Job, plan: Plan) -> float:
    """Bytes of weights, gradients and optimizer states on a rank."""
    total, n = 0.0, plan.dp * plan.cp
    for parameters, sharing in zip(local(job, plan), (n, n // plan.ep), strict=True):
        whole = 0 if plan.zero == 3 else job.weight + job.gradient
        cut = job.optimizer if plan.zero < 3 else job.weight + job.gradient + job.optimizer
        total += parameters * (whole + cut / sharing)
    return total


def layer(job: Job, plan: Plan) -> float:
    """Bytes that a layer saves on a rank for one micro-batch."""
    heads, h = job.heads * job.depth, job.width
    saved = 3 * h + 2 * heads + 2 * job.keys * job.depth + (4 * job.inner + h) * job.chosen
    a_token = job.element * saved + 8 + job.statistics * job.heads  # two norms' fp32 deviations
    return a_token * job.length / (plan.tp * plan.cp)


def activations(job: Job, plan: Plan) -> float:
    """Bytes that the first stage saves under 1F1B."""
    return layer(job, plan) * job.layers / plan.pp * min(job.batch // plan.dp, plan.pp)


def sent(job: Job, plan: Plan) -> dict[str, float]:
    """Bytes that a rank of the first stage sends in a step, by group."""
    m, depth, e = job.batch // plan.dp, job.layers / plan.pp, job.element
    rows, h, n = job.length / plan.cp, job.width, plan.dp * plan.cp
    ring = {k: (k - 1) / k for k in (plan.tp, plan.cp, plan.ep, n, n // plan.ep)}
    dense, experts = local(job, plan)
    passes = (m * 2, m) if plan.zero == 3 else (1, 1)  # of weights, of gradients
    both = passes[0] * job.weight + passes[1] * job.gradient
    norms = 2 * 2 * h * depth * job.gradient * ring[plan.tp]
    kv = 2 * job.keys * job.depth * job.length / plan.tp
    return {
        "tp": m * depth * (5 if job.experts else 10) * e * rows * h * ring[plan.tp] + norms,
        "cp": m * depth * 3 * e * kv * ring[plan.cp],
        "pp": m * e * rows * h / plan.tp if plan.pp > 1 else 0,
        "ep": m * depth * 4 * e * rows / plan.tp * h * job.chosen * ring[plan.ep],
        "dp": both * dense * ring[n],
        "edp": both * experts * ring[n // plan.ep],
    }


# --- the chooser ---------------------------------------------------------------------------------

LLAMA = Job(80, 8192, 64, 8, 128, 28672, 8192, 32, 128256, 0, 1, 2, 2, 12, 2, 4)
"""Llama 3 70B in mixed precision, one sequence of its full length a micro-batch, 32 a step."""
GPUS, NODE, MEMORY, FLOPS, NVLINK, NIC = 64, 8, 80e9, 0.4 * 989.4e12, 450e9, 50e9
LOGIT = 12  # bytes a logit at the peak of an unfused cross-entropy


def plans(job: Job, gpus: int, node: int) -> list[Plan]:
    """All plans that divide evenly; pipelines with ZeRO-1 alone, experts' layers without TP."""
    divisors = [k for k in range(1, gpus + 1) if gpus % k == 0]
    return [
        Plan(tp, cp, pp, dp, ep, zero)
        for tp in ([1] if job.experts else divisors)
        for cp in divisors
        for pp in divisors
        for dp in divisors
        for ep in divisors
        for zero in (1, 3)
        if tp * cp * pp * dp == gpus
        and tp * cp <= node  # what waits in every layer stays in a node
        and job.keys % tp == job.layers % pp == job.batch % dp == job.length % cp == 0
        and dp % ep == (job.experts or 1) % ep == 0
        and (zero == 1 or pp == 1)
    ]


def peak(job: Job, plan: Plan) -> float:
    """Bytes on the fullest GPU: the first stage, or the last one with its logits."""
    gathered = 0.0
    if plan.zero == 3:
        dense, experts = local(job._replace(vocabulary=0), plan)
        unit = (dense + experts) / job.layers * job.weight
        gathered = (4 - 4 / (plan.dp * plan.cp)) * unit
    logits = LOGIT * job.length * job.vocabulary / (plan.tp * plan.cp)
    last = layer(job, plan) * job.layers / plan.pp + logits
    return states(job, plan) + max(activations(job, plan), last) + gathered


class Cost(NamedTuple):
    """Seconds of a step by cause, and how many of the last could be hidden behind the others."""

    compute: float
    bubble: float
    layers: float
    data: float
    hidden: float


def cost(job: Job, plan: Plan) -> Cost:
    """What a step takes; a message between nodes has the NICs of all ranks of its group in a node."""
    strides = {
        "tp": (1, plan.tp),
        "cp": (plan.tp, plan.cp),
        "ep": (plan.tp * plan.cp, plan.ep),
        "dp": (plan.tp, plan.cp * plan.dp),
        "edp": (plan.tp * plan.cp * plan.ep, plan.cp * plan.dp // plan.ep),
        "pp": (plan.tp * plan.cp * plan.dp, plan.pp),
    }

    def seconds(group: str, nbytes: float) -> float:
        stride, n = strides[group]
        within = nbytes / NVLINK
        return within if stride * n <= NODE else max(within, nbytes / max(NODE // stride, 1) / NIC)

    time = {group: seconds(group, nbytes) for group, nbytes in sent(job, plan).items()}
    dense, experts = local(job, plan)
    active = dense + experts * plan.ep * job.chosen / max(job.experts, 1)
    m = job.batch // plan.dp
    compute = 6 * active * job.length / plan.cp / FLOPS  # of a micro-batch on a stage
    traffic = (time["tp"] + time["cp"] + time["ep"]) / m
    slot = compute + traffic
    data = time["dp"] + time["edp"]
    hidden = min(data, slot * (m if plan.zero == 3 else 1))
    bubble = (plan.pp - 1) * slot
    return Cost(m * compute, bubble, m * traffic, data + 2 * time["pp"], hidden)


def step(job: Job, plan: Plan, *, hide: bool) -> float:
    """Seconds of a step; with ``hide`` data-parallel traffic overlaps where there is time."""
    spent = cost(job, plan)
    return sum(spent[:4]) - (spent.hidden if hide else 0)


def fits(job: Job, gpus: int, node: int) -> list[Plan]:
    """Those plans that leave a tenth of the memory free."""
    return [plan for plan in plans(job, gpus, node) if peak(job, plan) <= 0.9 * MEMORY]


# --- what passes between the ranks ---------------------------------------------------------------

Group = dist.ProcessGroup
DIVIDED = {
    "tp_dp": Plan(tp=2, dp=2),
    "pp_dp": Plan(pp=2, dp=2),
    "tp_pp": Plan(tp=2, pp=2),
    "tp_cp": Plan(tp=2, cp=2),
    "ep_dp": Plan(dp=4, ep=2),
}


class Traffic(TorchDispatchMode):
    """Counts the bytes that this rank sends in each group, a collective's as on a ring."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.sent = names, Counter[str]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace == "c10d":
            boxed = next(a for a in args if isinstance(a, torch.ScriptObject))
            group = Group.unbox(boxed)
            n, name = group.size(), func._schema.name.removeprefix("c10d::")
            tensors = args[0] if isinstance(args[0], list) else list(args[:2])
            whole = max(t.nbytes for t in tensors if isinstance(t, Tensor))
            turns = {"send": n, "recv_": 0, "allreduce_": 2 * (n - 1)}.get(name, n - 1)
            self.sent[self.names[group.group_name]] += whole * turns // n
        return func(*args, **(kwargs or {}))


def gather(x: Tensor, group: Group) -> Tensor:
    """``(s/n, …)`` from each rank to ``(s, …)`` on all."""
    if group.size() == 1:
        return x
    whole = x.new_empty(x.shape[0] * group.size(), *x.shape[1:])
    dist.all_gather_single(whole, x.contiguous(), group=group)
    return whole


def scatter(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' ``(s, …)``, of which each gets its own ``(s/n, …)``."""
    if group.size() == 1:
        return x
    part = x.new_empty(x.shape[0] // group.size(), *x.shape[1:])
    dist.reduce_scatter_single(part, x.contiguous(), group=group)
    return part


def exchange(x: Tensor, group: Group) -> Tensor:
    """All-to-all: the n-th part of ``x`` to rank n, and one from each in return."""
    if group.size() == 1:
        return x
    x = x.contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    return out


class GatherLinear(torch.autograd.Function):
    """All-gather over TP, then a matrix; keeps this rank's rows and gathers again in the backward."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, group: Group) -> Tensor:
        """``(s/t, b, h)`` to ``(s, b, k)``."""
        ctx.save_for_backward(y, weight)
        ctx.group = group
        return F.linear(gather(y, group), weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of this rank's rows, and of its columns of the weight."""
        y, weight = ctx.saved_tensors
        rows = gather(y, ctx.group).flatten(0, -2)
        return scatter(grads[0] @ weight, ctx.group), grads[0].flatten(0, -2).mT @ rows, None


class Exchange(torch.autograd.Function):
    """All-to-all over EP, both ways; reduce-scatter over TP is ``Scatter``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """Tokens to the rank of their expert, or back."""
        ctx.group = group
        return exchange(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients go the other way."""
        return exchange(grads[0], ctx.group), None


class Scatter(torch.autograd.Function):
    """Reduce-scatter over TP in the forward, all-gather in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """``(s, b, h)``, a summand on each rank, to this rank's rows of the sum."""
        ctx.group = group
        return scatter(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """All rows of the gradient."""
        return gather(grads[0], ctx.group), None


class Norm(torch.autograd.Function):
    """RMSNorm that keeps its input and one number a token, as a fused kernel does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """``(s, b, h)`` to the same."""
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """By the normalised input."""
        x, weight, r = ctx.saved_tensors
        n, g = x * r, grads[0] * weight
        return r * (g - n * (g * n).mean(-1, keepdim=True)), (grads[0] * n).flatten(0, -2).sum(0)


class Attend(torch.autograd.Function):
    """Causal attention of this rank's queries over all keys, which are gathered over CP each time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, group: Group) -> Tensor:
        """``q`` is ``(s/c, b, g, a/g, d)``, ``kv`` ``(s/c, b, g, 2, d)``."""
        ctx.save_for_backward(q, kv)
        ctx.group = group
        return Attend.core(q, gather(kv, group), group)

    @staticmethod
    def core(q: Tensor, kv: Tensor, group: Group) -> Tensor:
        """Softmax over the keys up to each query's own position."""
        first = group.rank() * q.shape[0]
        k, v = kv.unbind(-2)
        scores = torch.einsum("sbgqd,tbgd->bgqst", q, k) * q.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(first + 1)
        P = scores.masked_fill(later.to(q.device), -torch.inf).softmax(-1)
        return torch.einsum("bgqst,tbgd->sbgqd", P, v)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Keys are gathered again; their gradients are summed over CP."""
        q, kv = ctx.saved_tensors
        with torch.enable_grad():
            mine = q.detach().requires_grad_()
            whole = gather(kv, ctx.group).detach().requires_grad_()
            out = Attend.core(mine, whole, ctx.group)
        dq, dkv = torch.autograd.grad(out, (mine, whole), grads[0])
        return dq, scatter(dkv, ctx.group), None


# --- a model that is divided ---------------------------------------------------------------------


def job_of(config: Config, plan: Plan) -> Job:
    """The model that a plan divides: where experts are split the MLP is four of a quarter's width."""
    h = config.width
    experts, inner = (4, h // 2) if plan.ep > 1 else (0, 2 * h)
    return Job(config.layers, h, 4, 2, h // 4, inner, config.length, 4, experts=experts)


def place(plan: Plan, rank: int) -> dict[str, int]:
    """A rank's coordinates: TP runs fastest, then CP, DP and PP; EP divides the ranks of DP."""
    inner = plan.tp * plan.cp
    return {
        "tp": rank % plan.tp,
        "cp": rank // plan.tp % plan.cp,
        "dp": rank // inner % plan.dp,
        "ep": rank // inner % plan.ep,
        "pp": rank // (inner * plan.dp),
    }


SHARED = {
    "tp": ("cp", "dp", "pp"),
    "cp": ("tp", "dp", "pp"),
    "pp": ("tp", "cp", "dp"),
    "dp": ("tp", "pp"),  # all replicas of the dense weights, those of CP too
    "edp": ("tp", "pp", "ep"),
}
"""The ranks of a group agree in these coordinates; those of EP lie side by side."""


def members(plan: Plan, axis: str, ranks_: int) -> list[tuple[int, ...]]:
    """All groups of an axis."""
    if axis == "ep":
        return [tuple(range(i, i + plan.ep)) for i in range(0, ranks_, plan.ep)]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(ranks_):
        found.setdefault(tuple(place(plan, rank)[k] for k in SHARED[axis]), []).append(rank)
    return [tuple(group) for group in found.values()]


def groups_of(config: Config) -> tuple[dict[tuple[str, tuple[int, ...]], Group], dict[str, str]]:
    """Every group of every plan, by axis and ranks, and the axis by the group's name."""
    made: dict[tuple[str, tuple[int, ...]], Group] = {}
    for plan in (*DIVIDED.values(), Plan(dp=config.ranks)):
        for axis in (*SHARED, "ep"):
            for group in members(plan, axis, config.ranks):
                if (axis, group) not in made:
                    made[axis, group] = dist.new_group(list(group))
    names = {str(g.group_name): axis for (axis, r), g in made.items() if dist.get_rank() in r}
    return made, names


def weights(seed: int, job: Job, j: int) -> dict[str, Tensor]:
    """The j-th layer, the same on every rank: rows of qkv and of up are ordered so that parts are whole."""
    random = torch.Generator().manual_seed(1000 * seed + j)
    h, rows, experts = job.width, (job.heads + 2 * job.keys) * job.depth, (job.experts,)
    stack = experts if job.experts else ()
    shapes = {
        "norms": (2, h),
        "qkv": (rows, h),
        "out": (h, job.heads * job.depth),
        "up": (*stack, 2 * job.inner, h),
        "down": (*stack, h, job.inner),
    }
    return {name: torch.randn(shape, generator=random) * 0.2 for name, shape in shapes.items()}


def cut(name: str, whole: Tensor, plan: Plan, at: Mapping[str, int]) -> Tensor:
    """A rank's part of a weight, or of its gradient."""
    if name == "norms":
        return whole
    if whole.dim() == 3:
        return whole.chunk(plan.ep)[at["ep"]]
    return whole.chunk(plan.tp, 1 if name in ("out", "down") else 0)[at["tp"]]


class Shared:
    """Parameters with one group of replicas: flat, with gradients beside, and Adam on one slice."""

    def __init__(self, parts: Sequence[Tensor], group: Group) -> None:
        self.group = group
        self.flat = torch.cat([p.flatten() for p in parts])
        self.grad = torch.zeros_like(self.flat)
        sizes = [p.numel() for p in parts]
        self.parameters = []
        for p, w, g in zip(parts, self.flat.split(sizes), self.grad.split(sizes), strict=True):
            parameter_ = w.view_as(p).requires_grad_()
            parameter_.grad = g.view_as(p)
            self.parameters.append(parameter_)
        self.shard = self.mine(self.flat).requires_grad_()
        self.optimizer = torch.optim.Adam([self.shard], foreach=False)

    def mine(self, flat: Tensor) -> Tensor:
        """The slice of this rank."""
        return flat.detach().chunk(self.group.size())[self.group.rank()]

    def step(self) -> None:
        """ZeRO-1: reduce-scatter the gradients, update a slice, all-gather the weights."""
        self.mine(self.grad).copy_(scatter(self.grad, self.group))
        self.shard.grad = self.mine(self.grad)
        self.optimizer.step()
        self.flat.detach().copy_(gather(self.shard.detach().clone(), self.group))


class Part:
    """What one rank has of the model: the layers of its stage, cut by TP and EP."""

    def __init__(
        self, seed: int, job: Job, plan: Plan, groups: Mapping[str, Group], rank: int
    ) -> None:
        self.job, self.plan, self.groups, self.at = job, plan, groups, place(plan, rank)
        depth = job.layers // plan.pp
        self.range = range(self.at["pp"] * depth, (self.at["pp"] + 1) * depth)
        wholes = [weights(seed, job, j) for j in self.range]
        parts = [{n: cut(n, w, plan, self.at).clone() for n, w in each.items()} for each in wholes]
        self.names = [(j, n) for j, each in enumerate(parts) for n in each]
        sparse = [(j, n) for j, n in self.names if parts[j][n].dim() == 3]
        self.order = [[key for key in self.names if key not in sparse], sparse]
        self.shared = [
            Shared([parts[j][n] for j, n in keys], groups[axis])
            for keys, axis in zip(self.order, ("dp", "edp"), strict=True)
            if keys
        ]
        self.layers: list[dict[str, Tensor]] = [{} for _ in parts]
        for keys, shared in zip(self.order, self.shared, strict=False):
            for (j, n), parameter_ in zip(keys, shared.parameters, strict=True):
                self.layers[j][n] = parameter_

    def forward(self, x: Tensor) -> Tensor:
        """Rows of this rank, ``(s/(c·t), 1, h)``, through its layers."""
        job, tp, d = self.job, self.groups["tp"], self.job.depth
        for w in self.layers:
            y = Norm.apply(x, w["norms"][0])  # type: ignore[no-untyped-call]
            qkv = GatherLinear.apply(y, w["qkv"], tp)  # type: ignore[no-untyped-call]
            heads = qkv.view(*qkv.shape[:2], -1, job.heads // job.keys + 2, d)
            q, kv = heads[..., :-2, :], heads[..., -2:, :]
            o = Attend.apply(q, kv, self.groups["cp"]).flatten(2)  # type: ignore[no-untyped-call]
            x = x + Scatter.apply(F.linear(o, w["out"]), tp)  # type: ignore[no-untyped-call]
            y = Norm.apply(x, w["norms"][1])  # type: ignore[no-untyped-call]
            x = x + (self.experts(y, w) if job.experts else self.mlp(y, w))
        return x

    def mlp(self, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """SwiGLU, by columns and then by rows; gate and up lie side by side."""
        both = GatherLinear.apply(y, w["up"], self.groups["tp"])  # type: ignore[no-untyped-call]
        gate, up = both.unflatten(-1, (-1, 2)).unbind(-1)
        out = F.linear(F.silu(gate) * up, w["down"])
        return Scatter.apply(out, self.groups["tp"])  # type: ignore[no-untyped-call,no-any-return]

    def experts(self, y: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        """Token i goes to expert i mod E, so that all have as many; there and back by all-to-all."""
        e, ep, group = self.job.experts, self.plan.ep, self.groups["ep"]
        tokens = y.view(-1, e, y.shape[-1]).transpose(0, 1).contiguous()  # (E, s/E, h)
        came = Exchange.apply(tokens, group)  # type: ignore[no-untyped-call]
        mine = came.unflatten(0, (ep, -1)).transpose(0, 1).flatten(1, 2)  # (E/ep, ep·s/E, h)
        gate, up = torch.bmm(mine, w["up"].mT).unflatten(-1, (-1, 2)).unbind(-1)
        out = torch.bmm(F.silu(gate) * up, w["down"].mT)
        back = out.unflatten(1, (ep, -1)).transpose(0, 1).flatten(0, 1)
        home = Exchange.apply(back, group)  # type: ignore[no-untyped-call]
        return home.transpose(0, 1).reshape(y.shape)  # type: ignore[no-any-return]

    def reduce_norms(self) -> None:
        """Under TP with sequence parallelism each rank has the norms' gradients by its own rows."""
        if self.plan.tp > 1:
            for w in self.layers:
                dist.all_reduce(w["norms"].grad, group=self.groups["tp"])


# --- in each rank --------------------------------------------------------------------------------


def data(config: Config, plan: Plan, at: Mapping[str, int]) -> list[tuple[Tensor, Tensor]]:
    """Rows of this rank of its replica's sequences, each with the upstream gradient."""
    random = torch.Generator().manual_seed(config.seed)
    whole = torch.randn(4, 2, config.length, 1, config.width, generator=random)
    rows = whole.chunk(plan.cp, 2)[at["cp"]].chunk(plan.tp, 2)[at["tp"]]
    return [(x.clone(), g.clone()) for x, g in rows.chunk(plan.dp)[at["dp"]]]


def order_of(stage: int, stages: int, m: int) -> list[tuple[str, int]]:
    """1F1B: ``stages − stage − 1`` forwards, then one forward and one backward in turn."""
    warm = min(stages - stage - 1, m)
    turns = [op for k in range(m - warm) for op in (("F", warm + k), ("B", k))]
    return [("F", k) for k in range(warm)] + turns + [("B", k) for k in range(m - warm, m)]


def step_of(part: Part, micro: Sequence[tuple[Tensor, Tensor]], rank: int) -> tuple[int, int]:
    """All micro-batches of a step; bytes saved by one forward, and the most at any time."""
    stage, stages, group = part.at["pp"], part.plan.pp, part.groups["pp"]
    stride = 4 // stages
    known = [p for shared in part.shared for p in (shared.flat,)]
    alive: dict[int, tuple[Tensor, Tensor, int]] = {}
    posted: list[tuple[Any, Tensor]] = []
    most = one = 0

    def send(x: Tensor, to: int) -> None:
        posted.append((dist.isend(x.contiguous(), to, group=group), x))

    for kind, k in order_of(stage, stages, len(micro)):
        x, upstream = micro[k]
        if kind == "F":
            if stage:
                dist.recv(x := torch.empty_like(x), rank - stride, group=group)
                x.requires_grad_()
            with saved_tensors(known) as saved:
                y = part.forward(x)
            if stage < stages - 1:
                send(y.detach(), rank + stride)
            alive[k], one = (x, y, saved.bytes), saved.bytes
            most = max(most, sum(nbytes for _, _, nbytes in alive.values()))
        else:
            x, y, _ = alive.pop(k)
            if stage < stages - 1:
                dist.recv(upstream := torch.empty_like(upstream), rank + stride, group=group)
            y.backward(upstream)
            if stage:
                assert x.grad is not None
                send(x.grad, rank - stride)
    for work, _ in posted:
        work.wait()
    return one, most


def measure(task: Mapping[str, object]) -> ranks.Report:
    """What this rank holds and sends under each plan, and whether its gradients are right.

    After each collective ``ranks`` has all ranks meet, so that gloo lets go of its messages. Stages do not
    issue the same ones, and no live bytes are read here.
    """
    with _disable_current_modes():
        return found_by_rank(Config(**task))  # type: ignore[arg-type]


def found_by_rank(config: Config) -> ranks.Report:
    """The report, plan by plan."""
    rank = dist.get_rank()
    made, names = groups_of(config)
    one = made["tp", (rank,)]
    report: ranks.Report = {}
    for name, plan in DIVIDED.items():
        groups = {
            axis: next(g for (a, r), g in made.items() if a == axis and rank in r and r in mine)
            for axis in (*SHARED, "ep")
            for mine in [members(plan, axis, config.ranks)]
        }
        job = job_of(config, plan)
        part = Part(config.seed, job, plan, groups, rank)
        with Traffic(names) as traffic:
            wave, most = step_of(part, data(config, plan, part.at), rank)
            part.reduce_norms()
            for shared in part.shared:
                shared.step()
        whole = Part(config.seed, job, Plan(), dict.fromkeys(groups, one), 0)
        single, _ = step_of(whole, data(config, Plan(), whole.at), 0)
        report[name] = {
            "weights": storage_bytes(part.shared[0].flat),
            "experts": storage_bytes([s.flat for s in part.shared[1:]]),
            "gradients": storage_bytes([s.grad for s in part.shared]),
            "optimizer": storage_bytes([list(s.optimizer.state.values()) for s in part.shared]),
            "wave": wave,
            "most": most,
            "single": single,
            "sent": {axis: traffic.sent[axis] for axis in (*SHARED, "ep")},
            "error": error(part, whole),
        }
    return report


def error(part: Part, whole: Part) -> float:
    """Largest relative error of a rank's reduced gradients against one rank's, cut in the same way."""
    worst = 0.0
    for keys, shared in zip(part.order, part.shared, strict=False):
        cuts = [
            cut(n, whole.layers[part.range[j]][n].grad, part.plan, part.at)  # type: ignore[arg-type]
            for j, n in keys
        ]
        expected = shared.mine(torch.cat([c.flatten() for c in cuts]))
        worst = max(worst, relative(shared.mine(shared.grad), expected))
    return worst


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once, compare what they held and sent with the formulas, then choose."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.choosing_parallelism", config.ranks, asdict(config))
    equal = True
    for name, plan in DIVIDED.items():
        job = job_of(config, plan)
        each = [r[name] for r in reports]
        whole = sum(local(job, Plan()))
        held = [sum(r[k] for k in ("weights", "experts", "gradients", "optimizer")) for r in each]
        found[f"{name}_states"] = max(held) / whole
        found[f"{name}_activations"] = max(r["most"] for r in each) / each[0]["single"]
        sent_ = {**each[0]["sent"]}
        sent_["dp"] += sent_.pop("edp")
        for axis in name.split("_") if name != "tp_pp" else ():
            found[f"{name}_{axis}_sent"] = sent_[axis]
        for rank, r in enumerate(each):
            equal = equal and r == r | computed(job, plan, place(plan, rank)["pp"])
    found["as_computed"] = equal
    found["error"] = max(r[name]["error"] for r in reports for name in DIVIDED)
    found.shards("held", boxes(reports), groups=SHOWN)
    progress(0.9, "chooser")
    choose(found)
    progress(1.0, "done")
    return found.result()


def computed(job: Job, plan: Plan, stage: int) -> dict[str, Any]:
    """What a rank of a stage should report, by the formulas."""
    dense, experts = local(job, plan)
    n = plan.dp * plan.cp
    counters = 4 * (2 if experts else 1)  # Adam counts its steps in one fp32 number each
    one = layer(job, plan) * job.layers / plan.pp
    return {
        "weights": job.weight * dense,
        "experts": job.weight * experts,
        "gradients": job.gradient * (dense + experts),
        "optimizer": job.optimizer * (dense / n + experts / (n // plan.ep)) + counters,
        "wave": one,
        "most": one * min(job.batch // plan.dp, plan.pp - stage),
        "single": layer(job, Plan()) * job.layers,
        "sent": sent(job, plan),
    }


SHOWN = ("tp_dp", "pp_dp", "tp_cp", "ep_dp")


def boxes(reports: Sequence[ranks.Report]) -> list[Box]:
    """Where a rank's bytes lie in the whole of its plan; equal coordinates hold the same ones."""
    found = []
    for group, name in enumerate(SHOWN):
        plan = DIVIDED[name]
        for rank, report in enumerate(reports):
            r, at = report[name], place(plan, rank)
            pipeline = plan.pp > 1
            cuts = {  # the number of parts, which of them this rank has, and its bytes
                "weights": (plan.tp * plan.pp, at["tp"] + at["pp"], r["weights"]),
                "experts": (plan.ep, at["ep"], r["experts"]),
                "optimizer": (4, at["dp"] + 2 * at["pp"] if pipeline else rank, r["optimizer"]),
                "activations": (4, at["pp"] + 2 * at["dp"] if pipeline else rank, r["wave"]),
            }
            for kind, (parts, part, size) in cuts.items():
                if size:
                    edges = (float(k * size) for k in (part, part + 1, parts))
                    found.append(Box(group, rank, kind, *edges))
    return found


def choose(found: Mechanisms) -> None:
    """Evaluate every plan on 64 GPUs."""
    all_, fitting = plans(LLAMA, GPUS, NODE), fits(LLAMA, GPUS, NODE)
    found["plans"], found["plans_that_fit"] = len(all_), len(fitting)
    for name, hide in (("exposed", False), ("hidden", True)):
        best = min(fitting, key=lambda plan: step(LLAMA, plan, hide=hide))
        for axis in ("tp", "cp", "pp"):
            found[f"{name}_{axis}"] = getattr(best, axis)
        found[f"{name}_step"] = step(LLAMA, best, hide=hide)
        if not hide:
            found["exposed_bytes"] = peak(LLAMA, best)
    plain = min((p for p in fitting if p.cp == 1), key=lambda p: step(LLAMA, p, hide=False))
    found["plain_tp"], found["plain_pp"] = plain.tp, plain.pp
    times = [step(LLAMA, plan, hide=False) for plan in fitting]
    found["near"] = sum(time < 1.05 * min(times) for time in times)
    costs = [cost(LLAMA, plan) for plan in CANDIDATES.values()]
    bars = [
        Line(part, range(len(costs)), [getattr(c, part) for c in costs])
        for part in ("compute", "bubble", "layers", "data")
    ]
    found.draw("steps", *bars, places=CANDIDATES)


CANDIDATES = {
    "tp8_pp4": Plan(tp=8, pp=4, dp=2),
    "tp8_pp2": Plan(tp=8, pp=2, dp=4),
    "tp4_cp2_pp4": Plan(tp=4, cp=2, pp=4, dp=2),
    "tp8_dp8": Plan(tp=8, dp=8),
    "tp8_zero3": Plan(tp=8, dp=8, zero=3),
    "cp8_zero3": Plan(cp=8, dp=8, zero=3),
}


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

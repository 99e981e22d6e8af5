"""What does a mixture of experts cost in memory, and what does expert parallelism change?

The lesson is ``lessons/moe_memory.en.md`` (中文: ``lessons/moe_memory.zh.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab import ranks
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors, storage_bytes
from runnable_demos.lab.mechanisms import Box, Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import FusedGate

TITLE: Text = {
    "zh": "MoE 的显存：哪些跟着 E 走，哪些跟着 k 走",
    "en": "MoE memory: what grows with E, and what with k",
}
QUESTION: Text = {
    "zh": "MoE 的哪些显存跟着专家总数走，哪些跟着每个 token 选中的专家数走？专家并行改变什么？",
    "en": "Which memory of an MoE grows with all experts, which with the chosen ones, and what does expert parallelism change?",  # noqa: E501
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "一步反向之后，有梯度的专家参数个数，除以一个专家的参数个数",
  "expert parameters that have a gradient after a backward, divided by the parameters of one expert",
]
[method.metrics]
experts_touched_by_token = ["", "一个 token 用到几个专家", "experts touched by one token"]
experts_touched_by_batch = ["", "一批 token 用到几个专家", "experts touched by a batch"]

[[method]]
kind = "exact"
how = [
  "fp32，一步 Adam 之后参数、梯度、优化器状态的字节（步数计数器除外），除以一个 token 用到的专家参数个数",
  "fp32, bytes of parameters, gradients and Adam's moments after a step, divided by the parameters of the experts that one token uses",
]
[method.metrics]
states_per_active = ["B/param", "专家的模型状态，摊到每个激活参数", "experts' states per active parameter"]

[[method]]
kind = "exact"
how = [
  "bf16，CPU：两种宽度下保存的字节之差，除以宽度之差与 token 数；参数除外",
  "bf16, CPU: difference of the bytes saved at two widths, divided by the difference of the widths and by the tokens; without parameters",
]
[method.metrics]
dense_per_h = ["B", "稠密 SwiGLU：每 token 每单位 h", "dense SwiGLU: per token and unit of h"]
dense_per_f = ["B", "稠密 SwiGLU：每 token 每单位中间宽度", "dense SwiGLU: per token and unit of inner width"]
outside_per_h = ["B", "路由权重乘在输出上：每 token 每单位 h", "router weights on the outputs: per token and unit of h"]
outside_per_f = ["B", "路由权重乘在输出上：每 token 每单位 f", "router weights on the outputs: per token and unit of f"]
index_add_per_h = ["B", "同上，用 index_add 合并：每 token 每单位 h", "the same, combined by index_add: per token and unit of h"]
inside_per_h = ["B", "路由权重乘进门控：每 token 每单位 h", "router weights inside the gate: per token and unit of h"]
inside_per_f = ["B", "路由权重乘进门控：每 token 每单位 f", "router weights inside the gate: per token and unit of f"]

[[method]]
kind = "exact"
how = [
  "{ranks} 个 gloo 进程，fp32：一步 Adam 之后状态的字节（步数计数器除外），除以该部分在不切时的参数个数；各进程的最大值",
  "{ranks} gloo ranks, fp32: bytes of states after a step of Adam, without step counters, divided by the parameters of that part when it is not split; fullest rank",
]
[method.metrics]
expert_states_whole = ["B/param", "不切：专家的状态", "not split: states of the experts"]
expert_states_ep = ["B/param", "专家并行：专家的状态", "expert parallelism: states of the experts"]
shared_states_ep = ["B/param", "专家并行：其余部分的状态", "expert parallelism: states of everything else"]

[[method]]
kind = "exact"
how = [
  "all-to-all 收发的张量的字节，除以一个进程全部 token 的隐藏状态字节",
  "bytes of the tensors that an all-to-all sends or receives, divided by those of the hidden states of a rank's tokens",
]
[method.metrics]
sent = ["", "派发：每个 token 发出几份", "dispatch: copies sent per token"]
received_balanced = ["", "均衡：最满的进程收到几份", "balanced: copies received on the fullest rank"]
received_worst = ["", "全挤到一个进程：最满的收到几份", "all to one rank: copies received there"]
received_least = ["", "全挤到一个进程：最空的收到几份", "all to one rank: copies received elsewhere"]
received_capacity = ["", "按容量补齐：每个进程收到几份", "padded to capacity: copies received"]

[[method]]
kind = "exact"
how = [
  "全部 token 都选同样几个专家；超出容量而没有派发的份数除以总份数",
  "all tokens choose the same experts; copies beyond the capacity, divided by all copies",
]
[method.metrics]
dropped_worst = ["", "最坏的路由：丢掉的份额", "worst routing: share dropped"]

[[method]]
kind = "exact"
how = [
  "一个进程在前向与反向里发起的、传隐藏状态的 all-to-all 的次数",
  "all-to-alls of hidden states that a rank issues in the forward and the backward",
]
[method.metrics]
all_to_alls = ["", "一层的 all-to-all 次数", "all-to-alls of a layer"]
all_to_alls_checkpointed = ["", "整层检查点：一层的 all-to-all 次数", "all-to-alls of a layer inside a checkpoint"]

[[method]]
kind = "bounded"
how = [
  "fp32，不丢 token：输出、输入梯度、专家梯度逐元素相减取绝对值的最大值，两种路由",
  "fp32, dropless: largest difference in any element of the outputs and of the gradients of inputs and experts, both routings",
]
bound = 1e-5
reason = [
  "矩阵乘与求和的次序不同，差在 fp32 末几位；数值为个位数以内",
  "products and sums are done in different orders, which changes the last digits of fp32; values are of order one",
]
[method.metrics]
difference = ["", "专家并行与单进程之差", "difference between expert parallelism and one process"]

[[method]]
kind = "sampled"
how = [
  "未训练的均匀路由：{tokens} 个 token 各随机选 {chosen} 个专家，数出超出容量的份数；{draws} 次的平均",
  "an untrained, uniform router: {tokens} tokens choose {chosen} experts at random; share of copies beyond the capacity, mean of {draws} draws",
]
[method.metrics]
dropped_at_100 = ["", "容量系数 1：丢掉的份额", "capacity factor 1: share dropped"]
dropped_at_125 = ["", "容量系数 1.25：丢掉的份额", "capacity factor 1.25: share dropped"]
dropped_many_experts = ["", "容量系数 1.25，专家数乘八：丢掉的份额", "capacity factor 1.25, eight times the experts: share dropped"]

[figure.held]
title = [
  "{ranks} 个进程各持有什么，fp32：专家并行切分状态，路由决定收到多少",
  "What each of {ranks} ranks holds, fp32: expert parallelism splits the states, routing decides how much arrives",
]
x = {label = ["做法", "method"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.held.series]
experts = ["bar", "专家的状态", "states of the experts"]
arrived = ["bar", "收到的 token", "tokens that arrived"]
[figure.held.places]
replicated = ["不切", "not split"]
balanced = ["专家并行，均衡", "expert parallelism, balanced"]
worst = ["全挤到一个进程", "all to one rank"]
capacity = ["同左，按容量补齐", "the same, padded to capacity"]

[figure.drops]
title = ["均匀路由也会丢 token", "Even a uniform router drops tokens"]
kind = "computed"
x = {label = ["容量系数", "capacity factor"]}
y = {label = ["丢掉的份额", "share dropped"]}
[figure.drops.series]
few_theory = ["theory", "{experts} 个专家，二项分布", "{experts} experts, binomial"]
few = ["measured", "{experts} 个专家，抽样", "{experts} experts, drawn"]
many_theory = ["theory", "专家数乘八，二项分布", "eight times the experts, binomial"]
many = ["measured", "专家数乘八，抽样", "eight times the experts, drawn"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """``experts`` SwiGLUs, ``width`` → ``inner`` → ``width``; each token chooses ``chosen``."""

    ranks: int = parameter(4, {"zh": "进程数 N", "en": "ranks N"}, 2, 8)
    experts: int = parameter(8, {"zh": "专家数 E", "en": "experts E"}, 2, 256)
    chosen: int = parameter(
        2, {"zh": "每个 token 选中的专家数 k", "en": "experts per token, k"}, 1, 8
    )
    width: int = parameter(64, {"zh": "模型宽度 h", "en": "model width h"}, 16, 8192)
    inner: int = parameter(
        32, {"zh": "专家的中间宽度 f", "en": "inner width of an expert, f"}, 8, 8192
    )
    tokens: int = parameter(256, {"zh": "每个进程的 token 数", "en": "tokens per rank"}, 16, 65536)
    factor: float = parameter(1.25, {"zh": "容量系数 C", "en": "capacity factor C"}, 0.5, 8.0)
    draws: int = parameter(100, {"zh": "抽样次数", "en": "draws"}, 10, 1000)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, width=16, inner=16, tokens=64, draws=40), "full": Config()}
FACTORS = (1.0, 1.25, 1.5, 2.0)


# --- the layer -----------------------------------------------------------------------------------


class WeightedGate(torch.autograd.Function):
    """``silu(x) ∘ y`` times one weight a row; saves its three inputs and recomputes the rest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Two of ``(n, f)`` and one of ``(n, 1)`` to ``(n, f)``."""
        ctx.save_for_backward(x, y, w)
        return F.silu(x) * y * w

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The derivative of silu(x) is σ(x) (1 + x (1 − σ(x)))."""
        x, y, w = ctx.saved_tensors
        s = torch.sigmoid(x)
        dw = (dz * x * s * y).sum(-1, keepdim=True)
        return dz * y * w * s * (1 + x * (1 - s)), dz * x * s * w, dw


class Expert(nn.Module):
    """A SwiGLU with a fused gate, which takes its tokens' weights into the gate if they are given."""

    def __init__(self, h: int, f: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(h, f, bias=False, dtype=dtype) for _ in range(2))
        self.down = nn.Linear(f, h, bias=False, dtype=dtype)

    def forward(self, x: Tensor, w: Tensor | None = None) -> Tensor:
        """``(n, h)`` to ``(n, h)``."""
        if w is None:
            inner = cast(Any, FusedGate).apply(self.gate(x), self.up(x))
        else:
            inner = cast(Any, WeightedGate).apply(self.gate(x), self.up(x), w)
        y: Tensor = self.down(inner)
        return y


class Exchange(torch.autograd.Function):
    """An all-to-all of rows; its backward is the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sending: list[int], arriving: list[int]) -> Tensor:
        """Rows for rank 0, 1, … to rows from each of them."""
        ctx.splits = arriving, sending
        out = x.new_empty(sum(arriving), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), arriving, sending)
        return out

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        """Gradients go back where the rows came from."""
        return cast(Tensor, cast(Any, Exchange).apply(dy, *ctx.splits)), None, None


class Mixture(nn.Module):
    """Top-k of E experts. With ``ranks`` above 1 this rank owns E/N of them, and tokens travel."""

    def __init__(self, config: Config, dtype: torch.dtype = torch.float32, ranks: int = 1) -> None:
        super().__init__()
        self.config, self.ranks = config, ranks
        self.inside = self.by_index_add = False  # weights within the gate; how copies are added up
        self.capacity: int | None = None
        h, E = config.width, config.experts
        self.router = nn.Linear(h, E, bias=False, dtype=dtype)
        # The router reads a token's first E numbers (see ``tokens_for``).
        self.router.weight.data.copy_(8 * torch.eye(E, h))
        every = [Expert(h, config.inner, dtype) for _ in range(E)]  # the same with any ``ranks``
        here = dist.get_rank() if ranks > 1 else 0
        self.experts = nn.ModuleList(every[here * E // ranks : (here + 1) * E // ranks])
        self.dropped = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """``(T, h)`` to ``(T, h)``: route, dispatch, compute, combine."""
        # --8<-- [start:route]
        k, E = self.config.chosen, self.config.experts
        weights, chosen = self.router(x).softmax(-1, dtype=torch.float32).topk(k)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype).flatten()
        order = chosen.flatten().argsort(stable=True)  # copies, expert by expert
        counts = chosen.flatten().bincount(minlength=E)
        # --8<-- [end:route]
        if self.capacity is not None:  # the first ones stay, in the order of the batch
            starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
            order = order[torch.arange(len(order)) - starts < self.capacity]
            self.dropped = 1 - len(order) / (len(x) * k)
            counts = counts.clamp(max=self.capacity)
        rows, w = x[order // k], weights[order, None]
        if self.ranks > 1:
            y = self.travel(rows, counts)
        else:
            y = self.compute(rows, counts.tolist(), w if self.inside else None)
        if not self.inside:
            y = y * w
        out, token = torch.zeros_like(x), order // k
        if self.by_index_add:
            return out.index_add(0, token, y)
        return out.scatter_add(0, token[:, None].expand_as(y), y)

    def compute(self, rows: Tensor, counts: list[int], w: Tensor | None = None) -> Tensor:
        """Rows that lie expert by expert, through their experts."""
        parts = rows.split(counts)
        ws = [None] * len(parts) if w is None else w.split(counts)
        pairs = zip(self.experts, parts, ws, strict=True)
        return torch.cat([expert(part, own) for expert, part, own in pairs])

    def travel(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Dispatch to the owners of the experts, compute there, and combine."""
        E, N, C = self.config.experts, self.ranks, self.capacity
        if C is not None:  # every expert gets C rows from every rank, the missing ones are zeros
            kept = torch.cat([torch.arange(n) + e * C for e, n in enumerate(counts.tolist())])
            rows = rows.new_zeros(E * C, rows.shape[1]).index_copy(0, kept, rows)
            counts = torch.full_like(counts, C)
        # --8<-- [start:travel]
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)  # how many rows come, from whom, for which expert
        per_rank = theirs.view(N, E // N)
        splits = counts.view(N, -1).sum(1).tolist(), per_rank.sum(1).tolist()
        exchange = cast(Any, Exchange).apply
        arrived = exchange(rows, *splits)  # dispatch
        owner = torch.arange(E // N).repeat(N).repeat_interleave(per_rank.flatten())
        order = owner.argsort(stable=True)
        y = self.compute(arrived[order], per_rank.sum(0).tolist())
        y = torch.zeros_like(arrived).index_copy(0, order, y)
        y = exchange(y, splits[1], splits[0])  # combine
        return cast(Tensor, y if C is None else y[kept])
        # --8<-- [end:travel]


def tokens_for(config: Config, choices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Hidden states whose first E numbers make the router choose ``choices``, ``(T, k)``."""
    x = torch.randn(len(choices), config.width) / 4
    preference = torch.linspace(1, 0.75, config.chosen).expand(choices.shape)
    x[:, : config.experts] = torch.zeros(len(x), config.experts).scatter(1, choices, preference)
    return x.to(dtype)


def balanced(config: Config) -> Tensor:
    """Each expert is chosen equally often: one after the other."""
    T, k = config.tokens, config.chosen
    return torch.arange(T * k).view(T, k) % config.experts


def worst(config: Config) -> Tensor:
    """All tokens choose the first experts, which rank 0 owns."""
    return torch.arange(config.chosen).expand(config.tokens, -1)


# --- in one process ------------------------------------------------------------------------------


def touched(config: Config, tokens: int) -> tuple[int, int]:
    """After ``tokens`` tokens: parameters of experts with a gradient, and bytes of all experts' states."""
    model = Mixture(config)
    model(tokens_for(config, balanced(config))[:tokens]).square().sum().backward()
    experts = list(model.experts.parameters())
    count = sum(p.numel() for p in experts if p.grad is not None and bool(p.grad.any()))
    return count, states(experts)


def saved(config: Config, h: int, f: int, way: str) -> float:
    """Bytes a token that a layer saves in bf16: ``dense``, or a mixture with its weights somewhere."""
    sized = Config(**{**asdict(config), "width": h, "inner": f})
    dtype = torch.bfloat16
    model: nn.Module
    if way == "dense":
        model = Expert(h, config.chosen * f, dtype)
    else:
        model = Mixture(sized, dtype)
        model.inside, model.by_index_add = way == "inside", way == "index_add"
    # --8<-- [start:saved]
    x = tokens_for(sized, balanced(sized), dtype).requires_grad_() * 1.0
    with saved_tensors(exclude=model.parameters()) as kept:
        model(x)
    return kept.bytes / config.tokens
    # --8<-- [end:saved]


def dropped(config: Config, experts: int, factor: float) -> list[float]:
    """Share of copies beyond the capacity, in each draw of a router that likes all experts alike."""
    T, k = config.tokens, config.chosen
    capacity = math.ceil(factor * T * k / experts)
    shares = []
    for draw in range(config.draws):
        generator = torch.Generator().manual_seed(config.seed + draw)
        chosen = torch.rand(T, experts, generator=generator).topk(k).indices
        counts = chosen.flatten().bincount(minlength=experts)
        shares.append(int((counts - capacity).clamp(min=0).sum()) / (T * k))
    return shares


def expected_drop(config: Config, experts: int, factor: float) -> float:
    """An expert is chosen by a binomial number of tokens, each with probability k/E."""
    T, k = config.tokens, config.chosen
    p, capacity = k / experts, math.ceil(factor * T * k / experts)
    many = range(capacity + 1, T + 1)
    beyond = sum((n - capacity) * math.comb(T, n) * p**n * (1 - p) ** (T - n) for n in many)
    return experts * beyond / (T * k)


# --- in each rank --------------------------------------------------------------------------------


class Messages(TorchDispatchMode):
    """The all-to-alls of hidden states within the context: bytes sent and received."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name == "c10d::alltoall_base_" and args[0].is_floating_point():
            self.found.append((args[1].nbytes, args[0].nbytes))
        return func(*args, **(kwargs or {}))


def states(parameters: list[nn.Parameter]) -> int:
    """Bytes of parameters, gradients and moments after a step of Adam; its counters are left out."""
    optimizer = torch.optim.Adam(parameters)
    optimizer.step()
    moments = [t for s in optimizer.state.values() for t in s.values() if t.dim()]
    return storage_bytes([[p.data for p in parameters], [p.grad for p in parameters], moments])


def measure(task: Mapping[str, object]) -> ranks.Report:
    """One rank's messages and states under each routing, and how far the results are off."""
    config = Config(**task)  # type: ignore[arg-type]
    report: ranks.Report = {"difference": 0.0}

    def mixture(ranks: int) -> Mixture:
        torch.manual_seed(config.seed)  # every rank has the same router and experts
        return Mixture(config, ranks=ranks).to(config.device)

    def step(model: Mixture, choices: Tensor, checkpointed: bool = False) -> tuple[Tensor, Tensor]:
        torch.manual_seed(config.seed + 1 + dist.get_rank())  # tokens of its own
        x = tokens_for(config, choices).to(config.device).requires_grad_()
        y = checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
        y.square().sum().backward()
        return y.detach(), cast(Tensor, x.grad)

    for name, choices in (("balanced", balanced(config)), ("worst", worst(config))):
        whole, mine = mixture(1), mixture(config.ranks)
        expected = step(whole, choices)
        with Messages() as messages:
            found = step(mine, choices)
        report[name] = messages.found
        gradients = [cast(Tensor, p.grad) for p in whole.experts.parameters()]
        for g in gradients:
            dist.all_reduce(g)  # the owner of an expert has the sum over all tokens
        share = len(gradients) // config.ranks
        own = gradients[dist.get_rank() * share :][:share]
        pairs = [*zip(expected, found, strict=True)]
        pairs += [
            (g, cast(Tensor, p.grad)) for g, p in zip(own, mine.experts.parameters(), strict=True)
        ]
        gaps = [float((a - b).abs().max()) for a, b in pairs]
        report["difference"] = max(report["difference"], *gaps)
        if name == "balanced":
            size = sum(p.numel() for p in whole.experts.parameters())
            report["whole"] = [states(list(whole.experts.parameters())), size]
            report["mine"] = [states(list(mine.experts.parameters())), size]
            report["router"] = [states(list(mine.router.parameters())), mine.router.weight.numel()]
    limited = mixture(config.ranks)
    limited.capacity = math.ceil(config.factor * config.tokens * config.chosen / config.experts)
    with Messages() as messages:
        step(limited, worst(config))
    report["capacity"], report["dropped"] = messages.found, limited.dropped
    with Messages() as messages:
        step(mixture(config.ranks), balanced(config), checkpointed=True)
    report["checkpointed"] = messages.found
    return report


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """What one process tells, then the ranks, then the figures."""
    found = Mechanisms(MEASURES, config)
    E, h, f = config.experts, config.width, config.inner
    torch.manual_seed(config.seed)
    expert = 3 * h * f
    active, _ = touched(config, 1)
    every, held = touched(config, config.tokens)
    found["experts_touched_by_token"] = active / expert
    found["experts_touched_by_batch"] = every / expert
    found["states_per_active"] = held / active
    found["index_add_per_h"] = (
        saved(config, 2 * h, f, "index_add") - saved(config, h, f, "index_add")
    ) / h
    for way in ("dense", "outside", "inside"):
        at = saved(config, h, f, way)
        found[f"{way}_per_h"] = (saved(config, 2 * h, f, way) - at) / h
        inner = config.chosen * f if way == "dense" else f
        found[f"{way}_per_f"] = (saved(config, h, 2 * f, way) - at) / inner
    progress(0.3, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.moe_memory", config.ranks, asdict(config))
    tell(found, config, reports)
    progress(0.8, "draws")
    for name, experts, factor in (
        ("dropped_at_100", E, 1.0),
        ("dropped_at_125", E, 1.25),
        ("dropped_many_experts", 8 * E, 1.25),
    ):
        found.sample(name, dropped(config, experts, factor), expected_drop(config, experts, factor))
    lines = []
    for name, experts in (("few", E), ("many", 8 * E)):
        theory = [expected_drop(config, experts, factor) for factor in FACTORS]
        drawn = [dropped(config, experts, factor) for factor in FACTORS]
        lines.append(Line(f"{name}_theory", FACTORS, theory))
        lines.append(Line(name, FACTORS, [float(f"{sum(d) / len(d):.6g}") for d in drawn]))
    found.draw("drops", *lines)
    progress(1.0, "done")
    return found.result()


def tell(found: Mechanisms, config: Config, reports: list[ranks.Report]) -> None:
    """What the ranks found: states, messages, and the figure of who holds what."""
    hidden = 4 * config.tokens * config.width
    found["difference"] = max(r["difference"] for r in reports)
    for name, part in (
        ("expert_states_whole", "whole"),
        ("expert_states_ep", "mine"),
        ("shared_states_ep", "router"),
    ):
        found[name] = max(r[part][0] / r[part][1] for r in reports)
    arrived = {
        name: [int(r[name][0][1]) for r in reports] for name in ("balanced", "worst", "capacity")
    }
    found["sent"] = max(r["balanced"][0][0] for r in reports) / hidden
    found["received_balanced"] = max(arrived["balanced"]) / hidden
    found["received_worst"] = max(arrived["worst"]) / hidden
    found["received_least"] = min(arrived["worst"]) / hidden
    found["received_capacity"] = max(arrived["capacity"]) / hidden
    found["dropped_worst"] = max(r["dropped"] for r in reports)
    found["all_to_alls"] = max(len(r["balanced"]) for r in reports)
    found["all_to_alls_checkpointed"] = max(len(r["checkpointed"]) for r in reports)
    boxes = [Box(0, r, "experts", 0, *[reports[r]["whole"][0]] * 2) for r in range(config.ranks)]
    for group, held in enumerate(arrived.values(), start=1):
        for kind, sizes in (("experts", [r["mine"][0] for r in reports]), ("arrived", held)):
            edges = [sum(sizes[:rank]) for rank in range(config.ranks + 1)]
            boxes += [
                Box(group, rank, kind, edges[rank], edges[rank + 1], edges[-1])
                for rank in range(config.ranks)
                if sizes[rank]
            ]
    found.shards("held", boxes, groups=("replicated", *arrived))


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

"""How do tensor and sequence parallelism divide a block's activations, and what do they send?

The lesson is ``lessons/tensor_parallel.en.md`` (中文: ``lessons/tensor_parallel.zh.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab import collectives, ranks
from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors
from runnable_demos.lab.mechanisms import Box, Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.split import GatherLinear, Group, Scatter

TITLE: Text = {"zh": "张量并行与序列并行", "en": "Tensor and sequence parallelism"}
QUESTION: Text = {
    "zh": "张量并行与序列并行怎样切分一层的激活，又要通信多少？",
    "en": "How do tensor and sequence parallelism divide a block's activations, and what do they send?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "一层前向里保存张量的字节除以 sbh，不含参数，各进程的最大值",
  "bytes that a block's forward saves over sbh, without parameters, on the fullest rank",
]
[method.metrics]
one_rank_per_sbh = ["", "单卡：每层激活 / sbh", "one rank: activations of a block / sbh"]
tp_per_sbh = [
  "",
  "张量并行，t = {ranks}：每层激活 / sbh",
  "tensor parallel, t = {ranks}: activations of a block / sbh",
]
sp_per_sbh = [
  "",
  "张量并行加序列并行，t = {ranks}：每层激活 / sbh",
  "tensor and sequence parallel, t = {ranks}: activations of a block / sbh",
]
tp_share = [
  "",
  "张量并行，t = {ranks}：激活是单卡的几成",
  "tensor parallel, t = {ranks}: activations over one rank's",
]
sp_share = [
  "",
  "张量并行加序列并行，t = {ranks}：激活是单卡的几成",
  "tensor and sequence parallel, t = {ranks}: activations over one rank's",
]
norm_statistics_per_sb = [
  "",
  "单卡实测比公式多出的字节 / sb：LayerNorm 的均值与方差",
  "bytes above the formula on one rank / sb: LayerNorm's statistics",
]

[[method]]
kind = "exact"
how = ["一次前向与反向里实际发出的集合通信", "collectives issued in a forward and backward"]
[method.metrics]
tp_all_reduce = [
  "",
  "每层每步的 all_reduce 次数：张量并行",
  "all_reduce calls a block a step: tensor parallel",
]
sp_all_gather = [
  "",
  "每层每步的 all_gather 次数：张量并行加序列并行",
  "all_gather calls a block a step: tensor and sequence parallel",
]
sp_reduce_scatter = [
  "",
  "每层每步的 reduce_scatter 次数：张量并行加序列并行",
  "reduce_scatter calls a block a step: tensor and sequence parallel",
]
tp_checkpointed_all_reduce = [
  "",
  "每层每步的 all_reduce 次数：张量并行，整层检查点",
  "all_reduce calls a block a step: tensor parallel, block checkpointed",
]
tp_volume = [
  "",
  "张量并行：每层通信量，单位 sbh 个元素 · (t−1)/t",
  "tensor parallel: volume a block, in sbh elements · (t−1)/t",
]
sp_volume = [
  "",
  "张量并行加序列并行：每层通信量，单位 sbh 个元素 · (t−1)/t",
  "tensor and sequence parallel: volume a block, in sbh elements · (t−1)/t",
]

[[method]]
kind = "bounded"
how = ["fp64，不用 dropout", "fp64, without dropout"]
bound = 1e-12
reason = [
  "部分和以不同次序相加，fp64 舍入约 1e-16，乘以项数仍远小于 1e-12",
  "partial sums are added in another order: fp64 rounds at 1e-16, times the terms",
]
[method.metrics]
error = [
  "",
  "切开的层与完整的层：输出与全部梯度的最大相对误差",
  "split block against the whole one: largest relative error of output and gradients",
]

[[method]]
kind = "exact"
how = ["与 0 号卡逐位比较", "compared with rank 0, bit for bit"]
[method.metrics]
same_seed_ranks_agree = [
  "",
  "dropout 种子相同：各卡的输出一致",
  "same dropout seed: all ranks have the same output",
]
other_seeds_ranks_differ = [
  "",
  "dropout 种子各不相同：本该一致的输出分叉",
  "other dropout seeds: outputs that should be equal differ",
]

[figure.activations]
title = ["每层激活随并行度 t", "Activations of a block over the degree t"]
x = {label = ["并行度 t", "degree t"], scale = "log2"}
y = {label = ["每张卡的字节", "bytes on a rank"], unit = "B"}
[figure.activations.series]
tensor_theory = ["theory", "张量并行：10 + 24/t + 5as/(ht)", "tensor: 10 + 24/t + 5as/(ht)"]
sequence_theory = ["theory", "加序列并行：(34 + 5as/h)/t", "and sequence: (34 + 5as/h)/t"]
tensor = ["measured", "张量并行，实测", "tensor parallel, measured"]
sequence = ["measured", "加序列并行，实测", "and sequence parallel, measured"]

[figure.held]
title = [
  "一层前向之后每张卡存着哪一份激活，t = {ranks}",
  "Which part of a block's activations each rank holds after the forward, t = {ranks}",
]
x = {label = ["切法", "split"]}
y = {label = ["存下的激活", "activations saved"], unit = "B"}
[figure.held.series]
norms = ["bar", "两个 LayerNorm 的输入", "inputs of the two LayerNorms"]
inputs = ["bar", "QKV 与 MLP 首个矩阵的输入", "inputs of QKV and of the first MLP matrix"]
masks = ["bar", "残差前的 dropout 掩码", "dropout masks before the residuals"]
heads = ["bar", "q、k、v 与各头的输出", "q, k, v and the heads' outputs"]
core = ["bar", "注意力的 s×s 矩阵", "attention's s×s matrices"]
mlp = ["bar", "MLP 中间的 4h", "4h in the middle of the MLP"]
[figure.held.places]
one = ["单卡", "one rank"]
tp = ["张量并行", "tensor parallel"]
sp = ["张量并行 + 序列并行", "tensor and sequence parallel"]
"""


@dataclass(frozen=True)
class Config:
    """One Transformer block on 1, 2, 4, … ``ranks`` ranks."""

    ranks: int = parameter(
        4, {"zh": "最大并行度 t，2 的幂", "en": "largest degree t, a power of two"}, 2, 8
    )
    length: int = parameter(64, {"zh": "序列长度 s", "en": "sequence length s"}, 8, 8192)
    batch: int = parameter(2, {"zh": "微批大小 b", "en": "micro-batch b"}, 1, 64)
    width: int = parameter(128, {"zh": "宽度 h", "en": "width h"}, 16, 8192)
    heads: int = parameter(8, {"zh": "头数 a", "en": "heads a"}, 2, 128)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, length=16, width=32, heads=4), "full": Config()}

# --- what passes between the ranks ---------------------------------------------------------------


class Copy(torch.autograd.Function):
    """f: nothing in the forward, all-reduce in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """``(s, b, h)``, the same on each rank."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Each rank has the gradient by its own columns; the sum is the whole."""
        grad = grads[0].clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Sum(torch.autograd.Function):
    """f̄: all-reduce in the forward, nothing in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:  # noqa: ARG004 - autograd's signature
        """``(s, b, h)``, of which each rank has a summand."""
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ARG004 - autograd's signature
        """The gradient of a sum goes to each summand."""
        return grads[0], None


# --- the block -----------------------------------------------------------------------------------


def dropout(x: Tensor, p: float) -> Tensor:
    """Dropout that keeps a mask of one byte an element, as CUDA does; ``F.dropout`` on a CPU does not."""
    if not p:
        return x
    out: Tensor = torch.native_dropout(x, p, True)[0]
    return out


class SplitBlock(nn.Module):
    """A pre-norm block without biases, of which this rank has ``a/t`` heads and ``4h/t`` columns.

    With ``sequence`` its input and output are this rank's ``s/t`` rows, otherwise all of them.
    """

    def __init__(
        self, config: Config, group: Group, *, sequence: bool, p: float, dtype: torch.dtype
    ) -> None:
        super().__init__()
        t, rank, h = group.size(), group.rank(), config.width
        self.group, self.sequence, self.p = group, sequence, p
        self.heads = config.heads // t
        generator = torch.Generator().manual_seed(config.seed)

        def part(rows: int, columns: int, dim: int) -> nn.Parameter:
            whole = torch.randn(rows, columns, generator=generator, dtype=dtype) / columns**0.5
            mine = whole.chunk(t, dim)[rank].contiguous()
            return nn.Parameter(mine.to(config.device))

        self.norms = nn.ModuleList(
            nn.LayerNorm(h, dtype=dtype, device=config.device) for _ in range(2)
        )
        self.qkv = part(3 * h, h, 0)  # rows ordered head by head, so that a part is whole heads
        self.out = part(h, h, 1)
        self.up = part(4 * h, h, 0)
        self.down = part(h, 4 * h, 1)

    # --8<-- [start:enter-leave]
    def enter(self, y: Tensor, weight: Tensor) -> Tensor:
        """Into the region that is split by columns: ``(s, b, h)`` or this rank's rows to ``(s, b, k)``."""
        if self.sequence:
            out: Tensor = GatherLinear.apply(y, weight, self.group)  # type: ignore[no-untyped-call]
            return out
        return F.linear(Copy.apply(y, self.group), weight)  # type: ignore[no-untyped-call]

    def leave(self, x: Tensor, weight: Tensor) -> Tensor:
        """Out of it, by the sum over ranks: ``(s, b, k)`` to ``(s, b, h)`` or this rank's rows."""
        way = Scatter if self.sequence else Sum
        out: Tensor = way.apply(F.linear(x, weight), self.group)  # type: ignore[no-untyped-call]
        return dropout(out, self.p)

    # --8<-- [end:enter-leave]

    # --8<-- [start:attention]
    def attention(self, y: Tensor) -> Tensor:
        """Softmax attention over this rank's heads; keeps its matrix, as in the paper."""
        qkv = self.enter(y, self.qkv)  # (s, b, 3h/t)
        s, b, k = qkv.shape
        d = k // 3 // self.heads
        q, k_, v = qkv.view(s, b * self.heads, 3 * d).transpose(0, 1).chunk(3, dim=-1)
        P = torch.softmax(torch.bmm(q, k_.mT) * d**-0.5, dim=-1)  # (b·a/t, s, s)
        O = torch.bmm(dropout(P, self.p), v)  # (b·a/t, s, d)
        return self.leave(O.transpose(0, 1).reshape(s, b, -1), self.out)

    # --8<-- [end:attention]

    def forward(self, x: Tensor) -> Tensor:
        """``(s, b, h)``, or this rank's rows of it, to the same."""
        x = x + self.attention(self.norms[0](x))
        return x + self.leave(F.gelu(self.enter(self.norms[1](x), self.up)), self.down)

    def reduce_norms(self) -> None:
        """With ``sequence`` each rank has the norms' gradients by its own rows: add them up."""
        if self.sequence:
            for p in self.norms.parameters():
                dist.all_reduce(p.grad, group=self.group)


# --- in each rank --------------------------------------------------------------------------------


def rows(x: Tensor, block: SplitBlock) -> Tensor:
    """What of ``(s, b, h)`` this rank gives to the block."""
    return x.chunk(block.group.size())[block.group.rank()].clone() if block.sequence else x.clone()


PARTS = {
    "torch.nn.functional.layer_norm": ("norms",) * 6,  # input, mean and deviation, twice
    "matrix": ("inputs", "heads", "inputs", "mlp"),  # what the four matrices are multiplied with
    "torch.bmm": ("heads", "core"),  # q, k and v in one storage; the matrix after dropout
    "torch.softmax": ("core",),
    "torch.native_dropout": ("core", "masks", "masks"),
    "torch.nn.functional.gelu": ("mlp",),
}
"""What each operation of the block saves, in order; ``""`` is ``GatherLinear``."""


def memory(config: Config, group: Group, *, sequence: bool) -> dict[str, int]:
    """Bytes that a block saves on this rank, by part, in bf16 with dropout."""
    # --8<-- [start:saved]
    block = SplitBlock(config, group, sequence=sequence, p=0.1, dtype=torch.bfloat16)
    x = torch.randn(config.length, config.batch, config.width, device=config.device)
    x = rows(x.bfloat16(), block).requires_grad_()
    with saved_tensors(block.parameters()) as saved:
        block(x)
    # --8<-- [end:saved]
    matrices = {"torch.nn.functional.linear": "matrix", "": "matrix"}
    order = {op: iter(parts) for op, parts in PARTS.items()}
    held = Counter[str]()
    for tensor in saved.tensors:
        if not tensor.shared:
            held[next(order[matrices.get(tensor.op, tensor.op)])] += tensor.nbytes
    return dict(held)


def traffic(config: Config, group: Group, *, sequence: bool, again: bool) -> list[list[Any]]:
    """Collectives of a forward and backward, as ``[kind, bytes]``; ``again``: block checkpointed."""
    block = SplitBlock(config, group, sequence=sequence, p=0.1, dtype=torch.bfloat16)
    x = torch.randn(config.length, config.batch, config.width, device=config.device)
    x = rows(x.bfloat16(), block).requires_grad_()
    with collectives.Collectives() as issued:
        y = (
            checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            if again
            else block(x)
        )
        y.sum().backward()
    return [[call.kind, call.nbytes] for call in issued.calls]


def errors(config: Config, group: Group, alone: Group, *, sequence: bool) -> float:
    """Largest relative error of output and gradients against the block in one piece, in fp64."""
    make = partial(SplitBlock, config, p=0.0, dtype=torch.float64)
    block, whole = make(group, sequence=sequence), make(alone, sequence=False)
    generator = torch.Generator().manual_seed(config.seed)
    shape = config.length, config.batch, config.width
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(config.device)
    mine, reference = rows(x, block).requires_grad_(), x.clone().requires_grad_()
    y, expected = block(mine), whole(reference)
    y.square().sum().backward()
    block.reduce_norms()
    expected.square().sum().backward()
    assert mine.grad is not None and reference.grad is not None
    t, rank = group.size(), group.rank()
    pairs = [(y.detach(), rows(expected.detach(), block)), (mine.grad, rows(reference.grad, block))]
    for (name, p), q in zip(block.named_parameters(), whole.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        dim = {"qkv": 0, "up": 0, "out": 1, "down": 1}.get(name)
        pairs.append((p.grad, q.grad if dim is None else q.grad.chunk(t, dim)[rank]))
    return max(relative(a, b) for a, b in pairs)


def ranks_agree(config: Config, group: Group, seed: int) -> bool:
    """Whether tensor parallelism gives the same output on all ranks, with dropout from ``seed``."""
    block = SplitBlock(config, group, sequence=False, p=0.1, dtype=torch.float32)
    torch.manual_seed(config.seed)
    x = torch.randn(config.length, config.batch, config.width, device=config.device)
    torch.manual_seed(seed)
    y = block(x).detach()
    first = y.clone()
    dist.broadcast(first, src=dist.get_global_rank(group, 0), group=group)
    same = torch.tensor(float(torch.equal(y, first)), device=y.device)
    dist.all_reduce(same, op=dist.ReduceOp.MIN, group=group)
    return bool(same)


def measure(task: Mapping[str, object]) -> ranks.Report:
    """Saved bytes over t, collectives, errors, and dropout with equal and with other seeds."""
    config = Config(**task)  # type: ignore[arg-type]
    N = config.ranks
    torch.manual_seed(config.seed)
    groups = {}
    t = 1
    while t <= N:
        groups[t], _ = dist.new_subgroups(group_size=t)
        t *= 2
    report: ranks.Report = {
        f"{name}{t}": memory(config, group, sequence=sequence)
        for t, group in groups.items()
        for name, sequence in (("tp", False), ("sp", True))
    }
    whole, alone = groups[N], groups[1]
    for name, sequence, again in (
        ("tp_calls", False, False),
        ("sp_calls", True, False),
        ("tp_calls_checkpointed", False, True),
    ):
        report[name] = traffic(config, whole, sequence=sequence, again=again)
    report["error"] = max(errors(config, whole, alone, sequence=s) for s in (False, True))
    report["same_seed"] = ranks_agree(config, whole, config.seed)
    report["other_seed"] = ranks_agree(config, whole, config.seed + dist.get_rank())
    return report


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once; all of them save and send alike."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.tensor_parallel", config.ranks, asdict(config))
    report, N = reports[0], config.ranks
    s, b, h, a = config.length, config.batch, config.width, config.heads
    sbh = s * b * h

    def most(name: str) -> int:
        """Bytes that the fullest rank saves."""
        held: list[int] = [sum(r[name].values()) for r in reports]
        return max(held)

    def calls(name: str, kind: str) -> int:
        return sum(k == kind for k, _ in report[name])

    def volume(name: str) -> float:
        """Messages of sbh in bf16 through a rank, an all-reduce twice."""
        return collectives.volume((kind, nbytes) for kind, nbytes in report[name]) / (2 * sbh)

    square = 5 * a * s / h  # attention's matrix, over sbh
    found["one_rank_per_sbh"] = most("tp1") / sbh
    found["norm_statistics_per_sb"] = (most("tp1") - (34 + square) * sbh) / (s * b)
    for way in ("tp", "sp"):
        found[f"{way}_per_sbh"] = most(f"{way}{N}") / sbh
        found[f"{way}_share"] = most(f"{way}{N}") / most("tp1")
        found[f"{way}_volume"] = volume(f"{way}_calls")
    ts = [2**i for i in range(N.bit_length())]
    found.draw(
        "activations",
        Line("tensor_theory", ts, [sbh * (10 + (24 + square) / t) for t in ts]),
        Line("sequence_theory", ts, [sbh * (34 + square) / t for t in ts]),
        Line("tensor", ts, [most(f"tp{t}") for t in ts]),
        Line("sequence", ts, [most(f"sp{t}") for t in ts]),
    )
    found.shards("held", boxes(reports, N), groups=["one", "tp", "sp"])

    found["tp_all_reduce"] = calls("tp_calls", "all_reduce")
    found["sp_all_gather"] = calls("sp_calls", "all_gather")
    found["sp_reduce_scatter"] = calls("sp_calls", "reduce_scatter")
    found["tp_checkpointed_all_reduce"] = calls("tp_calls_checkpointed", "all_reduce")

    found["error"] = max(r["error"] for r in reports)
    found["same_seed_ranks_agree"] = all(r["same_seed"] for r in reports)
    found["other_seeds_ranks_differ"] = not any(r["other_seed"] for r in reports)
    progress(1.0, "done")
    return found.result()


def boxes(reports: Sequence[ranks.Report], t: int) -> list[Box]:
    """What of each part one rank saves, and each of ``t`` ranks.

    A rank that saves less than one alone has a shard: all shards of a part make up its whole.
    """
    found = []
    alone = reports[0]["tp1"]
    for group, (name, n) in enumerate((("tp1", 1), (f"tp{t}", t), (f"sp{t}", t))):
        for part, size in alone.items():
            held = [float(r[name][part]) for r in reports[:n]]
            cut = held[0] < size
            for rank, each in enumerate(held):
                start = sum(held[:rank]) if cut else 0.0
                found.append(
                    Box(group, rank, part, start, start + each, sum(held) if cut else each)
                )
    return found


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

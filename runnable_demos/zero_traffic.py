"""How many bytes does a training step send under each ZeRO stage?

The lesson is ``lessons/zero_traffic.en.md`` (中文: ``lessons/zero_traffic.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from runnable_demos.lab import collectives, ranks
from runnable_demos.lab.findings import Line
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import typical_seconds
from runnable_demos.models import zero

GPU = 14
TITLE: Text = {"zh": "ZeRO：一步通信多少", "en": "ZeRO: what a step sends"}
QUESTION: Text = {
    "zh": "ZeRO 的各个阶段每步通信多少，与论文一致吗？",
    "en": "How much does each ZeRO stage communicate in a step, and is it what the paper says?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "第三步里记下的全部集合通信的字节除以 Ψ 的字节，all-reduce 算两遍；单位 Ψ(N−1)/N",
  "bytes of all collectives of step three over those of Ψ, an all-reduce twice: units of Ψ(N−1)/N",
]
[method.metrics]
stage0_volume = ["", "阶段 0 · DDP：每步通信量", "stage 0 · DDP: volume per step"]
stage1_volume = [
  "",
  "阶段 1 · ZeroRedundancyOptimizer：每步通信量",
  "stage 1 · ZeroRedundancyOptimizer: volume per step",
]
stage2_by_hand_volume = ["", "阶段 2 · 手写：每步通信量", "stage 2 · by hand: volume per step"]
stage2_volume = [
  "",
  "阶段 2 · FSDP2 不重新分片：每步通信量",
  "stage 2 · FSDP2, no resharding: volume per step",
]
stage3_volume = ["", "阶段 3 · FSDP2：每步通信量", "stage 3 · FSDP2: volume per step"]
stage1_all_reduce = [
  "",
  "ZeroRedundancyOptimizer：其中的 all-reduce（算两遍）",
  "ZeroRedundancyOptimizer: of which all-reduce (passes twice)",
]
stage1_broadcast = [
  "",
  "ZeroRedundancyOptimizer：其中的 broadcast",
  "ZeroRedundancyOptimizer: of which broadcast",
]
stage3_all_gather = ["", "阶段 3：其中的 all-gather", "stage 3: of which all-gather"]
stage3_reduce_scatter = ["", "阶段 3：其中的 reduce-scatter", "stage 3: of which reduce-scatter"]
stage3_over_ddp = ["", "阶段 3 的通信量是 DDP 的几倍", "volume of stage 3 over that of DDP"]
stage3_keep_last_volume = [
  "",
  "阶段 3，最后一个单元不重新分片：每步通信量",
  "stage 3, last unit not resharded: volume per step",
]
stage0_m2_volume = ["", "阶段 0，2 个微批：每步通信量", "stage 0, 2 micro-batches: volume per step"]
stage0_m4_volume = ["", "阶段 0，4 个微批：每步通信量", "stage 0, 4 micro-batches: volume per step"]
stage2_m2_volume = ["", "阶段 2，2 个微批：每步通信量", "stage 2, 2 micro-batches: volume per step"]
stage2_m4_volume = ["", "阶段 2，4 个微批：每步通信量", "stage 2, 4 micro-batches: volume per step"]
stage3_m2_volume = ["", "阶段 3，2 个微批：每步通信量", "stage 3, 2 micro-batches: volume per step"]
stage3_m4_volume = ["", "阶段 3，4 个微批：每步通信量", "stage 3, 4 micro-batches: volume per step"]

[[method]]
kind = "exact"
how = [
  "第三步里全部集合通信的字节除以参数个数；乘 (N−1)/N 即环上每个进程发送的",
  "bytes of all collectives of step three per parameter; (N−1)/N of it is sent by a rank",
]
[method.metrics]
stage3_fp32_bytes = ["B/param", "阶段 3，fp32：每步通信", "stage 3, fp32: per step"]
stage3_bf16_bytes = ["B/param", "阶段 3，bf16 参数：每步通信", "stage 3, bf16 parameters: per step"]

[[method]]
kind = "exact"
how = [
  "手写环上一个进程 send 的字节，除以消息的字节",
  "bytes that a rank sends on a ring by hand, over those of the message",
]
[method.metrics]
ring_reduce_scatter = ["", "环上的 reduce_scatter", "reduce_scatter on a ring"]
ring_all_gather = ["", "环上的 all_gather", "all_gather on a ring"]
ring_all_reduce = ["", "环上的 all-reduce", "all-reduce on a ring"]

[[method]]
kind = "exact"
how = ["逐元素比较整数值的 fp32", "compared element by element, on whole numbers"]
[method.metrics]
ring_equals_all_reduce = [
  "",
  "reduce-scatter 之后 all-gather，结果与 all-reduce 逐位相等",
  "reduce-scatter and then all-gather equal all-reduce, bit for bit",
]

[[method]]
kind = "bounded"
how = ["逐元素相减取绝对值的最大值", "subtracted element by element"]
bound = 1e-6
reason = [
  "归约按不同次序相加，差别在 fp32 的末几位；权重不超过 1，末位约 6e-8",
  "reductions add in different orders, which changes last places of fp32: about 6e-8 for weights below 1",
]
[method.metrics]
by_hand_difference = [
  "",
  "三步之后，手写阶段 2 的权重与 DDP 最大相差",
  "largest difference of a weight, stage 2 by hand against DDP, after three steps",
]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "{timed_layers} 层，边长 {timed_width}，bf16，每个进程一张 GPU，共 {ranks} 个；一步的时间，取中位数、最慢的进程",
  "{timed_layers} layers, {timed_width} wide, bf16, {ranks} ranks with a GPU each; time of a step, the median, on the slowest rank",
]
[method.metrics]
time_few = [
  "",
  "阶段 3 的一步是 DDP 的几倍，每个进程 {few} 个 token",
  "a step of stage 3 over one of DDP, {few} tokens on a rank",
]
time_many = [
  "",
  "阶段 3 的一步是 DDP 的几倍，每个进程 {many} 个 token",
  "a step of stage 3 over one of DDP, {many} tokens on a rank",
]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "一层的 bf16 参数，即 2 × {timed_width}² 字节；乘 (N−1)/N，除以时间的中位数，最慢的进程，{ranks} 个进程",
  "bf16 parameters of one layer, 2 × {timed_width}² bytes; times (N−1)/N, over the median time, on the slowest of {ranks} ranks",
]
[method.metrics]
gather_bandwidth = ["B/s", "all-gather 的总线带宽", "bus bandwidth of an all-gather"]

[figure.stages]
title = ["每步通信量：实际发出的与论文", "Volume per step: as issued, and by the paper"]
x = {label = ["方案", "scheme"]}
y = {label = ["通信量，Ψ(N−1)/N", "volume, units of Ψ(N−1)/N"]}
[figure.stages.series]
all_reduce = ["bar", "all-reduce（算两遍）", "all-reduce (passes twice)"]
reduce_scatter = ["bar", "reduce-scatter", "reduce-scatter"]
all_gather = ["bar", "all-gather", "all-gather"]
broadcast = ["bar", "broadcast", "broadcast"]
paper = ["theory", "论文", "paper"]
[figure.stages.places]
stage0 = ["阶段 0 · DDP", "stage 0 · DDP"]
stage1 = ["阶段 1 · ZeroRedundancyOptimizer", "stage 1 · ZeroRedundancyOptimizer"]
stage2_by_hand = ["阶段 2 · 手写", "stage 2 · by hand"]
stage2 = ["阶段 2 · FSDP2 不重新分片", "stage 2 · FSDP2, no resharding"]
stage3 = ["阶段 3 · FSDP2", "stage 3 · FSDP2"]

[figure.ring]
title = [
  "环上的 all-reduce：{ranks} 个进程各在第几跳发出哪一块",
  "An all-reduce on a ring: which part each of {ranks} ranks sends in which hop",
]
x = {label = ["第几跳", "hop"]}
y = {label = ["进程", "rank"]}
[figure.ring.series]
reduce_scatter = ["bar", "reduce-scatter：发出部分和", "reduce-scatter: partial sums are sent"]
all_gather = ["bar", "all-gather：发出完整的和", "all-gather: complete sums are sent"]

[figure.accumulation]
title = ["微批越多，阶段 3 的 all-gather 越多", "With more micro-batches, stage 3 gathers more"]
x = {label = ["每步的微批数 m", "micro-batches per step, m"], scale = "log2"}
y = {label = ["通信量，Ψ(N−1)/N", "volume, units of Ψ(N−1)/N"]}
[figure.accumulation.series]
stage0_theory = ["theory", "阶段 0：2", "stage 0: 2"]
stage0 = ["measured", "阶段 0，实测", "stage 0, measured"]
stage3_theory = ["theory", "阶段 3：2m + 1", "stage 3: 2m + 1"]
stage3 = ["measured", "阶段 3，实测", "stage 3, measured"]
"""  # noqa: E501 - a method is said on one line

MICRO_BATCHES = (2, 4)


@dataclass(frozen=True)
class Config:
    """A stack of ``layers`` matrices, ``width`` × ``width``, on ``ranks`` ranks."""

    ranks: int = parameter(4, {"zh": "进程数 N", "en": "ranks N"}, 2, 8)
    layers: int = parameter(4, {"zh": "层数", "en": "layers"}, 2, 64)
    width: int = parameter(64, {"zh": "矩阵边长", "en": "rows and columns of each matrix"}, 8, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, layers=3, width=16), "full": Config()}


# --- a ring by hand ------------------------------------------------------------------------------


def reduce_scatter(parts: list[Tensor]) -> list[int]:
    """N − 1 hops: rank r passes on part r − t and adds what arrives; in the end it owns part r + 1.

    The parts that this rank sent, hop by hop.
    """
    N, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(parts[0])
    sent = []
    # --8<-- [start:ring-reduce]
    for t in range(N - 1):
        sent.append(pass_on(parts[(rank - t) % N], arriving))
        parts[(rank - t - 1) % N] += arriving
    return sent
    # --8<-- [end:ring-reduce]


def all_gather(parts: list[Tensor]) -> list[int]:
    """N − 1 hops: the part that is complete is passed on, starting with one's own, r + 1."""
    N, rank = dist.get_world_size(), dist.get_rank()
    return [pass_on(parts[(rank + 1 - t) % N], parts[(rank - t) % N]) for t in range(N - 1)]


def pass_on(sending: Tensor, arriving: Tensor) -> int:
    """One hop: send to the next rank and receive from the one before. Which part of the message it sent.

    Both are handed over at once. NCCL does what two ranks say to one another in order, and a send
    that waited for its receive before the receive was issued would wait for ever.
    """
    N, rank = dist.get_world_size(), dist.get_rank()
    hop = [
        dist.P2POp(dist.isend, sending, (rank + 1) % N),
        dist.P2POp(dist.irecv, arriving, (rank - 1) % N),
    ]
    for work in dist.batch_isend_irecv(hop):
        work.wait()
    return sending.storage_offset() // sending.numel()  # read off where it lies in the message


def ring(device: str) -> dict[str, Any]:
    """Bytes sent over bytes of the message for both halves, and whether the sum is that of all-reduce."""
    N, rank = dist.get_world_size(), dist.get_rank()
    # Small whole numbers, so that every order of adding gives the same fp32 sums.
    message = torch.arange(16.0 * N, device=device) * (rank + 1)
    expected = message.clone()
    dist.all_reduce(expected)
    parts = list(message.chunk(N))
    with collectives.Collectives() as first:
        partial_sums = reduce_scatter(parts)
    with collectives.Collectives() as second:
        complete_sums = all_gather(parts)
    return {
        "reduce_scatter": first.nbytes("send") / message.nbytes,
        "all_gather": second.nbytes("send") / message.nbytes,
        "equal": torch.equal(message, expected),
        "sent": {"reduce_scatter": partial_sums, "all_gather": complete_sums},
    }


# --- the paper's stage 2 by hand -----------------------------------------------------------------


class ByHand:
    """Whole parameters, a shard of reduced gradients, Adam on that shard: stage 2 in ten lines."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model
        N, rank = dist.get_world_size(), dist.get_rank()
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        self.shard = nn.Parameter(weights.chunk(N)[rank].clone())
        self.optimizer = torch.optim.Adam([self.shard], foreach=False)

    def step(self, batch: Tensor) -> None:
        """One step: reduce-scatter the gradients, update one's own part, all-gather the weights."""
        # --8<-- [start:by-hand]
        N = dist.get_world_size()
        parameters = list(self.module.parameters())
        gradients = torch.autograd.grad(self.module(batch).square().mean(), parameters)
        whole = torch.cat([g.flatten() for g in gradients]) / N
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter_single(self.shard.grad, whole)
        self.optimizer.step()
        dist.all_gather_single(whole, self.shard.detach())
        for p, new in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
            p.data.copy_(new.view_as(p))
        # --8<-- [end:by-hand]


# --- time, on GPUs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    """What GPUs are timed on: layers that keep them busy, and tokens that hide the traffic or do not."""

    layers: int = 8
    width: int = 8192
    few: int = 64
    many: int = 8192


TIMED = Timed()


def times(timed: Timed, device: str) -> dict[str, float]:
    """Seconds of a step of DDP and of stage 3, with few tokens and with many, and of one layer's all-gather."""
    found = {}
    for name, wrap in (("ddp", zero.ddp), ("stage3", zero.fsdp)):
        trainer = wrap(zero.stack(timed.layers, timed.width, device).bfloat16())
        for amount in ("few", "many"):
            batch = torch.randn(getattr(timed, amount), timed.width, device=device).bfloat16()
            found[f"{name}_{amount}"] = typical_seconds(partial(trainer.step, batch), device)
    layer = torch.zeros(timed.width**2, dtype=torch.bfloat16, device=device)
    shard = layer.chunk(dist.get_world_size())[dist.get_rank()].clone()
    found["gather"] = typical_seconds(partial(dist.all_gather_single, layer, shard), device)
    return found


def add_times(reports: Sequence[ranks.Report], found: Mechanisms) -> None:
    """The slowest rank's: all wait for it."""
    slowest = {name: max(r["times"][name] for r in reports) for name in reports[0]["times"]}
    for amount in ("few", "many"):
        found[f"time_{amount}"] = slowest[f"stage3_{amount}"] / slowest[f"ddp_{amount}"]
    sent = 2 * TIMED.width**2 * (len(reports) - 1) / len(reports)
    found["gather_bandwidth"] = sent / slowest["gather"]


# --- in each rank --------------------------------------------------------------------------------


def accumulate(trainer: zero.Wrapped, batches: Tensor, *, keep: bool) -> None:
    """One step over several micro-batches; gradients are reduced in the last one alone.

    With ``keep`` FSDP leaves its parameters gathered between micro-batches.
    """
    module = trainer.module
    # --8<-- [start:micro-batches]
    for i, batch in enumerate(batches):
        last = i == len(batches) - 1
        context: AbstractContextManager[None] = nullcontext()
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
            module.set_reshard_after_backward(last or not keep)
        elif isinstance(module, DistributedDataParallel) and not last:
            context = module.no_sync()
        with context:
            (module(batch).square().mean() / len(batches)).backward()
    # --8<-- [end:micro-batches]
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def keep_last(model: nn.Sequential) -> zero.Wrapped:
    """Stage 3, where the last unit stays gathered: its backward comes next anyway."""
    trainer = zero.fsdp(model)
    last = model[-1]
    assert isinstance(last, FSDPModule)
    last.set_reshard_after_forward(False)
    return trainer


def measure(task: Mapping[str, object]) -> ranks.Report:
    """The collectives of the third step under each scheme, as ``[kind, bytes]``."""
    config = Config(**task)  # type: ignore[arg-type]

    def model() -> nn.Sequential:
        torch.manual_seed(config.seed)
        return zero.stack(config.layers, config.width, config.device)

    torch.manual_seed(config.seed + 1 + dist.get_rank())
    batches = torch.randn(max(MICRO_BATCHES), 1, config.width, device=config.device)
    report: ranks.Report = {"ring": ring(config.device)}

    def count(name: str, step: Callable[[], None]) -> None:
        with collectives.Collectives() as issued:
            step()
        report[name] = [[call.kind, call.nbytes] for call in issued.calls]

    by_hand = ByHand(model())
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    trainers: dict[str, zero.Wrapped | ByHand] = {
        **{f"stage{i}": build(model()) for i, build in enumerate(zero.STAGES)},
        "stage2_by_hand": by_hand,
        "stage3_keep_last": keep_last(model()),
        "stage3_bf16": zero.fsdp(model(), mp_policy=bf16),
    }
    for name, trainer in trainers.items():
        for _ in range(2):  # at its second step DDP also tells all ranks its buckets
            trainer.step(batches[0])
        count(name, partial(trainer.step, batches[0]))

    reference = trainers["stage0"]
    assert isinstance(reference, zero.Wrapped)
    weights = torch.cat([p.detach().flatten() for p in by_hand.module.parameters()])
    report["difference"] = float((weights - zero.flat(reference)).abs().max())

    for m in MICRO_BATCHES:
        for stage, keep in ((0, False), (2, True), (3, False)):
            trainer = zero.STAGES[stage](model())
            for _ in range(2):
                accumulate(trainer, batches[:m], keep=keep)
            count(f"stage{stage}_m{m}", partial(accumulate, trainer, batches[:m], keep=keep))
    if config.device == "cuda":
        report["times"] = times(TIMED, config.device)
    return report


# --- the demo ------------------------------------------------------------------------------------

KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
PAPER = {"stage0": 2, "stage1": 2, "stage2_by_hand": 2, "stage2": 2, "stage3": 3}
"""Each scheme with what the paper says that it sends, in units of (N−1)/N · Ψ."""


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once, and read off what rank 0 said; all ranks say the same."""
    found = Mechanisms(
        MEASURES,
        config,
        timed_layers=TIMED.layers,
        timed_width=TIMED.width,
        few=TIMED.few,
        many=TIMED.many,
    )
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.zero_traffic", config.ranks, asdict(config))
    report = reports[0]
    message = 4 * config.layers * config.width**2  # Ψ in bytes, fp32

    def volume(scheme: str, *kinds: str) -> float:
        """Bytes through a rank, in units of (N−1)/N · Ψ, of some kinds of collective or all."""
        calls = [(kind, nbytes) for kind, nbytes in report[scheme] if kind in (kinds or KINDS)]
        return collectives.volume(calls) / message

    for scheme in PAPER:
        found[f"{scheme}_volume"] = volume(scheme)
    found["stage1_all_reduce"] = volume("stage1", "all_reduce")
    found["stage1_broadcast"] = volume("stage1", "broadcast")
    found["stage3_all_gather"] = volume("stage3", "all_gather")
    found["stage3_reduce_scatter"] = volume("stage3", "reduce_scatter")
    found["stage3_over_ddp"] = volume("stage3") / volume("stage0")
    found["stage3_keep_last_volume"] = volume("stage3_keep_last")
    found["stage3_fp32_bytes"] = 4 * volume("stage3")  # Ψ is four bytes a parameter
    found["stage3_bf16_bytes"] = 4 * volume("stage3_bf16")
    found["by_hand_difference"] = max(r["difference"] for r in reports)
    places = range(len(PAPER))
    bars = [Line(kind, places, [volume(scheme, kind) for scheme in PAPER]) for kind in KINDS]
    found.draw("stages", *bars, Line("paper", places, list(PAPER.values())), places=PAPER)

    accumulated = {
        stage: {m: volume(f"{stage}_m{m}") for m in MICRO_BATCHES}
        for stage in ("stage0", "stage2", "stage3")
    }
    for stage, volumes in accumulated.items():
        for m, passes in volumes.items():
            found[f"{stage}_m{m}_volume"] = passes
    ms = (1, *MICRO_BATCHES)
    found.draw(
        "accumulation",
        Line("stage0_theory", ms, [2 for _ in ms]),
        Line("stage0", ms, [volume("stage0"), *accumulated["stage0"].values()]),
        Line("stage3_theory", ms, [2 * m + 1 for m in ms]),
        Line("stage3", ms, [volume("stage3"), *accumulated["stage3"].values()]),
    )

    rings = [r["ring"] for r in reports]
    found["ring_reduce_scatter"] = max(r["reduce_scatter"] for r in rings)
    found["ring_all_gather"] = max(r["all_gather"] for r in rings)
    found["ring_all_reduce"] = max(r["reduce_scatter"] + r["all_gather"] for r in rings)
    found["ring_equals_all_reduce"] = all(r["equal"] for r in rings)
    found.lanes("ring", hops([r["sent"] for r in rings]), rows=range(config.ranks))
    if config.device == "cuda":
        add_times(reports, found)
    progress(1.0, "done")
    return found.result()


def hops(sent: Sequence[Mapping[str, Sequence[int]]]) -> list[Span]:
    """What each rank sent, hop after hop, both halves end to end; hops count from 1, parts from 0."""
    return [
        Span(rank, half, hop - 0.5, hop + 0.5, str(part))
        for rank, halves in enumerate(sent)
        for hop, (half, part) in enumerate(
            ((half, part) for half, parts in halves.items() for part in parts), start=1
        )
    ]


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

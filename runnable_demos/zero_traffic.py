"""How many bytes does a training step send under each ZeRO stage?

The question
    Sharding saves memory. What does it cost in communication, and do PyTorch's implementations send
    what the paper (Rajbhandari et al. 2019, §7) says?

The model
    A model of Ψ parameters on N ranks. A ring reduce-scatter or all-gather of a message of Ψ sends
    (N−1)/N · Ψ from each rank, and an all-reduce is one after the other, twice as much. In units of
    (N−1)/N · Ψ:

        data parallel   all-reduce of gradients                                   2
        stages 1, 2     reduce-scatter of gradients, all-gather of parameters     2
        stage 3         all-gather for the forward, again for the backward, reduce-scatter   3

    With m micro-batches a step, stage 3 gathers for each of them: 2m + 1.

The measurement
    Real ranks train a stack of equal matrices. A dispatch mode lists each collective of the third step
    with the bytes of its message. The ring is executed by hand, and what it sends is counted.

The result
    2, 2 and 3, but 3 for PyTorch's stage 1: ZeroRedundancyOptimizer leaves DDP's all-reduce as it is
    and adds a broadcast of the updated parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from runnable_demos import collectives, ranks, zero
from runnable_demos.metrics import (
    Axis,
    Figure,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    parameter,
)

TITLE: Text = {"zh": "ZeRO：一步通信多少", "en": "ZeRO: what a step sends"}
QUESTION: Text = {
    "zh": "ZeRO 的各个阶段每步通信多少，与论文一致吗？",
    "en": "How much does each ZeRO stage communicate in a step, and is it what the paper says?",
}

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


def reduce_scatter(parts: list[Tensor]) -> None:
    """N − 1 hops: rank r passes on part r − t and adds what arrives; in the end it owns part r + 1."""
    N, rank = dist.get_world_size(), dist.get_rank()
    arriving = torch.empty_like(parts[0])
    for t in range(N - 1):
        pass_on(parts[(rank - t) % N], arriving)
        parts[(rank - t - 1) % N] += arriving


def all_gather(parts: list[Tensor]) -> None:
    """N − 1 hops: the part that is complete is passed on, starting with one's own, r + 1."""
    N, rank = dist.get_world_size(), dist.get_rank()
    for t in range(N - 1):
        pass_on(parts[(rank + 1 - t) % N], parts[(rank - t) % N])


def pass_on(sending: Tensor, arriving: Tensor) -> None:
    """Send to the next rank and receive from the one before, both at once.

    One after the other would hang where a message waits for its receiver, as NCCL's may: of two
    ranks each would wait for the other's receive.
    """
    N, rank = dist.get_world_size(), dist.get_rank()
    both = [
        dist.P2POp(dist.isend, sending, (rank + 1) % N),
        dist.P2POp(dist.irecv, arriving, (rank - 1) % N),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def ring(device: str) -> dict[str, float | bool]:
    """Bytes sent over bytes of the message for both halves, and whether the sum is that of all-reduce."""
    N, rank = dist.get_world_size(), dist.get_rank()
    # Small whole numbers, so that every order of adding gives the same fp32 sums.
    message = torch.arange(16.0 * N, device=device) * (rank + 1)
    expected = message.clone()
    dist.all_reduce(expected)
    parts = list(message.chunk(N))
    with collectives.Collectives() as first:
        reduce_scatter(parts)
    with collectives.Collectives() as second:
        all_gather(parts)
    return {
        "reduce_scatter": first.nbytes("send") / message.nbytes,
        "all_gather": second.nbytes("send") / message.nbytes,
        "equal": torch.equal(message, expected),
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


# --- in each rank --------------------------------------------------------------------------------


def accumulate(trainer: zero.Trainer, batches: Tensor, *, keep: bool) -> None:
    """One step over several micro-batches; gradients are reduced in the last one alone.

    With ``keep`` FSDP leaves its parameters gathered between micro-batches.
    """
    module = trainer.module
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
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def keep_last(model: nn.Sequential) -> zero.Trainer:
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
    trainers: dict[str, zero.Trainer | ByHand] = {
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
    assert isinstance(reference, zero.Trainer)
    weights = torch.cat([p.detach().flatten() for p in by_hand.module.parameters()])
    report["difference"] = float((weights - zero.flat(reference)).abs().max())

    for m in MICRO_BATCHES:
        for stage, keep in ((0, False), (2, True), (3, False)):
            trainer = zero.STAGES[stage](model())
            for _ in range(2):
                accumulate(trainer, batches[:m], keep=keep)
            count(f"stage{stage}_m{m}", partial(accumulate, trainer, batches[:m], keep=keep))
    return report


# --- the demo ------------------------------------------------------------------------------------

KINDS: dict[str, Text] = {
    "all_reduce": {"zh": "all-reduce（算两遍）", "en": "all-reduce (passes twice)"},
    "reduce_scatter": {"zh": "reduce-scatter", "en": "reduce-scatter"},
    "all_gather": {"zh": "all-gather", "en": "all-gather"},
    "broadcast": {"zh": "broadcast", "en": "broadcast"},
}
SCHEMES: dict[str, tuple[Text, int]] = {
    "stage0": ({"zh": "阶段 0 · DDP", "en": "stage 0 · DDP"}, 2),
    "stage1": (
        {"zh": "阶段 1 · ZeroRedundancyOptimizer", "en": "stage 1 · ZeroRedundancyOptimizer"},
        2,
    ),
    "stage2_by_hand": ({"zh": "阶段 2 · 手写", "en": "stage 2 · by hand"}, 2),
    "stage2": ({"zh": "阶段 2 · FSDP2 不重新分片", "en": "stage 2 · FSDP2, no resharding"}, 2),
    "stage3": ({"zh": "阶段 3 · FSDP2", "en": "stage 3 · FSDP2"}, 3),
}
"""Each scheme with what the paper says that it sends, in units of (N−1)/N · Ψ."""


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once, and read off what rank 0 said; all ranks say the same."""
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.zero_traffic", config.ranks, asdict(config))
    progress(1.0, "done")
    report = reports[0]
    message = 4 * config.layers * config.width**2  # Ψ in bytes, fp32

    def volume(scheme: str, *kinds: str) -> float:
        """Bytes through a rank, in units of (N−1)/N · Ψ, of some kinds of collective or all."""
        calls = [(kind, nbytes) for kind, nbytes in report[scheme] if kind in (kinds or KINDS)]
        return collectives.volume(calls) / message

    counted = {
        "zh": "第三步里记下的全部集合通信的字节除以 Ψ 的字节，all-reduce 算两遍；单位 Ψ(N−1)/N",
        "en": "bytes of all collectives of step three over those of Ψ, an all-reduce twice: units of Ψ(N−1)/N",
    }
    sent = {
        "zh": "手写环上一个进程 send 的字节，除以消息的字节",
        "en": "bytes that a rank sends on a ring by hand, over those of the message",
    }
    metrics = [
        *(
            Metric(
                f"{name}_volume",
                volume(name),
                "",
                "exact",
                {"zh": f"{label['zh']}：每步通信量", "en": f"{label['en']}: volume a step"},
                counted,
            )
            for name, (label, _) in SCHEMES.items()
        ),
        *(
            Metric(
                f"stage1_{kind}",
                volume("stage1", kind),
                "",
                "exact",
                {
                    "zh": f"ZeroRedundancyOptimizer：其中的 {KINDS[kind]['zh']}",
                    "en": f"ZeroRedundancyOptimizer: of which {KINDS[kind]['en']}",
                },
                counted,
            )
            for kind in ("all_reduce", "broadcast")
        ),
        *(
            Metric(
                f"stage3_{kind}",
                volume("stage3", kind),
                "",
                "exact",
                {
                    "zh": f"阶段 3：其中的 {KINDS[kind]['zh']}",
                    "en": f"stage 3: of which {KINDS[kind]['en']}",
                },
                counted,
            )
            for kind in ("all_gather", "reduce_scatter")
        ),
        Metric(
            "stage3_over_ddp",
            volume("stage3") / volume("stage0"),
            "",
            "exact",
            {"zh": "阶段 3 的通信量是 DDP 的几倍", "en": "volume of stage 3 over that of DDP"},
            counted,
        ),
        Metric(
            "stage3_keep_last_volume",
            volume("stage3_keep_last"),
            "",
            "exact",
            {
                "zh": "阶段 3，最后一个单元不重新分片：每步通信量",
                "en": "stage 3, last unit not resharded: volume a step",
            },
            counted,
        ),
        *(
            Metric(
                f"{name}_bytes",
                volume(scheme) * message / (message / 4),
                "B/param",
                "exact",
                {"zh": f"阶段 3，{words['zh']}：每步通信", "en": f"stage 3, {words['en']}: a step"},
                {
                    "zh": "第三步里全部集合通信的字节除以参数个数；乘 (N−1)/N 即环上每个进程发送的",
                    "en": "bytes of all collectives of step three a parameter; (N−1)/N of it is sent by a rank",
                },
            )
            for name, scheme, words in (
                ("stage3_fp32", "stage3", {"zh": "fp32", "en": "fp32"}),
                ("stage3_bf16", "stage3_bf16", {"zh": "bf16 参数", "en": "bf16 parameters"}),
            )
        ),
        *(
            Metric(
                f"stage{stage}_m{m}_volume",
                volume(f"stage{stage}_m{m}"),
                "",
                "exact",
                {
                    "zh": f"阶段 {stage}，{m} 个微批：每步通信量",
                    "en": f"stage {stage}, {m} micro-batches: volume a step",
                },
                counted,
            )
            for stage in (0, 2, 3)
            for m in MICRO_BATCHES
        ),
        *(
            Metric(
                f"ring_{half}",
                max(r["ring"][half] for r in reports),
                "",
                "exact",
                {"zh": f"环上的 {half}", "en": f"{half} on a ring"},
                sent,
            )
            for half in ("reduce_scatter", "all_gather")
        ),
        Metric(
            "ring_all_reduce",
            max(r["ring"]["reduce_scatter"] + r["ring"]["all_gather"] for r in reports),
            "",
            "exact",
            {"zh": "环上的 all-reduce", "en": "all-reduce on a ring"},
            sent,
        ),
        Metric(
            "ring_equals_all_reduce",
            all(r["ring"]["equal"] for r in reports),
            "",
            "exact",
            {
                "zh": "reduce-scatter 之后 all-gather，结果与 all-reduce 逐位相等",
                "en": "reduce-scatter and then all-gather equal all-reduce, bit for bit",
            },
            {
                "zh": "逐元素比较整数值的 fp32",
                "en": "compared element by element, on whole numbers",
            },
        ),
        Metric(
            "by_hand_difference",
            max(r["difference"] for r in reports),
            "",
            "bounded",
            {
                "zh": "三步之后，手写阶段 2 的权重与 DDP 最大相差",
                "en": "largest difference of a weight, stage 2 by hand against DDP, after three steps",
            },
            {"zh": "逐元素相减取绝对值的最大值", "en": "subtracted element by element"},
            bound=1e-6,
            reason={
                "zh": "规约按不同次序相加，差别在 fp32 的末几位；权重不超过 1，末位约 6e-8",
                "en": "reductions add in different orders, which changes last places of fp32: "
                "about 6e-8 for weights below 1",
            },
        ),
    ]
    return Result(tuple(metrics), figures(volume))


def figures(volume: Callable[..., float]) -> tuple[Figure, ...]:
    """Volume by stage with its parts, and over the number of micro-batches."""
    places = tuple(float(i) for i in range(len(SCHEMES)))
    unit = {"zh": "通信量，Ψ(N−1)/N", "en": "volume, units of Ψ(N−1)/N"}
    stages = Figure(
        "stages",
        {"zh": "每步通信量：实际发出的与论文", "en": "Volume a step: as issued, and by the paper"},
        Axis(
            {"zh": "方案", "en": "scheme"},
            categories=tuple(label for label, _ in SCHEMES.values()),
        ),
        Axis(unit),
        (
            *(
                Series(label, places, tuple(volume(name, kind) for name in SCHEMES), "bar")
                for kind, label in KINDS.items()
            ),
            Series(
                {"zh": "论文", "en": "paper"},
                places,
                tuple(float(said) for _, said in SCHEMES.values()),
                "theory",
            ),
        ),
    )
    m = (1.0, *(float(n) for n in MICRO_BATCHES))
    lines: list[Series] = []
    for stage, words, theory in (
        (0, "2", (2.0,) * len(m)),
        (3, "2m + 1", tuple(2 * n + 1 for n in m)),
    ):
        measured = (volume(f"stage{stage}"), *(volume(f"stage{stage}_m{n}") for n in MICRO_BATCHES))
        lines += [
            Series(
                {"zh": f"阶段 {stage}：{words}", "en": f"stage {stage}: {words}"},
                m,
                theory,
                "theory",
            ),
            Series({"zh": f"阶段 {stage}，实测", "en": f"stage {stage}, measured"}, m, measured),
        ]
    accumulation = Figure(
        "accumulation",
        {
            "zh": "微批越多，阶段 3 收集得越多",
            "en": "With more micro-batches, stage 3 gathers more",
        },
        Axis({"zh": "每步的微批数 m", "en": "micro-batches a step, m"}, scale="log2"),
        Axis(unit),
        tuple(lines),
    )
    return stages, accumulation


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

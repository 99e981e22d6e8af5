"""How many bytes of model states does each ZeRO stage leave on a rank?

The lesson is ``lessons/zero_stages.en.md`` (中文: ``lessons/zero_stages.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

from runnable_demos.lab import ranks
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Box, Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models import zero

TITLE: Text = {"zh": "ZeRO：每张卡上剩多少", "en": "ZeRO: what is left on a rank"}
QUESTION: Text = {
    "zh": "ZeRO 的各个阶段在每张卡上留下多少字节的参数、梯度和优化器状态？",
    "en": "How many bytes of parameters, gradients and optimizer states does each ZeRO stage leave on a rank?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "第三步里优化器即将更新时，各进程实时字节的最大值，除以参数个数",
  "live bytes when the optimizer is about to step, in step three, on the fullest rank, a parameter",
]
[method.metrics]
stage0_parameters = ["B/param", "阶段 0：参数", "stage 0: parameters"]
stage0_gradients = ["B/param", "阶段 0：梯度", "stage 0: gradients"]
stage0_optimizer = ["B/param", "阶段 0：优化器状态", "stage 0: optimizer states"]
stage0_states = ["B/param", "阶段 0：三类状态之和", "stage 0: all three states"]
stage1_parameters = ["B/param", "阶段 1：参数", "stage 1: parameters"]
stage1_gradients = ["B/param", "阶段 1：梯度", "stage 1: gradients"]
stage1_optimizer = ["B/param", "阶段 1：优化器状态", "stage 1: optimizer states"]
stage1_states = ["B/param", "阶段 1：三类状态之和", "stage 1: all three states"]
stage2_parameters = ["B/param", "阶段 2：参数", "stage 2: parameters"]
stage2_gradients = ["B/param", "阶段 2：梯度", "stage 2: gradients"]
stage2_optimizer = ["B/param", "阶段 2：优化器状态", "stage 2: optimizer states"]
stage2_states = ["B/param", "阶段 2：三类状态之和", "stage 2: all three states"]
stage3_parameters = ["B/param", "阶段 3：参数", "stage 3: parameters"]
stage3_gradients = ["B/param", "阶段 3：梯度", "stage 3: gradients"]
stage3_optimizer = ["B/param", "阶段 3：优化器状态", "stage 3: optimizer states"]
stage3_states = ["B/param", "阶段 3：三类状态之和", "stage 3: all three states"]
ddp_default_states = [
  "B/param",
  "DDP 默认设置（gradient_as_bucket_view=False）：三类状态与桶之和",
  "DDP by default (gradient_as_bucket_view=False): all three states and buckets",
]
ddp_bucket_bytes = [
  "B/param",
  "DDP 默认设置下，梯度之外的桶",
  "buckets beside the gradients, DDP by default",
]
bf16_states = [
  "B/param",
  "FSDP2 以 bf16 计算时的三类状态",
  "all three states where FSDP2 computes in bf16",
]
hybrid_states = [
  "B/param",
  "两组副本、组内分片时的三类状态",
  "all three states with two replicas, sharded within each",
]

[[method]]
kind = "exact"
how = [
  "第三步反向开始时，收集来的参数占的实时字节，除以参数个数",
  "live bytes of gathered parameters when the backward of step three begins, a parameter",
]
[method.metrics]
stage0_gathered = [
  "B/param",
  "阶段 0：为反向而收集的参数",
  "stage 0: parameters gathered for the backward",
]
stage1_gathered = [
  "B/param",
  "阶段 1：为反向而收集的参数",
  "stage 1: parameters gathered for the backward",
]
stage2_gathered = [
  "B/param",
  "阶段 2：为反向而收集的参数",
  "stage 2: parameters gathered for the backward",
]
stage3_gathered = [
  "B/param",
  "阶段 3：为反向而收集的参数",
  "stage 3: parameters gathered for the backward",
]
bf16_gathered = [
  "B/param",
  "FSDP2 以 bf16 计算时收集来的参数",
  "gathered parameters where FSDP2 computes in bf16",
]

[[method]]
kind = "exact"
how = [
  "该进程的优化器状态字节除以全部进程之和",
  "its bytes of optimizer states over those of all ranks",
]
[method.metrics]
zero1_largest_share = [
  "",
  "一半参数在一个矩阵里：ZeroRedundancyOptimizer 最满的进程所占的份额",
  "half of all parameters in one matrix: share of the fullest rank, ZeroRedundancyOptimizer",
]
fsdp_largest_share = [
  "",
  "一半参数在一个矩阵里：FSDP2 最满的进程所占的份额",
  "half of all parameters in one matrix: share of the fullest rank, FSDP2",
]

[[method]]
kind = "exact"
how = [
  "第三步里两个时刻的实时字节相加：反向开始时收集来的参数，优化器即将更新时的三类状态；取各进程的最大值，除以参数个数",
  "live bytes of two moments of step three added: gathered parameters when the backward begins, and the states when the optimizer is about to step; on the fullest rank, a parameter",
]
[method.metrics]
stage2_with_gathered = [
  "B/param",
  "FSDP2 不重新分片：状态与收集来的参数之和",
  "FSDP2 without resharding: states and gathered parameters",
]

[[method]]
kind = "bounded"
how = [
  "收集完整权重，逐元素相减取绝对值的最大值",
  "the weights are gathered and subtracted element by element",
]
bound = 1e-6
reason = [
  "归约按不同次序相加，差别在 fp32 的末几位；权重不超过 1，末位约 6e-8",
  "reductions add in different orders, which changes last places of fp32: about 6e-8 for weights below 1",
]
[method.metrics]
weights_difference = [
  "",
  "三步之后，各阶段的权重与阶段 0 最大相差",
  "largest difference of a weight from stage 0 after three steps, all stages",
]

[figure.stages]
title = [
  "每个进程的字节，N = {ranks}，fp32 与 Adam",
  "Bytes on a rank, N = {ranks}, fp32 with Adam",
]
x = {label = ["阶段", "stage"]}
y = {label = ["字节/参数", "bytes a parameter"], unit = "B/param"}
[figure.stages.series]
parameters = ["bar", "参数", "parameters"]
gathered = ["bar", "为反向而收集的参数", "parameters gathered for the backward"]
gradients = ["bar", "梯度", "gradients"]
optimizer = ["bar", "优化器状态", "optimizer states"]
formula = ["theory", "公式", "formula"]
[figure.stages.places]
stage0 = ["阶段 0 · DDP，梯度住在桶里", "stage 0 · DDP, gradients as bucket views"]
stage1 = ["阶段 1 · ZeroRedundancyOptimizer", "stage 1 · ZeroRedundancyOptimizer"]
stage2 = ["阶段 2 · FSDP2 不重新分片", "stage 2 · FSDP2, no resharding"]
stage3 = ["阶段 3 · FSDP2", "stage 3 · FSDP2"]

[figure.shards]
title = ["每张卡持有哪一份，N = {ranks}，fp32 与 Adam", "What each rank holds, N = {ranks}, fp32 with Adam"]
x = {label = ["阶段", "stage"]}
y = {label = ["字节/参数", "bytes a parameter"], unit = "B/param"}
[figure.shards.series]
parameters = ["bar", "参数", "parameters"]
gathered = ["bar", "为反向而收集的参数", "parameters gathered for the backward"]
gradients = ["bar", "梯度", "gradients"]
optimizer = ["bar", "优化器状态", "optimizer states"]
"""  # noqa: E501 - a method is said on one line


# --8<-- [start:config]
@dataclass(frozen=True)
class Config:
    """A stack of ``layers`` matrices, ``width`` × ``width``, on ``ranks`` ranks."""

    ranks: int = parameter(4, {"zh": "进程数 N", "en": "ranks N"}, 2, 8)
    layers: int = parameter(4, {"zh": "层数", "en": "layers"}, 2, 64)
    width: int = parameter(
        128, {"zh": "矩阵边长", "en": "rows and columns of each matrix"}, 8, 8192
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, width=32), "full": Config()}
# --8<-- [end:config]


# --- in each rank --------------------------------------------------------------------------------


def states(
    build: Callable[[nn.Module], zero.Wrapped], model: Callable[[], nn.Module], batch: Tensor
) -> tuple[dict[str, int], Tensor]:
    """Bytes on this rank in the third step, by category, and the weights after it.

    ``gathered`` is read as the backward begins, the rest as the optimizer is about to step.
    """
    # --8<-- [start:sort]
    with LiveMemory() as live:
        trainer = build(model())

        def sort() -> dict[str, int]:
            live.register("parameters", trainer.parameters)
            live.register("gradients", [p.grad for p in trainer.parameters])
            live.register("optimizer", trainer.states)
            return {str(category): nbytes for category, nbytes in live.by_category.items()}

        for _ in range(2):
            trainer.step(batch)
        loss = trainer.module(batch).square().mean()
        gathered = sort()["other"]
        loss.backward()
        del loss
        found = sort()
    # --8<-- [end:sort]
    # What is left beside the states: DDP's buckets, where the gradients are no views of them.
    found["buckets"] = found["activations"] + found["other"]
    trainer.optimizer.step()
    return {**found, "gathered": gathered}, zero.flat(trainer)


def measure(task: Mapping[str, object]) -> ranks.Report:
    """What one rank holds under each stage, and whether the stages train alike."""
    config = Config(**task)  # type: ignore[arg-type]
    device, half = config.device, config.ranks // 2

    def model() -> nn.Module:
        torch.manual_seed(config.seed)
        return zero.stack(config.layers, config.width, device)

    def lopsided() -> nn.Module:
        # Half of all parameters are in one matrix, as with a large vocabulary.
        table = nn.Embedding(config.layers * config.width, config.width, device=device)
        return nn.Sequential(table, *model().children())

    torch.manual_seed(config.seed + 1 + dist.get_rank())  # each rank has a batch of its own
    batch = torch.randn(1, config.width, device=device)
    tokens = torch.zeros(1, dtype=torch.long, device=device)
    report: ranks.Report = {}
    weights = []
    for i, build in enumerate(zero.STAGES):
        report[f"stage{i}"], after = states(build, model, batch)
        weights.append(after)
    report["difference"] = max(float((w - weights[0]).abs().max()) for w in weights)

    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    mesh = init_device_mesh(device, (2, half), mesh_dim_names=("replicate", "shard"))
    for name, build, made, data in (
        ("ddp_default", partial(zero.ddp, views=False), model, batch),
        ("bf16", partial(zero.fsdp, reshard=False, mp_policy=bf16), model, batch.bfloat16()),
        ("hybrid", partial(zero.fsdp, mesh=mesh), model, batch),
        ("lopsided_zero1", zero.ddp_zero1, lopsided, tokens),
        ("lopsided_fsdp", zero.fsdp, lopsided, tokens),
    ):
        report[name], _ = states(build, made, data)
    return report


# --- the demo ------------------------------------------------------------------------------------

STATES = ("parameters", "gradients", "optimizer")


def run(config: Config, progress: Progress) -> Result:
    """Start the ranks once, and take the fullest rank of each stage."""
    found = Mechanisms(MEASURES, config)
    progress(0.1, f"{config.ranks} ranks")
    reports = ranks.launch("runnable_demos.zero_stages", config.ranks, asdict(config))
    parameters = config.layers * config.width**2

    def most(scheme: str, *parts: str) -> float:
        """Bytes a parameter on the fullest rank."""
        held = [sum(int(r[scheme][part]) for part in parts) for r in reports]
        return max(held) / parameters

    def share(scheme: str) -> float:
        """The largest share of the optimizer's states that one rank holds."""
        held = [int(r[scheme]["optimizer"]) for r in reports]
        return max(held) / sum(held)

    stages = [f"stage{i}" for i in range(4)]
    for stage in stages:
        for part in (*STATES, "gathered"):
            found[f"{stage}_{part}"] = most(stage, part)
        found[f"{stage}_states"] = most(stage, *STATES)
    found["stage2_with_gathered"] = most("stage2", *STATES, "gathered")
    found["weights_difference"] = max(r["difference"] for r in reports)

    beside = most("stage0", "buckets")  # what DDP holds where gradients are views, no buckets
    found["ddp_default_states"] = most("ddp_default", *STATES, "buckets") - beside
    found["ddp_bucket_bytes"] = most("ddp_default", "buckets") - beside
    found["bf16_states"] = most("bf16", *STATES)
    found["bf16_gathered"] = most("bf16", "gathered")
    found["hybrid_states"] = most("hybrid", *STATES)
    found["zero1_largest_share"] = share("lopsided_zero1")
    found["fsdp_largest_share"] = share("lopsided_fsdp")

    # --8<-- [start:formula]
    N, P, G, O = config.ranks, 4, 4, 8  # fp32 with Adam
    formula = [P + G + O, P + G + O / N, P + (G + O) / N, (P + G + O) / N]
    # --8<-- [end:formula]
    bars = [
        Line(part, range(4), [most(stage, part) for stage in stages])
        for part in ("parameters", "gathered", "gradients", "optimizer")
    ]
    found.draw("stages", *bars, Line("formula", range(4), formula), places=stages)
    found.shards("shards", shards(reports, parameters), groups=range(4))
    progress(1.0, "done")
    return found.result()


def shards(reports: Sequence[ranks.Report], parameters: int) -> list[Box]:
    """What each rank holds under each stage, in bytes a parameter.

    Who holds less than a rank of stage 0 has a shard: all shards of a part make up its whole.
    """
    boxes = []
    for i in range(4):
        for part in ("parameters", "gathered", "gradients", "optimizer"):
            held = [int(r[f"stage{i}"][part]) for r in reports]
            cut = held[0] < int(reports[0]["stage0"][part])
            whole = sum(held) if cut else held[0]
            for rank, size in enumerate(held):
                start = sum(held[:rank]) if cut else 0
                if size:
                    edges = (each / parameters for each in (start, start + size, whole))
                    boxes.append(Box(i, rank, part, *edges))
    return boxes


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

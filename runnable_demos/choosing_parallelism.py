"""How do you divide a model among many devices, and what does each way hold and send?

The lesson is ``lessons/choosing_parallelism.en.md`` (中文: ``lessons/choosing_parallelism.zh.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from runnable_demos.lab import ranks
from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors, storage_bytes
from runnable_demos.lab.mechanisms import Box, Mechanisms
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.divided import SHARED, Part, cut, members, place
from runnable_demos.models.plans import (
    GPUS,
    LLAMA,
    NODE,
    Job,
    Plan,
    cost,
    fits,
    layer,
    local,
    peak,
    plans,
    sent,
    step,
)
from runnable_demos.models.split import Group

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


# --- four ranks, divided -------------------------------------------------------------------------

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
        # --8<-- [start:traffic]
        if func.namespace == "c10d":
            boxed = next(a for a in args if isinstance(a, torch.ScriptObject))
            group = Group.unbox(boxed)
            n, name = group.size(), func._schema.name.removeprefix("c10d::")
            tensors = args[0] if isinstance(args[0], list) else list(args[:2])
            whole = max(t.nbytes for t in tensors if isinstance(t, Tensor))
            turns = {"send": n, "recv_": 0, "allreduce_": 2 * (n - 1)}.get(name, n - 1)
            self.sent[self.names[group.group_name]] += whole * turns // n
        # --8<-- [end:traffic]
        return func(*args, **(kwargs or {}))


def job_of(config: Config, plan: Plan) -> Job:
    """The model that a plan divides: where experts are split the MLP is four of a quarter's width."""
    h = config.width
    experts, inner = (4, h // 2) if plan.ep > 1 else (0, 2 * h)
    return Job(config.layers, h, 4, 2, h // 4, inner, config.length, 4, experts=experts)


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

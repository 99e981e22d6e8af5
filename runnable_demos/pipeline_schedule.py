"""How long do pipeline stages wait, and how many micro-batches do they hold meanwhile?

The question
    p stages work on m micro-batches. GPipe runs all forwards and then all backwards; 1F1B alternates
    as soon as it can; interleaved 1F1B gives each device v chunks of the model. What is the bubble, and
    how many micro-batches' activations are in flight?

The model
    A forward takes t_f and a backward t_b on each stage. The bubble is the idle time over the ideal
    m (t_f + t_b):

        GPipe, 1F1B     (p − 1)/m             in flight   m, and p − i on stage i = 0 … p − 1
        interleaved     (p − 1)/(v m)                     p + (p − 1)/v on stage 0

The measurement
    A schedule is a list of operations for each device. It is played twice: once in time slots, where an
    operation starts when its device is free and its inputs are there; once on real ranks, which send
    activations on and gradients back, with the live activation bytes read after each operation.

The result
    The formulas. 1F1B has GPipe's bubble and bounds the memory; gradients are bit-equal to one device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos import ranks
from runnable_demos.measure import LiveMemory
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

TITLE: Text = {"zh": "流水线调度", "en": "Pipeline schedules"}
QUESTION: Text = {
    "zh": "流水线的各段要等多久，等的时候手里攒着几个微批的激活？",
    "en": "How long do pipeline stages wait, and how many micro-batches do they hold meanwhile?",
}


@dataclass(frozen=True)
class Config:
    """``ranks`` stages and ``micro_batches`` micro-batches; two chunks a device where interleaved."""

    ranks: int = parameter(4, {"zh": "段数 p", "en": "stages p"}, 2, 8)
    micro_batches: int = parameter(
        8, {"zh": "微批数 m，p 的倍数", "en": "micro-batches m, a multiple of p"}, 2, 64
    )
    rows: int = parameter(32, {"zh": "每个微批的行数", "en": "rows of a micro-batch"}, 1, 4096)
    width: int = parameter(64, {"zh": "宽度", "en": "width"}, 8, 4096)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(ranks=2, micro_batches=4, rows=8, width=16), "full": Config()}


# --- schedules -----------------------------------------------------------------------------------


class Op(NamedTuple):
    """Forward or backward of one micro-batch through one stage (of all stages, ``v·p`` of them)."""

    kind: Literal["F", "B"]
    stage: int
    micro: int


Schedule = list[list[Op]]
"""The operations of each device, in order."""


def gpipe(p: int, m: int) -> Schedule:
    """All forwards, then all backwards."""
    return [[Op("F", i, k) for k in range(m)] + [Op("B", i, k) for k in range(m)] for i in range(p)]


def one_f_one_b(p: int, m: int) -> Schedule:
    """Device i warms up with p − i − 1 forwards, then alternates, then drains."""
    return [
        _alternate([Op("F", i, k) for k in range(m)], [Op("B", i, k) for k in range(m)], p - i - 1)
        for i in range(p)
    ]


def interleaved(p: int, m: int, v: int) -> Schedule:
    """Device i has chunks i, p + i, …; p micro-batches go through one chunk, then through the next."""
    schedule = []
    for i in range(p):
        forwards = [Op("F", n // p % v * p + i, n // (p * v) * p + n % p) for n in range(m * v)]
        backwards = [
            Op("B", (v - 1 - n // p % v) * p + i, n // (p * v) * p + n % p) for n in range(m * v)
        ]
        schedule.append(_alternate(forwards, backwards, 2 * (p - i - 1) + (v - 1) * p))
    return schedule


def _alternate(forwards: list[Op], backwards: list[Op], warmup: int) -> list[Op]:
    """``warmup`` forwards, then one forward and one backward in turn, then what is left."""
    warmup = min(warmup, len(forwards))
    steady = [op for pair in zip(forwards[warmup:], backwards, strict=False) for op in pair]
    return forwards[:warmup] + steady + backwards[len(forwards) - warmup :]


# --- in time slots -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """What a schedule did: when all was done, and the most micro-batches each device held."""

    time: Fraction
    busy: Fraction
    """Time that the busiest device worked."""
    in_flight: list[Fraction]
    """Forwards whose backward is still to come, in micro-batches of a whole device."""

    @property
    def bubble(self) -> Fraction:
        """Idle time over ideal time."""
        return (self.time - self.busy) / self.busy


def play(schedule: Schedule, times: Mapping[int, tuple[int, int]], v: int = 1) -> Played:
    """Run all devices: each takes its operations in order, and waits for what an operation needs.

    ``times[i]`` is (t_f, t_b) of device i, shared equally by its ``v`` chunks. Raises ``ValueError``
    where the schedule waits for itself.
    """
    p = len(schedule)
    last = p * v - 1
    done: dict[Op, Fraction] = {}
    clock = [Fraction(0)] * p
    busy = [Fraction(0)] * p
    position = [0] * p
    while any(position[i] < len(schedule[i]) for i in range(p)):
        before = list(position)
        for i, ops in enumerate(schedule):
            while position[i] < len(ops):
                op = ops[position[i]]
                needed = [op._replace(stage=op.stage - 1)] if op.kind == "F" and op.stage else []
                if op.kind == "B":
                    needed = [op._replace(kind="F")]
                    needed += [op._replace(stage=op.stage + 1)] if op.stage < last else []
                if not all(n in done for n in needed):
                    break
                taken = Fraction(times[i][op.kind == "B"], v)
                clock[i] = max([clock[i], *(done[n] for n in needed)]) + taken
                busy[i] += taken
                done[op] = clock[i]
                position[i] += 1
        if position == before:
            raise ValueError("the schedule waits for itself")
    held = []
    for ops in schedule:
        live = most = 0
        for op in ops:
            live += 1 if op.kind == "F" else -1
            most = max(most, live)
        held.append(Fraction(most, v))
    return Played(max(clock), max(busy), held)


# --- on real ranks -------------------------------------------------------------------------------


def stage(config: Config, i: int) -> nn.Module:
    """The i-th part of the model, the same wherever it is made."""
    torch.manual_seed(config.seed + i)
    h = config.width
    layers = nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h), nn.GELU())
    return layers.to(config.device)


def micro_batches(config: Config) -> list[Tensor]:
    """The input, the same on each rank."""
    torch.manual_seed(config.seed)
    rows = config.micro_batches * config.rows
    whole = torch.randn(rows, config.width, device=config.device)
    return list(whole.chunk(config.micro_batches))


def loss_of(y: Tensor, config: Config) -> Tensor:
    """A micro-batch's share of the mean."""
    loss: Tensor = y.square().mean() / config.micro_batches
    return loss


def execute(config: Config, ops: Sequence[Op], *, again: bool = False) -> tuple[int, Tensor]:
    """Run one rank's part of a schedule; the most live activation bytes, and its gradients.

    Read after each operation. ``again``: the stage is checkpointed and keeps its input and output.
    """
    i, p = dist.get_rank(), config.ranks
    model, batches = stage(config, i), micro_batches(config)
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    sending: dict[int, list[Any]] = {i - 1: [], i + 1: []}

    def send(tensor: Tensor, to: int) -> None:
        # One message a neighbour is under way; the buffer lives until it has arrived.
        for work, _ in sending[to]:
            work.wait()
        sending[to] = [(dist.isend(tensor, to), tensor)]

    most = 0
    with LiveMemory(model=model) as live:
        for op in ops:
            k = op.micro
            if op.kind == "F":
                x = batches[k].clone() if i == 0 else torch.empty_like(batches[k])
                if i:
                    dist.recv(x, i - 1)
                    x.requires_grad_()
                inputs[k] = x
                y = (
                    checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
                    if again
                    else model(x)
                )
                outputs[k] = y if i < p - 1 else loss_of(y, config)
                if i < p - 1:
                    send(y.detach(), i + 1)
                del x, y
            else:
                grad = None
                if i < p - 1:
                    grad = torch.empty_like(outputs[k])
                    dist.recv(grad, i + 1)
                outputs.pop(k).backward(grad)
                x = inputs.pop(k)
                if i:
                    assert x.grad is not None
                    send(x.grad, i - 1)
                del x, grad
            most = max(most, live.by_category["activations"])
        for works in sending.values():
            for work, _ in works:
                work.wait()
    return most, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def alone(config: Config) -> Tensor:
    """Gradients of this rank's stage, as one device computes them: all stages, one batch after another."""
    stages = [stage(config, i) for i in range(config.ranks)]
    for x in micro_batches(config):
        loss_of(nn.Sequential(*stages)(x), config).backward()
    mine = stages[dist.get_rank()]
    return torch.cat([p.grad.flatten() for p in mine.parameters() if p.grad is not None])


def measure(task: Mapping[str, object]) -> ranks.Report:
    """Live activations of this rank under each schedule, and whether its gradients are right."""
    config = Config(**task)  # type: ignore[arg-type]
    p, m, i = config.ranks, config.micro_batches, dist.get_rank()
    expected = alone(config)
    report: ranks.Report = {}
    equal = []
    for name, ops, again in (
        ("gpipe", gpipe(p, m), False),
        ("one_f_one_b", one_f_one_b(p, m), False),
        ("checkpointed", one_f_one_b(p, m), True),
    ):
        report[name], gradients = execute(config, ops[i], again=again)
        equal.append(torch.equal(gradients, expected))
    # What one micro-batch holds on this stage: the first forward alone, then its backward.
    single = Config(**{**task, "micro_batches": 1})  # type: ignore[arg-type]
    report["single"], _ = execute(single, [Op("F", i, 0), Op("B", i, 0)])
    report["single_checkpointed"], _ = execute(single, [Op("F", i, 0), Op("B", i, 0)], again=True)
    report["equal"] = all(equal)
    return report


# --- the demo ------------------------------------------------------------------------------------

V = 2


def run(config: Config, progress: Progress) -> Result:
    """Play the schedules in time slots, then on real ranks."""
    p, m = config.ranks, config.micro_batches
    if m % p:
        raise ValueError("the number of micro-batches must be a multiple of the number of stages")
    equal = dict.fromkeys(range(p), (1, 2))
    slow = equal | {p - 1: (2, 4)}
    counts = [p * n for n in (1, 2, 4, 8)]
    played = {
        "gpipe": {n: play(gpipe(p, n), equal) for n in {*counts, m}},
        "one_f_one_b": {n: play(one_f_one_b(p, n), equal) for n in {*counts, m}},
        "interleaved": {n: play(interleaved(p, n, V), equal, V) for n in {*counts, m}},
    }
    slowed = play(one_f_one_b(p, m), slow)
    progress(0.1, f"{p} ranks")
    reports = ranks.launch("runnable_demos.pipeline_schedule", p, asdict(config))
    progress(1.0, "done")

    slots = {
        "zh": "在时间槽里逐个执行，前向 1 格，反向 2 格",
        "en": "executed in time slots, a forward takes one and a backward two",
    }
    live = {
        "zh": "真实进程上每个操作之后的实时激活字节，最大值除以一个微批的",
        "en": "live activation bytes on real ranks after each operation: the most, over one micro-batch's",
    }
    labels: dict[str, Text] = {
        "gpipe": {"zh": "GPipe", "en": "GPipe"},
        "one_f_one_b": {"zh": "1F1B", "en": "1F1B"},
        "interleaved": {"zh": f"交错 1F1B，v = {V}", "en": f"interleaved 1F1B, v = {V}"},
    }
    metrics = [
        *(
            Metric(
                f"bubble_{name}",
                float(played[name][m].bubble),
                "",
                "exact",
                {
                    "zh": f"气泡：{labels[name]['zh']}，p = {p}，m = {m}",
                    "en": f"bubble: {labels[name]['en']}, p = {p}, m = {m}",
                },
                slots,
            )
            for name in played
        ),
        Metric(
            "bubble_of_total",
            float(1 - played["gpipe"][m].busy / played["gpipe"][m].time),
            "",
            "exact",
            {
                "zh": "GPipe 的空闲占总时间的份额",
                "en": "GPipe's idle share of the total time",
            },
            slots,
        ),
        Metric(
            "bubble_four_times",
            float(played["one_f_one_b"][4 * p].bubble),
            "",
            "exact",
            {"zh": "气泡：1F1B，m = 4p", "en": "bubble: 1F1B, m = 4p"},
            slots,
        ),
        Metric(
            "slow_stage",
            float(slowed.time / played["one_f_one_b"][m].time),
            "",
            "exact",
            {
                "zh": "最后一段慢一倍：一步的时间变为几倍",
                "en": "last stage twice as slow: time of a step, times",
            },
            slots,
        ),
        Metric(
            "interleaved_in_flight",
            float(played["interleaved"][m].in_flight[0]),
            "",
            "exact",
            {
                "zh": "交错 1F1B：第一段在途的微批，折合整段",
                "en": "interleaved 1F1B: micro-batches in flight on the first device, of a whole stage",
            },
            slots,
        ),
        *(
            Metric(
                f"in_flight_{name}_{which}",
                reports[i][name] / reports[i]["single"],
                "",
                "exact",
                {
                    "zh": f"{labels[name]['zh']}：{zh}在途的微批",
                    "en": f"{labels[name]['en']}: micro-batches in flight on the {which} stage",
                },
                live,
            )
            for name in ("gpipe", "one_f_one_b")
            for which, zh, i in (("first", "第一段", 0), ("last", "最后一段", p - 1))
        ),
        Metric(
            "checkpointed_first",
            reports[0]["checkpointed"] / reports[0]["one_f_one_b"],
            "",
            "exact",
            {
                "zh": "1F1B 逐段检查点：第一段的激活与不设时之比",
                "en": "1F1B, stages checkpointed: activations on the first stage over those without",
            },
            {
                "zh": "每个操作之后的实时激活字节的最大值；反向内部的重建不在其中",
                "en": "most live activation bytes after an operation; what a backward rebuilds is not among them",
            },
        ),
        Metric(
            "gradients_bit_equal",
            all(r["equal"] for r in reports),
            "",
            "exact",
            {
                "zh": "各种调度的梯度与单机逐个微批计算的逐位相等",
                "en": "gradients of all schedules equal one device's, bit for bit",
            },
            {"zh": "每段逐元素比较", "en": "compared stage by stage, element by element"},
        ),
    ]
    x = tuple(float(n) for n in counts)
    bubbles = Figure(
        "bubble",
        {"zh": f"气泡随微批数，p = {p}", "en": f"Bubble over the number of micro-batches, p = {p}"},
        Axis({"zh": "微批数 m", "en": "micro-batches m"}, scale="log2"),
        Axis({"zh": "空闲时间 / 理想时间", "en": "idle time / ideal time"}),
        (
            Series(
                {"zh": "(p−1)/m", "en": "(p−1)/m"}, x, tuple((p - 1) / n for n in counts), "theory"
            ),
            Series(
                {"zh": "(p−1)/(vm)，v = 2", "en": "(p−1)/(vm), v = 2"},
                x,
                tuple((p - 1) / (V * n) for n in counts),
                "theory",
            ),
            *(
                Series(
                    {
                        "zh": f"{labels[name]['zh']}，执行所得",
                        "en": f"{labels[name]['en']}, executed",
                    },
                    x,
                    tuple(float(played[name][n].bubble) for n in counts),
                )
                for name in ("one_f_one_b", "interleaved")
            ),
        ),
    )
    places = tuple(float(i) for i in range(p))
    held = Figure(
        "in_flight",
        {"zh": f"各段在途的微批，m = {m}", "en": f"Micro-batches in flight on each stage, m = {m}"},
        Axis(
            {"zh": "段", "en": "stage"},
            categories=tuple({"zh": str(i), "en": str(i)} for i in range(p)),
        ),
        Axis({"zh": "微批", "en": "micro-batches"}),
        (
            Series(
                {"zh": "GPipe：m", "en": "GPipe: m"},
                places,
                tuple(float(m) for _ in places),
                "theory",
            ),
            Series(
                {"zh": "1F1B：p − i", "en": "1F1B: p − i"},
                places,
                tuple(p - i for i in places),
                "theory",
            ),
            *(
                Series(
                    {"zh": f"{labels[name]['zh']}，实测", "en": f"{labels[name]['en']}, measured"},
                    places,
                    tuple(r[name] / r["single"] for r in reports),
                )
                for name in ("gpipe", "one_f_one_b")
            ),
        ),
    )
    return Result(tuple(metrics), (bubbles, held))


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

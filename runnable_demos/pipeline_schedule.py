"""How long do pipeline stages wait, and how many micro-batches do they hold meanwhile?

The lesson is ``lessons/pipeline_schedule.en.md`` (中文: ``lessons/pipeline_schedule.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab import ranks
from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import LiveMemory
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "流水线调度", "en": "Pipeline schedules"}
QUESTION: Text = {
    "zh": "流水线的各段要等多久，等的时候手里攒着几个微批的激活？",
    "en": "How long do pipeline stages wait, and how many micro-batches do they hold meanwhile?",
}

MEASURES = """
[[method]]
kind = "computed"
how = [
  "由真实进程执行的次序推算：前向 1 格，反向 2 格，本卡空闲且输入已到即开始",
  "computed from the order in which real ranks executed: a forward takes one slot and a backward two, each begins when its device is free and its inputs are there",
]
[method.metrics]
bubble_gpipe = [
  "",
  "气泡：GPipe，p = {ranks}，m = {micro_batches}",
  "bubble: GPipe, p = {ranks}, m = {micro_batches}",
]
bubble_one_f_one_b = [
  "",
  "气泡：1F1B，p = {ranks}，m = {micro_batches}",
  "bubble: 1F1B, p = {ranks}, m = {micro_batches}",
]
bubble_interleaved = [
  "",
  "气泡：交错 1F1B，v = {v}，p = {ranks}，m = {micro_batches}",
  "bubble: interleaved 1F1B, v = {v}, p = {ranks}, m = {micro_batches}",
]
bubble_of_total = ["", "GPipe 的空闲占总时间的份额", "GPipe's idle share of the total time"]
bubble_four_times = ["", "气泡：1F1B，m = 4p", "bubble: 1F1B, m = 4p"]
slow_stage = [
  "",
  "最后一段慢一倍：一步的时间变为几倍",
  "last stage twice as slow: time of a step, times",
]

[[method]]
kind = "exact"
how = [
  "真实进程上每个操作之后的实时激活字节，最大值除以一个微批的",
  "live activation bytes on real ranks after each operation: the most, over one micro-batch's",
]
[method.metrics]
interleaved_in_flight = [
  "",
  "交错 1F1B：第一张卡在途的微批，折合整段",
  "interleaved 1F1B: micro-batches in flight on the first device, of all its chunks",
]
in_flight_gpipe_first = [
  "",
  "GPipe：第一段在途的微批",
  "GPipe: micro-batches in flight on the first stage",
]
in_flight_gpipe_last = [
  "",
  "GPipe：最后一段在途的微批",
  "GPipe: micro-batches in flight on the last stage",
]
in_flight_one_f_one_b_first = [
  "",
  "1F1B：第一段在途的微批",
  "1F1B: micro-batches in flight on the first stage",
]
in_flight_one_f_one_b_last = [
  "",
  "1F1B：最后一段在途的微批",
  "1F1B: micro-batches in flight on the last stage",
]

[[method]]
kind = "exact"
how = [
  "每个操作之后的实时激活字节的最大值；反向内部的重建不在其中",
  "most live activation bytes after an operation; what a backward rebuilds is not among them",
]
[method.metrics]
checkpointed_first = [
  "",
  "1F1B 逐段检查点：第一段的激活与不设时之比",
  "1F1B, stages checkpointed: activations on the first stage over those without",
]

[[method]]
kind = "exact"
how = [
  "真实进程执行每种调度，每层逐元素比较",
  "real ranks execute each schedule; compared layer by layer, element by element",
]
[method.metrics]
gradients_bit_equal = [
  "",
  "GPipe、1F1B、交错 1F1B 与逐段检查点：梯度与单机逐个微批计算的逐位相等",
  "GPipe, 1F1B, interleaved 1F1B and checkpointed stages: gradients equal one device's, which takes the micro-batches in turn, bit for bit",
]

[figure.bubble]
title = ["气泡随微批数，p = {ranks}", "Bubble over the number of micro-batches, p = {ranks}"]
kind = "computed"
x = {label = ["微批数 m", "micro-batches m"], scale = "log2"}
y = {label = ["空闲时间 / 理想时间", "idle time / ideal time"]}
[figure.bubble.series]
theory = ["theory", "(p−1)/m", "(p−1)/m"]
interleaved_theory = ["theory", "(p−1)/(vm)，v = {v}", "(p−1)/(vm), v = {v}"]
one_f_one_b = ["measured", "1F1B，由执行次序推算", "1F1B, computed from what ran"]
interleaved = [
  "measured",
  "交错 1F1B，v = {v}，由执行次序推算",
  "interleaved 1F1B, v = {v}, computed from what ran",
]

[figure.in_flight]
title = [
  "各段在途的微批，m = {micro_batches}",
  "Micro-batches in flight on each stage, m = {micro_batches}",
]
x = {label = ["段", "stage"]}
y = {label = ["微批", "micro-batches"]}
[figure.in_flight.series]
gpipe_theory = ["theory", "GPipe：m", "GPipe: m"]
one_f_one_b_theory = ["theory", "1F1B：p − i", "1F1B: p − i"]
interleaved_theory = [
  "theory",
  "交错：p + (p − 1 − 2i)/v，v = {v}",
  "interleaved: p + (p − 1 − 2i)/v, v = {v}",
]
gpipe = ["measured", "GPipe，实测", "GPipe, measured"]
one_f_one_b = ["measured", "1F1B，实测", "1F1B, measured"]
interleaved = ["measured", "交错 1F1B，v = {v}，实测", "interleaved 1F1B, v = {v}, measured"]

[figure.gpipe_lanes]
title = [
  "GPipe 的时间线，p = {ranks}，m = {micro_batches}",
  "GPipe over time, p = {ranks}, m = {micro_batches}",
]
kind = "computed"
x = {label = ["时间（格）", "time (slots)"]}
y = {label = ["卡", "device"]}
[figure.gpipe_lanes.series]
forward = ["bar", "F：前向，1 格", "F: forward, 1 slot"]
backward = ["bar", "B：反向，2 格", "B: backward, 2 slots"]

[figure.one_f_one_b_lanes]
title = [
  "1F1B 的时间线，p = {ranks}，m = {micro_batches}",
  "1F1B over time, p = {ranks}, m = {micro_batches}",
]
kind = "computed"
x = {label = ["时间（格）", "time (slots)"]}
y = {label = ["卡", "device"]}
[figure.one_f_one_b_lanes.series]
forward = ["bar", "F：前向，1 格", "F: forward, 1 slot"]
backward = ["bar", "B：反向，2 格", "B: backward, 2 slots"]

[figure.interleaved_lanes]
title = [
  "交错 1F1B 的时间线，v = {v}，p = {ranks}，m = {micro_batches}",
  "Interleaved 1F1B over time, v = {v}, p = {ranks}, m = {micro_batches}",
]
kind = "computed"
x = {label = ["时间（格）", "time (slots)"]}
y = {label = ["卡", "device"]}
[figure.interleaved_lanes.series]
forward = ["bar", "F：第一块的前向", "F: forward of the first chunk"]
forward_later = ["bar", "F：第二块的前向", "F: forward of the second chunk"]
backward = ["bar", "B：第一块的反向", "B: backward of the first chunk"]
backward_later = ["bar", "B：第二块的反向", "B: backward of the second chunk"]
"""  # noqa: E501 - a method is said on one line


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


# --8<-- [start:orders]
def one_f_one_b(p: int, m: int) -> Schedule:
    """Device i warms up with p − i − 1 forwards, then alternates, then drains."""
    return [
        _alternate([Op("F", i, k) for k in range(m)], [Op("B", i, k) for k in range(m)], p - i - 1)
        for i in range(p)
    ]


# --8<-- [end:orders]


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


# --8<-- [start:alternate]
def _alternate(forwards: list[Op], backwards: list[Op], warmup: int) -> list[Op]:
    """``warmup`` forwards, then one forward and one backward in turn, then what is left."""
    warmup = min(warmup, len(forwards))
    steady = [op for pair in zip(forwards[warmup:], backwards, strict=False) for op in pair]
    return forwards[:warmup] + steady + backwards[len(forwards) - warmup :]


# --8<-- [end:alternate]


# --- in time slots -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """When all was done, how long the busiest device worked, and from when to when each operation ran."""

    time: Fraction
    busy: Fraction
    ran: Mapping[Op, tuple[Fraction, Fraction]]

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
    ran: dict[Op, tuple[Fraction, Fraction]] = {}
    clock = [Fraction(0)] * p
    busy = [Fraction(0)] * p
    position = [0] * p
    while any(position[i] < len(schedule[i]) for i in range(p)):
        before = list(position)
        for i, ops in enumerate(schedule):
            while position[i] < len(ops):
                op = ops[position[i]]
                # --8<-- [start:slots]
                needed = [op._replace(stage=op.stage - 1)] if op.kind == "F" and op.stage else []
                if op.kind == "B":
                    needed = [op._replace(kind="F")]
                    needed += [op._replace(stage=op.stage + 1)] if op.stage < last else []
                if not all(n in ran for n in needed):
                    break
                taken = Fraction(times[i][op.kind == "B"], v)
                start = max([clock[i], *(ran[n][1] for n in needed)])
                clock[i] = start + taken
                busy[i] += taken
                ran[op] = (start, clock[i])
                position[i] += 1
                # --8<-- [end:slots]
        if position == before:
            raise ValueError("the schedule waits for itself")
    return Played(max(clock), max(busy), ran)


# --- on real ranks -------------------------------------------------------------------------------

V = 2  # chunks of a device where interleaved, and layers of a device in any case

SCHEDULES: dict[str, tuple[Callable[[int, int], Schedule], int]] = {
    "gpipe": (gpipe, 1),
    "one_f_one_b": (one_f_one_b, 1),
    "interleaved": (partial(interleaved, v=V), V),
}
"""What is executed, each with its chunks a device."""


def layer(config: Config, j: int) -> nn.Module:
    """The j-th layer of ``p·V``, the same wherever it is made."""
    torch.manual_seed(config.seed + j)
    h = config.width
    parts = nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h), nn.GELU())
    return parts.to(config.device)


def layers_of(stage: int, v: int) -> range:
    """The layers of a stage where each device has ``v`` of them: all schedules cut one model."""
    return range(stage * V // v, (stage + 1) * V // v)


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


def flat_gradient(module: nn.Module) -> Tensor:
    """Gradients of all parameters, in one vector."""
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@dataclass(frozen=True, slots=True)
class Executed:
    """What one rank did: its operations as they ended, and what they left."""

    order: list[Op]
    activations: int
    """The most live activation bytes after an operation."""
    gradients: dict[int, Tensor]
    """By layer, for the layers of this rank."""


def execute(config: Config, ops: Sequence[Op], v: int = 1, *, again: bool = False) -> Executed:
    """Run one rank's part of a schedule of ``p·v`` stages, of which stage s is on rank ``s mod p``.

    ``again``: each stage is checkpointed and keeps its input and output.
    """
    rank, p = dist.get_rank(), config.ranks
    last = p * v - 1
    stages = {
        s: nn.Sequential(*(layer(config, j) for j in layers_of(s, v)))
        for s in range(rank, p * v, p)
    }
    batches = micro_batches(config)
    inputs: dict[Op, Tensor] = {}
    outputs: dict[Op, Tensor] = {}
    sent: dict[Op, tuple[Any, Tensor]] = {}  # a message's buffer lives until it has arrived

    def tag(op: Op) -> int:
        """Tells messages between the same two ranks apart, by the operation that sends them."""
        return 2 * (op.micro * p * v + op.stage) + (op.kind == "B")

    def send(op: Op, tensor: Tensor, to: int) -> None:
        sent[op] = (dist.isend(tensor, to % p, tag=tag(op)), tensor)

    def forward(op: Op) -> None:
        x = batches[op.micro].clone() if op.stage == 0 else torch.empty_like(batches[op.micro])
        if op.stage:
            dist.recv(x, (op.stage - 1) % p, tag=tag(op._replace(stage=op.stage - 1)))
            x.requires_grad_()
        model = stages[op.stage]
        y = (
            checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
            if again
            else model(x)
        )
        inputs[op] = x
        outputs[op] = y if op.stage < last else loss_of(y, config)
        if op.stage < last:
            send(op, y.detach(), op.stage + 1)

    def backward(op: Op) -> None:
        came = op._replace(kind="F")
        grad = None
        if op.stage < last:
            grad = torch.empty_like(outputs[came])
            dist.recv(grad, (op.stage + 1) % p, tag=tag(op._replace(stage=op.stage + 1)))
            sent.pop(came)[0].wait()  # its gradient is here, so it has arrived
        outputs.pop(came).backward(grad)
        x = inputs.pop(came)
        if op.stage:
            assert x.grad is not None
            send(op, x.grad, op.stage - 1)

    order: list[Op] = []
    most = 0
    # --8<-- [start:run-in-order]
    with LiveMemory(model=nn.ModuleList(stages.values())) as live:
        for op in ops:
            (forward if op.kind == "F" else backward)(op)
            order.append(op)
            most = max(most, live.by_category["activations"])
        # --8<-- [end:run-in-order]
        for work, _ in sent.values():
            work.wait()
    gradients = {
        j: flat_gradient(module)
        for s, model in stages.items()
        for j, module in zip(layers_of(s, v), model, strict=True)
    }
    return Executed(order, most, gradients)


def alone(config: Config) -> list[Tensor]:
    """Gradients by layer, as one device computes them: the whole model, one batch after another."""
    model = nn.Sequential(*(layer(config, j) for j in range(config.ranks * V)))
    for x in micro_batches(config):
        loss_of(model(x), config).backward()
    return [flat_gradient(module) for module in model]


def bit_equal(gradients: Mapping[int, Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether the gradients of a rank's layers are the expected ones, bit for bit."""
    return all(torch.equal(g, expected[j]) for j, g in gradients.items())


def one_alone(rank: int, p: int, v: int) -> list[Op]:
    """One micro-batch through all chunks of a device, and back."""
    stages = range(rank, p * v, p)
    return [*(Op("F", s, 0) for s in stages), *(Op("B", s, 0) for s in reversed(stages))]


def counts(config: Config) -> list[int]:
    """The numbers of micro-batches that are executed."""
    return sorted({*(config.ranks * n for n in (1, 2, 4, 8)), config.micro_batches})


def measure(task: Mapping[str, object]) -> ranks.Report:
    """What this rank did under each schedule: order, live activations, and whether gradients are right."""
    config = Config(**task)  # type: ignore[arg-type]
    p, rank = config.ranks, dist.get_rank()
    report: ranks.Report = {}

    def note(name: str, done: Executed, expected: Sequence[Tensor]) -> None:
        report[name] = {
            "order": done.order,
            "activations": done.activations,
            "equal": bit_equal(done.gradients, expected),
        }

    for m in counts(config):
        sized = replace(config, micro_batches=m)
        expected = alone(sized)
        for name, (schedule, v) in SCHEDULES.items():
            note(f"{name}_{m}", execute(sized, schedule(p, m)[rank], v), expected)
    expected = alone(config)
    ops = one_f_one_b(p, config.micro_batches)[rank]
    note("checkpointed", execute(config, ops, again=True), expected)
    # What one micro-batch holds on this device, by which the others are counted.
    single = replace(config, micro_batches=1)
    for name, (_, v) in SCHEDULES.items():
        note(f"{name}_single", execute(single, one_alone(rank, p, v), v), alone(single))
    return report


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Execute the schedules on real ranks, and play in time slots what these did."""
    found = Mechanisms(MEASURES, config, v=V)
    p, m = config.ranks, config.micro_batches
    if m % p:
        raise ValueError("the number of micro-batches must be a multiple of the number of stages")
    progress(0.1, f"{p} ranks")
    reports = ranks.launch("runnable_demos.pipeline_schedule", p, asdict(config))
    find_bubbles(config, reports, found)
    find_in_flight(config, reports, found)
    found["gradients_bit_equal"] = all(done["equal"] for r in reports for done in r.values())
    progress(1.0, "done")
    return found.result()


def find_bubbles(config: Config, reports: Sequence[ranks.Report], found: Mechanisms) -> None:
    """Play the logs of all ranks, with each number of micro-batches."""
    p, m, sizes = config.ranks, config.micro_batches, counts(config)
    equal = dict.fromkeys(range(p), (1, 2))  # t_f and t_b of each device
    slow = equal | {p - 1: (2, 4)}

    def log(name: str, n: int) -> Schedule:
        """What all ranks did, in their order."""
        return [[Op(*op) for op in r[f"{name}_{n}"]["order"]] for r in reports]

    played = {
        name: {n: play(log(name, n), equal, v) for n in sizes} for name, (_, v) in SCHEDULES.items()
    }
    bubbles = {
        name: {n: float(each.bubble) for n, each in by_size.items()}
        for name, by_size in played.items()
    }
    for name in SCHEDULES:
        found[f"bubble_{name}"] = bubbles[name][m]
    found["bubble_of_total"] = float(1 - played["gpipe"][m].busy / played["gpipe"][m].time)
    found["bubble_four_times"] = bubbles["one_f_one_b"][4 * p]
    slowed = play(log("one_f_one_b", m), slow)
    found["slow_stage"] = float(slowed.time / played["one_f_one_b"][m].time)
    found.draw(
        "bubble",
        Line("theory", sizes, [(p - 1) / n for n in sizes]),
        Line("interleaved_theory", sizes, [(p - 1) / (V * n) for n in sizes]),
        Line("one_f_one_b", sizes, list(bubbles["one_f_one_b"].values())),
        Line("interleaved", sizes, list(bubbles["interleaved"].values())),
    )
    for name, by_size in played.items():
        found.lanes(f"{name}_lanes", lanes(by_size[m], p), rows=range(p))


def lanes(played: Played, p: int) -> list[Span]:
    """Each operation on its device, named by its micro-batch, from 1 on."""
    names = {"F": "forward", "B": "backward"}
    return [
        Span(
            op.stage % p,
            names[op.kind] + ("_later" if op.stage >= p else ""),
            float(start),
            float(end),
            f"{op.kind}{op.micro + 1}",
        )
        for op, (start, end) in played.ran.items()
    ]


def find_in_flight(config: Config, reports: Sequence[ranks.Report], found: Mechanisms) -> None:
    """Micro-batches that each rank held at most, by their bytes."""
    p, m, stages = config.ranks, config.micro_batches, range(config.ranks)

    def most(i: int, name: str) -> int:
        activations: int = reports[i][name]["activations"]
        return activations

    held = {
        name: [most(i, f"{name}_{m}") / most(i, f"{name}_single") for i in stages]
        for name in SCHEDULES
    }
    found["interleaved_in_flight"] = held["interleaved"][0]
    for name in ("gpipe", "one_f_one_b"):
        found[f"in_flight_{name}_first"] = held[name][0]
        found[f"in_flight_{name}_last"] = held[name][-1]
    found["checkpointed_first"] = most(0, "checkpointed") / most(0, f"one_f_one_b_{m}")
    # The interleaved schedule cannot hold more micro-batches than there are.
    chunks = [min(p + (p - 1 - 2 * i) / V, m) for i in stages]
    found.draw(
        "in_flight",
        Line("gpipe_theory", stages, [m for _ in stages]),
        Line("one_f_one_b_theory", stages, [p - i for i in stages]),
        Line("interleaved_theory", stages, chunks),
        *(Line(name, stages, each) for name, each in held.items()),
        places=stages,
    )


if __name__ == "__main__":
    ranks.work(measure, asdict(PRESETS["full"]))

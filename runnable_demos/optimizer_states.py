"""How many bytes does each optimizer keep for a parameter, and how many more while it steps?

The lesson is ``lessons/optimizer_states.en.md`` (中文: ``lessons/optimizer_states.zh.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn, optim

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import LiveMemory, storage_bytes
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "优化器状态", "en": "Optimizer states"}
QUESTION: Text = {
    "zh": "八种优化器为每个参数常驻多少字节，走一步时又临时多出多少？",
    "en": "How many bytes do eight optimizers keep for a parameter, and how many more while they step?",
}
REQUIRES = ("bitsandbytes",)

MEASURES = """
[[method]]
kind = "exact"
how = [
  "optimizer.state 中全部存储的字节数除以参数个数",
  "bytes of all storages in optimizer.state over the number of parameters",
]
[method.metrics]
state_sgd = ["B/param", "SGD 的状态", "state of SGD"]
state_momentum = ["B/param", "SGD + momentum 的状态", "state of SGD + momentum"]
state_rmsprop = ["B/param", "RMSprop 的状态", "state of RMSprop"]
state_muon = ["B/param", "Muon 的状态", "state of Muon"]
state_adamw = ["B/param", "AdamW 的状态", "state of AdamW"]
state_amsgrad = ["B/param", "AMSGrad 的状态", "state of AMSGrad"]
state_adafactor = ["B/param", "Adafactor 的状态", "state of Adafactor"]
state_adam8bit = ["B/param", "8-bit Adam 的状态", "state of 8-bit Adam"]
state_before_first_step = [
  "B/param",
  "第一步之前的状态，八种里最多的",
  "most state before the first step, of all eight",
]
adam_over_momentum = ["", "AdamW 的状态是动量 SGD 的几倍", "state of AdamW over that of SGD with momentum"]

[[method]]
kind = "exact"
how = ["第三步的实时字节峰值，减去这一步之前已有的", "live peak of the third step above what was there before it"]
[method.metrics]
transient_loop = ["B/param", "AdamW 一步的临时量：逐个矩阵", "transient of AdamW's step: one matrix after another"]
transient_foreach = [
  "B/param",
  "AdamW 一步的临时量：foreach，全部一起",
  "transient of AdamW's step: foreach, all at once",
]
transient_fused = ["B/param", "AdamW 一步的临时量：融合内核", "transient of AdamW's step: one fused kernel"]
transient_loop_copies = [
  "",
  "同上，折合成几份单个 fp32 矩阵：逐个矩阵",
  "the same in fp32 copies of one matrix: one matrix after another",
]
transient_foreach_copies = [
  "",
  "同上，折合成几份单个 fp32 矩阵：foreach，全部一起",
  "the same in fp32 copies of one matrix: foreach, all at once",
]
transient_fused_copies = [
  "",
  "同上，折合成几份单个 fp32 矩阵：融合内核",
  "the same in fp32 copies of one matrix: one fused kernel",
]

[figure.states]
title = ["每个参数的优化器字节", "Optimizer bytes a parameter"]
x = {label = ["优化器", "optimizer"]}
y = {label = ["字节/参数", "bytes a parameter"], unit = "B/param"}
[figure.states.series]
resident = ["bar", "常驻状态", "resident state"]
transient = [
  "bar",
  "一步内的临时量（8-bit Adam 的内核自用部分不计）",
  "transient within a step (without what 8-bit Adam's kernel takes inside)",
]
[figure.states.places]
sgd = ["SGD", "SGD"]
momentum = ["SGD + momentum", "SGD + momentum"]
rmsprop = ["RMSprop", "RMSprop"]
muon = ["Muon", "Muon"]
adamw = ["AdamW", "AdamW"]
amsgrad = ["AMSGrad", "AMSGrad"]
adafactor = ["Adafactor", "Adafactor"]
adam8bit = ["8-bit Adam", "8-bit Adam"]

[figure.steps]
title = [
  "头两步里存活的字节：AdamW 的 foreach 与融合实现",
  "Bytes alive over the first two steps: AdamW with foreach, and fused",
]
x = {label = [
  "步（前半是反向，后半是更新）",
  "step (first half: backward; second half: update)",
]}
y = {label = ["字节/参数", "bytes a parameter"], unit = "B/param"}
[figure.steps.series]
foreach = ["step", "foreach：全部矩阵一起", "foreach: all matrices at once"]
fused = ["step", "融合", "fused"]
"""


@dataclass(frozen=True)
class Config:
    """The matrices that are trained."""

    matrices: int = parameter(4, {"zh": "矩阵个数", "en": "number of matrices"}, 1, 64)
    width: int = parameter(512, {"zh": "矩阵边长", "en": "rows and columns of each"}, 64, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(matrices=2, width=128), "full": Config()}

Factory = Callable[[Iterable[Tensor]], optim.Optimizer]


def adam_8bit(parameters: Iterable[Tensor]) -> optim.Optimizer:
    """Adam with block-wise 8-bit states, from bitsandbytes."""
    from bitsandbytes.optim.adam import Adam8bit  # noqa: PLC0415 - slow to import, and optional

    optimizer: optim.Optimizer = Adam8bit(list(parameters))
    return optimizer


OPTIMIZERS: dict[str, Factory] = {
    "sgd": lambda p: optim.SGD(p, foreach=False),
    "momentum": lambda p: optim.SGD(p, momentum=0.9, foreach=False),
    "rmsprop": lambda p: optim.RMSprop(p, foreach=False),
    "muon": optim.Muon,
    "adamw": lambda p: optim.AdamW(p, foreach=False),
    "amsgrad": lambda p: optim.AdamW(p, amsgrad=True, foreach=False),
    "adafactor": lambda p: optim.Adafactor(p, foreach=False),
    "adam8bit": adam_8bit,
}

# --8<-- [start:ways]
STEPS: dict[str, Factory] = {
    "loop": lambda p: optim.AdamW(p, foreach=False),
    "foreach": lambda p: optim.AdamW(p, foreach=True),
    "fused": lambda p: optim.AdamW(p, fused=True),
}
# --8<-- [end:ways]
"""Three ways to write the step of AdamW."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes a parameter: ``before`` the first step, ``state`` afterwards, and ``transient`` within a step."""

    before: float
    state: float
    transient: float


def measure(factory: Factory, config: Config) -> Cost:
    """Three steps of one optimizer on random gradients."""
    generator = torch.Generator(config.device).manual_seed(config.seed)

    def random() -> Tensor:
        return torch.randn(config.width, config.width, generator=generator, device=config.device)

    parameters = [nn.Parameter(random()) for _ in range(config.matrices)]
    count = sum(p.numel() for p in parameters)
    optimizer = factory(parameters)
    # --8<-- [start:count]
    before = storage_bytes(list(optimizer.state.values()))
    for _ in range(2):
        for p in parameters:
            p.grad = random()
        optimizer.step()
    with LiveMemory() as live:
        optimizer.step()
    state = storage_bytes(list(optimizer.state.values()))
    return Cost(before / count, state / count, live.peak / count)
    # --8<-- [end:count]


@dataclass(frozen=True, slots=True)
class Moment:
    """From ``time`` on ``held`` bytes a parameter are alive, weights included.

    A step begins with its backward, and has its update half a step later.
    """

    time: float
    held: float


def follow(factory: Factory, config: Config, steps: int = 2) -> list[Moment]:
    """The first ``steps`` of an optimizer, at each change."""
    parameters = nn.ParameterList(
        torch.randn(config.width, config.width) for _ in range(config.matrices)
    )
    parameters.to(config.device)
    count = sum(p.numel() for p in parameters)
    optimizer = factory(parameters)
    moments: list[Moment] = []
    with LiveMemory(model=parameters, optimizer=optimizer) as live:
        for step in range(steps):
            # --8<-- [start:follow]
            for begin, act in ((step, partial(backward, parameters)), (step + 0.5, optimizer.step)):
                known = len(live.timeline)
                act()
                happened = live.timeline[known:]
                for at, now in enumerate(happened):
                    moments.append(Moment(begin + 0.5 * at / len(happened), sum(now) / count))
            optimizer.zero_grad()
            # --8<-- [end:follow]
    return [*moments, Moment(float(steps), moments[-1].held)]


def backward(parameters: Iterable[Tensor]) -> None:
    """Give each parameter a gradient, one after another."""
    for p in parameters:
        p.grad = torch.randn_like(p)


def run(config: Config, progress: Progress) -> Result:
    """Count the states of each optimizer, and the transients of three ways to write Adam's step."""
    found = Findings(MEASURES, config)
    total = len(OPTIMIZERS) + len(STEPS)
    costs: dict[str, Cost] = {}
    for i, (name, factory) in enumerate(OPTIMIZERS.items()):
        progress(i / total, name)
        costs[name] = measure(factory, config)
        found[f"state_{name}"] = costs[name].state
    found["state_before_first_step"] = max(cost.before for cost in costs.values())
    found["adam_over_momentum"] = costs["adamw"].state / costs["momentum"].state

    for i, (name, factory) in enumerate(STEPS.items(), start=len(OPTIMIZERS)):
        progress(i / total, f"AdamW, {name}")
        transient = measure(factory, config).transient
        found[f"transient_{name}"] = transient
        found[f"transient_{name}_copies"] = transient * config.matrices / 4  # an fp32 has 4 bytes

    places = range(len(costs))
    found.draw(
        "states",
        Line("resident", places, [cost.state for cost in costs.values()]),
        Line("transient", places, [cost.transient for cost in costs.values()]),
        places=OPTIMIZERS,
    )
    lines = []
    for name in ("foreach", "fused"):
        moments = follow(STEPS[name], config)
        lines.append(Line(name, [m.time for m in moments], [m.held for m in moments]))
    found.draw("steps", *lines)
    progress(1.0, "done")
    return found.result()

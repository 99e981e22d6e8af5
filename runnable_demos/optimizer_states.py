"""How many bytes does each optimizer keep for a parameter, and how many more while it steps?

The question
    An optimizer's state lives as long as the training does; its step needs scratch tensors besides.
    Both are counted here for eight optimizers, with fp32 parameters and gradients.

The model
    Matrices of one size, without biases. Adam keeps m and v, one fp32 number each for a parameter:

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²        w ← w − η m̂ / (√v̂ + ε)

    The quotient needs √v̂ somewhere, and how long it lives depends on how the step is written:
    one matrix after another (``for`` loop), all matrices at once (``foreach``), or one fused kernel.

The measurement
    State: bytes of the storages in ``optimizer.state``. Transient: the live peak of the third step, above what
    was there before, so that the state exists already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn, optim

from runnable_demos.measure import LiveMemory, storage_bytes
from runnable_demos.metrics import Axis, Figure, Metric, Progress, Result, Series, Text, parameter

TITLE: Text = {"zh": "优化器状态", "en": "Optimizer states"}
QUESTION: Text = {
    "zh": "八种优化器为每个参数常驻多少字节，走一步时又临时多出多少？",
    "en": "How many bytes do eight optimizers keep for a parameter, and how many more while they step?",
}
REQUIRES = ("bitsandbytes",)


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


OPTIMIZERS: dict[str, tuple[str, Factory]] = {
    "sgd": ("SGD", lambda p: optim.SGD(p, foreach=False)),
    "momentum": ("SGD + momentum", lambda p: optim.SGD(p, momentum=0.9, foreach=False)),
    "rmsprop": ("RMSprop", lambda p: optim.RMSprop(p, foreach=False)),
    "muon": ("Muon", optim.Muon),
    "adamw": ("AdamW", lambda p: optim.AdamW(p, foreach=False)),
    "amsgrad": ("AMSGrad", lambda p: optim.AdamW(p, amsgrad=True, foreach=False)),
    "adafactor": ("Adafactor", lambda p: optim.Adafactor(p, foreach=False)),
    "adam8bit": ("8-bit Adam", adam_8bit),
}

STEPS: dict[str, tuple[Text, Factory]] = {
    "loop": (
        {"zh": "逐个矩阵", "en": "one matrix after another"},
        lambda p: optim.AdamW(p, foreach=False),
    ),
    "foreach": (
        {"zh": "foreach，全部一起", "en": "foreach, all at once"},
        lambda p: optim.AdamW(p, foreach=True),
    ),
    "fused": ({"zh": "融合内核", "en": "one fused kernel"}, lambda p: optim.AdamW(p, fused=True)),
}


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
    before = storage_bytes(list(optimizer.state.values()))
    for _ in range(2):
        for p in parameters:
            p.grad = random()
        optimizer.step()
    with LiveMemory() as live:
        optimizer.step()
    state = storage_bytes(list(optimizer.state.values()))
    return Cost(before / count, state / count, live.peak / count)


def run(config: Config, progress: Progress) -> Result:
    """Count the states of each optimizer, and the transients of three ways to write Adam's step."""
    costs: dict[str, Cost] = {}
    for i, (name, (title, factory)) in enumerate(OPTIMIZERS.items()):
        progress(i / (len(OPTIMIZERS) + len(STEPS)), title)
        costs[name] = measure(factory, config)
    steps: dict[str, Cost] = {}
    for i, (name, (label, factory)) in enumerate(STEPS.items(), start=len(OPTIMIZERS)):
        progress(i / (len(OPTIMIZERS) + len(STEPS)), label["en"])
        steps[name] = measure(factory, config)
    progress(1.0, "done")

    counted = {
        "zh": "optimizer.state 中全部存储的字节数除以参数个数",
        "en": "bytes of all storages in optimizer.state over the number of parameters",
    }
    live = {
        "zh": "第三步的实时字节峰值，减去这一步之前已有的",
        "en": "live peak of the third step above what was there before it",
    }
    metrics = [
        *(
            Metric(
                f"state_{name}",
                costs[name].state,
                "B/param",
                "exact",
                {"zh": f"{title} 的状态", "en": f"state of {title}"},
                counted,
            )
            for name, (title, _) in OPTIMIZERS.items()
        ),
        *(
            Metric(
                f"transient_{name}",
                steps[name].transient,
                "B/param",
                "exact",
                {
                    "zh": f"AdamW 一步的临时量：{label['zh']}",
                    "en": f"transient of AdamW's step: {label['en']}",
                },
                live,
            )
            for name, (label, _) in STEPS.items()
        ),
        *(
            Metric(
                f"transient_{name}_copies",
                steps[name].transient * config.matrices / 4,
                "",
                "exact",
                {
                    "zh": f"同上，折合成几份单个 fp32 矩阵：{label['zh']}",
                    "en": f"the same in fp32 copies of one matrix: {label['en']}",
                },
                live,
            )
            for name, (label, _) in STEPS.items()
        ),
        Metric(
            "state_before_first_step",
            max(cost.before for cost in costs.values()),
            "B/param",
            "exact",
            {
                "zh": "第一步之前的状态，八种里最多的",
                "en": "most state before the first step, of all eight",
            },
            counted,
        ),
        Metric(
            "adam_over_momentum",
            costs["adamw"].state / costs["momentum"].state,
            "",
            "exact",
            {
                "zh": "AdamW 的状态是动量 SGD 的几倍",
                "en": "state of AdamW over that of SGD with momentum",
            },
            counted,
        ),
    ]
    names = list(OPTIMIZERS)
    places = tuple(float(i) for i in range(len(names)))
    figure = Figure(
        "states",
        {"zh": "每个参数的优化器字节", "en": "Optimizer bytes a parameter"},
        Axis(
            {"zh": "优化器", "en": "optimizer"},
            categories=tuple({"zh": OPTIMIZERS[n][0], "en": OPTIMIZERS[n][0]} for n in names),
        ),
        Axis({"zh": "字节/参数", "en": "bytes a parameter"}, "B/param"),
        (
            Series(
                {"zh": "常驻状态", "en": "resident state"},
                places,
                tuple(costs[n].state for n in names),
                "bar",
            ),
            Series(
                {
                    "zh": "一步内的临时量（8-bit Adam 的内核自用部分不计）",
                    "en": "transient within a step (without what 8-bit Adam's kernel takes inside)",
                },
                places,
                tuple(costs[n].transient for n in names),
                "bar",
            ),
        ),
    )
    return Result(tuple(metrics), (figure,))

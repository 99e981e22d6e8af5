"""What will one training step of a 7B, 13B or 70B model take, told without allocating it?

The question
    The peak of one step of a Llama-style model in bf16, batch 1, 4,096 tokens: with and without
    activation checkpointing, for four optimizers.

The model
    Between steps only parameters and optimizer state live. A step has two peaks: one in forward and
    backward, while the state lies idle, and one in the optimizer's update, when the activations are
    gone and all gradients are there:

        peak = max(state + peak of forward and backward, peak of the update)

    The layers are equal, so over L layers the first peak is the higher of two straight lines: at the
    loss it grows by what a layer saves, at the backward's end by a layer's gradients. Once two
    neighbouring L differ by the larger of the two, all further L do. The update grows in proportion.

The measurement
    Both peaks are read on fake tensors: every operation runs, on shapes alone, and each storage is
    followed from birth to death. The 7B model is run whole; the larger ones are extended from a few
    layers, as is the 7B model again, for comparison. Small models of the same code then train for
    real, with every optimizer and schedule, and the live peak of their second step is compared.

The result
    Equal to the byte. The numbers are those of the CPU's attention kernel and of an RMSNorm fused by
    hand, as GPU kernels are; the 7B model is told with the two unfused norms as well, which save more.
    A GPU adds its context, the allocator's rounding and fragments, workspaces, and kernels that save
    other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from runnable_demos.llama import (
    DEFAULT,
    LLAMA_7B,
    LLAMA_13B,
    LLAMA_70B,
    Llama,
    Norm,
    Size,
    Variant,
)
from runnable_demos.measure import Category, LiveMemory, fake, storage_bytes
from runnable_demos.metrics import (
    Axis,
    Figure,
    Kind,
    Metric,
    Progress,
    Result,
    Series,
    Text,
    Unit,
    parameter,
)

TITLE: Text = {"zh": "预测一步训练的峰值", "en": "Forecasting the peak of a training step"}
QUESTION: Text = {
    "zh": "7B、13B、70B 模型的一步训练要多少显存？不分配就能知道吗？",
    "en": "What does a training step of a 7B, 13B or 70B model take, and can one tell without "
    "allocating it?",
}


@dataclass(frozen=True)
class Config:
    """The batch of the forecast; ``layers`` and ``proofs`` cut the work short, for tests."""

    batch: int = parameter(1, {"zh": "批大小", "en": "batch"}, 1, 64)
    tokens: int = parameter(4096, {"zh": "序列长度", "en": "sequence length"}, 16, 131072)
    layers: int = parameter(
        80, {"zh": "每个模型至多算这么多层", "en": "layers of each model at most"}, 1, 80
    )
    proofs: int = parameter(
        2, {"zh": "真实训练的小模型个数", "en": "small models that train for real"}, 1, 2
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(tokens=64, layers=2, proofs=1), "full": Config()}
MODELS = {"7b": LLAMA_7B, "13b": LLAMA_13B, "70b": LLAMA_70B}


# --- optimizers ----------------------------------------------------------------------------------


class MasterAdamW(Optimizer):
    """AdamW on fp32 copies of low-precision parameters: 12 bytes a parameter, one tensor at a time."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr, "decay": 0.01, "betas": (0.9, 0.999), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Update the master, then round it into the parameter."""
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["master"] = p.float()
                    state["m"] = torch.zeros_like(state["master"])
                    state["v"] = torch.zeros_like(state["master"])
                state["t"] += 1
                master, m, v = state["master"], state["m"], state["v"]
                g = p.grad.float()
                m.lerp_(g, 1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                del g
                master.mul_(1 - lr * group["decay"])
                scale = v.sqrt().div_((1 - b2 ** state["t"]) ** 0.5).add_(group["eps"])
                master.addcdiv_(m, scale, value=-lr / (1 - b1 ** state["t"]))
                p.copy_(master)


Make = Callable[[list[nn.Parameter]], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: SGD(p, lr=1e-3),
    "adamw": lambda p: AdamW(p, fused=True),
    "adamw_foreach": lambda p: AdamW(p, foreach=True),
    "adamw_master": MasterAdamW,
}
SCHEDULES = {"plain": False, "checkpointed": True}
NORMS: tuple[Norm, ...] = ("fused", "functional", "eager")


# --- the forecast --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes live at one moment, and whose they are."""

    bytes: int
    by_category: Mapping[Category, int]

    def extended(self, longer: Peak, layers: int) -> Peak:
        """The peak with ``layers`` layers more, by the growth to ``longer``, which has one more."""
        grown = {c: n + layers * (longer.by_category[c] - n) for c, n in self.by_category.items()}
        return Peak(self.bytes + layers * (longer.bytes - self.bytes), grown)


@dataclass(frozen=True, slots=True)
class Pass:
    """Forward and backward: their peak, what lived after the forward, and bytes of parameters."""

    peak: Peak
    after_forward: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Update:
    """An optimizer's second update: its peak, and the bytes of the state, present all the time."""

    peak: Peak
    state: int


def run_pass(model: Llama, tokens: Tensor) -> Pass:
    """Forward and backward with no gradients before, and no optimizer."""
    with LiveMemory(model=model, inputs=[tokens]) as live:
        loss = model(tokens, tokens)
        after_forward = live.current
        loss.backward()
    model.zero_grad(set_to_none=True)
    return Pass(
        Peak(live.peak, live.at_peak), after_forward, storage_bytes(list(model.parameters()))
    )


def run_update(model: nn.Module, tokens: Tensor, make: Make) -> Update:
    """Two updates with gradients of zeros; the first one makes the state. The batch is alive, too."""
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer = make(parameters)
    optimizer.step()
    state = storage_bytes([list(values.values()) for values in optimizer.state.values()])
    with LiveMemory(model=model, optimizer=optimizer, inputs=[tokens]) as live:
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return Update(Peak(live.peak, live.at_peak), state)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The peak of a step, and whether it lies in the update."""

    peak: Peak
    in_update: bool


Forecasts = Mapping[tuple[str, str], Forecast]
"""By optimizer and schedule."""


def combine(passes: Mapping[str, Peak], updates: Mapping[str, Update]) -> Forecasts:
    """The higher of the two peaks of a step; the state lies idle during the first."""
    found = {}
    for name, update in updates.items():
        for schedule, peak in passes.items():
            idle = Peak(peak.bytes + update.state, {**peak.by_category, "optimizer": update.state})
            later = update.peak.bytes > idle.bytes
            found[name, schedule] = Forecast(update.peak if later else idle, later)
    return found


def forecast_whole(size: Size, batch: int, length: int, variant: Variant = DEFAULT) -> Forecasts:
    """Run every layer."""
    with fake():
        tokens = torch.zeros(batch, length, dtype=torch.long)
        model = Llama(size, variant)
        updates = {name: run_update(model, tokens, make) for name, make in OPTIMIZERS.items()}
        passes = {}
        for schedule, model.checkpointed in SCHEDULES.items():
            passes[schedule] = run_pass(model, tokens).peak
    return combine(passes, updates)


def forecast_extended(size: Size, batch: int, length: int) -> Forecasts:
    """Run a few layers and extend: exact, because a peak that grows by the larger slope goes on so."""
    with fake():
        tokens = torch.zeros(batch, length, dtype=torch.long)

        def model(layers: int, checkpointed: bool = False) -> Llama:
            return Llama(replace(size, L=layers), checkpointed=checkpointed)

        def extend(checkpointed: bool) -> Peak:
            layers = 2
            while layers < size.L:
                short, long = (
                    run_pass(model(n, checkpointed), tokens) for n in (layers, layers + 1)
                )
                weights = long.parameters - short.parameters  # and as much in gradients
                saved = long.after_forward - short.after_forward - weights
                if long.peak.bytes - short.peak.bytes == weights + max(saved, weights):
                    return short.peak.extended(long.peak, size.L - layers)
                layers *= 2
            return run_pass(model(size.L, checkpointed), tokens).peak

        passes = {name: extend(checkpointed) for name, checkpointed in SCHEDULES.items()}
        updates = {}
        for name, make in OPTIMIZERS.items():
            one, two = (run_update(model(n), tokens, make) for n in (1, 2))
            more = size.L - 1
            updates[name] = Update(
                one.peak.extended(two.peak, more), one.state + more * (two.state - one.state)
            )
    return combine(passes, updates)


# --- the proof -----------------------------------------------------------------------------------


def second_step_peak(
    size: Size,
    batch: int,
    length: int,
    make: Make,
    checkpointed: bool,
    device: str,
    variant: Variant = DEFAULT,
) -> int:
    """The live peak of a real training step, the second one."""
    model = Llama(size, variant, checkpointed).to(device)
    optimizer = make(list(model.parameters()))
    tokens = torch.randint(size.V, (batch, length), device=device)

    def step() -> None:
        model(tokens, tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    with LiveMemory(model=model, optimizer=optimizer, inputs=[tokens]) as live:
        step()
    return live.peak


SMALL_MODELS = (
    (Size(h=32, f=88, L=2, a=4, g=2, V=64), 4, 64),  # activations dominate
    (Size(h=64, f=172, L=2, a=4, g=4, V=96), 1, 8),  # gradients and state do
)


def compare(device: str, proofs: int) -> tuple[int, int]:
    """How many real steps were compared with their forecast, and how many equal it."""
    compared = equal = 0
    for (size, batch, length), norm in product(SMALL_MODELS[:proofs], NORMS):
        variant = Variant(norm=norm)
        told = forecast_whole(size, batch, length, variant)
        for name, make in OPTIMIZERS.items():
            for schedule, checkpointed in SCHEDULES.items():
                real = second_step_peak(size, batch, length, make, checkpointed, device, variant)
                compared += 1
                equal += real == told[name, schedule].peak.bytes
    return compared, equal


# --- the demo ------------------------------------------------------------------------------------

OPTIMIZER_NAMES = {
    "sgd": ("SGD", "SGD"),
    "adamw": ("AdamW，bf16 状态", "AdamW, bf16 state"),
    "adamw_foreach": ("AdamW，foreach", "AdamW, foreach"),
    "adamw_master": ("AdamW，fp32 主权重", "AdamW, fp32 master"),
}
SCHEDULE_NAMES = {
    "plain": ("不设检查点", "no checkpoints"),
    "checkpointed": ("每块一个检查点", "one a block"),
}
CATEGORY_NAMES: dict[Category, tuple[str, str]] = {
    "parameters": ("参数", "parameters"),
    "gradients": ("梯度", "gradients"),
    "optimizer": ("优化器状态", "optimizer state"),
    "activations": ("激活", "activations"),
    "other": ("临时量与反向中的梯度", "transients and gradients in flight"),
}
TOLD: Text = {
    "zh": "fake 张量上跟踪每块存储，一步的峰值；bf16，批 1，4,096 个 token，CPU 的融合注意力，RMSNorm 手工融合",
    "en": "each storage followed on fake tensors, peak of a step; bf16, batch 1, "
    "4,096 tokens, the CPU's fused attention, RMSNorm fused by hand",
}
PROVEN: Text = {
    "zh": "同一代码的两个小模型，每种 RMSNorm 各一次，在真实张量上训练两步，第二步的峰值与预测逐字节比较",
    "en": "two small models of the same code, with each of the three norms, train for real; "
    "the second step's peak against the forecast",
}
NORM_NAMES: dict[Norm, tuple[str, str]] = {
    "functional": ("CPU 的 F.rms_norm", "F.rms_norm on the CPU"),
    "eager": ("Hugging Face 写法的 RMSNorm", "RMSNorm as Hugging Face writes it"),
}
TOLD_UNFUSED: Text = {
    "zh": "同样的预测，把手工融合的 RMSNorm 换成标签所说的写法",
    "en": "the same forecast, with the norm that the label names in place of the fused one",
}
EXTENDED: Text = {
    "zh": "7B 整体运行与由几层外推的全部预测逐字节比较",
    "en": "all forecasts of the 7B model, run whole and extended from a few layers, compared",
}


LONGER: Text = {
    "zh": "由几层的运行外推到全部层；fake 张量上跟踪每块存储，一步的峰值；bf16，批 1，4,096 个 token，CPU 内核",
    "en": "extended to all layers from a run of a few; each storage followed on fake tensors, peak of a "
    "step; bf16, batch 1, 4,096 tokens, CPU kernels",
}


def told_how(name: str) -> Text:
    """The 7B model is run whole."""
    return TOLD if name == "7b" else LONGER


def metric(name: str, value: float, zh: str, en: str, how: Text, unit: Unit = "") -> Metric:
    """A metric that is read off a run, unless it is extended from one."""
    kind: Kind = "computed" if how is LONGER else "exact"
    return Metric(name, value, unit, kind, {"zh": zh, "en": en}, how)


def model_metrics(name: str, told: Forecasts) -> list[Metric]:
    """The peak of every optimizer and schedule."""
    return [
        metric(
            f"llama_{name}_{optimizer}_{schedule}",
            found.peak.bytes,
            f"{name.upper()}，{OPTIMIZER_NAMES[optimizer][0]}，{SCHEDULE_NAMES[schedule][0]}",
            f"{name.upper()}, {OPTIMIZER_NAMES[optimizer][1]}, {SCHEDULE_NAMES[schedule][1]}",
            told_how(name),
            "B",
        )
        for (optimizer, schedule), found in told.items()
    ]


def norm_metrics(norm: Norm, told: Forecasts) -> list[Metric]:
    """The peaks of the 7B model with an unfused norm, and where the foreach step has its own."""
    zh, en = NORM_NAMES[norm]
    peaks = [
        metric(
            f"llama_7b_{norm}_norm_{optimizer}_{schedule}",
            found.peak.bytes,
            f"7B，{zh}，{OPTIMIZER_NAMES[optimizer][0]}，{SCHEDULE_NAMES[schedule][0]}",
            f"7B, {en}, {OPTIMIZER_NAMES[optimizer][1]}, {SCHEDULE_NAMES[schedule][1]}",
            TOLD_UNFUSED,
            "B",
        )
        for (optimizer, schedule), found in told.items()
    ]
    return [
        *peaks,
        metric(
            f"llama_7b_{norm}_norm_peak_in_backward",
            not told["adamw_foreach", "plain"].in_update,
            f"7B，{zh}：foreach AdamW 的峰值在前向与反向",
            f"7B, {en}: foreach AdamW peaks in forward and backward",
            TOLD_UNFUSED,
        ),
    ]


def attribution_figure(told: Forecasts) -> Figure:
    """What lies at the peak of the 7B model, stacked, for every optimizer and schedule."""
    places = tuple(map(float, range(len(told))))
    names = tuple(
        {
            "zh": f"{OPTIMIZER_NAMES[o][0]}，{SCHEDULE_NAMES[s][0]}",
            "en": f"{OPTIMIZER_NAMES[o][1]}, {SCHEDULE_NAMES[s][1]}",
        }
        for o, s in told
    )
    return Figure(
        "peak_by_category",
        {"zh": "7B 一步训练的峰值由什么组成", "en": "What lies at the peak of a 7B training step"},
        Axis({"zh": "优化器与检查点", "en": "optimizer and checkpoints"}, categories=names),
        Axis({"zh": "字节", "en": "bytes"}, "B"),
        tuple(
            Series(
                {"zh": zh, "en": en},
                places,
                tuple(float(f.peak.by_category[category]) for f in told.values()),
                "bar",
            )
            for category, (zh, en) in CATEGORY_NAMES.items()
        ),
    )


def run(config: Config, progress: Progress) -> Result:
    """The proof on small models, then the 7B model whole and extended, then the larger ones."""
    torch.manual_seed(config.seed)
    progress(0.0, "small models")
    compared, equal = compare(config.device, config.proofs)
    progress(0.2, "7B")
    models = {name: replace(m, L=min(m.L, config.layers)) for name, m in MODELS.items()}
    told = {"7b": forecast_whole(models["7b"], config.batch, config.tokens)}
    seven = told["7b"]
    progress(0.6, "13B, 70B")
    extended = {
        name: forecast_extended(m, config.batch, config.tokens) for name, m in models.items()
    }
    told |= {name: found for name, found in extended.items() if name != "7b"}

    progress(0.8, "7B with other norms")
    unfused = {
        norm: forecast_whole(models["7b"], config.batch, config.tokens, Variant(norm=norm))
        for norm in NORM_NAMES
    }

    at_loss = seven["adamw", "plain"].peak
    metrics = [
        Metric(
            "steps_compared",
            compared,
            "",
            "computed",
            {"zh": "对照的真实训练步", "en": "real steps compared"},
            {"zh": "模型、优化器与检查点的组合数", "en": "models × optimizers × checkpoints"},
        ),
        metric("steps_equal", equal, "与预测逐字节相等的步", "of these equal to the byte", PROVEN),
        metric(
            "extension_exact", extended["7b"] == seven, "外推精确", "extension is exact", EXTENDED
        ),
        *(m for name, found in told.items() for m in model_metrics(name, found)),
        metric(
            "llama_7b_activations",
            at_loss.by_category["activations"],
            "7B 不设检查点，峰值处的激活",
            "7B without checkpoints, activations at the peak",
            TOLD,
            "B",
        ),
        metric(
            "llama_7b_transients",
            at_loss.by_category["other"],
            "7B 不设检查点，峰值处的临时量",
            "7B without checkpoints, transients at the peak",
            TOLD,
            "B",
        ),
        *(
            metric(
                f"llama_{name}_peak_in_update",
                found["adamw_foreach", "plain"].in_update,
                f"{name.upper()} 的 foreach AdamW 峰值在更新时",
                f"{name.upper()}, foreach AdamW peaks in the update",
                told_how(name),
            )
            for name, found in told.items()
        ),
        *(m for norm, found in unfused.items() for m in norm_metrics(norm, found)),
    ]
    progress(1.0, "")
    return Result(tuple(metrics), (attribution_figure(seven),))

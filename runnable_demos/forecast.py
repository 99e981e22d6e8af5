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

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import Category, LiveMemory, fake, storage_bytes
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import (
    DEFAULT,
    LLAMA_7B,
    LLAMA_13B,
    LLAMA_70B,
    Llama,
    Norm,
    Size,
    Variant,
)

TITLE: Text = {"zh": "预测一步训练的峰值", "en": "Forecasting the peak of a training step"}
QUESTION: Text = {
    "zh": "7B、13B、70B 模型的一步训练要多少显存？不分配就能知道吗？",
    "en": "What does a training step of a 7B, 13B or 70B model take, and can one tell without "
    "allocating it?",
}

MEASURES = """
[[method]]
kind = "computed"
how = [
  "小模型、RMSNorm 写法、优化器与检查点的组合数",
  "small models × norms × optimizers × checkpoint schedules",
]
[method.metrics]
steps_compared = ["", "与预测对照的真实训练步数", "real training steps compared with their forecast"]

[[method]]
kind = "exact"
how = [
  "同一代码的小模型（{proofs} 个），每种 RMSNorm 各一次，在真实张量上训练两步，第二步的峰值与预测逐字节比较",
  "small models of the same code ({proofs} of them), each with the three norms, train for real; the second step's peak against the forecast",
]
[method.metrics]
steps_equal = ["", "与预测逐字节相等的步数", "real training steps that equal their forecast to the byte"]

[[method]]
kind = "exact"
how = [
  "7B 整体运行与由几层外推的全部预测逐字节比较",
  "all forecasts of the 7B model, run whole and extended from a few layers, compared",
]
[method.metrics]
extension_exact = ["", "外推精确", "extension is exact"]

[[method]]
kind = "exact"
how = [
  "fake 张量上跟踪每块存储，一步的峰值；bf16，批 {batch}，{tokens:,} 个 token，CPU 的融合注意力，RMSNorm 手工融合",
  "each storage followed on fake tensors, peak of a step; bf16, batch {batch}, {tokens:,} tokens, the CPU's fused attention, RMSNorm fused by hand",
]
[method.metrics]
llama_7b_sgd_plain = ["B", "7B，SGD，不设检查点", "7B, SGD, no checkpoints"]
llama_7b_sgd_checkpointed = ["B", "7B，SGD，每块一个检查点", "7B, SGD, one a block"]
llama_7b_adamw_plain = ["B", "7B，AdamW，bf16 状态，不设检查点", "7B, AdamW, bf16 state, no checkpoints"]
llama_7b_adamw_checkpointed = ["B", "7B，AdamW，bf16 状态，每块一个检查点", "7B, AdamW, bf16 state, one a block"]
llama_7b_adamw_foreach_plain = ["B", "7B，AdamW，foreach，不设检查点", "7B, AdamW, foreach, no checkpoints"]
llama_7b_adamw_foreach_checkpointed = ["B", "7B，AdamW，foreach，每块一个检查点", "7B, AdamW, foreach, one a block"]
llama_7b_adamw_master_plain = ["B", "7B，AdamW，fp32 主权重，不设检查点", "7B, AdamW, fp32 master, no checkpoints"]
llama_7b_adamw_master_checkpointed = [
  "B",
  "7B，AdamW，fp32 主权重，每块一个检查点",
  "7B, AdamW, fp32 master, one a block",
]
llama_7b_activations = ["B", "7B 不设检查点，峰值处的激活", "7B without checkpoints, activations at the peak"]
llama_7b_transients = ["B", "7B 不设检查点，峰值处的临时量", "7B without checkpoints, transients at the peak"]
llama_7b_peak_in_update = ["", "7B 的 foreach AdamW 峰值在更新时", "7B, foreach AdamW peaks in the update"]

[[method]]
kind = "computed"
how = [
  "由几层的运行外推到全部层；fake 张量上跟踪每块存储，一步的峰值；bf16，批 {batch}，{tokens:,} 个 token，CPU 内核",
  "extended to all layers from a run of a few; each storage followed on fake tensors, peak of a step; bf16, batch {batch}, {tokens:,} tokens, CPU kernels",
]
[method.metrics]
llama_13b_sgd_plain = ["B", "13B，SGD，不设检查点", "13B, SGD, no checkpoints"]
llama_13b_sgd_checkpointed = ["B", "13B，SGD，每块一个检查点", "13B, SGD, one a block"]
llama_13b_adamw_plain = ["B", "13B，AdamW，bf16 状态，不设检查点", "13B, AdamW, bf16 state, no checkpoints"]
llama_13b_adamw_checkpointed = ["B", "13B，AdamW，bf16 状态，每块一个检查点", "13B, AdamW, bf16 state, one a block"]
llama_13b_adamw_foreach_plain = ["B", "13B，AdamW，foreach，不设检查点", "13B, AdamW, foreach, no checkpoints"]
llama_13b_adamw_foreach_checkpointed = [
  "B",
  "13B，AdamW，foreach，每块一个检查点",
  "13B, AdamW, foreach, one a block",
]
llama_13b_adamw_master_plain = [
  "B",
  "13B，AdamW，fp32 主权重，不设检查点",
  "13B, AdamW, fp32 master, no checkpoints",
]
llama_13b_adamw_master_checkpointed = [
  "B",
  "13B，AdamW，fp32 主权重，每块一个检查点",
  "13B, AdamW, fp32 master, one a block",
]
llama_70b_sgd_plain = ["B", "70B，SGD，不设检查点", "70B, SGD, no checkpoints"]
llama_70b_sgd_checkpointed = ["B", "70B，SGD，每块一个检查点", "70B, SGD, one a block"]
llama_70b_adamw_plain = ["B", "70B，AdamW，bf16 状态，不设检查点", "70B, AdamW, bf16 state, no checkpoints"]
llama_70b_adamw_checkpointed = ["B", "70B，AdamW，bf16 状态，每块一个检查点", "70B, AdamW, bf16 state, one a block"]
llama_70b_adamw_foreach_plain = ["B", "70B，AdamW，foreach，不设检查点", "70B, AdamW, foreach, no checkpoints"]
llama_70b_adamw_foreach_checkpointed = [
  "B",
  "70B，AdamW，foreach，每块一个检查点",
  "70B, AdamW, foreach, one a block",
]
llama_70b_adamw_master_plain = [
  "B",
  "70B，AdamW，fp32 主权重，不设检查点",
  "70B, AdamW, fp32 master, no checkpoints",
]
llama_70b_adamw_master_checkpointed = [
  "B",
  "70B，AdamW，fp32 主权重，每块一个检查点",
  "70B, AdamW, fp32 master, one a block",
]
llama_13b_peak_in_update = ["", "13B 的 foreach AdamW 峰值在更新时", "13B, foreach AdamW peaks in the update"]
llama_70b_peak_in_update = ["", "70B 的 foreach AdamW 峰值在更新时", "70B, foreach AdamW peaks in the update"]

[[method]]
kind = "exact"
how = [
  "同样的预测，把手工融合的 RMSNorm 换成标签所说的写法",
  "the same forecast, with the norm that the label names in place of the fused one",
]
[method.metrics]
llama_7b_functional_norm_sgd_plain = [
  "B",
  "7B，CPU 的 F.rms_norm，SGD，不设检查点",
  "7B, F.rms_norm on the CPU, SGD, no checkpoints",
]
llama_7b_functional_norm_sgd_checkpointed = [
  "B",
  "7B，CPU 的 F.rms_norm，SGD，每块一个检查点",
  "7B, F.rms_norm on the CPU, SGD, one a block",
]
llama_7b_functional_norm_adamw_plain = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，bf16 状态，不设检查点",
  "7B, F.rms_norm on the CPU, AdamW, bf16 state, no checkpoints",
]
llama_7b_functional_norm_adamw_checkpointed = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，bf16 状态，每块一个检查点",
  "7B, F.rms_norm on the CPU, AdamW, bf16 state, one a block",
]
llama_7b_functional_norm_adamw_foreach_plain = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，foreach，不设检查点",
  "7B, F.rms_norm on the CPU, AdamW, foreach, no checkpoints",
]
llama_7b_functional_norm_adamw_foreach_checkpointed = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，foreach，每块一个检查点",
  "7B, F.rms_norm on the CPU, AdamW, foreach, one a block",
]
llama_7b_functional_norm_adamw_master_plain = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，fp32 主权重，不设检查点",
  "7B, F.rms_norm on the CPU, AdamW, fp32 master, no checkpoints",
]
llama_7b_functional_norm_adamw_master_checkpointed = [
  "B",
  "7B，CPU 的 F.rms_norm，AdamW，fp32 主权重，每块一个检查点",
  "7B, F.rms_norm on the CPU, AdamW, fp32 master, one a block",
]
llama_7b_functional_norm_peak_in_backward = [
  "",
  "7B，CPU 的 F.rms_norm：foreach AdamW 的峰值在前向与反向",
  "7B, F.rms_norm on the CPU: foreach AdamW peaks in forward and backward",
]
llama_7b_eager_norm_sgd_plain = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，SGD，不设检查点",
  "7B, RMSNorm as Hugging Face writes it, SGD, no checkpoints",
]
llama_7b_eager_norm_sgd_checkpointed = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，SGD，每块一个检查点",
  "7B, RMSNorm as Hugging Face writes it, SGD, one a block",
]
llama_7b_eager_norm_adamw_plain = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，bf16 状态，不设检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, bf16 state, no checkpoints",
]
llama_7b_eager_norm_adamw_checkpointed = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，bf16 状态，每块一个检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, bf16 state, one a block",
]
llama_7b_eager_norm_adamw_foreach_plain = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，foreach，不设检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, foreach, no checkpoints",
]
llama_7b_eager_norm_adamw_foreach_checkpointed = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，foreach，每块一个检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, foreach, one a block",
]
llama_7b_eager_norm_adamw_master_plain = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，fp32 主权重，不设检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, fp32 master, no checkpoints",
]
llama_7b_eager_norm_adamw_master_checkpointed = [
  "B",
  "7B，Hugging Face 写法的 RMSNorm，AdamW，fp32 主权重，每块一个检查点",
  "7B, RMSNorm as Hugging Face writes it, AdamW, fp32 master, one a block",
]
llama_7b_eager_norm_peak_in_backward = [
  "",
  "7B，Hugging Face 写法的 RMSNorm：foreach AdamW 的峰值在前向与反向",
  "7B, RMSNorm as Hugging Face writes it: foreach AdamW peaks in forward and backward",
]

[figure.peak_by_category]
title = ["7B 一步训练的峰值由什么组成", "What lies at the peak of a 7B training step"]
x = {label = ["优化器与检查点", "optimizer and checkpoints"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.peak_by_category.series]
parameters = ["bar", "参数", "parameters"]
gradients = ["bar", "梯度", "gradients"]
optimizer = ["bar", "优化器状态", "optimizer state"]
activations = ["bar", "激活", "activations"]
other = ["bar", "临时量与反向中的梯度", "transients and gradients in flight"]
[figure.peak_by_category.places]
sgd_plain = ["SGD，不设检查点", "SGD, no checkpoints"]
sgd_checkpointed = ["SGD，每块一个检查点", "SGD, one a block"]
adamw_plain = ["AdamW，bf16 状态，不设检查点", "AdamW, bf16 state, no checkpoints"]
adamw_checkpointed = ["AdamW，bf16 状态，每块一个检查点", "AdamW, bf16 state, one a block"]
adamw_foreach_plain = ["AdamW，foreach，不设检查点", "AdamW, foreach, no checkpoints"]
adamw_foreach_checkpointed = ["AdamW，foreach，每块一个检查点", "AdamW, foreach, one a block"]
adamw_master_plain = ["AdamW，fp32 主权重，不设检查点", "AdamW, fp32 master, no checkpoints"]
adamw_master_checkpointed = ["AdamW，fp32 主权重，每块一个检查点", "AdamW, fp32 master, one a block"]
"""  # noqa: E501 - a method is said on one line


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
MODELS = {"llama_7b": LLAMA_7B, "llama_13b": LLAMA_13B, "llama_70b": LLAMA_70B}


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
UNFUSED: tuple[Norm, ...] = ("functional", "eager")
NORMS: tuple[Norm, ...] = ("fused", *UNFUSED)


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

AT_PEAK: tuple[Category, ...] = ("parameters", "gradients", "optimizer", "activations", "other")


def tell(found: Findings, model: str, told: Forecasts) -> None:
    """The peak of every optimizer and schedule."""
    for (optimizer, schedule), forecast in told.items():
        found[f"{model}_{optimizer}_{schedule}"] = forecast.peak.bytes


def run(config: Config, progress: Progress) -> Result:
    """The proof on small models, then the 7B model whole and extended, then the larger ones."""
    found = Findings(MEASURES, config)
    batch, tokens = config.batch, config.tokens
    torch.manual_seed(config.seed)
    progress(0.0, "small models")
    found["steps_compared"], found["steps_equal"] = compare(config.device, config.proofs)

    progress(0.2, "7B")
    models = {name: replace(m, L=min(m.L, config.layers)) for name, m in MODELS.items()}
    seven = forecast_whole(models["llama_7b"], batch, tokens)
    at_loss = seven["adamw", "plain"].peak
    found["llama_7b_activations"] = at_loss.by_category["activations"]
    found["llama_7b_transients"] = at_loss.by_category["other"]
    bars = [
        Line(c, range(len(seven)), [forecast.peak.by_category[c] for forecast in seven.values()])
        for c in AT_PEAK
    ]
    places = [f"{optimizer}_{schedule}" for optimizer, schedule in seven]
    found.draw("peak_by_category", *bars, places=places)

    progress(0.6, "13B, 70B")
    extended = {name: forecast_extended(m, batch, tokens) for name, m in models.items()}
    found["extension_exact"] = extended["llama_7b"] == seven
    for name, told in {**extended, "llama_7b": seven}.items():  # 7B as it was run, whole
        tell(found, name, told)
        found[f"{name}_peak_in_update"] = told["adamw_foreach", "plain"].in_update

    progress(0.8, "7B with other norms")
    for norm in UNFUSED:
        told = forecast_whole(models["llama_7b"], batch, tokens, Variant(norm=norm))
        tell(found, f"llama_7b_{norm}_norm", told)
        in_update = told["adamw_foreach", "plain"].in_update
        found[f"llama_7b_{norm}_norm_peak_in_backward"] = not in_update
    progress(1.0, "")
    return found.result()

"""Which gradients does fp16 lose, and what brings them back?

The lesson is ``lessons/loss_scaling.en.md`` (中文: ``lessons/loss_scaling.zh.md``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.gpt import GPTSize, build, make_tokens

TITLE: Text = {"zh": "损失缩放", "en": "Loss scaling"}
QUESTION: Text = {
    "zh": "fp16 会丢掉哪些梯度，怎样找回来，缩放因子由谁来定？",
    "en": "Which gradients does fp16 lose, what brings them back, and who chooses the factor?",
}

MEASURES = """
[[method]]
kind = "computed"
how = ["由设置给定", "as configured"]
[method.metrics]
gradients = ["", "送出的梯度", "gradients sent"]

[[method]]
kind = "exact"
how = [
  "梯度为 2^0、2^-1、… 的 fp16 张量经 autograd 反传，数收到的值",
  "gradients 2^0, 2^-1, … sent through autograd to an fp16 tensor, those received counted",
]
[method.metrics]
lost_unscaled = ["", "不缩放：变成 0 的", "unscaled: those that become 0"]
lost_scaled = ["", "S = 2^15：变成 0 的", "S = 2^15: those that become 0"]
lost_bf16 = ["", "bf16，不缩放：变成 0 的", "bf16, unscaled: those that become 0"]
recovered_exactly = ["", "S = 2^15：收到的全部精确", "S = 2^15: all arrive exactly"]
overflowed_excessive = ["", "S = 2^17：溢出的", "S = 2^17: those that overflow"]
subnormal_unscaled = ["", "不缩放：成了非规格化数的", "unscaled: those that become subnormal"]
subnormal_scaled = ["", "S = 2^15：成了非规格化数的", "S = 2^15: those that become subnormal"]
smallest_kept = ["", "不缩放时收到的最小梯度", "smallest gradient received unscaled"]
smallest_good_scale = ["", "一个都不丢的最小 S", "smallest S that loses none"]
largest_good_scale = ["", "一个都不溢出的最大 S", "largest S that overflows none"]

[[method]]
kind = "exact"
how = ["torch.amp.GradScaler 的真实一步", "real steps of torch.amp.GradScaler"]
[method.metrics]
initial_scale = ["", "GradScaler 的初始 S", "GradScaler's initial S"]
scale_after_overflow = ["", "遇到无穷后的 S", "S after an infinity"]
overflow_skips_the_step = ["", "遇到无穷时跳过这一步", "the step is skipped at an infinity"]
growth = ["", "连续成功后 S 的倍数", "factor on S after a run of good steps"]
steps_until_growth = ["", "默认设置下连续成功多少步 S 才变大", "good steps until S grows, by default"]
clipped_without_unscale = [
  "",
  "不先 unscale_ 就裁剪到 1：真实梯度",
  "clipped to 1 without unscale_: the true gradient",
]
clipped_after_unscale = ["", "先 unscale_ 再裁剪到 1：真实梯度", "clipped to 1 after unscale_: the true gradient"]

[[method]]
kind = "exact"
how = [
  "小 GPT 在 autocast 下反传一次，检查每个 Linear 输出收到的梯度",
  "one backward of a small GPT under autocast; the gradients that each Linear's output receives",
]
[method.metrics]
model_loses_half = [
  "",
  "GPT，fp16，损失再除以 1024：过半梯度变成 0",
  "GPT, fp16, loss divided by a further 1024: more than half of the gradients become 0",
]
bf16_is_blind_to_scale = [
  "",
  "GPT，bf16：除以 1024 与否，变成 0 的一样多",
  "GPT, bf16: as many become 0 with the division by 1024 as without",
]

[[method]]
kind = "bounded"
how = [
  "小 GPT 在 autocast 下反传一次，检查每个 Linear 输出收到的梯度",
  "one backward of a small GPT under autocast; the gradients that each Linear's output receives",
]
bound = 0.01
reason = [
  "剩下的零几乎都是第一个位置的 query，真梯度为零；其余随 CPU 的舍入变动，远不到百分之一",
  "nearly all zeros left are the first position's query (true gradient 0); the rest, far below 1%, move with rounding",
]
[method.metrics]
model_lost_scaled = ["", "同上，S = 2^16：变成 0 的比例", "the same with S = 2^16: share that becomes 0"]
model_lost_bf16 = ["", "同上，bf16，不缩放：变成 0 的比例", "the same in bf16, unscaled: share that becomes 0"]

[figure.shift]
title = [
  "同一批梯度乘上 S 就整体右移：fp16 的窗口不动，看有多少落在窗口外",
  "The same gradients move right as S grows: fp16's window stays, and what falls outside it is lost",
]
x = {label = ["S·g 的指数（以 2 为底）", "exponent of S·g, base 2"]}
y = {label = ["格式与倍数", "format and factor"]}
[figure.shift.series]
lost = ["bar", "变成 0", "become 0"]
subnormal = ["bar", "非规格化数：位数变少", "subnormal: fewer bits"]
normal = ["bar", "正规数：位数齐全", "normal: all bits"]
overflowed = ["bar", "溢出", "overflow"]
[figure.shift.places]
unscaled = ["fp16", "fp16"]
scaled = ["×2¹⁵", "×2¹⁵"]
excessive = ["×2¹⁷", "×2¹⁷"]
bf16 = ["bf16", "bf16"]

[figure.window]
title = ["缩放因子太小丢梯度，太大溢出", "Too small a factor loses gradients, too large a one overflows"]
x = {label = ["缩放因子 S", "factor S"], scale = "log2"}
y = {label = ["梯度个数", "gradients"]}
[figure.window.series]
lost = ["measured", "变成 0，实测", "become 0, measured"]
lost_theory = ["theory", "理论 S|g| ≤ 2^-25", "theory S|g| ≤ 2^-25"]
overflowed = ["measured", "溢出，实测", "overflow, measured"]
overflowed_theory = ["theory", "理论 S|g| ≥ 65520", "theory S|g| ≥ 65520"]

[figure.model]
title = [
  "损失对越多 token 求平均，fp16 丢的梯度越多（小 GPT，不缩放）",
  "The more tokens a loss averages, the more gradients fp16 loses (small GPT, unscaled)",
]
kind = "bounded"  # a few zeros come and go with a processor's rounding
x = {label = ["损失再除以", "loss divided by a further"], scale = "log2"}
y = {label = ["变成 0 的比例", "share that becomes 0"]}
[figure.model.series]
fp16 = ["measured", "fp16，实测", "fp16, measured"]
bf16 = ["measured", "bf16，实测", "bf16, measured"]
"""


@dataclass(frozen=True)
class Config:
    """Gradients 2^0 to 2^-(count - 1), and a small GPT."""

    count: int = parameter(36, {"zh": "梯度的个数", "en": "gradients"}, 30, 120)
    layers: int = parameter(2, {"zh": "GPT 的层数", "en": "layers of the GPT"}, 1, 12)
    width: int = parameter(128, {"zh": "GPT 的宽度", "en": "width of the GPT"}, 16, 1024)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=1, width=32), "full": Config()}

FP16, BF16 = torch.float16, torch.bfloat16


# --- gradients of known size ---------------------------------------------------------------------


def received(gradients: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """What autograd hands to a tensor of ``dtype`` whose true gradients are ``gradients`` (fp32).

    The loss is multiplied by ``scale`` and the gradients are divided by it, in fp32.
    """
    # --8<-- [start:received]
    h = torch.zeros_like(gradients, dtype=dtype, requires_grad=True)  # an activation in fp16
    loss = (h.float() * gradients).sum()
    (loss * scale).backward()
    assert h.grad is not None
    assert h.grad.dtype is dtype
    return h.grad.float() / scale
    # --8<-- [end:received]


@dataclass(frozen=True)
class Count:
    """Of the gradients sent, how many became 0 and how many not finite; the rest are exact or not."""

    lost: int
    overflowed: int
    exact: bool


def count(gradients: Tensor, dtype: torch.dtype, scale: float) -> Count:
    """Count what arrives."""
    got = received(gradients, dtype, scale)
    alive = torch.isfinite(got) & (got != 0)
    return Count(
        lost=int((got == 0).sum()),
        overflowed=int((~torch.isfinite(got)).sum()),
        exact=bool((got[alive] == gradients[alive]).all()),
    )


def powers(config: Config) -> Tensor:
    """2^0, 2^-1, … 2^-(count - 1)."""
    return torch.tensor([2.0**-k for k in range(config.count)], device=config.device)


SENT = {
    "unscaled": (FP16, 1.0),
    "scaled": (FP16, 2.0**15),
    "excessive": (FP16, 2.0**17),
    "bf16": (BF16, 1.0),
}
"""How the gradients of the figure are sent: the rows."""


def became(gradients: Tensor, dtype: torch.dtype, scale: float) -> list[str]:
    """What each scaled gradient became in ``dtype`` before it was divided again."""
    held = (received(gradients, dtype, scale) * scale).abs()  # by a power of two: as it was
    normal = torch.finfo(dtype).smallest_normal
    return [
        "lost"
        if size == 0
        else "overflowed"
        if size == float("inf")
        else "normal"
        if size >= normal
        else "subnormal"
        for size in held.tolist()
    ]


def shift(gradients: Tensor) -> Iterator[Span]:
    """Over the exponents of the scaled gradients, largest last, what became of them, and of how many."""
    ascending = gradients.flip(0)
    for row, (dtype, scale) in enumerate(SENT.values()):
        exponents = (torch.frexp(ascending * scale).exponent - 1).tolist()
        kinds = zip(exponents, became(ascending, dtype, scale), strict=True)
        for kind, group in itertools.groupby(kinds, key=lambda pair: pair[1]):
            found = [exponent for exponent, _ in group]
            yield Span(row, kind, found[0], found[-1] + 1, str(len(found)))


# --- PyTorch's scaler ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ScalerFacts:
    """What GradScaler does with good steps and with an overflow."""

    initial: float
    after_overflow: float
    weight_moved_at_overflow: bool
    after_growth: float
    clipped_without_unscale: float
    clipped_after_unscale: float


def meet_an_overflow(device: str) -> ScalerFacts:
    """Step a weight by GradScaler: one infinite gradient, then a run of good ones, then clipping."""
    weight = nn.Parameter(torch.ones(1, device=device))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    kind = torch.device(device).type
    initial = GradScaler(kind).get_scale()
    scaler = GradScaler(kind, growth_interval=2)

    # --8<-- [start:overflow]
    def step(gradient: float) -> None:
        optimizer.zero_grad()
        scaler.scale(weight * gradient).backward()
        scaler.step(optimizer)
        scaler.update()

    scaler.scale(weight * 1.0)  # the scaler makes its tensor at its first use
    step(float("inf"))
    moved = float(weight.detach()) != 1.0
    halved = scaler.get_scale()
    step(0.0)
    step(0.0)
    grown = scaler.get_scale()
    # --8<-- [end:overflow]
    norms = []
    for unscale in (False, True):
        optimizer.zero_grad()
        scaler.scale(weight * 4.0).backward()
        if unscale:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        assert weight.grad is not None
        norms.append(float(weight.grad) / (1.0 if unscale else scaler.get_scale()))
    return ScalerFacts(initial, halved, moved, grown, norms[0], norms[1])


def good_steps_until_growth(device: str) -> int:
    """Step the scaler as it comes, with finite gradients, until its factor changes."""
    weight = nn.Parameter(torch.ones(1, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = GradScaler(torch.device(device).type)
    scaler.scale(weight.detach())
    initial, steps = scaler.get_scale(), 0
    while scaler.get_scale() == initial:
        weight.grad = torch.ones_like(weight)
        scaler.step(optimizer)
        scaler.update()
        steps += 1
    return steps


# --- a real model --------------------------------------------------------------------------------


ACCUMULATED = (0, 2, 4, 6, 8, 10, 12, 14)
"""The loss is divided by 2^k: a mean over so many times the tokens."""


def lost_share(config: Config, dtype: torch.dtype, scale: float) -> float:
    """The share of zeros among the gradients that reach the outputs of a GPT's 16-bit Linears."""
    torch.manual_seed(config.seed)
    size = GPTSize(config.layers, config.width, heads=2, vocabulary=256)
    model = build(size, config.device)
    tokens = make_tokens(size.vocabulary, 4, 64, config.device)
    found: list[Tensor] = []

    def watch(_: nn.Module, __: object, output: Tensor) -> None:
        output.register_hook(found.append)

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(watch)
    # --8<-- [start:model]
    with torch.autocast(torch.device(config.device).type, dtype):
        logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    (loss * scale).backward()
    return sum(int((g == 0).sum()) for g in found) / sum(g.numel() for g in found)
    # --8<-- [end:model]


# --- the run -------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Count gradients of known size, watch the scaler, then a model."""
    found = Mechanisms(MEASURES, config)
    count_powers(config, found)
    found.lanes("shift", list(shift(powers(config))), SENT)

    facts = meet_an_overflow(config.device)
    found["initial_scale"] = facts.initial
    found["scale_after_overflow"] = facts.after_overflow
    found["overflow_skips_the_step"] = not facts.weight_moved_at_overflow
    found["growth"] = facts.after_growth / facts.after_overflow
    found["steps_until_growth"] = good_steps_until_growth(config.device)
    found["clipped_without_unscale"] = facts.clipped_without_unscale
    found["clipped_after_unscale"] = facts.clipped_after_unscale

    progress(0.5, "GPT")
    fp16 = {k: lost_share(config, FP16, 2.0**-k) for k in ACCUMULATED}
    bf16 = {k: lost_share(config, BF16, 2.0**-k) for k in ACCUMULATED}
    found["model_loses_half"] = fp16[10] > 0.5
    found["model_lost_scaled"] = lost_share(config, FP16, 2.0 ** (16 - 10))
    found["model_lost_bf16"] = bf16[10]
    found["bf16_is_blind_to_scale"] = bf16[10] == bf16[0]
    divisors = [2.0**k for k in ACCUMULATED]
    found.draw(
        "model",
        Line("fp16", divisors, list(fp16.values())),
        Line("bf16", divisors, list(bf16.values())),
    )
    progress(1.0, "")
    return found.result()


def count_powers(config: Config, found: Findings) -> None:
    """Gradients 2^0, 2^-1, …: how many are lost and how many overflow, over S."""
    g = powers(config)
    found["gradients"] = len(g)
    found["lost_unscaled"] = count(g, FP16, 1.0).lost
    scaled = count(g, FP16, 2.0**15)
    found["lost_scaled"] = scaled.lost
    found["recovered_exactly"] = scaled.exact and scaled.lost == 0
    found["lost_bf16"] = count(g, BF16, 1.0).lost
    found["subnormal_unscaled"] = became(g, FP16, 1.0).count("subnormal")
    found["subnormal_scaled"] = became(g, FP16, 2.0**15).count("subnormal")
    found["overflowed_excessive"] = count(g, FP16, 2.0**17).overflowed
    arrived = received(g, FP16, 1.0)
    found["smallest_kept"] = float(arrived[arrived > 0].min())
    good = usable_scales(g)
    found["smallest_good_scale"] = min(good)
    found["largest_good_scale"] = max(good)

    scales = [2.0**k for k in range(0, 31, 2)]
    counts = [count(g, FP16, s) for s in scales]
    sizes = g.tolist()
    found.draw(
        "window",
        Line("lost", scales, [c.lost for c in counts]),
        Line("lost_theory", scales, [sum(s * x <= 2.0**-25 for x in sizes) for s in scales]),
        Line("overflowed", scales, [c.overflowed for c in counts]),
        Line("overflowed_theory", scales, [sum(s * x >= 65520 for x in sizes) for s in scales]),
    )


def usable_scales(gradients: Tensor) -> list[float]:
    """Every power of two as S with which nothing is lost and nothing overflows."""
    good = []
    for k in range(-5, 40):
        found = count(gradients, FP16, 2.0**k)
        if found.lost == found.overflowed == 0:
            good.append(2.0**k)
    return good

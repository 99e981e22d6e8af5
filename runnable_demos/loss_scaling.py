"""Which gradients does fp16 lose, and what brings them back?

The question
    In fp16 a gradient below half of the smallest subnormal becomes 0, one above 65,504 infinity.
    How does a factor on the loss move gradients into the window, and who chooses the factor?

The model
    The chain rule is linear: the gradients of S·L are S times those of L. Powers of two change
    exponents alone, so scaling and unscaling by S = 2^k lose nothing of themselves. A gradient g

        is lost           if  S·|g| <= 2^-25      (2^-24 is the smallest subnormal; half of it ties to 0)
        overflows         if  S·|g| >= 65,520     (65,504 and half a gap)

    so S may be as large as 65,504 / max|g|, and has to be more than 2^-25 / min|g|.
    ``GradScaler`` finds it by trial: halve S and skip the step when a gradient is not finite,
    double it after a run of good steps.

The measurement
    An fp16 layer receives gradients 2^0, 2^-1, … through autograd; those that arrive are counted, over S.
    PyTorch's own ``GradScaler`` meets an overflow. A small GPT runs under fp16 autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler

from runnable_demos import memory_breakdown
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

TITLE: Text = {"zh": "损失缩放", "en": "Loss scaling"}
QUESTION: Text = {
    "zh": "fp16 会丢掉哪些梯度，怎样找回来，缩放因子由谁来定？",
    "en": "Which gradients does fp16 lose, what brings them back, and who chooses the factor?",
}


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
    h = torch.zeros_like(gradients, dtype=dtype, requires_grad=True)  # an activation in fp16
    loss = (h.float() * gradients).sum()
    (loss * scale).backward()
    assert h.grad is not None
    assert h.grad.dtype is dtype
    return h.grad.float() / scale


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


# --- a real model --------------------------------------------------------------------------------


ACCUMULATED = (0, 2, 4, 6, 8, 10, 12, 14)
"""The loss is divided by 2^k: a mean over so many times the tokens."""


def lost_share(config: Config, dtype: torch.dtype, scale: float) -> float:
    """The share of zeros among the gradients that reach the outputs of a GPT's 16-bit Linears."""
    torch.manual_seed(config.seed)
    model_config = memory_breakdown.Config(
        layers=config.layers,
        width=config.width,
        heads=2,
        vocabulary=256,
        batch=4,
        length=64,
        device=config.device,
        seed=config.seed,
    )
    model = memory_breakdown.build(model_config)
    tokens = memory_breakdown.make_tokens(model_config)
    found: list[Tensor] = []

    def watch(_: nn.Module, __: object, output: Tensor) -> None:
        output.register_hook(found.append)

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(watch)
    with torch.autocast(torch.device(config.device).type, dtype):
        logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    (loss * scale).backward()
    return sum(int((g == 0).sum()) for g in found) / sum(g.numel() for g in found)


# --- the run -------------------------------------------------------------------------------------

HOW_POWERS: Text = {
    "zh": "梯度为 2^0、2^-1、… 的 fp16 张量经 autograd 反传，数收到的值",
    "en": "gradients 2^0, 2^-1, … sent through autograd to an fp16 tensor, those received counted",
}
HOW_SCALER: Text = {
    "zh": "torch.amp.GradScaler 的真实一步",
    "en": "real steps of torch.amp.GradScaler",
}
HOW_MODEL: Text = {
    "zh": "小 GPT 在 autocast 下反传一次，检查每个 Linear 输出收到的梯度",
    "en": "one backward of a small GPT under autocast; the gradients that each Linear's output receives",
}


def run(config: Config, progress: Progress) -> Result:
    """Count gradients of known size, watch the scaler, then a model."""
    g = powers(config)
    plain, scaled, wide = count(g, FP16, 1.0), count(g, FP16, 2.0**15), count(g, BF16, 1.0)
    excessive = count(g, FP16, 2.0**17)
    facts = meet_an_overflow(config.device)
    progress(0.5, "GPT")
    shares = {k: lost_share(config, FP16, 2.0**-k) for k in ACCUMULATED}
    shares_bf16 = {k: lost_share(config, BF16, 2.0**-k) for k in ACCUMULATED}
    scaled_share = lost_share(config, FP16, 2.0 ** (16 - 10))
    progress(0.9, "scales")
    best = usable_scales(g)
    metrics = (
        Metric(
            "gradients",
            len(g),
            "",
            "computed",
            {"zh": "送出的梯度", "en": "gradients sent"},
            {"zh": "由设置给定", "en": "as configured"},
        ),
        _exact(
            "lost_unscaled",
            plain.lost,
            {"zh": "不缩放：变成 0 的", "en": "unscaled: those that become 0"},
            HOW_POWERS,
        ),
        _exact(
            "lost_scaled",
            scaled.lost,
            {"zh": "S = 2^15：变成 0 的", "en": "S = 2^15: those that become 0"},
            HOW_POWERS,
        ),
        _exact(
            "lost_bf16",
            wide.lost,
            {"zh": "bf16，不缩放：变成 0 的", "en": "bf16, unscaled: those that become 0"},
            HOW_POWERS,
        ),
        _exact(
            "recovered_exactly",
            scaled.exact and scaled.lost == 0,
            {"zh": "S = 2^15：收到的全部精确", "en": "S = 2^15: all arrive exactly"},
            HOW_POWERS,
        ),
        _exact(
            "overflowed_excessive",
            excessive.overflowed,
            {"zh": "S = 2^17：溢出的", "en": "S = 2^17: those that overflow"},
            HOW_POWERS,
        ),
        _exact(
            "smallest_kept",
            float(received(g, FP16, 1.0)[received(g, FP16, 1.0) > 0].min()),
            {"zh": "不缩放时收到的最小梯度", "en": "smallest gradient received unscaled"},
            HOW_POWERS,
        ),
        _exact(
            "smallest_good_scale",
            min(best),
            {"zh": "一个都不丢的最小 S", "en": "smallest S that loses none"},
            HOW_POWERS,
        ),
        _exact(
            "largest_good_scale",
            max(best),
            {"zh": "一个都不溢出的最大 S", "en": "largest S that overflows none"},
            HOW_POWERS,
        ),
        _exact(
            "initial_scale",
            facts.initial,
            {"zh": "GradScaler 的初始 S", "en": "GradScaler's initial S"},
            HOW_SCALER,
        ),
        _exact(
            "scale_after_overflow",
            facts.after_overflow,
            {"zh": "遇到无穷后的 S", "en": "S after an infinity"},
            HOW_SCALER,
        ),
        _exact(
            "overflow_skips_the_step",
            not facts.weight_moved_at_overflow,
            {"zh": "遇到无穷时跳过这一步", "en": "the step is skipped at an infinity"},
            HOW_SCALER,
        ),
        _exact(
            "growth",
            facts.after_growth / facts.after_overflow,
            {"zh": "连续成功后 S 的倍数", "en": "factor on S after a run of good steps"},
            HOW_SCALER,
        ),
        _exact(
            "clipped_without_unscale",
            facts.clipped_without_unscale,
            {
                "zh": "不先 unscale_ 就裁剪到 1：真实梯度",
                "en": "clipped to 1 without unscale_: the true gradient",
            },
            HOW_SCALER,
        ),
        _exact(
            "clipped_after_unscale",
            facts.clipped_after_unscale,
            {
                "zh": "先 unscale_ 再裁剪到 1：真实梯度",
                "en": "clipped to 1 after unscale_: the true gradient",
            },
            HOW_SCALER,
        ),
        _exact(
            "model_loses_half",
            shares[10] > 0.5,
            {
                "zh": "GPT，fp16，损失再除以 1024：过半梯度变成 0",
                "en": "GPT, fp16, loss divided by another 1024: more than half of the gradients become 0",
            },
            HOW_MODEL,
        ),
        _bounded(
            "model_lost_scaled",
            scaled_share,
            {
                "zh": "同上，S = 2^16：变成 0 的比例",
                "en": "the same with S = 2^16: share that becomes 0",
            },
        ),
        _bounded(
            "model_lost_bf16",
            shares_bf16[10],
            {
                "zh": "同上，bf16，不缩放：变成 0 的比例",
                "en": "the same in bf16, unscaled: share that becomes 0",
            },
        ),
        _exact(
            "bf16_is_blind_to_scale",
            shares_bf16[10] == shares_bf16[0],
            {
                "zh": "GPT，bf16：除以 1024 与否，变成 0 的一样多",
                "en": "GPT, bf16: as many become 0 with the division by 1024 as without",
            },
            HOW_MODEL,
        ),
    )
    progress(1.0, "")
    return Result(metrics, (window_figure(g), model_figure(shares, shares_bf16)))


def _exact(name: str, value: float, label: Text, how: Text) -> Metric:
    return Metric(name, value, "", "exact", label, how)


def _bounded(name: str, value: float, label: Text) -> Metric:
    reason = {
        "zh": "剩下的零来自 16 位相减时的抵消，与 CPU 的舍入有关，远不到百分之一",
        "en": "the zeros left come from cancellation in 16 bits and move with a CPU's rounding, "
        "far below a hundredth",
    }
    return Metric(name, value, "", "bounded", label, HOW_MODEL, 0.01, reason)


def usable_scales(gradients: Tensor) -> list[float]:
    """Every power of two as S with which nothing is lost and nothing overflows."""
    good = []
    for k in range(-5, 40):
        found = count(gradients, FP16, 2.0**k)
        if found.lost == found.overflowed == 0:
            good.append(2.0**k)
    return good


def window_figure(gradients: Tensor) -> Figure:
    """Lines: gradients lost and overflowed over S, with what the model predicts."""
    exponents: Sequence[int] = range(0, 31, 2)
    found = [count(gradients, FP16, 2.0**k) for k in exponents]
    xs = tuple(2.0**k for k in exponents)
    sizes = gradients.tolist()
    return Figure(
        "window",
        {
            "zh": "缩放因子太小丢梯度，太大溢出",
            "en": "Too small a factor loses gradients, too large a one overflows",
        },
        Axis({"zh": "缩放因子 S", "en": "factor S"}, scale="log2"),
        Axis({"zh": "梯度个数", "en": "gradients"}),
        (
            Series(
                {"zh": "变成 0，实测", "en": "become 0, measured"},
                xs,
                tuple(float(c.lost) for c in found),
            ),
            Series(
                {"zh": "理论 S|g| ≤ 2^-25", "en": "theory S|g| ≤ 2^-25"},
                xs,
                tuple(float(sum(s * g <= 2.0**-25 for g in sizes)) for s in xs),
                "theory",
            ),
            Series(
                {"zh": "溢出，实测", "en": "overflow, measured"},
                xs,
                tuple(float(c.overflowed) for c in found),
            ),
            Series(
                {"zh": "理论 S|g| ≥ 65520", "en": "theory S|g| ≥ 65520"},
                xs,
                tuple(float(sum(s * g >= 65520 for g in sizes)) for s in xs),
                "theory",
            ),
        ),
    )


def model_figure(fp16: dict[int, float], bf16: dict[int, float]) -> Figure:
    """Lines: the share of a GPT's gradients that vanish, over the tokens that the loss averages."""
    names = {"fp16": fp16, "bf16": bf16}
    return Figure(
        "model",
        {
            "zh": "损失对越多 token 求平均，fp16 丢的梯度越多（小 GPT，不缩放）",
            "en": "The more tokens a loss averages, the more gradients fp16 loses (small GPT, unscaled)",
        },
        Axis({"zh": "损失再除以", "en": "loss divided by another"}, scale="log2"),
        Axis({"zh": "变成 0 的比例", "en": "share that becomes 0"}),
        tuple(
            Series(
                {"zh": f"{name}，实测", "en": f"{name}, measured"},
                tuple(2.0**k for k in shares),
                tuple(shares.values()),
                kind="bounded",  # a few zeros come and go with a processor's rounding
            )
            for name, shares in names.items()
        ),
    )

"""Is a Transformer layer's activation memory really sbh(34 + 5as/h) bytes?

The question
    Korthikanti et al. 2022, equation 1, for one layer of GPT in 16 bits with dropout:
    ``s`` tokens, ``b`` sequences, width ``h``, ``a`` heads. Does PyTorch save just that?

The model
    In units of sbh bytes, and of as²b bytes for what grows with s²:

        attention  input 2, Q and K 4, V 2, projection's input 2, dropout's mask 1       = 11
                   softmax 2, its dropout's mask 1, the dropped softmax 2          = 5 (as²b)
        MLP        input 2, GELU's input 8, second Linear's input 8, dropout's mask 1    = 19
        two norms  their inputs 2 + 2                                                    = 4

The measurement
    A block in the paper's layout ``(s, b, h)``, with boolean dropout masks. The bytes that autograd
    saves are read at sizes that differ in one factor, and the coefficients are solved from the
    differences; nobody tells them. Fake tensors serve for GPT-3's size; a real run agrees.

The result
    34 and 5, and 8 bytes a token besides: the norms' statistics, which the paper leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import fake, saved_tensors
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {"zh": "激活公式 sbh(34 + 5as/h)", "en": "The activation formula sbh(34 + 5as/h)"}
QUESTION: Text = {
    "zh": "GPT 一层的激活真是 sbh(34 + 5as/h) 字节吗？哪里不一样，为什么？",
    "en": "Does a GPT layer really save sbh(34 + 5as/h) bytes? Where not, and why?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "在只差一个因子的几个尺寸上量保存的字节，由差值解出；bf16，每块存储计一次，不含参数",
  "solved from the bytes saved at sizes that differ in one factor; bf16, each storage once, no parameters",
]
[method.metrics]
linear = ["", "整层 sbh 的系数", "layer, coefficient of sbh"]
quadratic = ["", "整层 as²b 的系数", "layer, coefficient of as²b"]
per_token = ["B/token", "整层每个 token 另加的字节", "layer, bytes a token besides"]
coefficients_hold = ["", "系数逐字节预测另一尺寸", "coefficients predict another size"]
attention_linear = ["", "注意力 sbh 的系数", "attention, sbh"]
attention_quadratic = ["", "注意力 as²b 的系数", "attention, as²b"]
mlp_linear = ["", "MLP sbh 的系数", "MLP, sbh"]
norms_linear = ["", "两个 LayerNorm sbh 的系数", "both norms, sbh"]
fp32_linear = ["", "fp32 时 sbh 的系数", "in fp32, sbh"]
fp32_quadratic = ["", "fp32 时 as²b 的系数", "in fp32, as²b"]
no_dropout_linear = ["", "无 dropout 时 sbh 的系数", "without dropout, sbh"]
no_dropout_quadratic = ["", "无 dropout 时 as²b 的系数", "without dropout, as²b"]
cpu_dropout_linear = ["", "CPU 的 F.dropout：sbh", "F.dropout on the CPU, sbh"]
cpu_dropout_quadratic = ["", "CPU 的 F.dropout：as²b", "F.dropout on the CPU, as²b"]
masked_fill_extra = [
  "B",
  "masked_fill 比加 −∞ 多存的字节，每个 s² 位置",
  "what masked_fill saves more than adding −∞, a place of s²",
]

[[method]]
kind = "exact"
how = [
  "fake 张量上按 GPT-3 175B 的尺寸（s=2048，b=1，h=12288，a=96）量保存的字节",
  "bytes saved at the size of GPT-3 175B (s=2048, b=1, h=12288, a=96), on fake tensors",
]
[method.metrics]
gpt3_layer = ["B", "GPT-3 一层", "a layer of GPT-3"]
gpt3_stack = ["B", "GPT-3 的 L 层", "L layers of GPT-3"]
gpt3_layer_fused = ["B", "GPT-3 一层，flash", "a layer of GPT-3, flash"]
gpt3_fused_per_sbh = ["", "flash 时每 sbh 的字节", "flash, bytes for sbh"]
gpt3_fused_ratio = ["", "标准与 flash 之比", "standard over flash"]

[[method]]
kind = "exact"
how = [
  "同一代码在真实张量上保存的字节与 fake 张量上相等",
  "the same code saves the same bytes on real tensors as on fake ones",
]
[method.metrics]
fake_equals_real = ["", "fake 与真实相等", "fake equals real"]

[figure.layer_over_length]
title = ["GPT-3 一层保存的字节", "Bytes saved by a layer of GPT-3"]
x = {label = ["序列长度 s", "length s"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.layer_over_length.series]
norms = ["bar", "LayerNorm", "norms"]
mlp = ["bar", "MLP", "MLP"]
attention = ["bar", "注意力", "attention"]
"""


@dataclass(frozen=True)
class Config:
    """Sizes of the layer that is measured on real tensors; GPT-3's layer is measured on fake ones."""

    length: int = parameter(256, {"zh": "序列长度 s", "en": "length s"}, 4, 4096)
    batch: int = parameter(2, {"zh": "批大小 b", "en": "batch b"}, 1, 64)
    width: int = parameter(256, {"zh": "宽度 h", "en": "width h"}, 8, 16384)
    heads: int = parameter(4, {"zh": "头数 a", "en": "heads a"}, 1, 128)
    layers: int = parameter(96, {"zh": "GPT-3 的层数 L", "en": "layers L of GPT-3"}, 1, 96)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(length=16, batch=2, width=32, heads=2, layers=3), "full": Config()}


# --- the block -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Length ``s``, batch ``b``, width ``h``, heads ``a``."""

    s: int
    b: int
    h: int
    a: int


GPT3 = Shape(s=2048, b=1, h=12288, a=96)

Dropout = Literal["mask", "cpu", "none"]


@dataclass(frozen=True, slots=True)
class Variant:
    """What may depart from the paper: the dtype, dropout's kernel, the attention core, the mask.

    ``dropout``: ``mask`` saves booleans, as CUDA does; ``cpu`` is ``F.dropout`` on the CPU;
    ``none`` has no dropout. ``fused`` takes PyTorch's flash kernel for the attention core (without
    its dropout). ``masked_fill`` masks by a boolean tensor in place of adding −∞.
    """

    dtype: torch.dtype = torch.bfloat16
    dropout: Dropout = "mask"
    fused: bool = False
    masked_fill: bool = False


PAPER = Variant()


def drop(x: Tensor, how: Dropout) -> Tensor:
    """Dropout at 0.1, in one of three ways."""
    if how == "mask":
        return torch.native_dropout(x, 0.1, True)[0]
    return F.dropout(x, 0.1) if how == "cpu" else x


class Attention(nn.Module):
    """Multi-head self-attention, ``(s, b, h)`` to ``(s, b, h)``, with its output dropout."""

    def __init__(self, shape: Shape, variant: Variant) -> None:
        super().__init__()
        self.heads, self.variant = shape.a, variant
        self.qkv = nn.Linear(shape.h, 3 * shape.h, dtype=variant.dtype)
        self.out = nn.Linear(shape.h, shape.h, dtype=variant.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The layout keeps ``b·a`` one dimension, so that Q, K and V are views of one tensor."""
        s, b, h = x.shape
        a, d = self.heads, h // self.heads
        Q, K, V = self.qkv(x).view(s, b * a, 3 * d).split(d, dim=-1)  # (s, b·a, d) each
        Q, K, V = (t.transpose(0, 1) for t in (Q, K, V))  # (b·a, s, d)
        context = self.fused(Q, K, V, b) if self.variant.fused else self.core(Q, K, V)
        merged = context.transpose(0, 1).reshape(s, b, h)  # (s, b, h)
        return drop(self.out(merged), self.variant.dropout)

    def core(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        """Scores, causal mask, softmax, dropout, product with V."""
        s, d = Q.shape[1:]
        above = torch.ones(s, s, dtype=torch.bool, device=Q.device).triu(1)
        if self.variant.masked_fill:
            S = torch.bmm(Q, K.mT).mul(1 / math.sqrt(d)).masked_fill(above, -math.inf)
        else:
            mask = torch.zeros(s, s, dtype=Q.dtype, device=Q.device).masked_fill(above, -math.inf)
            S = torch.baddbmm(mask, Q, K.mT, alpha=1 / math.sqrt(d))  # (b·a, s, s)
        return torch.bmm(drop(torch.softmax(S, -1), self.variant.dropout), V)

    def fused(self, Q: Tensor, K: Tensor, V: Tensor, b: int) -> Tensor:
        """PyTorch's own kernel, which wants ``(b, a, s, d)``."""
        Q, K, V = (t.unflatten(0, (b, self.heads)) for t in (Q, K, V))
        return F.scaled_dot_product_attention(Q, K, V, is_causal=True).flatten(0, 1)


class MLP(nn.Module):
    """h → 4h → h with GELU, and its output dropout."""

    def __init__(self, shape: Shape, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        self.up = nn.Linear(shape.h, 4 * shape.h, dtype=variant.dtype)
        self.down = nn.Linear(4 * shape.h, shape.h, dtype=variant.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(s, b, h)`` to ``(s, b, h)``."""
        return drop(self.down(F.gelu(self.up(x))), self.variant.dropout)


class Block(nn.Module):
    """A pre-norm GPT layer."""

    def __init__(self, shape: Shape, variant: Variant) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.h, dtype=variant.dtype)
        self.attention = Attention(shape, variant)
        self.norm2 = nn.LayerNorm(shape.h, dtype=variant.dtype)
        self.mlp = MLP(shape, variant)

    def forward(self, x: Tensor) -> Tensor:
        """``(s, b, h)`` to ``(s, b, h)``."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


# --- the measurements ----------------------------------------------------------------------------

Part = Callable[[Shape, Variant], nn.Module]


def norms(shape: Shape, variant: Variant) -> nn.Module:
    """One of the two norms, to be counted twice."""
    return nn.LayerNorm(shape.h, dtype=variant.dtype)


def layer_bytes(
    shape: Shape, variant: Variant = PAPER, part: Part = Block, real: str | None = None
) -> int:
    """Bytes that ``part`` saves for its backward, parameters left out.

    On fake tensors, unless ``real`` names a device. The input is itself computed, as between layers.
    """
    with nullcontext() if real else fake():
        with torch.device(real or "cpu"):
            module = part(shape, variant)
            leaf = torch.zeros(shape.s, shape.b, shape.h, dtype=variant.dtype, requires_grad=True)
        x = leaf * 1.0
        with saved_tensors(exclude=module.parameters()) as saved:
            module(x)
        return saved.bytes


def stack(layers: int) -> Part:
    """A part that is ``layers`` blocks; one set of weights serves all, as weights are not counted."""
    return lambda shape, variant: nn.Sequential(*[Block(shape, variant)] * layers)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Bytes for sbh, for as²b and for sb, and whether they predict another size, to the byte."""

    sbh: float
    as2b: float
    sb: float
    hold: bool


def solve(shape: Shape, variant: Variant = PAPER, part: Part = Block) -> Coefficients:
    """The coefficients, from sizes that differ in one factor.

    Twice the heads in the same width change as²b alone, and then twice the width sbh alone.
    """
    s, b, h, a = shape.s, shape.b, shape.h, shape.a
    base = layer_bytes(shape, variant, part)
    as2b = (layer_bytes(replace(shape, a=2 * a), variant, part) - base) / (a * s * s * b)
    sbh = (layer_bytes(replace(shape, h=2 * h), variant, part) - base) / (s * b * h)
    sb = (base - sbh * s * b * h - as2b * a * s * s * b) / (s * b)
    s, b = 3 * s, 2 * b  # a size that has not been looked at
    predicted = s * b * (sbh * h + as2b * a * s + sb)
    return Coefficients(
        sbh, as2b, sb, layer_bytes(Shape(s, b, h, a), variant, part) == round(predicted)
    )


# --- the demo ------------------------------------------------------------------------------------

LENGTHS = (512, 1024, 2048, 4096, 8192)


def run(config: Config, progress: Progress) -> Result:
    """Coefficients of the whole and of its parts, departures, and GPT-3's layer."""
    found = Findings(MEASURES, config)
    shape = Shape(config.length, config.batch, config.width, config.heads)
    progress(0.0, "sbh(34 + 5as/h)")
    whole = solve(shape)
    found["linear"] = whole.sbh
    found["quadratic"] = whole.as2b
    found["per_token"] = whole.sb
    found["coefficients_hold"] = whole.hold
    attention = solve(shape, part=Attention)
    found["attention_linear"] = attention.sbh
    found["attention_quadratic"] = attention.as2b
    found["mlp_linear"] = solve(shape, part=MLP).sbh
    found["norms_linear"] = 2 * solve(shape, part=norms).sbh

    progress(0.4, "departures")
    departures = {
        "fp32": Variant(dtype=torch.float32),
        "no_dropout": Variant(dropout="none"),
        "cpu_dropout": Variant(dropout="cpu"),
    }
    for name, variant in departures.items():
        solved = solve(shape, variant)
        found[f"{name}_linear"] = solved.sbh
        found[f"{name}_quadratic"] = solved.as2b
    more = layer_bytes(shape, Variant(masked_fill=True)) - layer_bytes(shape)
    found["masked_fill_extra"] = more / shape.s**2

    progress(0.7, "GPT-3")
    layer = layer_bytes(GPT3)
    fused = layer_bytes(GPT3, Variant(fused=True))
    found["gpt3_layer"] = layer
    found["gpt3_stack"] = layer_bytes(GPT3, part=stack(config.layers))
    found["gpt3_layer_fused"] = fused
    found["gpt3_fused_per_sbh"] = fused / (GPT3.s * GPT3.b * GPT3.h)
    found["gpt3_fused_ratio"] = layer / fused
    parts: dict[str, tuple[int, Part]] = {
        "norms": (2, norms),
        "mlp": (1, MLP),
        "attention": (1, Attention),
    }
    bars = []
    for name, (times, part) in parts.items():
        nbytes = [times * layer_bytes(replace(GPT3, s=n), PAPER, part) for n in LENGTHS]
        bars.append(Line(name, range(len(LENGTHS)), nbytes))
    found.draw("layer_over_length", *bars, places=LENGTHS)

    progress(0.9, "real")
    found["fake_equals_real"] = layer_bytes(shape) == layer_bytes(shape, real=config.device)
    progress(1.0, "")
    return found.result()

"""Is a Transformer layer's activation memory really sbh(34 + 5as/h) bytes?

The lesson is ``lessons/activation_formula.en.md`` (中文: ``lessons/activation_formula.zh.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import fake, storage_key
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.operators import Entry, Operators
from runnable_demos.models.paper_gpt import (
    GPT3,
    PAPER,
    Departures,
    PaperAttention,
    PaperBlock,
    PaperMLP,
    PaperPart,
    Shape,
    paper_layer_bytes,
    repeated,
)

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

[figure.ledger]
title = [
  "GPT-3 一层的账（s=2048）：每个算子一行，它为反向存下的字节接在前一个后面",
  "The ledger of a GPT-3 layer (s=2048): a row per operator, whose saved bytes go on where the last ended",
]
x = {label = ["累计的字节 / sbh", "bytes so far / sbh"]}
y = {label = ["算子", "operator"]}
[figure.ledger.series]
linear = ["bar", "随 s 增长", "grows with s"]
square = ["bar", "s×s 的矩阵，随 s² 增长", "s×s matrix, grows with s²"]
mask = ["bar", "dropout 的掩码", "a mask of dropout"]
shared = ["bar", "上面存过，不再占", "saved above, costs nothing"]
[figure.ledger.places]
norm1 = ["LayerNorm", "LayerNorm"]
qkv = ["QKV", "QKV"]
scores = ["QKᵀ", "QKᵀ"]
softmax = ["softmax", "softmax"]
drop_scores = ["dropout", "dropout"]
values = ["PV", "PV"]
out = ["输出投影", "out proj."]
drop_out = ["dropout", "dropout"]
norm2 = ["LayerNorm", "LayerNorm"]
up = ["升维", "Linear 1"]
gelu = ["GELU", "GELU"]
down = ["降维", "Linear 2"]
drop_mlp = ["dropout", "dropout"]
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


# --- the measurements ----------------------------------------------------------------------------


def norms(shape: Shape, variant: Departures) -> nn.Module:
    """One of the two norms, to be counted twice."""
    return nn.LayerNorm(shape.h, dtype=variant.dtype)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Bytes for sbh, for as²b and for sb, and whether they predict another size, to the byte."""

    sbh: float
    as2b: float
    sb: float
    hold: bool


def solve(shape: Shape, variant: Departures = PAPER, part: PaperPart = PaperBlock) -> Coefficients:
    """The coefficients, from sizes that differ in one factor.

    Twice the heads in the same width change as²b alone, and then twice the width sbh alone.
    """
    # --8<-- [start:solve]
    s, b, h, a = shape.s, shape.b, shape.h, shape.a
    base = paper_layer_bytes(shape, variant, part)
    as2b = (paper_layer_bytes(replace(shape, a=2 * a), variant, part) - base) / (a * s * s * b)
    sbh = (paper_layer_bytes(replace(shape, h=2 * h), variant, part) - base) / (s * b * h)
    sb = (base - sbh * s * b * h - as2b * a * s * s * b) / (s * b)
    # --8<-- [end:solve]
    s, b = 3 * s, 2 * b  # a size that has not been looked at
    predicted = s * b * (sbh * h + as2b * a * s + sb)
    return Coefficients(
        sbh, as2b, sb, paper_layer_bytes(Shape(s, b, h, a), variant, part) == round(predicted)
    )


# --- who saves what ------------------------------------------------------------------------------

OPERATORS = {
    "norm1": "layer_norm",
    "qkv": "linear",
    "scores": "baddbmm",
    "softmax": "softmax",
    "drop_scores": "native_dropout",
    "values": "bmm",
    "out": "linear",
    "drop_out": "native_dropout",
    "norm2": "layer_norm",
    "up": "linear",
    "gelu": "gelu",
    "down": "linear",
    "drop_mlp": "native_dropout",
}
"""The operators of a layer that save something, in the order of the forward, by their functions."""


def entries(shape: Shape) -> list[Entry]:
    """What each operator of a layer saves, on fake tensors."""
    with fake():
        block = PaperBlock(shape, PAPER)
        x = torch.zeros(shape.s, shape.b, shape.h, dtype=PAPER.dtype, requires_grad=True) * 1.0
        operators = Operators(block.parameters())
        with saved_tensors_hooks(operators.pack, lambda tensor: tensor), operators:
            block(x)
        return operators.entries


def kind_of(tensor: Tensor, s: int) -> str:
    """A mask, a matrix of s×s, or a row for each token."""
    if tensor.dtype is torch.bool:
        return "mask"
    return "square" if tensor.shape[-2:] == (s, s) else "linear"


def ledger(shape: Shape) -> list[Span]:
    """The saved bytes over sbh, one operator below the other; each storage is new once."""
    found: list[Span] = []
    unit, end = shape.s * shape.b * shape.h, 0.0
    places: dict[int, tuple[float, float]] = {}
    kept: list[UntypedStorage] = []  # a storage's address stays its own
    for row, (entry, function) in enumerate(zip(entries(shape), OPERATORS.values(), strict=True)):
        if entry.function != function:
            raise ValueError(f"{entry.function} saves where {function} is expected")
        fresh = end
        drawn: list[Span] = []
        for tensor in entry.tensors:
            key, storage = storage_key(tensor), tensor.untyped_storage()
            if key in places:
                start, stop = places[key]
                if start < fresh and not any(span.start == start for span in drawn):
                    drawn.append(Span(row, "shared", start, stop))
                continue
            kept.append(storage)
            places[key] = (end, end + storage.nbytes() / unit)
            kind, end = kind_of(tensor, shape.s), places[key][1]
            if drawn and drawn[-1].kind == kind:  # the norm's statistics, too thin to be seen
                drawn[-1] = replace(drawn[-1], end=end)
            else:
                drawn.append(Span(row, kind, places[key][0], end))
        found += [
            span if span.kind == "shared" else replace(span, label=f"{span.end - span.start:.0f}")
            for span in drawn
        ]
    return found


# --- the demo ------------------------------------------------------------------------------------

LENGTHS = (512, 1024, 2048, 4096, 8192)


def run(config: Config, progress: Progress) -> Result:
    """Coefficients of the whole and of its parts, departures, and GPT-3's layer."""
    found = Mechanisms(MEASURES, config)
    shape = Shape(config.length, config.batch, config.width, config.heads)
    progress(0.0, "sbh(34 + 5as/h)")
    whole = solve(shape)
    found["linear"] = whole.sbh
    found["quadratic"] = whole.as2b
    found["per_token"] = whole.sb
    found["coefficients_hold"] = whole.hold
    attention = solve(shape, part=PaperAttention)
    found["attention_linear"] = attention.sbh
    found["attention_quadratic"] = attention.as2b
    found["mlp_linear"] = solve(shape, part=PaperMLP).sbh
    found["norms_linear"] = 2 * solve(shape, part=norms).sbh

    progress(0.4, "departures")
    departures = {
        "fp32": Departures(dtype=torch.float32),
        "no_dropout": Departures(dropout="none"),
        "cpu_dropout": Departures(dropout="cpu"),
    }
    for name, variant in departures.items():
        solved = solve(shape, variant)
        found[f"{name}_linear"] = solved.sbh
        found[f"{name}_quadratic"] = solved.as2b
    more = paper_layer_bytes(shape, Departures(masked_fill=True)) - paper_layer_bytes(shape)
    found["masked_fill_extra"] = more / shape.s**2

    progress(0.7, "GPT-3")
    layer = paper_layer_bytes(GPT3)
    fused = paper_layer_bytes(GPT3, Departures(fused=True))
    found["gpt3_layer"] = layer
    found["gpt3_stack"] = paper_layer_bytes(GPT3, part=repeated(config.layers))
    found["gpt3_layer_fused"] = fused
    found["gpt3_fused_per_sbh"] = fused / (GPT3.s * GPT3.b * GPT3.h)
    found["gpt3_fused_ratio"] = layer / fused
    parts: dict[str, tuple[int, PaperPart]] = {
        "norms": (2, norms),
        "mlp": (1, PaperMLP),
        "attention": (1, PaperAttention),
    }
    bars = []
    for name, (times, part) in parts.items():
        nbytes = [times * paper_layer_bytes(replace(GPT3, s=n), PAPER, part) for n in LENGTHS]
        bars.append(Line(name, range(len(LENGTHS)), nbytes))
    found.draw("layer_over_length", *bars, places=LENGTHS)
    found.lanes("ledger", ledger(GPT3), rows=OPERATORS)

    progress(0.9, "real")
    found["fake_equals_real"] = paper_layer_bytes(shape) == paper_layer_bytes(
        shape, real=config.device
    )
    progress(1.0, "")
    return found.result()

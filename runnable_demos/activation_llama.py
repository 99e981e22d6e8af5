"""How much does a Llama-style layer save for its backward, and where does 34 go?

The lesson is ``lessons/activation_llama.en.md`` (中文: ``lessons/activation_llama.zh.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import fake, saved_tensors, storage_key
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.operators import Entry, Operators
from runnable_demos.models.llama import (
    DEFAULT,
    LLAMA_7B,
    LLAMA_13B,
    LLAMA_70B,
    Attention,
    LlamaBlock,
    LlamaPart,
    Norm,
    RMSNorm,
    Size,
    SwiGLU,
    Variant,
    llama_layer_bytes,
    rotary,
)

GPU = 13
TITLE: Text = {
    "zh": "现代块的激活：RMSNorm、SwiGLU、GQA",
    "en": "A modern block: RMSNorm, SwiGLU, GQA",
}
QUESTION: Text = {
    "zh": "Llama 式的一层保存多少字节？34 变成了多少？",
    "en": "How much does a Llama-style layer save, and what becomes of 34?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "在只差一个因子的几个尺寸上量保存的字节，由差值解出；bf16，不含参数与旋转表",
  "solved from the bytes saved at sizes that differ in one factor; bf16, without parameters and rotary tables",
]
[method.metrics]
hidden = ["", "sbh 的系数", "coefficient of sbh"]
gate = ["", "sbf 的系数", "coefficient of sbf"]
keys = ["", "sb·gd 的系数", "coefficient of sb·gd"]
heads = ["", "asb 的系数", "coefficient of asb"]
squares = ["", "as²b 的系数", "coefficient of as²b"]
per_token = ["B/token", "每个 token 另加的字节", "bytes a token besides"]
coefficients_hold = ["", "系数逐字节预测另一尺寸", "they predict another size"]
math_hidden = ["", "不融合注意力：sbh", "attention not fused, sbh"]
math_keys = ["", "不融合注意力：sb·gd", "attention not fused, sb·gd"]
math_squares = ["", "不融合注意力：as²b", "attention not fused, as²b"]
fused_gate = ["", "融合 SwiGLU：sbf", "SwiGLU fused, sbf"]
functional_norm_hidden = ["", "CPU 的 F.rms_norm：sbh", "F.rms_norm on the CPU, sbh"]
eager_norm_hidden = ["", "Hugging Face 写法的 RMSNorm：sbh", "RMSNorm as Hugging Face writes it, sbh"]

[[method]]
kind = "exact"
how = [
  "fake 张量上按真实尺寸量一层保存的字节，批为 1，{tokens:,} 个 token",
  "bytes saved by one layer of the real size on fake tensors, batch 1, {tokens:,} tokens",
]
[method.metrics]
llama_7b_eager_norm_layer = [
  "B",
  "一层，7B，Hugging Face 写法的 RMSNorm",
  "a layer, 7B, RMSNorm as Hugging Face writes it",
]
llama_7b_eager_norm_per_sbh = [
  "",
  "每 sbh 的字节，7B，Hugging Face 写法的 RMSNorm",
  "bytes for sbh, 7B, RMSNorm as Hugging Face writes it",
]
llama_7b_functional_norm_layer = ["B", "一层，7B，CPU 的 F.rms_norm", "a layer, 7B, F.rms_norm on the CPU"]
llama_7b_functional_norm_per_sbh = [
  "",
  "每 sbh 的字节，7B，CPU 的 F.rms_norm",
  "bytes for sbh, 7B, F.rms_norm on the CPU",
]
attention_share = ["", "7B 一层中注意力的份额", "attention's share of a 7B layer"]
mlp_share = ["", "7B 一层中 SwiGLU 的份额", "SwiGLU's share of a 7B layer"]
norms_share = ["", "7B 一层中两个 RMSNorm 的份额", "the norms' share of a 7B layer"]
llama_7b_layer = ["B", "一层，7B", "a layer, 7B"]
llama_7b_per_sbh = ["", "每 sbh 的字节，7B", "bytes for sbh, 7B"]
llama_7b_math_layer = ["B", "一层，不融合注意力，7B", "a layer, attention not fused, 7B"]
llama_13b_layer = ["B", "一层，13B", "a layer, 13B"]
llama_13b_per_sbh = ["", "每 sbh 的字节，13B", "bytes for sbh, 13B"]
llama_13b_math_layer = ["B", "一层，不融合注意力，13B", "a layer, attention not fused, 13B"]
llama_70b_layer = ["B", "一层，70B", "a layer, 70B"]
llama_70b_per_sbh = ["", "每 sbh 的字节，70B", "bytes for sbh, 70B"]
llama_70b_math_layer = ["B", "一层，不融合注意力，70B", "a layer, attention not fused, 70B"]

[[method]]
kind = "exact"
how = [
  "fake 张量上按真实尺寸跑过全部层（至多 {layers} 层），量一共保存的字节；各层共用一组权重，批为 1，{tokens:,} 个 token",
  "bytes saved by all layers of the real size, {layers} at most, on fake tensors; one set of weights serves them all; batch 1, {tokens:,} tokens",
]
[method.metrics]
llama_7b_eager_norm_stack = [
  "B",
  "全部层，7B，Hugging Face 写法的 RMSNorm",
  "all layers, 7B, RMSNorm as Hugging Face writes it",
]
llama_7b_functional_norm_stack = ["B", "全部层，7B，CPU 的 F.rms_norm", "all layers, 7B, F.rms_norm on the CPU"]
llama_7b_stack = ["B", "全部层，7B", "all layers, 7B"]
llama_13b_stack = ["B", "全部层，13B", "all layers, 13B"]
llama_70b_stack = ["B", "全部层，70B", "all layers, 70B"]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "GPU 上用真实张量跑一层，量保存的字节；bf16，批为 1，{tokens:,} 个 token，SDPA 自己选 kernel",
  "bytes saved by one layer on real tensors on the GPU, bf16, batch 1, {tokens:,} tokens, SDPA's own choice of kernel",
]
[method.metrics]
llama_7b_functional_norm_on_gpu_per_sbh = [
  "",
  "每 sbh 的字节，7B，这块 GPU 的 F.rms_norm",
  "bytes for sbh, 7B, F.rms_norm on this GPU",
]

[[method]]
kind = "exact"
how = ["同一代码在真实张量上保存的字节", "the same code on real tensors"]
[method.metrics]
fake_equals_real = ["", "fake 与真实相等", "fake equals real"]

[figure.layer_by_part]
title = ["一层保存的字节（批 1）", "Bytes saved by one layer (batch 1)"]
x = {label = ["模型", "model"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.layer_by_part.series]
norms = ["bar", "两个 RMSNorm", "two RMSNorms"]
attention = ["bar", "注意力", "attention"]
mlp = ["bar", "SwiGLU", "SwiGLU"]
[figure.layer_by_part.places]
llama_7b = ["Llama 2 7B", "Llama 2 7B"]
llama_13b = ["Llama 2 13B", "Llama 2 13B"]
llama_70b = ["Llama 2 70B", "Llama 2 70B"]

[figure.ledger]
title = [
  "Llama 3 8B 一层的账：每个算子一行，它为反向存下的字节接在前一个后面；上半 RMSNorm 融合，下半是 Hugging Face 的写法",
  "The ledger of a Llama 3 8B layer: a row per operator, whose saved bytes go on where the last ended; above with fused RMSNorm, below as Hugging Face writes it",
]
x = {label = ["累计的字节 / sbh", "bytes so far / sbh"]}
y = {label = ["算子", "operator"]}
[figure.ledger.series]
half = ["bar", "bf16", "bf16"]
wide = ["bar", "fp32", "fp32"]
shared = ["bar", "上面存过，不再占", "saved above, costs nothing"]
[figure.ledger.places]
fused = ["— 融合 —", "— fused —"]
eager = ["— HF —", "— HF —"]
norm1 = ["RMSNorm", "RMSNorm"]
q = ["Q 投影", "Q proj."]
k = ["K 投影", "K proj."]
v = ["V 投影", "V proj."]
core = ["注意力", "attention"]
out = ["输出投影", "out proj."]
norm2 = ["RMSNorm", "RMSNorm"]
gate = ["gate", "gate"]
up = ["up", "up"]
silu = ["SiLU", "SiLU"]
product = ["乘", "multiply"]
down = ["down", "down"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The layer that the coefficients are solved on, and the tokens of the real models."""

    batch: int = parameter(2, {"zh": "批大小 b", "en": "batch b"}, 1, 16)
    length: int = parameter(64, {"zh": "求系数时的 s", "en": "s of the solving"}, 4, 1024)
    tokens: int = parameter(
        4096, {"zh": "真实模型的 s（批为 1）", "en": "s of the real models (batch 1)"}, 16, 131072
    )
    layers: int = parameter(
        80, {"zh": "每个模型至多算这么多层", "en": "layers of each model at most"}, 1, 80
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(length=8, tokens=256, layers=2), "full": Config()}
SOLVED_ON = Size(h=128, f=344, L=1, a=8, g=2)
MODELS = {"llama_7b": LLAMA_7B, "llama_13b": LLAMA_13B, "llama_70b": LLAMA_70B}
UNFUSED: tuple[Norm, ...] = ("functional", "eager")


# --- the measurements ----------------------------------------------------------------------------


def norm(size: Size, variant: Variant) -> nn.Module:
    """One of the two norms, to be counted twice."""
    return RMSNorm(size.h, variant)


def stack_bytes(size: Size, s: int, variant: Variant = DEFAULT) -> int:
    """Bytes that all ``L`` layers save, batch 1; one set of weights serves all of them."""
    # --8<-- [start:stack]
    with fake():
        block = LlamaBlock(size, variant)
        tables = rotary(s, size.h // size.a, variant.dtype)
        x = torch.zeros(1, s, size.h, dtype=variant.dtype, requires_grad=True) * 1.0
        with saved_tensors(exclude=[*block.parameters(), *tables]) as saved:
            for _ in range(size.L):
                x = block(x, *tables)
        return saved.bytes
    # --8<-- [end:stack]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Bytes for sbh, sbf, sb·gd, asb, as²b and sb; and whether they predict another size."""

    hidden: float
    gate: float
    keys: float
    heads: float
    squares: float
    tokens: float
    hold: bool


def solve(b: int, s: int, variant: Variant = DEFAULT) -> Coefficients:
    """The coefficients, from sizes that differ in one factor."""
    size = SOLVED_ON
    h, a, gd = size.h, size.a, size.g * size.h // size.a

    def measure(s: int = s, b: int = b, **changes: int) -> int:
        return llama_layer_bytes(replace(size, **changes), b, s, variant)

    # --8<-- [start:solve]
    base = measure()
    gate = (measure(f=2 * size.f) - base) / (s * b * size.f)
    keys = (measure(g=2 * size.g) - base) / (s * b * gd)
    # Twice the heads in the same width: asb and as²b, told apart by a second length.
    short = measure(a=2 * a, g=2 * size.g) - base
    long = measure(2 * s, a=2 * a, g=2 * size.g) - measure(2 * s)
    squares = (long - 2 * short) / (2 * a * s * s * b)
    heads = (short - squares * a * s * s * b) / (a * s * b)
    wider = measure(h=2 * h, a=2 * a) - base
    hidden = (wider - heads * a * s * b - squares * a * s * s * b) / (s * b * h)
    # --8<-- [end:solve]

    def predict(tokens: float, s: int, b: int, h: int, f: int, a: int, gd: int) -> float:
        linear = hidden * h + gate * f + keys * gd + heads * a + tokens
        return s * b * (linear + squares * a * s)

    tokens = (base - predict(0, s, b, h, size.f, a, gd)) / (s * b)
    # A size that has not been looked at: 4 of 12 heads of 24, another length and batch.
    seen = measure(3 * s, 3, h=288, a=12, g=4, f=500)
    return Coefficients(
        hidden,
        gate,
        keys,
        heads,
        squares,
        tokens,
        hold=seen == round(predict(tokens, 3 * s, 3, 288, 500, 12, 4 * 24)),
    )


# --- who saves what ------------------------------------------------------------------------------

LLAMA_3_8B = Size(h=4096, f=14336, L=32, a=32, g=8, V=128256)
NORMS: dict[Norm, tuple[str, ...]] = {"fused": ("",), "eager": ("pow", "rsqrt", "mul", "mul")}
"""The functions that save something within a norm; an ``autograd.Function`` has no name."""


def operators(how: Norm) -> list[tuple[str, str]]:
    """The operators of a layer that save something, in the order of the forward, and their functions."""
    norms = [[(name, function) for function in NORMS[how]] for name in ("norm1", "norm2")]
    return [
        *norms[0],
        *((name, "linear") for name in ("q", "k", "v")),
        ("core", "scaled_dot_product_attention"),
        ("out", "linear"),
        *norms[1],
        *((name, "linear") for name in ("gate", "up")),
        ("silu", "silu"),
        ("product", "mul"),
        ("down", "linear"),
    ]


def entries(size: Size, s: int, how: Norm) -> list[Entry]:
    """What each operator of a layer saves of one sequence, on fake tensors."""
    with fake():
        block = LlamaBlock(size, Variant(norm=how))
        tables = rotary(s, size.h // size.a, torch.bfloat16)
        x = torch.zeros(1, s, size.h, dtype=torch.bfloat16, requires_grad=True) * 1.0
        calls = Operators([*block.parameters(), *tables])
        with saved_tensors_hooks(calls.pack, lambda tensor: tensor), calls:
            block(x, *tables)
        return calls.entries


def ledger(size: Size, s: int, how: Norm, first: int) -> tuple[list[Span], list[str]]:
    """The saved bytes over sbh from row ``first`` on, and the rows; each storage is new once."""
    found: list[Span] = []
    rows: list[str] = []
    end = 0.0
    places: dict[int, tuple[float, float]] = {}
    kept: list[UntypedStorage] = []  # a storage's address stays its own
    for entry, (name, function) in zip(entries(size, s, how), operators(how), strict=True):
        if entry.function != function:
            raise ValueError(f"{entry.function} saves where {function} is expected")
        if not rows or rows[-1] != name:
            rows.append(name)
            drawn: set[int] = set()
        row = first + len(rows) - 1
        for tensor in entry.tensors:
            key, storage = storage_key(tensor), tensor.untyped_storage()
            if key in drawn:
                continue
            drawn.add(key)
            if key in places:
                found.append(Span(row, "shared", *places[key]))
                continue
            kept.append(storage)
            start, end = end, end + storage.nbytes() / (s * size.h)
            places[key] = start, end
            kind = "wide" if tensor.dtype is torch.float32 else "half"
            label = f"{end - start:g}" if end - start >= 0.5 else ""
            found.append(Span(row, kind, start, end, label))
    return found, rows


def draw_ledger(s: int, found: Mechanisms) -> None:
    """A layer of Llama 3 8B with a fused norm, and below it with that of Hugging Face."""
    spans: list[Span] = []
    rows: list[str] = []
    for how in NORMS:
        own, names = ledger(LLAMA_3_8B, s, how, 1 + len(rows))
        spans += own
        rows += [how, *names]
    found.lanes("ledger", spans, rows=rows)


# --- the demo ------------------------------------------------------------------------------------

PARTS: dict[str, tuple[int, LlamaPart]] = {
    "norms": (2, norm),
    "attention": (1, Attention),
    "mlp": (1, SwiGLU),
}


def run(config: Config, progress: Progress) -> Result:
    """Coefficients of the block and of its variants, then the real models."""
    found = Mechanisms(MEASURES, config)
    b, s, tokens = config.batch, config.length, config.tokens
    progress(0.0, "sb(12h + 4gd + 8f)")
    flash = solve(b, s)
    found["hidden"] = flash.hidden
    found["gate"] = flash.gate
    found["keys"] = flash.keys
    found["heads"] = flash.heads
    found["squares"] = flash.squares
    found["per_token"] = flash.tokens
    real = llama_layer_bytes(SOLVED_ON, b, s, real="cpu")
    found["fake_equals_real"] = llama_layer_bytes(SOLVED_ON, b, s) == real

    progress(0.3, "variants")
    math = solve(b, s, Variant(attention="math"))
    found["math_hidden"] = math.hidden
    found["math_keys"] = math.keys
    found["math_squares"] = math.squares
    fused = solve(b, s, Variant(gate="fused"))
    found["fused_gate"] = fused.gate
    unfused = {how: solve(b, s, Variant(norm=how)) for how in UNFUSED}
    for how, solved in unfused.items():
        found[f"{how}_norm_hidden"] = solved.hidden
    every = (flash, math, fused, *unfused.values())
    found["coefficients_hold"] = all(solved.hold for solved in every)

    progress(0.6, "Llama 2")
    for name, size in MODELS.items():
        layer = llama_layer_bytes(size, 1, tokens)
        short = replace(size, L=min(size.L, config.layers))
        found[f"{name}_layer"] = layer
        found[f"{name}_stack"] = stack_bytes(short, tokens)
        found[f"{name}_per_sbh"] = layer / (tokens * size.h)
        found[f"{name}_math_layer"] = llama_layer_bytes(size, 1, tokens, Variant(attention="math"))

    seven = LLAMA_7B
    short = replace(seven, L=min(seven.L, config.layers))
    for how in UNFUSED:
        variant = Variant(norm=how)
        layer = llama_layer_bytes(seven, 1, tokens, variant)
        found[f"llama_7b_{how}_norm_layer"] = layer
        found[f"llama_7b_{how}_norm_stack"] = stack_bytes(short, tokens, variant)
        found[f"llama_7b_{how}_norm_per_sbh"] = layer / (tokens * seven.h)
    if config.device != "cpu":  # whose F.rms_norm is another kernel
        layer = llama_layer_bytes(seven, 1, tokens, Variant(norm="functional"), real=config.device)
        found["llama_7b_functional_norm_on_gpu_per_sbh"] = layer / (tokens * seven.h)

    progress(0.9, "parts")
    layer = llama_layer_bytes(seven, 1, tokens)
    bars = []
    for name, (times, part) in PARTS.items():
        nbytes = [times * llama_layer_bytes(size, 1, tokens, part=part) for size in MODELS.values()]
        found[f"{name}_share"] = nbytes[0] / layer  # 7B is the first
        bars.append(Line(name, range(len(MODELS)), nbytes))
    found.draw("layer_by_part", *bars, places=MODELS)
    draw_ledger(tokens, found)
    progress(1.0, "")
    return found.result()

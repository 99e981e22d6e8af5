"""What does FP8 lose in training, and what do finer scales, fp32 sums and parts in bf16 give back?

The lesson is ``lessons/fp8_training.en.md`` (中文: ``lessons/fp8_training.zh.md``).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runnable_demos.lab.findings import Line
from runnable_demos.lab.measure import saved_tensors
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import typical_seconds
from runnable_demos.models.llama import DEFAULT, LlamaBlock, Size, rotary

GPU = 9

TITLE: Text = {"zh": "FP8 训练：格式、缩放与累加", "en": "FP8 training: formats, scales and sums"}
QUESTION: Text = {
    "zh": "FP8 训练损失多少精度，分块缩放、fp32 累加和留在 bf16 的部分各挽回多少？",
    "en": "What does FP8 training lose, and what do block scales, fp32 sums and parts kept in bf16 give back?",
}

MEASURES = """
[[method]]
kind = "exact"
how = ["[1, 2) 中的 2 的 12 次方个 fp32 数逐个转换", "4,096 fp32 numbers in [1, 2) are cast, one by one"]
[method.metrics]
e4m3_worst_rounding = ["", "E4M3：最大相对舍入误差", "E4M3: largest relative error of a cast"]
e5m2_worst_rounding = ["", "E5M2：最大相对舍入误差", "E5M2: largest relative error of a cast"]

[[method]]
kind = "exact"
how = ["torch 在 CPU 上的转换", "torch's cast on the CPU"]
[method.metrics]
e4m3_of_ten_thousand = ["", "E4M3：10,000 变成", "E4M3: 10,000 becomes"]
e4m3_of_infinity = ["", "E4M3：无穷大变成", "E4M3: infinity becomes"]
e4m3_keeps_nan = ["", "E4M3：NaN 仍是 NaN", "E4M3: NaN stays NaN"]
e5m2_overflows = ["", "E5M2：100,000 变成无穷大", "E5M2: 100,000 becomes infinity"]

[[method]]
kind = "exact"
how = ["列出全部 256 个位模式", "read off the list of all 256 bit patterns"]
[method.metrics]
e4m3_nan_patterns = ["", "E4M3：NaN 的位模式", "E4M3: patterns that are NaN"]
e4m3_infinities = ["", "E4M3：无穷大的位模式", "E4M3: patterns that are infinite"]
e5m2_nan_patterns = ["", "E5M2：NaN 的位模式", "E5M2: patterns that are NaN"]
e5m2_infinities = ["", "E5M2：无穷大的位模式", "E5M2: patterns that are infinite"]
e4m3_normal_span = ["", "E4M3：最大数与最小正规数之比", "E4M3: largest number over smallest normal one"]
e5m2_normal_span = ["", "E5M2：最大数与最小正规数之比", "E5M2: largest number over smallest normal one"]

[[method]]
kind = "sampled"
how = [
  "标准正态矩阵加一个离群值；其余的数的误差范数除以它们的范数，{draws} 个随机矩阵的均值",
  "normal values with one outlier; norm of the others' errors over their norm, mean of {draws} matrices",
]
[method.metrics]
int8_mild = ["", "离群值 {mild}，INT8，整张量一个因子：相对误差", "outlier {mild}, INT8, one scale: relative error"]
tensor_mild = ["", "离群值 {mild}，E4M3，整张量一个因子：相对误差", "outlier {mild}, E4M3, one scale: relative error"]
tile_mild = ["", "离群值 {mild}，E4M3，1×128：相对误差", "outlier {mild}, E4M3, 1×128: relative error"]
tensor_wild = ["", "离群值 {wild}，E4M3，整张量一个因子：相对误差", "outlier {wild}, E4M3, one scale: relative error"]
block_wild = ["", "离群值 {wild}，E4M3，128×128：相对误差", "outlier {wild}, E4M3, 128×128: relative error"]
tile_wild = ["", "离群值 {wild}，E4M3，1×128：相对误差", "outlier {wild}, E4M3, 1×128: relative error"]

[[method]]
kind = "sampled"
how = [
  "正态矩阵，各行的尺度散布在 2 的 −{octaves} 次方到 1 之间；变成 0 的数所占份额，{draws} 个的均值",
  "normal rows with scales spread from 2^-{octaves} to 1; share of values that become 0, mean of {draws} matrices",
]
[method.metrics]
flushed_e4m3 = ["", "变成 0：E4M3，整张量一个因子", "become 0: E4M3, one scale"]
flushed_e5m2 = ["", "变成 0：E5M2，整张量一个因子", "become 0: E5M2, one scale"]
flushed_block = ["", "变成 0：E4M3，128×128", "become 0: E4M3, 128×128"]
flushed_tile = ["", "变成 0：E4M3，1×128", "become 0: E4M3, 1×128"]

[[method]]
kind = "sampled"
how = [
  "K = {inner} 的正态矩阵，torch._scaled_mm，fp32 累加；误差与结果的范数之比，{draws} 次的均值",
  "normal matrices, K = {inner}, torch._scaled_mm, fp32 sums; norm of the error over the result's, mean of {draws}",
]
[method.metrics]
product_tensor = ["", "乘积的相对误差：E4M3，整张量一个因子", "relative error of a product: E4M3, one scale each"]
product_blocks = ["", "乘积的相对误差：E4M3，1×128 乘 128×128", "relative error of a product: E4M3, 1×128 by 128×128"]
product_bf16 = ["", "乘积的相对误差：bf16", "relative error of a product: bf16"]

[[method]]
kind = "computed"
how = [
  "按 DeepSeek-V3 §3.5.2 的描述模拟：每 32 个乘积对齐到最大指数、截到 14 位再加；输入视为精确，K = {inner}",
  "simulated after DeepSeek-V3, §3.5.2: 32 products aligned to the largest, cut to 14 bits, added; K = {inner}",
]
[method.metrics]
narrow_mixed = ["", "窄累加器，有正有负：相对误差", "narrow accumulator, mixed signs: relative error"]
narrow_positive = ["", "窄累加器，全为正：相对误差", "narrow accumulator, all positive: relative error"]
promoted_positive = ["", "每 128 个转到 fp32，全为正：相对误差", "to fp32 every 128, all positive: relative error"]

[[method]]
kind = "computed"
how = [
  "按 Transformer Engine 的规则模拟（历史 {history} 步的最大 amax），torch 的转换；某一步的数突然大 {jump} 倍",
  "simulated: largest amax of {history} past steps, torch's casts; in one step values grow {jump} times",
]
[method.metrics]
jump_delayed = ["", "突增的那一步，延迟缩放：相对误差", "step of the jump, delayed scaling: relative error"]
jump_current = ["", "突增的那一步，当场缩放：相对误差", "step of the jump, current scaling: relative error"]
after_delayed = ["", "突增之后的一步，延迟缩放：相对误差", "a step after the jump, delayed scaling: relative error"]
stale_steps = ["", "突增之后，因子偏小的步数", "steps after the jump with a scale that is too small"]

[[method]]
kind = "exact"
how = ["反向之前为输入保存的字节，除以输入的元素数", "bytes saved for the input, divided by its elements"]
[method.metrics]
input_bf16 = ["B", "bf16 的 Linear：输入每个元素", "bf16 linear: per element of its input"]
input_fp8 = ["B", "FP8 的 Linear，一份 1×128：输入每个元素", "FP8 linear, one 1×128 copy: per element of its input"]
input_fp8_twice = ["B", "FP8 的 Linear，转置也存一份：输入每个元素", "FP8 linear, transposed copy as well: per element"]

[[method]]
kind = "exact"
how = [
  "Llama 块（宽 {width}）一次前向为反向保存的字节",
  "bytes that a forward of a Llama block ({width} wide) saves for its backward",
]
[method.metrics]
block_bf16 = ["B/token", "bf16：每个 token 保存的字节", "bf16: bytes saved per token"]
block_fp8 = ["B/token", "七个 Linear 用 FP8：每个 token 保存的字节", "all seven linears in FP8: bytes saved per token"]
block_ratio = ["", "FP8 与 bf16 之比", "FP8 over bf16"]

[[method]]
kind = "measured"
how = [
  "torch._scaled_mm，K = {inner}，全为正的 FP8 数，结果取 bf16，与 fp64 比较；时间是 8192 阶方阵的中位数",
  "torch._scaled_mm, K = {inner}, positive FP8 numbers, bf16 out, against fp64; times are medians at 8,192²",
]
only = "gpu"
[method.metrics]
fast_accumulation = ["", "use_fast_accum=True：相对误差", "use_fast_accum=True: relative error"]
slow_accumulation = ["", "use_fast_accum=False：相对误差", "use_fast_accum=False: relative error"]
speedup = ["", "矩阵乘的速度，FP8 比 bf16", "speed of a product, FP8 over bf16"]

[figure.tiles]
title = [
  "每格依次是原值、整张量一个因子（T）读回的值、每行一个因子（B）读回的值；最右是每行的 amax",
  "Each cell: the value, what one scale for all (T) and a scale per row (B) read back; last, the row's amax",
]
x = {label = ["行内第几个", "value of the row"]}
y = {label = ["行", "row"]}
[figure.tiles.series]
normal = ["bar", "T 仍是正规数，和 B 一样准", "T is normal, as exact as B"]
subnormal = ["bar", "T 成了非规格化数，精度变差", "T is subnormal and less precise"]
zero = ["bar", "T 变成 0，B 还在", "T is 0, B is still there"]
amax = ["bar", "这一行的 amax", "the row's amax"]
[figure.tiles.places]
largest = ["amax", "amax"]

[figure.outliers]
title = [
  "一个离群值让其余的数误差多大：浮点有一大段不受影响，整数没有",
  "What one outlier does to all other values: floats stay unaffected for long, integers do not",
]
kind = "computed"
x = {label = ["离群值是标准差的几倍", "outlier in standard deviations"], scale = "log2"}
y = {label = ["其余数的相对误差", "relative error of the others"], scale = "log10"}
[figure.outliers.series]
int8 = ["measured", "INT8，一个因子", "INT8, one scale"]
tensor = ["measured", "E4M3，一个因子", "E4M3, one scale"]
block = ["measured", "E4M3，128×128", "E4M3, 128×128"]
tile = ["measured", "E4M3，1×128", "E4M3, 1×128"]
"""

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
GROUP = 128
"""Values that share a scale, along one dimension or both."""


@dataclass(frozen=True)
class Config:
    """Sizes of the matrices that are cast and multiplied."""

    rows: int = parameter(256, {"zh": "行数", "en": "rows"}, 128, 4096)
    columns: int = parameter(1024, {"zh": "列数", "en": "columns"}, 128, 8192)
    inner: int = parameter(4096, {"zh": "乘积的内维 K", "en": "inner dimension K"}, 256, 16384)
    width: int = parameter(
        1024, {"zh": "Llama 块的宽度", "en": "width of the Llama block"}, 512, 4096
    )
    mild: int = parameter(
        2**8,
        {"zh": "不大的离群值，标准差的几倍", "en": "moderate outlier in standard deviations"},
        4,
        2**22,
    )
    wild: int = parameter(
        2**16,
        {"zh": "很大的离群值，标准差的几倍", "en": "large outlier in standard deviations"},
        4,
        2**22,
    )
    octaves: int = parameter(
        24,
        {"zh": "各行的尺度散布在几个二倍之内", "en": "doublings over which rows are spread"},
        1,
        60,
    )
    jump: int = parameter(8, {"zh": "突增几倍", "en": "factor of the jump"}, 2, 1024)
    history: int = parameter(
        16, {"zh": "amax 历史的步数", "en": "steps in the amax history"}, 1, 64
    )
    draws: int = parameter(8, {"zh": "随机矩阵的个数", "en": "random matrices"}, 2, 64)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(rows=128, columns=256, inner=512, width=512, draws=2),
    "full": Config(),
}

# --- casting with scales -------------------------------------------------------------------------


def grouped(x: Tensor, group: tuple[int, int]) -> Tensor:
    """``(r, c)`` as ``(r/a, a, c/b, b)``: the values of a group of ``(a, b)`` are dimensions 1 and 3."""
    (rows, columns), (a, b) = x.shape, group
    return x.view(rows // a, a, columns // b, b)


# --8<-- [start:cast]
def cast(x: Tensor, group: tuple[int, int], dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """The values in FP8, grouped, and the factors that lead back from them, one for each group."""
    groups = grouped(x.float(), group)
    amax = groups.abs().amax((1, 3), keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    back = amax / torch.finfo(dtype).max
    return (groups / back).to(dtype), back


# --8<-- [end:cast]


def through(x: Tensor, group: tuple[int, int], dtype: torch.dtype = E4M3) -> Tensor:
    """What is left of ``x`` after the cast, in fp32."""
    small, back = cast(x, group, dtype)
    return (small.float() * back).view(x.shape)


def through_int8(x: Tensor) -> Tensor:
    """The same with integers from −127 to 127 and one factor."""
    back = x.abs().amax() / 127
    return (x / back).round() * back


def off(got: Tensor, true: Tensor) -> float:
    """Norm of the error over the norm of what is true."""
    return float((got.double() - true.double()).norm() / true.double().norm())


def outlier_errors(x: Tensor) -> dict[str, float]:
    """Relative errors of all values but the outlier, which is the first."""
    whole = (x.shape[0], x.shape[1])
    got = {
        "int8": through_int8(x),
        "tensor": through(x, whole),
        "block": through(x, (GROUP, GROUP)),
        "tile": through(x, (1, GROUP)),
    }
    return {name: off(each.flatten()[1:], x.flatten()[1:]) for name, each in got.items()}


def flushed(x: Tensor) -> dict[str, float]:
    """Share of the values that become 0."""
    whole = (x.shape[0], x.shape[1])
    ways = {
        "e4m3": (whole, E4M3),
        "e5m2": (whole, E5M2),
        "block": ((GROUP, GROUP), E4M3),
        "tile": ((1, GROUP), E4M3),
    }
    return {n: float((through(x, *way)[x != 0] == 0).float().mean()) for n, way in ways.items()}


# --- products ------------------------------------------------------------------------------------


def product_tensor(x: Tensor, w: Tensor) -> Tensor:
    """``x @ w.T`` with one scale for each: a single call of ``_scaled_mm``, which adds in fp32."""
    (a, back_a), (b, back_b) = cast(x, (x.shape[0], x.shape[1])), cast(w, (w.shape[0], w.shape[1]))
    scales = back_a.view(()), back_b.view(())
    return torch._scaled_mm(a.view(x.shape), b.view(w.shape).t(), *scales, out_dtype=torch.float32)


def product_blocks(x: Tensor, w: Tensor) -> Tensor:
    """The same with 1×128 tiles of ``x`` and 128×128 blocks of ``w``: a call for each 128 of K.

    Each partial result is multiplied by its scales and added in fp32, as DeepSeek-V3 does on CUDA cores.
    """
    # --8<-- [start:blocks]
    (a, back_a), (b, back_b) = cast(x, (1, GROUP)), cast(w, (GROUP, GROUP))
    rows = b.view(w.shape)
    one, total = x.new_ones(()), x.new_zeros(x.shape[0], w.shape[0])
    for k in range(x.shape[1] // GROUP):
        part = a[:, 0, k].contiguous(), rows[:, k * GROUP : (k + 1) * GROUP].contiguous()
        partial = torch._scaled_mm(part[0], part[1].t(), one, one, out_dtype=torch.float32)
        of_w = back_b[:, 0, k, 0].repeat_interleave(GROUP)
        total += partial * back_a[:, 0, k] * of_w
    return total
    # --8<-- [end:blocks]


def narrow(a: Tensor, b: Tensor, promote: int = 0) -> Tensor:
    """``a @ b.T`` in fp64 numbers that are cut as DeepSeek-V3 says that a Hopper tensor core does.

    ``promote``: after so many products the sum moves to an fp32 register, and begins again; 0 is never.
    """
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float32)
    sum_ = torch.zeros_like(total, dtype=torch.float64)
    for k in range(0, a.shape[1], 32):
        products = a[:, None, k : k + 32] * b[None, :, k : k + 32]
        largest = torch.maximum(products.abs().amax(-1), sum_.abs()).clamp_min(1e-30)
        last = torch.exp2(largest.log2().floor() - 13)  # of 14 bits
        cut = (products / last[..., None]).trunc().sum(-1) + (sum_ / last).trunc()
        sum_ = cut * last
        if promote and (k + 32) % promote == 0:
            total += sum_.float()
            sum_ = torch.zeros_like(sum_)
    return total.double() + sum_


# --- delayed scaling -----------------------------------------------------------------------------


def delayed(steps: Sequence[Tensor], length: int) -> tuple[list[float], list[float]]:
    """Relative error of each step, and its factor over what its own maximum would have given."""
    # --8<-- [start:delayed]
    history = [float(steps[0].abs().amax())] * length
    errors, factors = [], []
    for x in steps:
        largest, own = max(history), float(x.abs().amax())
        factor = torch.finfo(E4M3).max / largest
        errors.append(off((x * factor).to(E4M3).float() / factor, x))
        factors.append(own / largest)
        history = [*history[1:], own]
    return errors, factors
    # --8<-- [end:delayed]


# --- a linear layer that keeps its input in FP8 ----------------------------------------------------


class LinearFunction(torch.autograd.Function):
    """``x @ w.T`` of FP8 values with fp32 sums; keeps ``x`` in FP8, and ``w`` as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, small: Tensor, back: Tensor, twice: bool) -> Tensor:
        """``small`` and ``back`` are ``x`` in tiles of 1×128; ``twice``: its transpose is kept, too."""
        flat = (small.float() * back).view(-1, x.shape[-1])
        other = cast(flat.t().contiguous(), (1, min(GROUP, flat.shape[0]))) if twice else ()
        ctx.save_for_backward(small, back, w, *other)
        y = flat @ through(w, (GROUP, GROUP)).t()
        return y.to(x.dtype).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """Gradients of products whose operands are FP8 again: tiles of ``dy`` along its rows, then its columns."""
        small, back, w, *_ = ctx.saved_tensors
        x = (small.float() * back).view(-1, w.shape[1])
        g = dy.reshape(-1, w.shape[0])
        down = through(g, (1, GROUP)) @ through(w, (GROUP, GROUP))
        tall = (1, min(GROUP, g.shape[0]))
        up = through(g.t().contiguous(), tall) @ through(x.t().contiguous(), tall).t()
        return down.to(dy.dtype).view(*dy.shape[:-1], -1), up.to(w.dtype), None, None, None


class Fp8Linear(nn.Module):
    """A linear layer on ``weight``; layers that read one input in turn share its copy in FP8."""

    last: tuple[weakref.ref[Tensor], Tensor, Tensor] | None = None

    def __init__(self, weight: nn.Parameter, twice: bool = False) -> None:
        super().__init__()
        self.weight, self.twice = weight, twice

    def forward(self, x: Tensor) -> Tensor:
        """``(…, n)`` to ``(…, m)``."""
        held = Fp8Linear.last
        if held is None or held[0]() is not x:
            held = (weakref.ref(x), *cast(x.detach().reshape(-1, x.shape[-1]), (1, GROUP)))
            Fp8Linear.last = held
        y: Tensor = LinearFunction.apply(x, self.weight, held[1], held[2], self.twice)  # type: ignore[no-untyped-call]
        return y


def in_fp8(module: nn.Module) -> nn.Module:
    """The module, with each ``nn.Linear`` in it replaced."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, Fp8Linear(nn.Parameter(child.weight)))
        else:
            in_fp8(child)
    return module


def saved_by_linear(layer: nn.Module, tokens: int, width: int) -> float:
    """Bytes that a layer saves for each element of its input."""
    x = torch.randn(tokens, width).to(torch.bfloat16).requires_grad_()
    Fp8Linear.last = None
    with saved_tensors(exclude=list(layer.parameters())) as saved:
        layer(x)
    return saved.bytes / x.numel()


def saved_by_block(width: int, tokens: int, *, fp8: bool) -> float:
    """Bytes a token that a block saves, in Llama 3 8B's proportions (3.5 h, four queries a key)."""
    heads = width // GROUP
    size = Size(h=width, f=7 * width // 2, L=1, a=heads, g=heads // 4, V=1)
    block: nn.Module = LlamaBlock(size, DEFAULT)
    tables = rotary(tokens, width // heads, DEFAULT.dtype)
    x = torch.randn(1, tokens, width).to(DEFAULT.dtype).requires_grad_() * 1.0
    block = in_fp8(block) if fp8 else block
    Fp8Linear.last = None
    with saved_tensors(exclude=[*block.parameters(), *tables]) as saved:
        block(x, *tables)
    return saved.bytes / tokens


# --- the demo ------------------------------------------------------------------------------------

EXAMPLE = (
    (30.0, -12.0, 45.0, 8.0),
    (6e4, 1.1, -0.7, 2.4),
    (1.2, -0.8, 0.5, 1.7),
    (0.06, -0.03, 0.05, 0.02),
)


def read_back() -> list[Tile]:
    """``EXAMPLE`` with one scale and with one a row: what each leaves, and what T became on the way."""
    x = torch.tensor(EXAMPLE)
    small, back = cast(x, (4, 4))
    whole, rows = (small.float() * back).view(4, 4), through(x, (1, 4))
    least = torch.finfo(E4M3).smallest_normal
    tiles = []
    for i, row in enumerate(EXAMPLE):
        for j, true in enumerate(row):
            level = abs(float(small.view(4, 4)[i, j]))
            kind = "zero" if level == 0 else "subnormal" if level < least else "normal"
            pair = (f"T {float(whole[i, j]) + 0:.2g}", f"B {float(rows[i, j]):.2g}")  # −0 is 0
            notes = ("6×10⁴",) if true > 1e3 else (f"{true:g}", *pair)
            tiles.append(Tile(i, j, kind, tuple(n.replace("-", "−") for n in notes)))
        top = max(map(abs, row))
        tiles.append(Tile(i, 4, "amax", (f"{top:g}" if top < 1e3 else "6×10⁴",)))
    return tiles


def formats(found: Mechanisms) -> None:
    """What the two formats are, from torch's own casts."""
    grid = 1 + torch.arange(4096, dtype=torch.float32) / 4096
    patterns = torch.arange(256, dtype=torch.uint8)
    for name, dtype in (("e4m3", E4M3), ("e5m2", E5M2)):
        found[f"{name}_worst_rounding"] = float(
            ((grid.to(dtype).float() - grid) / grid).abs().max()
        )
        values = patterns.view(dtype).float()
        found[f"{name}_nan_patterns"] = int(values.isnan().sum())
        found[f"{name}_infinities"] = int(values.isinf().sum())
        finite = values[values.isfinite() & (values > 0)].unique()
        gaps = finite.diff()
        normal = finite[:-1][gaps > gaps[0]][0] / 2  # subnormals and the first normals share a gap
        found[f"{name}_normal_span"] = float(finite[-1] / normal)
    found["e4m3_of_ten_thousand"] = float(torch.tensor(1e4).to(E4M3).float())
    found["e4m3_of_infinity"] = float(torch.tensor(torch.inf).to(E4M3).float())
    found["e4m3_keeps_nan"] = bool(torch.tensor(torch.nan).to(E4M3).float().isnan())
    found["e5m2_overflows"] = bool(torch.tensor(1e5).to(E5M2).float().isinf())


def scales(config: Config, found: Mechanisms, draw: torch.Generator) -> None:
    """Outliers, ranges and products, over random matrices."""
    shape = (config.rows, config.columns)
    outliers = sorted({*(2**e for e in range(2, 23, 2)), config.mild, config.wild})
    curves: dict[str, list[list[float]]] = {n: [] for n in ("int8", "tensor", "block", "tile")}
    drops: dict[str, list[float]] = {n: [] for n in ("e4m3", "e5m2", "block", "tile")}
    products: dict[str, list[float]] = {n: [] for n in ("tensor", "blocks", "bf16")}
    for _ in range(config.draws):
        x = torch.randn(shape, generator=draw)
        each = []
        for size in outliers:
            x[0, 0] = size
            each.append(outlier_errors(x))
        for name, curve in curves.items():
            curve.append([errors[name] for errors in each])
        order = torch.randperm(config.rows, generator=draw)
        steep = torch.exp2(-config.octaves * order / (config.rows - 1))
        for name, share in flushed(torch.randn(shape, generator=draw) * steep[:, None]).items():
            drops[name].append(share)
        a, b = (torch.randn(GROUP, config.inner, generator=draw) for _ in range(2))
        true = a.double() @ b.double().t()
        products["tensor"].append(off(product_tensor(a, b), true))
        products["blocks"].append(off(product_blocks(a, b), true))
        rounded = (m.bfloat16().float() for m in (a, b))
        products["bf16"].append(off(F.linear(*rounded), true))
    for level, size in (("mild", config.mild), ("wild", config.wild)):
        for name in ("int8", "tensor", "block", "tile"):
            if (name, level) not in (("block", "mild"), ("int8", "wild")):
                at = outliers.index(size)
                found.sample(f"{name}_{level}", [curve[at] for curve in curves[name]], least=1e-6)
    for name, shares in drops.items():
        found.sample(f"flushed_{name}", shares, least=1e-6)
    for name, errors in products.items():
        found.sample(f"product_{name}", errors, least=1e-6)
    means = {
        n: [fmean(c[i] for c in curve) for i in range(len(outliers))] for n, curve in curves.items()
    }
    found.draw(
        "outliers", *(Line(n, outliers, [float(f"{v:.6g}") for v in m]) for n, m in means.items())
    )


def simulations(config: Config, found: Mechanisms) -> None:
    """The narrow accumulator, and delayed scaling, on matrices that are always the same."""
    draw = torch.Generator().manual_seed(0)
    for name, make in (("mixed", torch.randn), ("positive", torch.rand)):
        a, b = ((make(16, config.inner, generator=draw) * 100).to(E4M3).double() for _ in range(2))
        true = a @ b.t()
        found[f"narrow_{name}"] = float(f"{off(narrow(a, b), true):.4g}")
        if name == "positive":
            found["promoted_positive"] = float(f"{off(narrow(a, b, GROUP), true):.4g}")
    steps = [torch.randn(128, 128, generator=draw) for _ in range(2 + 2 * config.history)]
    steps[1] = steps[1] * config.jump
    errors, factors = delayed(steps, config.history)
    found["jump_delayed"] = float(f"{errors[1]:.4g}")
    found["jump_current"] = float(f"{off(through(steps[1], (128, 128)), steps[1]):.4g}")
    found["after_delayed"] = float(f"{errors[2]:.4g}")
    found["stale_steps"] = sum(factor < 0.5 for factor in factors[2:])


def on_gpu(config: Config, found: Mechanisms) -> None:
    """What tensor cores do: errors of their sums, and how much faster they are."""
    a, b = ((torch.rand(256, config.inner, device=config.device) * 100).to(E4M3) for _ in range(2))
    true, one = a.double() @ b.double().t(), torch.ones((), device=config.device)
    for name, fast in (("fast", True), ("slow", False)):
        y = torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)
        found[f"{name}_accumulation"] = off(y, true)
    x = torch.randn(8192, 8192, device=config.device).to(torch.bfloat16)
    small = x.to(E4M3)
    wide = typical_seconds(lambda: x @ x.t(), config.device)
    found["speedup"] = wide / typical_seconds(
        lambda: torch._scaled_mm(small, small.t(), one, one, out_dtype=torch.bfloat16),
        config.device,
    )


def run(config: Config, progress: Progress) -> Result:
    """Formats, scales, sums, and the bytes that a layer and a block save."""
    found = Mechanisms(MEASURES, config)
    draw = torch.Generator().manual_seed(config.seed)
    torch.manual_seed(config.seed)
    formats(found)
    found.tiles("tiles", read_back(), rows=range(1, 5), columns=[*range(1, 5), "largest"])
    progress(0.1, "scales")
    scales(config, found, draw)
    progress(0.7, "sums")
    simulations(config, found)
    progress(0.8, "bytes")
    weight = nn.Parameter(torch.randn(GROUP, 2 * GROUP).to(torch.bfloat16))
    plain = nn.Linear(2 * GROUP, GROUP, bias=False, dtype=torch.bfloat16)
    found["input_bf16"] = saved_by_linear(plain, GROUP, 2 * GROUP)
    found["input_fp8"] = saved_by_linear(Fp8Linear(weight), GROUP, 2 * GROUP)
    found["input_fp8_twice"] = saved_by_linear(Fp8Linear(weight, twice=True), GROUP, 2 * GROUP)
    wide = saved_by_block(config.width, GROUP, fp8=False)
    small = saved_by_block(config.width, GROUP, fp8=True)
    found["block_bf16"], found["block_fp8"], found["block_ratio"] = wide, small, small / wide
    if config.device != "cpu":
        on_gpu(config, found)
    progress(1.0, "done")
    return found.result()

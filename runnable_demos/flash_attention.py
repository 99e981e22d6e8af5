"""Why need attention not keep its N×N matrix, and is the result still exact?

The lesson is ``lessons/flash_attention.en.md`` (中文: ``lessons/flash_attention.zh.md``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import (
    LiveMemory,
    allocator_peak,
    count_flops,
    saved_tensors,
    storage_bytes,
)
from runnable_demos.lab.mechanisms import Mechanisms, Tile
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

TITLE: Text = {
    "zh": "FlashAttention：分块、精确、不存矩阵",
    "en": "FlashAttention: tiled, exact, no matrix kept",
}
GPU = 2
QUESTION: Text = {
    "zh": "注意力为什么不必保存 N×N 矩阵，结果仍然精确？代价是什么？",
    "en": "Why need attention not keep its N×N matrix, and is still exact? What does that cost?",
}

MEASURES = """
[[method]]
kind = "bounded"
how = [
  "‖结果 − fp64‖/‖fp64‖，取 O、dQ、dK、dV 与各情形的最大值：能否整除块长、有无因果掩码",
  "largest ‖result − fp64‖/‖fp64‖ over O, dQ, dK, dV; aligned and ragged N, causal or not",
]
bound = 1e-6
reason = ["约 8 倍 fp32 机器精度", "about 8 times the machine epsilon of fp32"]
[method.metrics]
fp32_error = ["", "fp32 分块结果的相对误差", "relative error of the tiled result in fp32"]

[[method]]
kind = "bounded"
how = [
  "‖结果 − fp64‖/‖fp64‖，取 O、dQ、dK、dV 与各情形的最大值：能否整除块长、有无因果掩码",
  "largest ‖result − fp64‖/‖fp64‖ over O, dQ, dK, dV; aligned and ragged N, causal or not",
]
bound = 2e-15
reason = [
  "约 8 倍 fp64 机器精度：差别随精度缩小，所以只是舍入",
  "about 8 times the machine epsilon of fp64: it shrinks as rounding does",
]
[method.metrics]
fp64_error = ["", "分块与三步算法的相对差，两者都用 fp64", "relative difference of tiled and naive, both in fp64"]

[[method]]
kind = "bounded"
how = [
  "‖结果 − fp64‖/‖fp64‖，取 O、dQ、dK、dV 与各情形的最大值：能否整除块长、有无因果掩码",
  "largest ‖result − fp64‖/‖fp64‖ over O, dQ, dK, dV; aligned and ragged N, causal or not",
]
bound = 2.0
reason = ["重标定多出的舍入与求和自身的舍入同阶", "rescaling adds roundings of the same order as those of the sums"]
[method.metrics]
error_ratio = ["", "分块误差与朴素误差之比，同为 fp32", "tiled error over naive error, both in fp32"]

[[method]]
kind = "exact"
how = [
  "对保存给反向的张量求和，每块存储计一次，含 Q、K、V",
  "bytes saved for the backward, each storage once, Q, K and V among them",
]
[method.metrics]
naive_saved_bytes = ["B", "朴素注意力保存的字节，最长 N", "naive saves, longest N"]
flash_saved_bytes = ["B", "FlashAttention 保存的字节，最长 N", "flash saves, longest N"]
saved_ratio = ["", "保存字节之比，朴素比 Flash，最长 N", "saved, naive over flash"]
flash_saved_linear = ["", "Flash 保存的字节与 N 成正比", "flash saves in proportion to N"]
logsumexp_bytes_per_token = [
  "B/token",
  "Q、K、V、O 之外，每个 token 每个头多存的字节",
  "saved beyond Q, K, V and O, for a token and head",
]
sdpa_saved_equal = [
  "",
  "scaled_dot_product_attention 保存的字节与本实现相等",
  "scaled_dot_product_attention saves the same bytes as this code",
]
sdpa_bf16_saved_bytes_per_token = [
  "B/token",
  "bf16 的 SDPA 每个 token 每个头保存的字节",
  "saved by SDPA in bf16, for a token and head",
]
sdpa_dropout_ratio = ["", "SDPA 打开 dropout 后保存字节的倍数", "saved by SDPA with dropout over without"]

[[method]]
kind = "exact"
how = [
  "跟踪每块存储的生灭，前向加反向的最大值，不含 Q、K、V、dO",
  "storages followed from birth to death over forward and backward, without Q, K, V, dO",
]
[method.metrics]
naive_peak_bytes = ["B", "朴素注意力的峰值，最长 N", "naive peak, longest N"]
flash_peak_bytes = ["B", "FlashAttention 的峰值，最长 N", "flash peak, longest N"]
peak_ratio = ["", "峰值之比，朴素比 Flash，最长 N", "peak, naive over flash, longest N"]
naive_peak_matrices = ["", "朴素峰值折合多少个 N×N 矩阵", "naive peak as a number of N×N matrices"]
checkpoint_peak_matrices = [
  "",
  "给朴素注意力设检查点后，峰值折合多少个 N×N 矩阵",
  "peak of naive attention under activation checkpointing, in N×N matrices",
]

[[method]]
kind = "exact"
how = [
  "FlopCounterMode 数出的矩阵乘 FLOPs，长度 N/4",
  "FLOPs of matrix products as FlopCounterMode counts them, at length N/4",
]
[method.metrics]
forward_flops_ratio = ["", "前向 FLOPs，Flash 比朴素", "forward, flash over naive"]
backward_flops_ratio = ["", "反向 FLOPs，Flash 比朴素", "backward, flash over naive"]
step_flops_ratio = ["", "前向加反向 FLOPs，Flash 比朴素", "both, flash over naive"]
backward_over_forward = ["", "Flash 反向与前向之比", "flash, backward over forward"]
causal_flops_ratio = [
  "",
  "跳过被遮住的块后，前向 FLOPs 剩下的比例",
  "forward FLOPs left where hidden blocks are skipped",
]

[[method]]
kind = "computed"
how = [
  "按模型计数，不是从硬件读出：前向加反向，长度 N/4；朴素计每个未融合算子的输入与输出，分块计经 HBM 两个入口的字节",
  "counted in a model of memory, not read off hardware: forward and backward at length N/4; naive: inputs and outputs of each unfused kernel, tiled: what passes HBM's two doors",
]
[method.metrics]
naive_bytes_moved = ["B", "朴素注意力搬运的字节", "moved by naive attention"]
flash_bytes_moved = ["B", "FlashAttention 搬运的字节", "moved by FlashAttention"]
traffic_ratio = ["", "搬运之比，朴素比 Flash", "moved, naive over flash"]
traffic_ratio_small_block = [
  "",
  "块边长为四分之一时的搬运之比，朴素比 Flash",
  "moved, naive over flash, with blocks a quarter as wide",
]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
[method.metrics]
naive_allocated = ["B", "朴素注意力分配的峰值，最长 N", "peak allocated by naive attention, longest N"]
flash_allocated = ["B", "分块注意力分配的峰值，最长 N", "peak allocated by attention in blocks, longest N"]
sdpa_allocated = ["B", "SDPA 分配的峰值，最长 N", "peak allocated by SDPA, longest N"]

[figure.memory_over_length]
title = ["注意力显存随序列长度 N 的增长", "Attention memory over the length N"]
x = {label = ["序列长度 N", "sequence length N"], scale = "log2"}
y = {label = ["字节", "bytes"], unit = "B", scale = "log2"}
[figure.memory_over_length.series]
naive_peak = ["measured", "朴素峰值，实测", "naive peak, measured"]
naive_saved = ["measured", "朴素保存，实测", "naive saved, measured"]
naive_theory = ["theory", "理论 N² + 3Nd", "theory N² + 3Nd"]
flash_peak = ["measured", "Flash 峰值，实测", "flash peak, measured"]
flash_saved = ["measured", "Flash 保存，实测", "flash saved, measured"]
flash_theory = ["theory", "理论 4Nd + N", "theory 4Nd + N"]

[figure.traffic_over_block]
title = ["块越大，搬运越少", "The larger the block, the fewer bytes are moved"]
kind = "computed"
x = {label = ["块边长", "side of a block"], scale = "log2"}
y = {label = ["搬运的字节", "bytes moved"], unit = "B", scale = "log2"}
[figure.traffic_over_block.series]
naive = ["measured", "朴素，计数", "naive, counted"]
flash = ["measured", "Flash，计数", "flash, counted"]
theory = ["theory", "理论主项", "theory, leading term"]

[figure.tiles]
title = [
  "循环逐块走过因果分数矩阵：m、ℓ 属于这一行的最后一个查询，先给旧的 ℓ、Õ 乘上系数，再加上新的一块",
  "The loop walks a causal score matrix tile by tile: m and ℓ are those of the row's last query; old ℓ and Õ are multiplied, then the tile is added",
]
x = {label = ["键块 j", "block of keys j"]}
y = {label = ["查询块 i", "block of queries i"]}
[figure.tiles.series]
done = ["bar", "已并入，分数已丢", "merged, its scores dropped"]
now = ["bar", "正在并入", "being merged"]
later = ["bar", "还没到", "to come"]
skipped = ["bar", "跳过：整块被遮", "skipped: wholly masked"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """Sizes of one attention layer; memory is measured at N/16, N/8, … N."""

    batch: int = parameter(1, {"zh": "批大小 B", "en": "batch B"}, 1, 8)
    heads: int = parameter(1, {"zh": "头数 H", "en": "heads H"}, 1, 32)
    length: int = parameter(4096, {"zh": "最长序列 N", "en": "longest sequence N"}, 64, 16384)
    head_dim: int = parameter(64, {"zh": "头维 d", "en": "head dimension d"}, 8, 256)
    block: int = parameter(128, {"zh": "块边长 B_r = B_c", "en": "block side B_r = B_c"}, 4, 512)
    exact_length: int = parameter(
        512, {"zh": "与 fp64 对照时的 N", "en": "N of the comparison with fp64"}, 16, 2048
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(length=512, head_dim=32, block=32, exact_length=64),
    "full": Config(),
}


# --- the algorithm -------------------------------------------------------------------------------


# --8<-- [start:doors]
class HBM:
    """Slow memory behind two doors, ``load`` and ``store``; ``bytes`` counts what passes."""

    def __init__(self) -> None:
        self.bytes = 0

    def load(self, X: Tensor, rows: slice) -> Tensor:
        """``X[rows]``, on chip from now on."""
        block = X[..., rows, :]
        self.bytes += block.nbytes
        # --8<-- [end:doors]
        return block

    def store(self, X: Tensor, rows: slice, block: Tensor) -> None:
        """Write a finished block to ``X[rows]``."""
        X[..., rows, :] = block
        self.bytes += block.nbytes

    def merged(self, rows: slice, columns: slice, step: Running) -> None:
        """A block of scores is merged; nothing of it passes, and ``Walk`` notes it."""


@dataclass(frozen=True, slots=True)
class Running:
    """``m`` and ``ℓ`` of a block's queries after a step, and what ``ℓ`` and ``Õ`` were multiplied by."""

    m: Tensor
    l: Tensor
    rescale: Tensor


class Walk(HBM):
    """The steps of the forward's loop, in their order, each with its rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[slice, slice, Running]] = []

    def merged(self, rows: slice, columns: slice, step: Running) -> None:
        """Note it."""
        self.steps.append((rows, columns, step))


def blocks(N: int, size: int) -> list[slice]:
    """Rows 0…N in blocks of ``size``; the last one is shorter where N is no multiple of it."""
    return [slice(i, min(i + size, N)) for i in range(0, N, size)]


def hidden(rows: slice, columns: slice) -> bool:
    """Whether a causal mask hides this whole block: its first column lies after its last row."""
    return bool(columns.start >= rows.stop)


def scores(Q_i: Tensor, K_j: Tensor, rows: slice, columns: slice, causal: bool) -> Tensor:
    """``S_ij = Q_i K_jᵀ/√d``, shape ``(…, B_r, B_c)``, with −∞ above the diagonal where causal."""
    S = (Q_i / math.sqrt(Q_i.shape[-1])) @ K_j.mT
    if causal and columns.stop > rows.start + 1:  # the block crosses the diagonal
        row = torch.arange(rows.start, rows.stop, device=S.device)[:, None]
        column = torch.arange(columns.start, columns.stop, device=S.device)
        S = S.masked_fill(column > row, -math.inf)
    return S


class FlashAttention(torch.autograd.Function):
    """Algorithms 1 and 2 of FlashAttention-2; sums are held in the inputs' dtype, fp32 or fp64."""

    @staticmethod
    def forward(
        ctx: Any, Q: Tensor, K: Tensor, V: Tensor, causal: bool, size: int, hbm: HBM
    ) -> Tensor:
        """``Q, K, V`` to ``O``, all ``(…, N, d)``; saves the four and ``L`` of ``(…, N, 1)``."""
        tiles = blocks(Q.shape[-2], size)
        O = torch.empty_like(Q)
        L = Q.new_empty(*Q.shape[:-1], 1)
        for rows in tiles:
            Q_i = hbm.load(Q, rows)
            O_i = torch.zeros_like(Q_i)  # unnormalised: Σ exp(s − m) v
            l = Q_i.new_zeros(*Q_i.shape[:-1], 1)
            m = torch.full_like(l, -math.inf)
            # --8<-- [start:merge]
            for columns in tiles:
                if causal and hidden(rows, columns):
                    break
                K_j, V_j = hbm.load(K, columns), hbm.load(V, columns)
                S = scores(Q_i, K_j, rows, columns, causal)
                m_new = torch.maximum(m, S.amax(-1, keepdim=True))
                P = torch.exp(S - m_new)
                rescale = torch.exp(m - m_new)  # what was summed relative to the old maximum
                l = rescale * l + P.sum(-1, keepdim=True)
                O_i = rescale * O_i + P @ V_j
                m = m_new
                hbm.merged(rows, columns, Running(m, l, rescale))
            hbm.store(O, rows, O_i / l)
            hbm.store(L, rows, m + torch.log(l))
            # --8<-- [end:merge]
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.size, ctx.hbm = causal, size, hbm
        return O

    @staticmethod
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        """``dO`` to ``dQ, dK, dV``: recompute ``P`` a block at a time and use it at once."""
        Q, K, V, O, L = ctx.saved_tensors
        causal, hbm = ctx.causal, ctx.hbm
        tiles = blocks(Q.shape[-2], ctx.size)
        D = (dO * O).sum(-1, keepdim=True)  # = rowsum(P ∘ dP), in N·d instead of N² operations
        dQ, dK, dV = torch.zeros_like(Q), torch.empty_like(K), torch.empty_like(V)
        hbm.bytes += dO.nbytes + O.nbytes + D.nbytes + dQ.nbytes  # read two, written two
        for columns in tiles:
            K_j, V_j = hbm.load(K, columns), hbm.load(V, columns)
            dK_j, dV_j = torch.zeros_like(K_j), torch.zeros_like(V_j)
            # --8<-- [start:recompute]
            for rows in tiles:
                if causal and hidden(rows, columns):
                    continue
                Q_i, dO_i = hbm.load(Q, rows), hbm.load(dO, rows)
                L_i, D_i = hbm.load(L, rows), hbm.load(D, rows)
                P = torch.exp(scores(Q_i, K_j, rows, columns, causal) - L_i)  # recomputed
                dV_j += P.mT @ dO_i
                dP = dO_i @ V_j.mT
                dS = P * (dP - D_i) / math.sqrt(Q.shape[-1])
                hbm.store(dQ, rows, hbm.load(dQ, rows) + dS @ K_j)
                dK_j += dS.mT @ Q_i
            # --8<-- [end:recompute]
            hbm.store(dK, columns, dK_j)
            hbm.store(dV, columns, dV_j)
        return dQ, dK, dV, None, None, None


def flash_attention(
    Q: Tensor, K: Tensor, V: Tensor, causal: bool = False, size: int = 128, hbm: HBM | None = None
) -> Tensor:
    """Exact attention ``(…, N, d)`` in blocks of ``size``; both passes count into ``hbm``."""
    apply = cast(Callable[..., Tensor], FlashAttention.apply)
    return apply(Q, K, V, causal, size, hbm or HBM())


def naive_attention(Q: Tensor, K: Tensor, V: Tensor, causal: bool = False) -> Tensor:
    """The three operations, with ``S`` and ``P`` of shape ``(…, N, N)`` in memory."""
    whole = slice(0, Q.shape[-2])
    return torch.softmax(scores(Q, K, whole, whole, causal), dim=-1) @ V


def checkpointed_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The three operations again, recomputed as a whole in the backward."""
    O: Tensor = checkpoint(naive_attention, Q, K, V, use_reentrant=False, preserve_rng_state=False)
    return O


# --- the measurements ----------------------------------------------------------------------------

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class EagerTraffic(TorchDispatchMode):
    """Bytes that unfused kernels move: each reads its inputs and writes its outputs, views none."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then count the tensors that it read and wrote."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not func.is_view and func is not torch.ops.aten._unsafe_view.default:
            self.bytes += sum(
                x.nbytes for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)
            )
        return result


def draw(config: Config, N: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """``[Q, K, V, dO]`` of ``(B, H, N, d)``, standard normal; all but ``dO`` ask for gradients."""
    shape = (config.batch, config.heads, N, config.head_dim)
    generator = torch.Generator().manual_seed(config.seed)
    X = [torch.randn(shape, generator=generator).to(config.device, dtype) for _ in range(4)]
    return [*(x.requires_grad_() for x in X[:3]), X[3]]


def gradients(attention: Attention, X: list[Tensor]) -> list[Tensor]:
    """``O, dQ, dK, dV`` for ``X = [Q, K, V, dO]``."""
    Q, K, V, dO = X
    O = attention(Q, K, V)
    return [O.detach(), *torch.autograd.grad(O, (Q, K, V), dO)]


@dataclass(frozen=True, slots=True)
class Errors:
    """The worst over ``O, dQ, dK, dV`` and all cases; ``ratio`` is fp32 error over naive error."""

    fp32: float
    fp64: float
    ratio: float


def measure_errors(config: Config) -> Errors:
    """Against fp64, on an aligned and a ragged length, with and without a causal mask."""
    fp32 = fp64 = ratio = 0.0
    # --8<-- [start:errors]
    for N in (config.exact_length, config.exact_length - 3):
        for causal in (False, True):
            flash = partial(flash_attention, causal=causal, size=config.block)
            naive = partial(naive_attention, causal=causal)
            single, double = draw(config, N), draw(config, N, torch.float64)
            for ours, theirs, ours64, truth in zip(
                gradients(flash, single),
                gradients(naive, single),
                gradients(flash, double),
                gradients(naive, double),
                strict=True,
            ):
                fp32 = max(fp32, relative(ours, truth))
                fp64 = max(fp64, relative(ours64, truth))
                ratio = max(ratio, relative(ours, truth) / relative(theirs, truth))
    # --8<-- [end:errors]
    return Errors(fp32, fp64, ratio)


def saved_bytes(attention: Attention, X: list[Tensor]) -> int:
    """Bytes that ``attention`` keeps for its backward pass, ``Q, K, V`` among them."""
    with saved_tensors() as saved:
        O = attention(*X[:3])
    del O
    return saved.bytes


def peak_bytes(attention: Attention, X: list[Tensor]) -> int:
    """The most that is alive at once in forward and backward, beside ``Q, K, V`` and ``dO``."""
    with LiveMemory() as live:
        gradients(attention, X)
    return live.peak


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs of the matrix products in one forward and one backward pass."""

    forward: int
    backward: int

    @property
    def step(self) -> int:
        """Both passes."""
        return self.forward + self.backward


def measure_flops(attention: Attention, X: list[Tensor]) -> Flops:
    """Count the forward pass, then forward and backward together."""
    forward = count_flops(lambda: attention(*X[:3]))
    return Flops(forward, count_flops(lambda: gradients(attention, X)) - forward)


def eager_traffic(attention: Attention, X: list[Tensor]) -> int:
    """Bytes moved by one forward and backward pass whose kernels are not fused."""
    traffic = EagerTraffic()  # type: ignore[no-untyped-call]  # torch annotates no __init__ here
    with traffic:
        gradients(attention, X)
    return traffic.bytes


def flash_traffic(X: list[Tensor], size: int) -> int:
    """Bytes through the doors of ``HBM`` in one forward and backward pass."""
    hbm = HBM()
    gradients(partial(flash_attention, size=size, hbm=hbm), X)
    return hbm.bytes


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Errors at one length, memory over N, FLOPs at N/4, and traffic over the block side."""
    found = Mechanisms(MEASURES, config)
    progress(0.0, "fp64")
    errors = measure_errors(config)
    found["fp32_error"] = errors.fp32
    found["fp64_error"] = errors.fp64
    found["error_ratio"] = errors.ratio
    progress(0.1, f"memory up to N = {config.length}")
    compare_memory(config, found)
    progress(0.7, "FLOPs")
    compare_flops(config, found)
    progress(0.8, "HBM")
    compare_traffic(config, found)
    places = range(1, len(SCORES) // SIDE + 1)
    found.tiles("tiles", walk_tiles(), rows=places, columns=places)
    progress(1.0, "")
    return found.result()


def compare_memory(config: Config, found: Findings) -> None:
    """What is saved and how high the peak rises over N; and what PyTorch's own kernel saves."""
    naive, flash = naive_attention, partial(flash_attention, size=config.block)
    lengths = [config.length >> k for k in (4, 3, 2, 1, 0)]
    drawn = [draw(config, N) for N in lengths]
    longest = drawn[-1]
    rows = config.batch * config.heads * config.length
    naive_saved = [saved_bytes(naive, X) for X in drawn]
    flash_saved = [saved_bytes(flash, X) for X in drawn]
    found["naive_saved_bytes"] = naive_saved[-1]
    found["flash_saved_bytes"] = flash_saved[-1]
    found["saved_ratio"] = naive_saved[-1] / flash_saved[-1]
    a_row = {saved / N for saved, N in zip(flash_saved, lengths, strict=True)}
    found["flash_saved_linear"] = len(a_row) == 1
    found["logsumexp_bytes_per_token"] = (flash_saved[-1] - storage_bytes(longest)) / rows

    naive_peak = [peak_bytes(naive, X) for X in drawn]
    flash_peak = [peak_bytes(flash, X) for X in drawn]
    matrix = rows * config.length * 4
    found["naive_peak_bytes"] = naive_peak[-1]
    found["flash_peak_bytes"] = flash_peak[-1]
    found["peak_ratio"] = naive_peak[-1] / flash_peak[-1]
    found["naive_peak_matrices"] = naive_peak[-1] / matrix
    found["checkpoint_peak_matrices"] = peak_bytes(checkpointed_attention, longest) / matrix

    d, row = config.head_dim, 4 * config.batch * config.heads
    found.draw(  # both axes are logarithmic: slope 2 against slope 1
        "memory_over_length",
        Line("naive_peak", lengths, naive_peak),
        Line("naive_saved", lengths, naive_saved),
        Line("naive_theory", lengths, [row * (3 * N * d + N * N) for N in lengths]),
        Line("flash_peak", lengths, flash_peak),
        Line("flash_saved", lengths, flash_saved),
        Line("flash_theory", lengths, [row * (4 * N * d + N) for N in lengths]),
    )

    sdpa = F.scaled_dot_product_attention
    sdpa_saved = saved_bytes(sdpa, longest)
    found["sdpa_saved_equal"] = sdpa_saved == flash_saved[-1]
    dropout = saved_bytes(partial(sdpa, dropout_p=0.1), longest)
    found["sdpa_dropout_ratio"] = dropout / sdpa_saved
    halves = saved_bytes(sdpa, draw(config, config.length, torch.bfloat16))
    found["sdpa_bf16_saved_bytes_per_token"] = halves / rows
    if config.device == "cuda":
        ways: dict[str, Attention] = {"naive": naive, "flash": flash, "sdpa": sdpa}
        for name, attention in ways.items():
            found[f"{name}_allocated"] = allocator_peak(partial(gradients, attention, longest))


def compare_flops(config: Config, found: Findings) -> None:
    """Matrix products at N/4: recomputing ``P`` is one more in the backward."""
    X = draw(config, config.length // 4)
    flash = partial(flash_attention, size=config.block)
    tiled, naive = measure_flops(flash, X), measure_flops(naive_attention, X)
    found["forward_flops_ratio"] = tiled.forward / naive.forward
    found["backward_flops_ratio"] = tiled.backward / naive.backward
    found["step_flops_ratio"] = tiled.step / naive.step
    found["backward_over_forward"] = tiled.backward / tiled.forward
    causal = measure_flops(partial(flash, causal=True), X)
    found["causal_flops_ratio"] = causal.forward / tiled.forward


def compare_traffic(config: Config, found: Findings) -> None:
    """Bytes moved at N/4, over the side of a block: what is saved, is saved by block size."""
    N, d, row = config.length // 4, config.head_dim, 4 * config.batch * config.heads
    X = draw(config, N)
    sides = [config.block >> 2, config.block >> 1, config.block, config.block << 1]
    naive = eager_traffic(naive_attention, X)
    flash = {side: flash_traffic(X, side) for side in sides}
    found["naive_bytes_moved"] = naive
    found["flash_bytes_moved"] = flash[config.block]
    found["traffic_ratio"] = naive / flash[config.block]
    found["traffic_ratio_small_block"] = naive / flash[sides[0]]
    found.draw(
        "traffic_over_block",
        Line("naive", sides, [naive] * len(sides)),
        Line("flash", sides, list(flash.values())),
        Line("theory", sides, [row * (6 * d + 2) * N * N / side for side in sides]),
    )


SIDE = 4
SCORES = (1, 0, -1, 1, 3, 1, 2, 0, 2, 0, 1, 2, 1, 2, 0, 2)
"""Of any query with each key, in blocks of ``SIDE``: the second raises the maximum, the third does not."""


def walk_tiles() -> list[Tile]:
    """Where the loop is when it ends its third row of blocks, and that row's steps.

    With d = 1 and queries of 1, keys are scores.
    """
    K = torch.tensor(SCORES, dtype=torch.float64)[:, None]
    walk = Walk()
    flash_attention(torch.ones_like(K), K, K, causal=True, size=SIDE, hbm=walk)
    steps = {
        (rows.start // SIDE, columns.start // SIDE): (time, step)
        for time, (rows, columns, step) in enumerate(walk.steps)
    }
    here = 2
    now = max(time for (i, _), (time, _) in steps.items() if i == here)
    tiles = []
    n = len(SCORES) // SIDE
    for i, j in itertools.product(range(n), repeat=2):
        if (i, j) not in steps:
            tiles.append(Tile(i, j, "skipped"))
            continue
        time, step = steps[i, j]
        kind = "done" if time < now else "now" if time == now else "later"
        tiles.append(Tile(i, j, kind, notes(step) if i == here else ()))
    return tiles


def notes(step: Running) -> tuple[str, str, str]:
    """What the last query of a block carries after a step."""
    m, l, rescale = (float(each[-1, 0]) for each in (step.m, step.l, step.rescale))
    return f"m = {m:.3g}", f"ℓ, Õ × {rescale:.2g}", f"ℓ = {l:.3g}"

"""The forward of FlashAttention as one Triton kernel: what plain torch showed, fused.

The lesson is ``lessons/flash_attention_triton.en.md`` (中文: ``lessons/flash_attention_triton.zh.md``).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from runnable_demos.lab.errors import relative
from runnable_demos.lab.findings import Findings
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import typical_seconds

# Triton decides at its own import whether it interprets, and torch's FLOP counter imports it.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from runnable_demos.lab.measure import LiveMemory, allocator_peak, storage_bytes

REQUIRES = ("triton",)
GPU = 1
TITLE: Text = {"zh": "FlashAttention 的 Triton 内核", "en": "FlashAttention as a Triton kernel"}
QUESTION: Text = {
    "zh": "把同一个循环写成一个融合内核，结果仍然精确吗？它分配多少内存？",
    "en": "Written as one fused kernel, is the loop still exact, and how much does it allocate?",
}

MEASURES = """
[[method]]
kind = "bounded"
how = [
  "‖结果 − fp64‖/‖fp64‖ 的最大值：能否整除块长、有无因果掩码",
  "largest ‖result − fp64‖/‖fp64‖; aligned and ragged N, causal or not",
]
bound = 1e-6
reason = ["约 8 倍 fp32 机器精度", "about 8 times the machine epsilon of fp32"]
[method.metrics]
fp32_error = ["", "fp32 输出的相对误差", "relative error of the output in fp32"]
logsumexp_error = ["", "fp32 logsumexp 的相对误差", "relative error of the logsumexp in fp32"]

[[method]]
kind = "bounded"
how = [
  "‖结果 − fp64‖/‖fp64‖ 的最大值：能否整除块长、有无因果掩码",
  "largest ‖result − fp64‖/‖fp64‖; aligned and ragged N, causal or not",
]
bound = 8e-3
reason = [
  "bf16 机器精度 2⁻⁷ 取整：解释器写出时截断，GPU 上 P 与输出各舍入一次",
  "bf16's machine epsilon, 2⁻⁷: the interpreter truncates its output, a GPU rounds P and output",
]
[method.metrics]
bf16_error = ["", "bf16 输出的相对误差", "relative error of the output in bf16"]

[[method]]
kind = "exact"
how = [
  "跟踪调用期间的每块存储，峰值减去输入：只有 O 与 L",
  "storages followed over the call, the peak less the inputs: O and L alone",
]
[method.metrics]
allocated_bytes_per_token = [
  "B/token",
  "fp32 前向每个 token 每个头分配的字节",
  "bytes that an fp32 forward allocates, for a token and head",
]

[[method]]
kind = "measured"
how = [
  "CUDA 事件计时，20 次的中位数，bf16，仅前向",
  "CUDA events, median of 20 calls, bf16, forward alone",
]
only = "gpu"
[method.metrics]
triton_seconds = ["s", "本内核的时间", "time of this kernel"]
sdpa_seconds = ["s", "SDPA 的时间", "time of SDPA"]
naive_seconds = ["s", "三步算法的时间", "time of the three operations"]
speedup_over_naive = ["", "比三步算法快的倍数", "speed-up over naive"]
time_over_sdpa = ["", "与 SDPA 的时间之比", "time over that of SDPA"]

[[method]]
kind = "measured"
how = [
  "第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
only = "gpu"
[method.metrics]
triton_allocated = ["B", "本内核分配的峰值，计时的 N", "peak allocated by this kernel, at the timed N"]
naive_allocated = [
  "B",
  "三步算法分配的峰值，计时的 N",
  "peak allocated by the three operations, at the timed N",
]
"""


@dataclass(frozen=True)
class Config:
    """Sizes for the comparison with fp64, and the length that a GPU is timed at."""

    heads: int = parameter(2, {"zh": "头数 H", "en": "heads H"}, 1, 32)
    length: int = parameter(256, {"zh": "序列长度 N", "en": "length N"}, 16, 8192)
    head_dim: int = parameter(
        64, {"zh": "头维 d（2 的幂）", "en": "head dimension d (a power of 2)"}, 16, 128
    )
    block: int = parameter(
        64, {"zh": "块边长（2 的幂）", "en": "block side (a power of 2)"}, 16, 128
    )
    timed_length: int = parameter(
        8192, {"zh": "GPU 计时用的 N", "en": "length N timed on a GPU"}, 128, 65536
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(heads=1, length=64, head_dim=16, block=16, timed_length=1024),
    "full": Config(),
}


# --- the kernel ----------------------------------------------------------------------------------


@cache
def kernel() -> Any:
    """The jitted forward kernel; Triton is imported here, since importing a demo must not need it."""
    import triton  # noqa: PLC0415
    import triton.language as tl  # noqa: PLC0415

    @triton.jit  # type: ignore[untyped-decorator]  # triton is not annotated
    def forward(  # type: ignore[no-untyped-def]  # a kernel's parameters are pointers and constants
        Q, K, V, O, L, N, scale,
        d: tl.constexpr, B_r: tl.constexpr, B_c: tl.constexpr,
        CAUSAL: tl.constexpr, INTERPRETED: tl.constexpr,
    ):  # fmt: skip
        # --8<-- [start:own-rows]
        i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
        rows = i * B_r + tl.arange(0, B_r)
        features = tl.arange(0, d)
        Q += head * N * d
        K += head * N * d
        V += head * N * d
        O += head * N * d
        L += head * N
        inside = rows[:, None] < N
        Q_i = tl.load(Q + rows[:, None] * d + features[None, :], mask=inside, other=0.0)
        # --8<-- [end:own-rows]
        if INTERPRETED:  # its product of bf16 blocks is wrong
            Q_i = Q_i.to(tl.float32)
        m = tl.full([B_r], float("-inf"), tl.float32)
        l = tl.zeros([B_r], tl.float32)
        O_i = tl.zeros([B_r, d], tl.float32)
        end = N
        if CAUSAL:  # columns after the last row of this block are hidden
            end = tl.minimum((i + 1) * B_r, N)
        for start in range(0, end, B_c):
            columns = start + tl.arange(0, B_c)
            exists = columns < N
            K_j = tl.load(
                K + columns[None, :] * d + features[:, None], mask=exists[None, :], other=0.0
            )
            V_j = tl.load(
                V + columns[:, None] * d + features[None, :], mask=exists[:, None], other=0.0
            )
            if INTERPRETED:
                K_j, V_j = K_j.to(tl.float32), V_j.to(tl.float32)
            # --8<-- [start:stream]
            S = tl.dot(Q_i, K_j, input_precision="ieee") * scale
            visible = exists[None, :]
            if CAUSAL:
                visible = visible & (columns[None, :] <= rows[:, None])
            S = tl.where(visible, S, float("-inf"))
            m_new = tl.maximum(m, tl.max(S, 1))
            P = tl.exp(S - m_new[:, None])
            rescale = tl.exp(m - m_new)
            l = rescale * l + tl.sum(P, 1)
            O_i = rescale[:, None] * O_i + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
            m = m_new
            # --8<-- [end:stream]
        O_i = O_i / l[:, None]
        tl.store(O + rows[:, None] * d + features[None, :], O_i.to(O.dtype.element_ty), mask=inside)
        tl.store(L + rows, m + tl.log(l), mask=rows < N)

    return forward


def flash_forward(
    Q: Tensor, K: Tensor, V: Tensor, causal: bool = False, block: int = 64
) -> tuple[Tensor, Tensor]:
    """``O`` of ``(B, H, N, d)`` in the inputs' dtype and ``L`` of ``(B, H, N)`` in fp32."""
    B, H, N, d = Q.shape
    interpreted = Q.device.type == "cpu"
    if interpreted and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("set TRITON_INTERPRET=1 to run Triton kernels on the CPU")
    Q, K, V = Q.contiguous(), K.contiguous(), V.contiguous()
    O = torch.empty_like(Q)
    L = Q.new_empty(B, H, N, dtype=torch.float32)
    kernel()[(-(-N // block), B * H)](
        Q, K, V, O, L, N, 1 / math.sqrt(d), d, block, block, causal, interpreted
    )
    return O, L


# --- the measurements ----------------------------------------------------------------------------


def draw(config: Config, N: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """``Q, K, V`` of ``(1, H, N, d)``, standard normal, rounded to ``dtype``."""
    generator = torch.Generator().manual_seed(config.seed)
    shape = (1, config.heads, N, config.head_dim)
    Q, K, V = (torch.randn(shape, generator=generator).to(config.device, dtype) for _ in range(3))
    return Q, K, V


def exact_attention(Q: Tensor, K: Tensor, V: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """``O`` and ``L`` in fp64 by the definition."""
    S = Q.double() @ K.double().mT / math.sqrt(Q.shape[-1])
    if causal:
        S = S.masked_fill(torch.ones_like(S).triu(1).bool(), -math.inf)
    return torch.softmax(S, -1) @ V.double(), torch.logsumexp(S, -1)


def worst_errors(config: Config, dtype: torch.dtype) -> tuple[float, float]:
    """The largest relative errors of ``O`` and ``L``; aligned and ragged N, causal or not."""
    worst_O = worst_L = 0.0
    # --8<-- [start:errors]
    for N in (config.length, config.length - 3):
        for causal in (False, True):
            X = draw(config, N, dtype)
            O, L = flash_forward(*X, causal=causal, block=config.block)
            true_O, true_L = exact_attention(*X, causal=causal)
            worst_O = max(worst_O, relative(O, true_O))
            worst_L = max(worst_L, relative(L, true_L))
    # --8<-- [end:errors]
    return worst_O, worst_L


def allocated_bytes(config: Config) -> int:
    """The most bytes that one fp32 call adds to its inputs, its outputs among them."""
    X = draw(config, config.length, torch.float32)
    with LiveMemory(inputs=X) as live:
        flash_forward(*X, block=config.block)
    return live.peak - storage_bytes(X)


def timings(config: Config, found: Findings) -> None:
    """On a GPU: this kernel beside SDPA and the three naive operations, time and memory."""
    Q, K, V = draw(config, config.timed_length, torch.bfloat16)
    scale = 1 / math.sqrt(config.head_dim)

    def fused() -> object:
        return flash_forward(Q, K, V, block=config.block)

    def three() -> object:
        return torch.softmax(Q @ K.mT * scale, -1) @ V

    ours, naive = (typical_seconds(way, config.device) for way in (fused, three))
    sdpa = typical_seconds(lambda: F.scaled_dot_product_attention(Q, K, V), config.device)
    found["triton_seconds"] = ours
    found["sdpa_seconds"] = sdpa
    found["naive_seconds"] = naive
    found["speedup_over_naive"] = naive / ours
    found["time_over_sdpa"] = ours / sdpa
    found["triton_allocated"] = allocator_peak(fused)
    found["naive_allocated"] = allocator_peak(three)


# --- the demo ------------------------------------------------------------------------------------


def run(config: Config, progress: Progress) -> Result:
    """Errors in fp32 and bf16, bytes allocated, and on a GPU the time."""
    found = Findings(MEASURES, config)
    progress(0.0, "fp32")
    found["fp32_error"], found["logsumexp_error"] = worst_errors(config, torch.float32)
    progress(0.4, "bf16")
    found["bf16_error"] = worst_errors(config, torch.bfloat16)[0]
    progress(0.8, "bytes")
    rows = config.heads * config.length
    found["allocated_bytes_per_token"] = allocated_bytes(config) / rows
    if config.device == "cuda":
        progress(0.9, "time")
        timings(config, found)
    progress(1.0, "")
    return found.result()

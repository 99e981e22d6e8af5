"""What do a vocabulary's logits cost in one training step, and how can they be avoided?

The lesson is ``lessons/logits_memory.en.md`` (中文: ``lessons/logits_memory.zh.md``).
"""

from __future__ import annotations

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
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import (
    LiveMemory,
    allocator_peak,
    count_flops,
    fake,
    saved_tensors,
    storage_key,
)
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

GPU = 4
TITLE: Text = {"zh": "词表 logits 的显存", "en": "The memory of logits"}
QUESTION: Text = {
    "zh": "交叉熵保存多少字节，峰值多少？怎样分块才真的有用？",
    "en": "What does cross-entropy save and what is its peak? Which way of chunking helps?",
}

MEASURES = """
[[method]]
kind = "bounded"
how = ["fp32 小例，‖结果 − fp64‖/‖fp64‖ 的最大值", "small case in fp32, the largest"]
bound = 1e-6
reason = ["约 8 倍 fp32 机器精度", "about 8 times the machine epsilon of fp32"]
[method.metrics]
worst_error = [
  "",
  "五种做法的 loss、dx、dW 对 fp64 的相对误差",
  "relative error of loss, dx and dW in all five ways, against fp64",
]

[[method]]
kind = "exact"
how = [
  "为反向保存的字节，不含 x 与 W；fake 张量，bf16",
  "bytes saved for the backward, without x and W; fake tensors, bf16",
]
[method.metrics]
saved_per_logit = ["B", "每个 logit 保存的字节", "saved for a logit"]
low_saved_per_logit = ["B", "同上，不升到 fp32", "the same, not in fp32"]
naive_saved = ["B", "一次算完，保存", "all at once, saved"]
chunked_saved = ["B", "分块不重算，保存", "chunked, saved"]
chunked_saved_ratio = ["", "分块不重算与一次算完的保存之比", "chunked over at once"]
recomputed_saved = ["B", "分块并重算，保存", "chunked and recomputed, saved"]
fused_saved = ["B", "前向里就算梯度，保存", "gradients in the forward, saved"]

[[method]]
kind = "exact"
how = [
  "前向加反向中同时存活的字节峰值，含 dx 与 dW，不含 x、W、y；fake 张量，bf16",
  "peak of live bytes in forward and backward, with dx and dW, without x, W, y; fake, bf16",
]
[method.metrics]
peak_per_logit = ["B", "每个 logit 的峰值字节", "peak for a logit"]
peak_over_saved = ["", "峰值与保存之比（按 logit）", "peak over saved, for a logit"]
peak_over_bf16 = ["", "峰值与 bf16 logits 之比", "peak over logits in bf16"]
naive_peak = ["B", "一次算完，峰值", "all at once, peak"]
low_peak = ["B", "bf16 交叉熵，峰值", "cross-entropy in bf16, peak"]
chunked_peak = ["B", "分块不重算，峰值", "chunked, peak"]
recomputed_peak = ["B", "分块并重算，峰值", "chunked and recomputed, peak"]
fused_peak = ["B", "前向里就算梯度，峰值", "gradients in the forward, peak"]
fused_peak_ratio = ["", "一次算完与前向算梯度的峰值之比", "at once over fused, peak"]

[[method]]
kind = "exact"
how = [
  "FlopCounterMode 数出的矩阵乘 FLOPs，与一次算完之比",
  "FLOPs of matrix products as FlopCounterMode counts them, over doing all at once",
]
[method.metrics]
recomputed_flops_ratio = ["", "分块并重算的 FLOPs", "FLOPs, chunked and recomputed"]
fused_flops_ratio = ["", "前向里就算梯度的 FLOPs", "FLOPs, gradients in the forward"]

[[method]]
kind = "measured"
how = [
  "第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
only = "gpu"
[method.metrics]
naive_allocated = ["B", "一次算完，分配的峰值", "all at once, peak allocated"]
recomputed_allocated = ["B", "分块并重算，分配的峰值", "chunked and recomputed, peak allocated"]
fused_allocated = ["B", "前向里就算梯度，分配的峰值", "gradients in the forward, peak allocated"]

[figure.peak_over_chunks]
title = ["块数与峰值", "Peak over the number of chunks"]
x = {label = ["块数 k", "chunks k"], scale = "log2"}
y = {label = ["峰值字节", "peak bytes"], unit = "B", scale = "log2"}
[figure.peak_over_chunks.series]
chunked = ["measured", "分块，不重算", "chunked"]
recomputed = ["measured", "分块并重算", "chunked and recomputed"]
fused = ["measured", "前向里就算梯度", "gradients in the forward"]

[figure.lifetimes]
title = [
  "每个大张量何时存活：一次算完，与分 {k} 块的三种做法",
  "When each large tensor is alive: all at once, and three ways with {k} chunks",
]
x = {label = ["前向从 0 到 1，反向从 1 到 2", "forward from 0 to 1, backward from 1 to 2"]}
y = {label = ["张量", "tensor"]}
[figure.lifetimes.series]
logits = ["bar", "logits", "logits"]
saved = ["bar", "log-softmax", "log-softmax"]
gradient = ["bar", "两者的梯度", "their gradients"]
wanted = ["bar", "dW 与 dx", "dW and dx"]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
[figure.lifetimes.places]
naive = ["一次算完", "all at once"]
chunked = ["分块不重算", "chunked"]
recomputed = ["分块并重算", "recomputed"]
fused = ["前向算梯度", "in the forward"]
z = ["logits", "logits"]
z32 = ["logits，fp32", "logits, fp32"]
p = ["log-softmax", "log-softmax"]
g_p = ["传到它的梯度", "gradient into it"]
g_z32 = ["传出的梯度", "gradient out"]
g_z = ["同上，bf16", "the same, bf16"]
g_w = ["dW", "dW"]
g_x = ["dx", "dx"]
chunk_1 = ["第 1 块", "chunk 1"]
chunk_2 = ["第 2 块", "chunk 2"]
chunk_3 = ["第 3 块", "chunk 3"]
chunk_4 = ["第 4 块", "chunk 4"]
"""


@dataclass(frozen=True)
class Config:
    """The size that memory is told for, and the chunks that it is cut into."""

    tokens: int = parameter(8192, {"zh": "token 数 T", "en": "tokens T"}, 16, 131072)
    width: int = parameter(4096, {"zh": "宽度 h", "en": "width h"}, 8, 16384)
    vocabulary: int = parameter(128256, {"zh": "词表 V", "en": "vocabulary V"}, 16, 262144)
    chunks: int = parameter(16, {"zh": "块数 k", "en": "chunks k"}, 2, 128)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {
    "small": Config(tokens=256, width=32, vocabulary=1000, chunks=4),
    "full": Config(),
}

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``x (T, h), W (V, h), y (T)`` to the mean loss."""


# --- the ways ------------------------------------------------------------------------------------


# --8<-- [start:all-at-once]
def naive(x: Tensor, W: Tensor, y: Tensor) -> Tensor:
    """All logits at once, cross-entropy in fp32 (or more)."""
    return F.cross_entropy(upcast(x @ W.T), y)


# --8<-- [end:all-at-once]


def low_precision(x: Tensor, W: Tensor, y: Tensor) -> Tensor:
    """All logits at once, cross-entropy in the dtype of ``x``."""
    return F.cross_entropy(x @ W.T, y)


def upcast(logits: Tensor) -> Tensor:
    """To fp32 from 16 bits."""
    return logits if logits.dtype == torch.float64 else logits.float()


def summed(x: Tensor, W: Tensor, y: Tensor) -> Tensor:
    """The sum of one chunk's losses."""
    return F.cross_entropy(upcast(x @ W.T), y, reduction="sum")


def chunked(x: Tensor, W: Tensor, y: Tensor, k: int, recompute: bool) -> Tensor:
    """Chunk after chunk of tokens, each one recomputed in the backward or not."""
    total = x.new_zeros((), dtype=torch.promote_types(x.dtype, torch.float32))
    # --8<-- [start:chunks]
    for x_c, y_c in zip(x.chunk(k), y.chunk(k), strict=True):
        if recompute:
            loss = checkpoint(summed, x_c, W, y_c, use_reentrant=False, preserve_rng_state=False)
        else:
            loss = summed(x_c, W, y_c)
        total = total + loss
    return total / len(y)
    # --8<-- [end:chunks]


class FusedLoss(torch.autograd.Function):
    """Forms ``dx`` and ``dW`` chunk by chunk in the forward; the backward only scales them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, y: Tensor, k: int) -> Tensor:
        """The mean loss; saves ``dx (T, h)`` and ``dW (V, h)``, and nothing of T×V."""
        T = len(y)
        dx, dW = torch.empty_like(x), torch.zeros_like(W)
        total = x.new_zeros((), dtype=torch.promote_types(x.dtype, torch.float32))
        # --8<-- [start:fused-forward]
        for x_c, y_c, dx_c in zip(x.chunk(k), y.chunk(k), dx.chunk(k), strict=True):
            p = torch.log_softmax(upcast(x_c @ W.T), dim=-1)
            total -= p.gather(1, y_c[:, None]).sum()
            p.exp_()  # the softmax, over its own logarithm
            p.scatter_add_(1, y_c[:, None], p.new_full((len(y_c), 1), -1.0))
            g = p.div_(T).to(x.dtype)  # d loss / d logits
            dx_c.copy_(g @ W)
            dW += g.T @ x_c
        ctx.save_for_backward(dx, dW)
        return total / T
        # --8<-- [end:fused-forward]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """A scalar times what is there already."""
        dx, dW = ctx.saved_tensors
        return dx * upstream.to(dx.dtype), dW * upstream.to(dW.dtype), None, None


def fused(x: Tensor, W: Tensor, y: Tensor, k: int) -> Tensor:
    """The mean loss by ``FusedLoss``."""
    return cast(Callable[..., Tensor], FusedLoss.apply)(x, W, y, k)


def ways(k: int) -> dict[str, Loss]:
    """Every way, by name, with ``k`` chunks where there are chunks."""
    return {
        "naive": naive,
        "low": low_precision,
        "chunked": partial(chunked, k=k, recompute=False),
        "recomputed": partial(chunked, k=k, recompute=True),
        "fused": partial(fused, k=k),
    }


# --- the measurements ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes saved beside ``x`` and ``W``, and the most alive beside them and ``y``."""

    saved: int
    peak: int


def memory(loss: Loss, T: int, h: int, V: int) -> Memory:
    """On fake tensors in bf16; ``x`` is itself computed, as the last layer's output is."""
    # --8<-- [start:count]
    with fake():
        leaf = torch.zeros(T, h, dtype=torch.bfloat16, requires_grad=True)
        W = torch.zeros(V, h, dtype=torch.bfloat16, requires_grad=True)
        y = torch.zeros(T, dtype=torch.long)
        x = leaf * 1.0
        with saved_tensors(exclude=[x, W, y]) as saved:
            loss(x, W, y)
        with LiveMemory() as live:
            torch.autograd.grad(loss(x, W, y), (x, W))
        return Memory(saved.bytes, live.peak)
    # --8<-- [end:count]


@dataclass(frozen=True, slots=True)
class Life:
    """A storage of ``nbytes`` that ``op`` made, the ``born``-th large one of a step.

    It is alive until after the ``gone``-th is there.
    ``chunk`` of the tokens, from 0, was the last whose logits were computed before.
    """

    op: str
    chunk: int
    nbytes: int
    born: int
    gone: int


class Lives(TorchDispatchMode):
    """Follows all storages of at least ``least`` bytes that are made beside ``x``, in their order."""

    def __init__(self, x: Tensor, chunk_elements: int, least: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.x, self.chunk_elements, self.least = x, chunk_elements, least
        self.made = self.chunk = 0
        self.alive: set[int] = {storage_key(x)}
        self.ended: list[Life] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and follow what it made."""
        given = {storage_key(t) for t in tree_leaves(args) if isinstance(t, Tensor)}
        if func is torch.ops.aten.mm.default and storage_key(args[0]) == storage_key(self.x):
            self.chunk = args[0].storage_offset() // self.chunk_elements
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.untyped_storage().nbytes() >= self.least:
                self._follow(t, func.overloadpacket.__name__, given)
        return out

    def _follow(self, t: Tensor, op: str, given: set[int]) -> None:
        key, nbytes = storage_key(t), t.untyped_storage().nbytes()
        if key not in given | self.alive:
            self.made += 1
            self.alive.add(key)
            when_freed(t, self._end, key, op, self.chunk, nbytes, self.made)

    def _end(self, key: int, op: str, chunk: int, nbytes: int, born: int) -> None:
        self.alive.remove(key)
        self.ended.append(Life(op, chunk, nbytes, born, self.made))


def lifetimes(loss: Loss, T: int, h: int, V: int, k: int) -> tuple[int, list[Life]]:
    """What lives when in a step of ``k`` chunks, and how much of it the forward makes; fake tensors, bf16."""
    with fake():
        x, W = (torch.zeros(n, h, dtype=torch.bfloat16, requires_grad=True) for n in (T, V))
        y = torch.zeros(T, dtype=torch.long)
        with Lives(x, T // k * h, 2 * (T // k) * min(h, V)) as lives:
            value = loss(x, W, y)
            forward = lives.made
            torch.autograd.grad(value, (x, W))
    return forward, sorted(lives.ended, key=lambda life: life.born)


NAMES = ("z", "z32", "p", "g_p", "g_z32", "g_z", "g_w", "g_x")
KINDS = ("logits", "logits", "saved", "gradient", "gradient", "gradient", "wanted", "wanted")
"""The large tensors of doing all at once, in the order in which they are made, and what each is."""


def draw_lifetimes(T: int, h: int, V: int, found: Mechanisms) -> None:
    """All tensors of doing all at once; of the other ways each chunk's log-softmax, which may be kept."""
    parts, rows = [], list[str]()
    for name in ("naive", "chunked", "recomputed", "fused"):
        forward, lives = lifetimes(ways(SHOWN)[name], T, h, V, SHOWN)
        backward = lives[-1].born - forward

        def at(made: int, forward: int = forward, backward: int = backward) -> float:
            return made / forward if made < forward else 1 + (made - forward) / backward

        first = len(rows)
        parts += [Span(first, "forward", 0, 1), Span(first, "backward", 1, 2)]
        if name == "naive":
            rows += [name, *NAMES]
            for row, (kind, life) in enumerate(zip(KINDS, lives, strict=True), start=first + 1):
                label = f"{life.nbytes / 1e9:.1f} GB" if life.nbytes > 1e9 else ""
                parts.append(Span(row, kind, at(life.born - 1), at(life.gone), label))
        else:
            rows += [name, *(f"chunk_{i + 1}" for i in range(SHOWN))]
            for life in lives:
                if life.op == "_log_softmax":
                    row = first + 1 + life.chunk
                    parts.append(Span(row, "saved", at(life.born - 1), at(life.gone)))
    found.lanes("lifetimes", parts, rows=rows)


def draw(device: str, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Small real ``x, W, y``: 48 tokens, width 16, 300 words."""
    generator = torch.Generator().manual_seed(seed)
    x, W = (torch.randn(n, 16, generator=generator).to(device, dtype) for n in (48, 300))
    y = torch.randint(300, (48,), generator=generator).to(device)
    return x.requires_grad_(), W.requires_grad_(), y


def results(loss: Loss, x: Tensor, W: Tensor, y: Tensor) -> list[Tensor]:
    """Loss, ``dx`` and ``dW``."""
    value = loss(x, W, y)
    return [value.detach(), *torch.autograd.grad(value, (x, W))]


def worst_error(config: Config) -> float:
    """The largest relative error of loss and gradients over all fp32 ways, against fp64."""
    exact = results(naive, *draw(config.device, config.seed, torch.float64))
    worst = 0.0
    for loss in ways(config.chunks).values():
        found = results(loss, *draw(config.device, config.seed, torch.float32))
        for ours, truth in zip(found, exact, strict=True):
            worst = max(worst, relative(ours, truth))
    return worst


def flops(loss: Loss, config: Config) -> int:
    """FLOPs of matrix products in forward and backward."""
    X = draw(config.device, config.seed, torch.float32)
    return count_flops(lambda: results(loss, *X))


def allocated(config: Config, found: Findings) -> None:
    """On a GPU: the allocator's peak of forward and backward at full size, in bf16."""
    T, h, V = config.tokens, config.width, config.vocabulary
    with torch.device(config.device):
        x = torch.randn(T, h, dtype=torch.bfloat16, requires_grad=True)
        W = torch.randn(V, h, dtype=torch.bfloat16, requires_grad=True)
        y = torch.randint(V, (T,))
    for name in ("naive", "recomputed", "fused"):
        step = partial(results, ways(config.chunks)[name], x, W, y)
        found[f"{name}_allocated"] = allocator_peak(step)


# --- the demo ------------------------------------------------------------------------------------

CHUNKS = (1, 2, 4, 8, 16, 32)
SHOWN = 4
"""Chunks of the figure of lifetimes."""


def run(config: Config, progress: Progress) -> Result:
    """Errors, then memory of every way, FLOPs, and the peak over the chunks."""
    found = Mechanisms(MEASURES, config, k=SHOWN)
    T, h, V, k = config.tokens, config.width, config.vocabulary, config.chunks
    progress(0.0, "fp64")
    found["worst_error"] = worst_error(config)

    progress(0.2, "memory")
    told = {name: memory(loss, T, h, V) for name, loss in ways(k).items()}
    for name, way in told.items():
        found[f"{name}_peak"] = way.peak
        if name != "low":
            found[f"{name}_saved"] = way.saved
    found["chunked_saved_ratio"] = told["chunked"].saved / told["naive"].saved
    found["fused_peak_ratio"] = told["naive"].peak / told["fused"].peak
    # What grows by one logit for each token: twice the vocabulary, with dW's growth taken off.
    wider = memory(naive, T, h, 2 * V)
    low_wider = memory(low_precision, T, h, 2 * V)
    peak_growth = (wider.peak - told["naive"].peak) / (T * V)
    saved_growth = (wider.saved - told["naive"].saved) / (T * V)
    found["saved_per_logit"] = saved_growth
    found["low_saved_per_logit"] = (low_wider.saved - told["low"].saved) / (T * V)
    found["peak_per_logit"] = peak_growth
    found["peak_over_saved"] = peak_growth / saved_growth
    found["peak_over_bf16"] = peak_growth / torch.bfloat16.itemsize

    progress(0.5, "FLOPs")
    base = flops(naive, config)
    found["recomputed_flops_ratio"] = flops(ways(4)["recomputed"], config) / base
    found["fused_flops_ratio"] = flops(ways(4)["fused"], config) / base

    progress(0.7, "figure")
    curves = {
        name: [memory(ways(n)[name], T, h, V).peak for n in CHUNKS]
        for name in ("chunked", "recomputed", "fused")
    }
    found.draw("peak_over_chunks", *(Line(name, CHUNKS, peaks) for name, peaks in curves.items()))
    draw_lifetimes(T, h, V, found)
    if config.device == "cuda":
        progress(0.9, "allocator")
        allocated(config, found)
    progress(1.0, "")
    return found.result()

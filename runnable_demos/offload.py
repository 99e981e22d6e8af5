"""What moves when activations are offloaded, what it saves, and when does it hide behind compute?

The question
    Instead of keeping a saved tensor on the device, or computing it again, one can copy it to the
    host's memory in the forward and back in the backward. How many bytes is that, and when is it free?

The model
    ``saved_tensors_hooks`` sees every tensor that autograd saves. With F FLOP/s of compute and W B/s of
    link, the copies of a block hide behind its forward if

        bytes / W ≤ FLOPs / F        that is, if        FLOPs / bytes ≥ F / W.

    A block of width h on sequences of s tokens does 24h² + 4sh FLOPs a token in its forward. It saves
    a multiple of h bytes a token: all that its operators keep, or its input alone where the block is
    checkpointed, 2h bytes in 16 bits. So the left side grows with h, and with s, and not with the batch.

The measurement
    Transformer blocks in bf16. Hooks count what passes them. "Host" is a NumPy copy, which the live
    peak of the device does not count; on CUDA it is pinned memory. FLOPs are counted.

The result
    Bytes out equal the saved bytes; FLOPs and gradients stay what they were. A hook that does not look
    moves parameters as well, and shared tensors once for each operator that saved them.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from runnable_demos.measure import LiveMemory, count_flops, saved_tensors
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

TITLE: Text = {"zh": "激活卸载", "en": "Offloading activations"}
QUESTION: Text = {
    "zh": "卸载激活要搬多少字节，省下多少，什么时候能藏在计算后面？",
    "en": "How many bytes does offloading move, what does it save, and when does it hide behind compute?",
}


@dataclass(frozen=True)
class Config:
    """A stack of Transformer blocks in bf16; FLOPs a byte are measured at h, 2h and 4h."""

    blocks: int = parameter(8, {"zh": "块数", "en": "blocks"}, 2, 64)
    width: int = parameter(64, {"zh": "宽度 h", "en": "width h"}, 16, 8192)
    batch: int = parameter(8, {"zh": "批大小 b", "en": "batch b"}, 1, 1024)
    heads: int = parameter(4, {"zh": "头数", "en": "heads"}, 1, 64)
    length: int = parameter(256, {"zh": "序列长度 s", "en": "sequence length s"}, 16, 8192)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(blocks=6, width=16, batch=8, heads=2, length=64), "full": Config()}


class Block(nn.Module):
    """A pre-norm Transformer block, ``(b, s, h)`` to the same; 24h² + 4sh FLOPs a token forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        b, s, h = x.shape
        q, k, v = (
            t.view(b, s, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        )
        attention = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attention.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))  # type: ignore[no-any-return]


def forward(blocks: Iterable[nn.Module], x: Tensor, *, checkpointed: bool = False) -> Tensor:
    """All blocks in turn, each of them checkpointed or none."""
    for block in blocks:
        x = (
            checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            if checkpointed
            else block(x)
        )
    return x


# --- the hooks -----------------------------------------------------------------------------------


def to_host(storage: UntypedStorage) -> Any:
    """The bytes of a storage in the host's memory: pinned for CUDA, and NumPy's own for the CPU."""
    content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    if storage.device.type == "cuda":
        pinned = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=True)
        return pinned.copy_(content, non_blocking=True)
    return content.numpy().copy()


def to_device(host: Any, device: torch.device) -> UntypedStorage:
    """A new storage on the device with those bytes."""
    content = host if isinstance(host, Tensor) else torch.from_numpy(host)
    return content.to(device, copy=True, non_blocking=True).untyped_storage()


@dataclass(slots=True)
class Copy:
    """What the host holds of one storage; ``device`` while tensors on it are still to be handed out."""

    host: Any
    handles: int = 0
    device: UntypedStorage | None = None


@dataclass(slots=True)
class Offload:
    """Moves what autograd saves to the host and back, each storage once.

    ``keep`` stays where it is: the parameters, which are on the device anyway.
    """

    keep: Iterable[Tensor] = ()
    out: int = 0
    """Bytes moved to the host."""
    back: int = 0
    """Bytes moved to the device."""
    kept: set[int] = field(init=False)
    copies: dict[int, Copy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = {t.untyped_storage()._cdata for t in self.keep}

    def hooks(self) -> saved_tensors_hooks:
        """The context in which the forward runs."""
        return saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor: Tensor) -> Any:
        """What autograd holds in place of ``tensor``: how to build it on its storage's copy."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.kept:
            return tensor
        if key not in self.copies:
            self.out += storage.nbytes()
            self.copies[key] = Copy(to_host(storage))
            weakref.finalize(storage, self.copies.pop, key)  # the address may come back as another
        copy = self.copies[key]
        copy.handles += 1
        layout = tensor.storage_offset(), tensor.shape, tensor.stride()
        return copy, tensor.dtype, tensor.device, layout

    def unpack(self, packed: Any) -> Tensor:
        """The tensor again; the copy on the device lasts until its last handle is used."""
        if isinstance(packed, Tensor):
            return packed
        copy, dtype, device, layout = packed
        if copy.device is None:
            copy.device = to_device(copy.host, device)
            self.back += copy.device.nbytes()
        tensor = torch.empty(0, dtype=dtype, device=device).set_(copy.device, *layout)
        copy.handles -= 1
        if not copy.handles:
            copy.device = None
        return tensor


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """One step of forward and backward."""

    out: int
    back: int
    peak: int
    """Live bytes on the device, parameters among them."""
    flops: int
    gradients: Tensor


def block_input(config: Config, batch: int, width: int) -> Tensor:
    """``(b, s, h)`` in bf16; it asks for a gradient, as it does within a network."""
    x = torch.randn(batch, config.length, width, device=config.device).to(torch.bfloat16)
    return x.requires_grad_()


def cost(config: Config, *, checkpointed: bool, offloaded: int) -> Cost:
    """A step in which the first ``offloaded`` blocks move what they save."""
    torch.manual_seed(config.seed)
    made = [Block(config.width, config.heads).to(torch.bfloat16) for _ in range(config.blocks)]
    model = nn.Sequential(*made).to(config.device)
    x = block_input(config, config.batch, config.width)
    offload = Offload(list(model.parameters()))

    def step() -> None:
        with offload.hooks():
            y = forward(made[:offloaded], x, checkpointed=checkpointed)
        forward(made[offloaded:], y, checkpointed=checkpointed).sum().backward()
        x.grad = None

    with LiveMemory(model=model, inputs=x) as live:
        step()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    moved = offload.out, offload.back
    model.zero_grad()
    return Cost(*moved, live.peak, count_flops(step), gradients)


def careless(config: Config) -> tuple[int, int, int]:
    """Bytes that a hook moves which packs all it is given, parameters' share, and a careful hook's."""
    model = Block(config.width, config.heads).to(torch.bfloat16).to(config.device)
    x = block_input(config, 1, config.width)

    def packed(exclude: Iterable[Tensor]) -> tuple[int, int]:
        with saved_tensors(exclude) as saved:
            model(x)
        every = sum(t.dtype.itemsize * math.prod(t.shape) for t in saved.tensors)
        return every, saved.bytes

    everything, _ = packed(())
    activations, once = packed(list(model.parameters()))
    return everything, everything - activations, once


def intensity(config: Config, width: int, *, checkpointed: bool) -> tuple[int, int]:
    """FLOPs of a block's forward, and the bytes that leave the device meanwhile."""
    model = Block(width, config.heads).to(torch.bfloat16).to(config.device)
    x = block_input(config, 1, width)
    offload = Offload(list(model.parameters()))
    with offload.hooks():
        forward([model], x, checkpointed=checkpointed)
    return count_flops(lambda: model(x)), offload.out


WAYS: dict[str, Text] = {
    "none": {"zh": "全部留在设备上", "en": "all kept on the device"},
    "offload": {"zh": "全部卸载", "en": "all offloaded"},
    "keep_last": {"zh": "卸载，最后一块除外", "en": "offloaded but for the last block"},
    "checkpoint": {"zh": "逐块检查点", "en": "each block checkpointed"},
    "both": {"zh": "检查点，块输入卸载", "en": "checkpointed, block inputs offloaded"},
}


def run(config: Config, progress: Progress) -> Result:
    """One step each way, then FLOPs against bytes over the width."""
    blocks = config.blocks
    found: dict[str, Cost] = {}
    for i, (way, (checkpointed, offloaded)) in enumerate(
        {
            "none": (False, 0),
            "offload": (False, blocks),
            "keep_last": (False, blocks - 1),
            "checkpoint": (True, 0),
            "both": (True, blocks),
        }.items()
    ):
        progress(i / 7, WAYS[way]["en"])
        found[way] = cost(config, checkpointed=checkpointed, offloaded=offloaded)
    everything, of_parameters, once = careless(config)
    progress(6 / 7, "FLOPs against bytes")
    widths = (config.width, 2 * config.width, 4 * config.width)
    ratios = {
        checkpointed: [intensity(config, h, checkpointed=checkpointed) for h in widths]
        for checkpointed in (False, True)
    }
    progress(1.0, "done")

    none = found["none"]
    tokens = config.batch * config.length
    hooks = {
        "zh": "保存张量的钩子里经过的字节，每个存储一次",
        "en": "bytes that pass the saved-tensor hooks, each storage once",
    }
    live = {
        "zh": "一次前向与反向的实时字节峰值，含参数",
        "en": "live peak of a forward and backward, parameters included",
    }
    metrics = [
        *(
            Metric(
                f"peak_{way}",
                found[way].peak / none.peak,
                "",
                "exact",
                {
                    "zh": f"峰值与全部留下之比：{text['zh']}",
                    "en": f"peak over keeping all: {text['en']}",
                },
                live,
            )
            for way, text in WAYS.items()
            if way != "none"
        ),
        *(
            Metric(
                f"flops_{way}",
                found[way].flops / none.flops,
                "",
                "exact",
                {
                    "zh": f"FLOPs 与全部留下之比：{text['zh']}",
                    "en": f"FLOPs over keeping all: {text['en']}",
                },
                {"zh": "矩阵乘与注意力的 FLOPs", "en": "FLOPs of matrix products and attention"},
            )
            for way, text in WAYS.items()
            if way in ("offload", "checkpoint")
        ),
        Metric(
            "moved_per_token",
            found["offload"].out / (tokens * blocks),
            "B/token",
            "exact",
            {
                "zh": "全部卸载：每块每个词元移出的字节",
                "en": "all offloaded: bytes to the host a token a block",
            },
            hooks,
        ),
        Metric(
            "moved_inputs_per_token",
            found["both"].out / (tokens * blocks),
            "B/token",
            "exact",
            {
                "zh": "只卸载块输入：每块每个词元移出的字节",
                "en": "block inputs alone: bytes to the host a token a block",
            },
            hooks,
        ),
        Metric(
            "returns_what_left",
            all(f.back == f.out for f in found.values()),
            "",
            "exact",
            {
                "zh": "移回的字节等于移出的字节",
                "en": "as many bytes come back as were moved out",
            },
            hooks,
        ),
        Metric(
            "gradients_bit_equal",
            all(torch.equal(f.gradients, none.gradients) for f in found.values()),
            "",
            "exact",
            {"zh": "各种做法的梯度逐位相等", "en": "all ways give the same gradients, bit for bit"},
            {"zh": "逐元素比较", "en": "compared element by element"},
        ),
        Metric(
            "careless_over_careful",
            everything / once,
            "",
            "exact",
            {
                "zh": "来者不拒的钩子搬的字节是细心的几倍",
                "en": "bytes of a hook that packs everything, over a careful one's",
            },
            {
                "zh": "一块的前向里传给钩子的全部张量",
                "en": "all tensors that a block's forward gives to the hooks",
            },
        ),
        Metric(
            "parameters_among_them",
            of_parameters / everything,
            "",
            "exact",
            {
                "zh": "其中参数占的份额",
                "en": "share of it that is parameters",
            },
            {
                "zh": "一块的前向里传给钩子的全部张量",
                "en": "all tensors that a block's forward gives to the hooks",
            },
        ),
        *(
            Metric(
                name,
                flops / moved,
                "",
                "exact",
                {
                    "zh": f"每字节的前向 FLOPs，h = {widths[i]}：{text['zh']}",
                    "en": f"forward FLOPs a byte, h = {widths[i]}: {text['en']}",
                },
                {
                    "zh": "一块前向的 FLOPs 除以移出的字节",
                    "en": "FLOPs of a block's forward over the bytes that it moves out",
                },
            )
            for name, checkpointed, i, text in (
                ("intensity_all", False, 2, WAYS["offload"]),
                ("intensity_inputs", True, 2, WAYS["both"]),
                ("intensity_inputs_half_width", True, 1, WAYS["both"]),
            )
            for flops, moved in (ratios[checkpointed][i],)
        ),
    ]
    return Result(tuple(metrics), figures(config, found, widths, ratios))


def figures(
    config: Config,
    found: dict[str, Cost],
    widths: tuple[int, ...],
    ratios: dict[bool, list[tuple[int, int]]],
) -> tuple[Figure, ...]:
    """Peaks of the five ways, and FLOPs a byte over the width."""
    places = tuple(float(i) for i in range(len(WAYS)))
    peaks = Figure(
        "peaks",
        {
            "zh": "留下、卸载、重算：设备上的峰值",
            "en": "Keep, offload, recompute: the device's peak",
        },
        Axis({"zh": "做法", "en": "way"}, categories=tuple(WAYS.values())),
        Axis({"zh": "实时字节", "en": "live bytes"}, "B"),
        (
            Series(
                {"zh": "峰值", "en": "peak"},
                places,
                tuple(float(found[way].peak) for way in WAYS),
                "bar",
            ),
        ),
    )
    x = tuple(float(h) for h in widths)
    s = config.length
    intensities = Figure(
        "intensity",
        {
            "zh": f"每搬一字节，前向有多少计算可以遮住它，s = {s}",
            "en": f"Forward compute to hide each byte behind, s = {s}",
        },
        Axis({"zh": "宽度 h", "en": "width h"}, scale="log2"),
        Axis({"zh": "FLOPs / 字节", "en": "FLOPs / byte"}, scale="log10"),
        (
            Series(
                {"zh": "块输入：12h + 2s", "en": "block inputs: 12h + 2s"},
                x,
                tuple(12 * h + 2 * s for h in x),
                "theory",
            ),
            Series(
                {"zh": "只卸载块输入，实测", "en": "block inputs, measured"},
                x,
                tuple(flops / moved for flops, moved in ratios[True]),
            ),
            Series(
                {"zh": "全部卸载，实测", "en": "everything, measured"},
                x,
                tuple(flops / moved for flops, moved in ratios[False]),
            ),
        ),
    )
    return peaks, intensities

"""What moves when activations are offloaded, what it saves, and when does it hide behind compute?

The lesson is ``lessons/offload.en.md`` (中文: ``lessons/offload.zh.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import (
    LiveMemory,
    allocator_peak,
    count_flops,
    saved_tensors,
    storage_key,
)
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.lab.timing import typical_seconds
from runnable_demos.models.gpt import Block

GPU = 10
TITLE: Text = {"zh": "激活卸载", "en": "Offloading activations"}
QUESTION: Text = {
    "zh": "卸载激活要搬多少字节，省下多少，什么时候能藏在计算后面？",
    "en": "How many bytes does offloading move, what does it save, and when does it hide behind compute?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "一次前向与反向的实时字节峰值，含参数",
  "live peak of a forward and backward, parameters included",
]
[method.metrics]
peak_offload = ["", "峰值与全部留下之比：全部卸载", "peak over keeping all: all offloaded"]
peak_keep_last = [
  "",
  "峰值与全部留下之比：卸载，最后一块除外",
  "peak over keeping all: offloaded but for the last block",
]
peak_checkpoint = [
  "",
  "峰值与全部留下之比：逐块检查点",
  "peak over keeping all: each block checkpointed",
]
peak_both = [
  "",
  "峰值与全部留下之比：检查点，块输入卸载",
  "peak over keeping all: checkpointed, block inputs offloaded",
]

[[method]]
kind = "exact"
how = ["矩阵乘与注意力的 FLOPs", "FLOPs of matrix products and attention"]
[method.metrics]
flops_offload = ["", "FLOPs 与全部留下之比：全部卸载", "FLOPs over keeping all: all offloaded"]
flops_checkpoint = [
  "",
  "FLOPs 与全部留下之比：逐块检查点",
  "FLOPs over keeping all: each block checkpointed",
]

[[method]]
kind = "exact"
how = [
  "保存张量的钩子里经过的字节，每个存储一次",
  "bytes that pass the saved-tensor hooks, each storage once",
]
[method.metrics]
moved_per_token = [
  "B/token",
  "全部卸载：每块每个 token 移出的字节",
  "all offloaded: bytes to the host a token a block",
]
moved_inputs_per_token = [
  "B/token",
  "只卸载块输入：每块每个 token 移出的字节",
  "block inputs alone: bytes to the host a token a block",
]
returns_what_left = ["", "移回的字节等于移出的字节", "as many bytes come back as were moved out"]

[[method]]
kind = "exact"
how = ["逐元素比较", "compared element by element"]
[method.metrics]
gradients_bit_equal = [
  "",
  "各种做法的梯度逐位相等",
  "all ways give the same gradients, bit for bit",
]

[[method]]
kind = "exact"
how = [
  "一块的前向里传给钩子的全部张量",
  "all tensors that a block's forward gives to the hooks",
]
[method.metrics]
careless_over_careful = [
  "",
  "来者不拒的钩子搬的字节是细心的几倍",
  "bytes of a hook that packs everything, over a careful one's",
]
parameters_among_them = ["", "其中参数占的份额", "share of it that is parameters"]

[[method]]
kind = "exact"
how = [
  "一块前向的 FLOPs 除以移出的字节",
  "FLOPs of a block's forward over the bytes that it moves out",
]
[method.metrics]
intensity_all = [
  "",
  "每字节的前向 FLOPs，h = {widest}：全部卸载",
  "forward FLOPs a byte, h = {widest}: all offloaded",
]
intensity_inputs = [
  "",
  "每字节的前向 FLOPs，h = {widest}：检查点，块输入卸载",
  "forward FLOPs a byte, h = {widest}: checkpointed, block inputs offloaded",
]
intensity_inputs_half_width = [
  "",
  "每字节的前向 FLOPs，h = {half_of_it}：检查点，块输入卸载",
  "forward FLOPs a byte, h = {half_of_it}: checkpointed, block inputs offloaded",
]

[[method]]
kind = "computed"
how = [
  "按一块的 FLOPs 与移出的字节排出的时间表，{drawn} 块，h = {widest}，{bar} 次 FLOPs 与一字节的拷贝同时完成",
  "a schedule from a block's FLOPs and bytes, {drawn} blocks, h = {widest}, {bar} FLOPs in the time of a byte",
]
[method.metrics]
step_one_stream = [
  "",
  "一步的时间与只有计算之比：块输入，拷贝与计算同一个流",
  "a step over its compute alone: block inputs, copies on the stream of compute",
]
step_inputs = [
  "",
  "一步的时间与只有计算之比：块输入，拷贝另用流",
  "a step over its compute alone: block inputs, copies on streams of their own",
]
step_everything = [
  "",
  "一步的时间与只有计算之比：全部张量，拷贝另用流",
  "a step over its compute alone: everything, copies on streams of their own",
]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "{timed_blocks} 块，h = {timed_width}，s = {timed_length}，批为 1，bf16；主机内存锁页，拷贝与计算同一个流；一步的时间，{repeats} 次的中位数",
  "{timed_blocks} blocks, h = {timed_width}, s = {timed_length}, batch 1, bf16; pinned memory on the host, copies on the stream of compute; time of a step, median of {repeats}",
]
[method.metrics]
time_offload = ["", "与全部留下之比：全部卸载", "over keeping all: all offloaded"]
time_checkpoint = ["", "与全部留下之比：逐块检查点", "over keeping all: each block checkpointed"]
time_both = [
  "",
  "与全部留下之比：检查点，块输入卸载",
  "over keeping all: checkpointed, block inputs offloaded",
]

[[method]]
kind = "measured"
only = "gpu"
how = [
  "同样的块；第二次运行的 torch.cuda.max_memory_allocated，减去运行前已分配的字节",
  "the same blocks; torch.cuda.max_memory_allocated of a second run, less what was allocated before it",
]
[method.metrics]
none_allocated = ["B", "一步分配的峰值：全部留下", "peak that a step allocates: all kept"]
offload_allocated = ["B", "一步分配的峰值：全部卸载", "peak that a step allocates: all offloaded"]
checkpoint_allocated = ["B", "一步分配的峰值：逐块检查点", "peak that a step allocates: each block checkpointed"]
both_allocated = [
  "B",
  "一步分配的峰值：检查点，块输入卸载",
  "peak that a step allocates: checkpointed, block inputs offloaded",
]

[figure.lanes]
title = ["计算、搬出、搬回：藏住与没藏住", "Compute, copies out and copies back: hidden and not"]
kind = "computed"
x = {label = ["时间（一块的前向为 1）", "time (a block's forward is 1)"]}
y = {label = ["各行", "row"]}
[figure.lanes.series]
forward = ["bar", "前向", "forward"]
backward = ["bar", "反向", "backward"]
out = ["bar", "搬出", "copy out"]
back = ["bar", "搬回", "copy back"]
wait = ["bar", "计算在等", "compute waits"]
[figure.lanes.places]
one_stream = ["块输入，同一个流", "inputs, one stream"]
inputs = ["块输入，另用流", "inputs, own streams"]
everything = ["全部，另用流", "all, own streams"]
compute = ["计算", "compute"]
to_host = ["搬出", "out"]
to_device = ["搬回", "back"]

[figure.peaks]
title = ["留下、卸载、重算：设备上的峰值", "Keep, offload, recompute: the device's peak"]
x = {label = ["做法", "way"]}
y = {label = ["实时字节", "live bytes"], unit = "B"}
[figure.peaks.series]
peak = ["bar", "峰值", "peak"]
[figure.peaks.places]
none = ["全部留在设备上", "all kept on the device"]
offload = ["全部卸载", "all offloaded"]
keep_last = ["卸载，最后一块除外", "offloaded but for the last block"]
checkpoint = ["逐块检查点", "each block checkpointed"]
both = ["检查点，块输入卸载", "checkpointed, block inputs offloaded"]

[figure.intensity]
title = [
  "每搬一字节，前向有多少计算可以遮住它，s = {length}",
  "Forward compute to hide each byte behind, s = {length}",
]
x = {label = ["宽度 h", "width h"], scale = "log2"}
y = {label = ["FLOPs / 字节", "FLOPs / byte"], scale = "log10"}
[figure.intensity.series]
theory = ["theory", "块输入：12h + 2s", "block inputs: 12h + 2s"]
inputs = ["measured", "只卸载块输入，实测", "block inputs, measured"]
everything = ["measured", "全部卸载，实测", "everything, measured"]
"""  # noqa: E501 - a method is said on one line


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
        self.kept = {storage_key(t) for t in self.keep}

    def hooks(self) -> saved_tensors_hooks:
        """The context in which the forward runs."""
        return saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor: Tensor) -> Any:
        """What autograd holds in place of ``tensor``: how to build it on its storage's copy."""
        # --8<-- [start:pack]
        storage, key = tensor.untyped_storage(), storage_key(tensor)
        if key in self.kept:
            return tensor
        if key not in self.copies:
            self.out += storage.nbytes()
            self.copies[key] = Copy(to_host(storage))
            when_freed(tensor, self.copies.pop, key)  # the address may come back as another
        copy = self.copies[key]
        copy.handles += 1
        layout = tensor.storage_offset(), tensor.shape, tensor.stride()
        return copy, tensor.dtype, tensor.device, layout
        # --8<-- [end:pack]

    def unpack(self, packed: Any) -> Tensor:
        """The tensor again; the copy on the device lasts until its last handle is used."""
        if isinstance(packed, Tensor):
            return packed
        # --8<-- [start:unpack]
        copy, dtype, device, layout = packed
        if copy.device is None:
            copy.device = to_device(copy.host, device)
            self.back += copy.device.nbytes()
        tensor = torch.empty(0, dtype=dtype, device=device).set_(copy.device, *layout)
        copy.handles -= 1
        if not copy.handles:
            copy.device = None
        return tensor
        # --8<-- [end:unpack]


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


def stepping(
    config: Config, *, checkpointed: bool, offloaded: int
) -> tuple[nn.Module, Tensor, Offload, Callable[[], None]]:
    """A stack, its input, what moves the first ``offloaded`` blocks' tensors, and a step of it all."""
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

    return model, x, offload, step


def cost(config: Config, *, checkpointed: bool, offloaded: int) -> Cost:
    """A step in which the first ``offloaded`` blocks move what they save."""
    model, x, offload, step = stepping(config, checkpointed=checkpointed, offloaded=offloaded)
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


def intensity(config: Config, width: int, *, checkpointed: bool) -> float:
    """FLOPs of a block's forward, over the bytes that leave the device meanwhile."""
    # --8<-- [start:intensity]
    model = Block(width, config.heads).to(torch.bfloat16).to(config.device)
    x = block_input(config, 1, width)
    offload = Offload(list(model.parameters()))
    with offload.hooks():
        forward([model], x, checkpointed=checkpointed)
    return count_flops(lambda: model(x)) / offload.out
    # --8<-- [end:intensity]


TIMED = Config(blocks=8, width=4096, batch=1, heads=32, length=4096)
"""What a GPU is timed on: blocks that keep it busy."""
REPEATS = 9


def on_gpu(device: str, found: Mechanisms) -> None:
    """What the GPU's allocator takes for a step each way, and its time over that of keeping all."""
    config = replace(TIMED, device=device)
    took: dict[str, float] = {}
    for way, checkpointed, offloaded in (
        ("none", False, 0),
        ("offload", False, config.blocks),
        ("checkpoint", True, 0),
        ("both", True, config.blocks),
    ):
        *_, step = stepping(config, checkpointed=checkpointed, offloaded=offloaded)
        found[f"{way}_allocated"] = allocator_peak(step)
        took[way] = typical_seconds(step, device, REPEATS)
    for way in ("offload", "checkpoint", "both"):
        found[f"time_{way}"] = took[way] / took["none"]


# --- the schedule --------------------------------------------------------------------------------


BAR = 1000
"""FLOPs that the device does while its link copies one byte."""
DRAWN = 4
"""Blocks in the drawing."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one block, in units of its forward; the backward holds what is computed again."""

    backward: float
    copy: float
    """One way."""


def timed(config: Config, width: int, *, checkpointed: bool) -> Timed:
    """A block's FLOPs and the bytes that it moves, as times."""
    model = Block(width, config.heads).to(torch.bfloat16).to(config.device)
    x = block_input(config, 1, width)
    forward_only = count_flops(lambda: model(x))
    both = count_flops(lambda: forward([model], x, checkpointed=checkpointed).sum().backward())
    copied = forward_only / intensity(config, width, checkpointed=checkpointed)
    return Timed(both / forward_only - 1, copied * BAR / forward_only)


def schedule(block: Timed, blocks: int, *, overlap: bool) -> dict[str, list[Span]]:
    """Spans of compute, copies out and copies back; the last block is not offloaded.

    Copies either take turns with compute on its stream, or have streams of their own. Then the device
    holds two blocks' tensors at most: one that is computed, and one that is on its way. A block stays
    where its copy out would end after its backward could begin, which only the last but one can meet:
    those before it are out before the last forward.
    """
    lanes: dict[str, list[Span]] = {"compute": [], "out": [], "back": []}
    free = dict.fromkeys(lanes, 0.0)

    def put(lane: str, kind: str, number: int, start: float, lasts: float) -> float:
        begin = max(start, *(free.values() if not overlap else [free[lane]]))
        if lane == "compute" and begin > free[lane]:
            lanes[lane].append(Span(0, "wait", free[lane], begin))
        name = f"{kind[0].upper()}{number}" if lane == "compute" else str(number)
        lanes[lane].append(Span(0, kind, begin, begin + lasts, name))
        free[lane] = begin + lasts
        return free[lane]

    gone = {0: 0.0, -1: 0.0}
    for i in range(1, blocks + 1):
        done = put("compute", "forward", i, gone[i - 2], 1.0)
        gone[i] = put("out", "out", i, done, block.copy) if i < blocks else done
    here = gone[blocks]
    for i in range(blocks, 0, -1):
        done = put("compute", "backward", i, here, block.backward)
        begun = done - block.backward
        if i == blocks and gone[i - 1] > done:  # stays, so that its backward follows
            lanes["out"].pop()
            here = done
        elif i > 1:  # prefetched while this block's backward runs
            here = put("back", "back", i - 1, max(begun, gone[i - 1]), block.copy)
    return lanes


def draw_lanes(config: Config, width: int, found: Mechanisms) -> None:
    """Three ways to offload, each with its three lanes and the time that its step takes."""
    inputs = timed(config, width, checkpointed=True)
    everything = timed(config, width, checkpointed=False)
    ways = {
        "one_stream": (inputs, False),
        "inputs": (inputs, True),
        "everything": (everything, True),
    }
    spans: list[Span] = []
    rows: list[str] = []
    for way, (block, overlap) in ways.items():
        lanes = schedule(block, DRAWN, overlap=overlap)
        rows.append(way)
        for name, place in (("compute", "compute"), ("out", "to_host"), ("back", "to_device")):
            spans += [replace(span, row=len(rows)) for span in lanes[name]]
            rows.append(place)
        took = lanes["compute"][-1].end
        found[f"step_{way}"] = took / (DRAWN * (1 + block.backward))
    found.lanes("lanes", spans, rows)


def run(config: Config, progress: Progress) -> Result:
    """One step each way, then FLOPs against bytes over the width."""
    widths = [config.width, 2 * config.width, 4 * config.width]
    found = Mechanisms(
        MEASURES,
        config,
        widest=widths[2],
        half_of_it=widths[1],
        bar=BAR,
        drawn=DRAWN,
        timed_blocks=TIMED.blocks,
        timed_width=TIMED.width,
        timed_length=TIMED.length,
        repeats=REPEATS,
    )
    blocks = config.blocks
    ways = {  # whether blocks are checkpointed, and how many are offloaded
        "none": (False, 0),
        "offload": (False, blocks),
        "keep_last": (False, blocks - 1),
        "checkpoint": (True, 0),
        "both": (True, blocks),
    }
    costs: dict[str, Cost] = {}
    for i, (way, (checkpointed, offloaded)) in enumerate(ways.items()):
        progress(i / 7, way)
        costs[way] = cost(config, checkpointed=checkpointed, offloaded=offloaded)
    none = costs["none"]
    for way in ("offload", "keep_last", "checkpoint", "both"):
        found[f"peak_{way}"] = costs[way].peak / none.peak
    for way in ("offload", "checkpoint"):
        found[f"flops_{way}"] = costs[way].flops / none.flops
    found.draw(
        "peaks", Line("peak", range(len(costs)), [c.peak for c in costs.values()]), places=costs
    )

    tokens = config.batch * config.length
    found["moved_per_token"] = costs["offload"].out / (tokens * blocks)
    found["moved_inputs_per_token"] = costs["both"].out / (tokens * blocks)
    found["returns_what_left"] = all(c.back == c.out for c in costs.values())
    equal = all(torch.equal(c.gradients, none.gradients) for c in costs.values())
    found["gradients_bit_equal"] = equal

    everything, of_parameters, once = careless(config)
    found["careless_over_careful"] = everything / once
    found["parameters_among_them"] = of_parameters / everything

    progress(6 / 7, "FLOPs against bytes")
    all_saved = [intensity(config, h, checkpointed=False) for h in widths]
    inputs = [intensity(config, h, checkpointed=True) for h in widths]
    found["intensity_all"] = all_saved[2]
    found["intensity_inputs"] = inputs[2]
    found["intensity_inputs_half_width"] = inputs[1]
    found.draw(
        "intensity",
        Line("theory", widths, [12 * h + 2 * config.length for h in widths]),
        Line("inputs", widths, inputs),
        Line("everything", widths, all_saved),
    )
    draw_lanes(config, widths[2], found)
    if config.device != "cpu":
        on_gpu(config.device, found)
    progress(1.0, "done")
    return found.result()

"""How much memory does a training run take? It depends on which number is read, and when.

The lesson is ``lessons/peak_memory_tools.en.md`` (中文: ``lessons/peak_memory_tools.zh.md``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.cuda._memory_viz import _profile_to_snapshot
from torch.profiler import ProfilerActivity, profile

from runnable_demos.lab.findings import Findings, Line
from runnable_demos.lab.measure import LiveMemory, allocator_peak, storage_bytes
from runnable_demos.lab.metrics import Progress, Result, Text, parameter

GPU = 12
TITLE: Text = {"zh": "显存的几个读数", "en": "The numbers that memory is read by"}
QUESTION: Text = {
    "zh": "存活、峰值、保留、nvidia-smi：为什么不一样，各漏了什么？",
    "en": "Alive, peak, reserved, nvidia-smi: why do they differ, and what does each leave out?",
}

MEASURES = """
[[method]]
kind = "exact"
how = [
  "真实训练的第二步，fp32，AdamW（foreach）；各时刻存活的张量字节（LiveMemory）",
  "second step of a real training run, fp32, AdamW (foreach): bytes of the tensors alive at each moment (LiveMemory)",
]
[method.metrics]
weights = ["B", "全部参数", "all parameters"]
between = ["B", "两步之间存活的", "alive between two steps"]
after_forward = ["B", "前向之后", "after the forward"]
after_backward = ["B", "反向之后", "after the backward"]
peak = ["B", "一步的峰值", "peak of a step"]
peak_over_between = ["", "峰值与两步之间存活的之比", "peak over what is alive between steps"]
peak_over_weights = ["", "峰值与参数之比", "peak over the parameters"]

[[method]]
kind = "exact"
how = [
  "先走一步长批，再走一步普通的批；从头算的峰值与清零之后的峰值之比（LiveMemory）",
  "a step with a longer batch, then an ordinary one: peak since the start over peak since a reset (LiveMemory)",
]
[method.metrics]
unreset_over_reset = ["", "没清零的峰值与清零后的峰值之比", "peak that was not reset over the one that was"]

[[method]]
kind = "exact"
how = [
  "torch.profiler 记下 CPU 分配器的每次分配与释放，由 PyTorch 自己的代码转成快照；在快照里走到存活字节最多的一刻",
  "torch.profiler notes each allocation and release of the CPU's allocator, PyTorch's own code makes a snapshot of them; at the moment in it when most bytes are alive",
]
[method.metrics]
snapshot_peak = ["B", "快照里的峰值，普通的第二步", "peak in the snapshot, ordinary second step"]
snapshot_agrees = ["", "快照、实时计数与分配器事件三者的峰值相等", "peaks by snapshot, live meter and allocator events are equal"]
snapshot_blocks = ["", "峰值那一刻存活的块数", "blocks alive at the peak"]
snapshot_largest = ["B", "其中最大的一块", "the largest of them"]
snapshot_activations = ["", "其中标为激活的占多少字节", "share of bytes labelled activation"]
snapshot_gelu = ["", "其中分配栈里有 gelu 的占多少字节", "share of bytes with gelu in their stack"]

[[method]]
kind = "computed"
how = [
  "把 CPU 上录下的分配与释放交给 CUDA 缓存分配器的规则模拟（512 B 取整，2 MiB 与 20 MiB 的 segment，最佳适配，释放不归还）",
  "allocations recorded on the CPU put through the rules of the CUDA caching allocator (rounded to 512 B, segments of 2 and 20 MiB, best fit, nothing given back when freed)",
]
[method.metrics]
allocated_over_requested = ["", "分配的与申请的之比（取整，没切的余量），峰值处", "allocated over requested (rounding, unsplit remainders), at the peak"]
reserved_peak = ["B", "普通的两步之后，保留的", "reserved after two ordinary steps"]
reserved_over_peak = ["", "保留的与峰值存活之比，普通的两步之后", "reserved over peak alive, after two ordinary steps"]
reserved_over_peak_large = ["", "同上，录下的大小都乘 64", "the same, with all recorded sizes times 64"]
reserved_over_between = ["", "两步之间：保留的与存活的之比", "between steps: reserved over alive"]
kept_after_empty = ["", "两步之间清空缓存：还保留的与存活的之比", "cache emptied between steps: still reserved over alive"]
reserved_after_long = ["", "长批之后再走一步普通的批：保留的与长批之前之比", "an ordinary step after the long one: reserved over that before"]
reserved_when_deleted = ["B", "全部删除之后，还保留的", "still reserved when everything is deleted"]
reserved_when_emptied = ["B", "再清空缓存之后，还保留的", "still reserved when the cache is emptied as well"]

[[method]]
kind = "measured"
how = [
  "GPU 上的同一段训练，读 torch.cuda 的计数器与 mem_get_info",
  "the same training on the GPU, by the counters of torch.cuda and mem_get_info",
]
only = "gpu"
[method.metrics]
gpu_allocated = ["B", "一步使 max_memory_allocated 升高多少", "how far a step raises max_memory_allocated"]
gpu_reserved = ["B", "max_memory_reserved", "max_memory_reserved"]
gpu_outside = ["B", "卡上已被占用、但不在保留里的", "in use on the GPU but not reserved"]

[figure.three_numbers]
title = ["同一段训练的三个读数", "Three numbers of one run"]
kind = "computed"
x = {label = ["事件：两步，长批，一步，删除，清空", "events: two steps, long batch, step, delete, empty"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.three_numbers.series]
alive = ["step", "已分配", "allocated"]
highest = ["step", "已分配的最大值", "max allocated"]
reserved = ["step", "保留", "reserved"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """A residual network, an ordinary batch and a longer one."""

    layers: int = parameter(4, {"zh": "块数", "en": "blocks"}, 1, 64)
    width: int = parameter(192, {"zh": "宽度", "en": "width"}, 16, 4096)
    rows: int = parameter(768, {"zh": "普通批的行数", "en": "rows of the ordinary batch"}, 8, 65536)
    long_rows: int = parameter(1536, {"zh": "长批的行数", "en": "rows of the long batch"}, 8, 65536)
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=2, width=64, rows=256, long_rows=512), "full": Config()}


class Network(nn.Module):
    """``x + down(gelu(up(x)))``, ``layers`` times; ``(b, h)`` to the same."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        h = config.width
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h))
            for _ in range(config.layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """All blocks."""
        for block in self.blocks:
            x = x + block(x)
        return x


class Training:
    """The network, its optimizer, and batches of both lengths."""

    def __init__(self, config: Config) -> None:
        torch.manual_seed(config.seed)
        self.model = Network(config).to(config.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.batch = torch.randn(config.rows, config.width, device=config.device)
        self.long = torch.randn(config.long_rows, config.width, device=config.device)

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        loss: Tensor = self.model(x).square().mean()
        return loss

    def update(self) -> None:
        """The optimizer's step; gradients are set to None."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, x: Tensor) -> None:
        """Forward, backward, update."""
        self.forward(x).backward()
        self.update()


# --- what is alive, at four places of a step -----------------------------------------------------


def read_places(config: Config, found: Findings) -> int:
    """An ordinary second step, read where people put their print; its peak."""
    training = Training(config)
    training.step(training.batch)
    with LiveMemory(
        model=training.model,
        optimizer=training.optimizer,
        inputs=[training.batch, training.long],
    ) as live:
        found["weights"] = storage_bytes(list(training.model.parameters()))
        # --8<-- [start:places]
        found["between"] = between = live.current
        live.reset_peak()
        loss = training.forward(training.batch)
        found["after_forward"] = live.current
        loss.backward()
        found["after_backward"] = live.current
        training.update()
        del loss
        peak = live.peak
        # --8<-- [end:places]
        training.step(training.long)
        training.step(training.batch)
        since_start = live.peak
        live.reset_peak()
        training.step(training.batch)
        found["unreset_over_reset"] = since_start / live.peak
    found["peak"] = peak
    found["peak_over_between"] = peak / between
    found["peak_over_weights"] = peak / storage_bytes(list(training.model.parameters()))
    return peak


# --- the snapshot --------------------------------------------------------------------------------

Trace = list[dict[str, Any]]
MARK = 13
"""Bytes that nothing else asks for: taken and dropped between the parts of a run."""


def record(config: Config, kinds: tuple[str, ...], stacks: bool) -> profile:
    """A step for each kind of batch, with a mark before and after each; then all is deleted."""
    with profile(
        activities=[ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=stacks,
        with_stack=stacks,
    ) as profiler:
        training = Training(config)
        for kind in kinds:
            torch.empty(MARK, dtype=torch.uint8)
            training.step(getattr(training, kind))
        torch.empty(MARK, dtype=torch.uint8)
        del training
    return profiler  # type: ignore[no-any-return]


def allocations(profiler: profile) -> list[tuple[int, int]]:
    """What the allocator told the profiler, in order of time: bytes, below zero if freed, and address."""
    todo = list(profiler.profiler.kineto_results.experimental_event_tree())  # type: ignore[union-attr]
    seen = []
    while todo:
        node = todo.pop()
        todo += node.children
        told = node.typed[1]
        if isinstance(told, torch._C._profiler._ExtraFields_Allocation):
            seen.append((node.start_time_ns, told.alloc_size, told.ptr))
    return [(size, address) for _, size, address in sorted(seen, key=lambda each: each[0])]


def highest(sizes: Iterable[int]) -> int:
    """The most bytes that were alive at once."""
    return max(accumulate(sizes))


# --8<-- [start:walk]
def fullest(trace: Trace) -> Trace:
    """The blocks that are alive when most bytes are, by walking through a snapshot's trace."""
    alive, total, most, best = dict[int, dict[str, Any]](), 0, 0, Trace()
    for event in trace:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
            total += event["size"]
        elif event["action"] == "free_completed":
            del alive[event["addr"]]
            total -= event["size"]
        if total > most:
            most, best = total, list(alive.values())
    return best


# --8<-- [end:walk]


def walk(config: Config, peak: int, found: Findings) -> None:
    """Two ordinary steps as a snapshot, and who is alive at its peak."""
    profiler = record(config, ("batch", "batch"), stacks=True)
    blocks = fullest(_profile_to_snapshot(profiler)["device_traces"][-1])
    total = sum(block["size"] for block in blocks)
    events = highest(size for size, _ in allocations(profiler))
    found["snapshot_peak"] = total
    found["snapshot_agrees"] = total == peak == events
    found["snapshot_blocks"] = len(blocks)
    found["snapshot_largest"] = max(block["size"] for block in blocks)
    labelled = sum(block["size"] for block in blocks if block["category"] == "activation")
    found["snapshot_activations"] = labelled / total
    gelu = sum(
        block["size"]
        for block in blocks
        if any("gelu" in frame["name"] for frame in block["frames"])
    )
    found["snapshot_gelu"] = gelu / total


# --- the allocator's rules -----------------------------------------------------------------------

MIB = 2**20


def rounded(size: int) -> int:
    """What a request takes of a block."""
    return max(512, -(-size // 512) * 512)


def segment(size: int) -> int:
    """What is asked of the driver when no free block is large enough."""
    if size <= MIB:
        return 2 * MIB
    return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB


@dataclass
class Block:
    """A piece of a segment; ``neighbours`` are those of its segment, in the order of their addresses."""

    address: int
    size: int
    small: bool
    neighbours: list[Block] = field(repr=False)
    free: bool = False


@dataclass
class Cache:
    """The CUDA caching allocator's rules for one stream, with default settings."""

    reserved: int = 0
    allocated: int = 0
    blocks: list[Block] = field(default_factory=list)
    top: int = 0

    def take(self, request: int) -> Block:
        """The smallest free block that is large enough, or a new segment; the rest is split off."""
        # --8<-- [start:cache]
        size = rounded(request)
        small = size <= MIB
        fitting = [b for b in self.blocks if b.free and b.small == small and b.size >= size]
        best = min(fitting, key=lambda b: (b.size, b.address), default=None)
        block = best or self._new(segment(size), small)
        rest = block.size - size
        if rest >= 512 if small else rest > MIB:
            block.size = size
            split = Block(block.address + size, rest, small, block.neighbours, free=True)
            block.neighbours.insert(block.neighbours.index(block) + 1, split)
            self.blocks.append(split)
        block.free = False
        self.allocated += block.size
        return block
        # --8<-- [end:cache]

    def _new(self, size: int, small: bool) -> Block:
        block = Block(self.top, size, small, [])
        block.neighbours.append(block)
        self.blocks.append(block)
        self.top += size
        self.reserved += size
        return block

    def give(self, block: Block) -> None:
        """Free it, and join it with free neighbours; nothing goes back to the driver."""
        self.allocated -= block.size
        block.free = True
        near = block.neighbours
        at = near.index(block)
        for other in near[at + 1 : at + 2] + near[max(at - 1, 0) : at]:
            if other.free:
                block.address = min(block.address, other.address)
                block.size += other.size
                near.remove(other)
                self.blocks.remove(other)

    def empty(self) -> None:
        """What ``empty_cache`` gives back: segments of which nothing is in use."""
        for block in [b for b in self.blocks if b.free and len(b.neighbours) == 1]:
            self.blocks.remove(block)
            self.reserved -= block.size


@dataclass
class Reading:
    """Three counters after each event."""

    allocated: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """How many events there were before each mark."""
    kept: list[int] = field(default_factory=list)
    """At each mark, what would stay reserved after ``empty_cache``."""

    def note(self, cache: Cache, requested: int) -> None:
        """One more event."""
        self.allocated.append(cache.allocated)
        self.reserved.append(cache.reserved)
        self.requested.append(requested)


def replay(events: list[tuple[int, int]]) -> Reading:
    """Put allocations and releases through the rules; in the end the cache is emptied."""
    cache, held, requested, reading = Cache(), dict[int, Block](), 0, Reading()
    for size, address in events:
        if abs(size) == MARK:
            if size > 0:
                reading.marks.append(len(reading.allocated))
                reading.kept.append(cache.reserved - unused(cache))
        elif size > 0:
            held[address] = cache.take(size)
            requested += size
            reading.note(cache, requested)
        elif size < 0:
            cache.give(held.pop(address))
            requested += size
            reading.note(cache, requested)
    cache.empty()
    reading.note(cache, requested)
    return reading


LARGER = 64
"""By how much the recorded sizes are multiplied, so that segments are small beside them."""


def unused(cache: Cache) -> int:
    """Bytes of the segments of which nothing is in use."""
    return sum(b.size for b in cache.blocks if b.free and len(b.neighbours) == 1)


def reserve(config: Config, found: Findings) -> None:
    """Two steps, a long one, an ordinary one, the end: what would be allocated and reserved."""
    profiler = record(config, ("batch", "batch", "long", "batch"), stacks=False)
    events = allocations(profiler)
    told = replay(events)
    two, last = (
        told.marks[2] - 1,
        told.marks[4] - 1,
    )  # the events that end two steps, and the fourth
    peak = max(told.requested[:two])
    at = told.requested.index(peak)
    found["allocated_over_requested"] = told.allocated[at] / peak
    found["reserved_peak"] = told.reserved[two]
    found["reserved_over_peak"] = told.reserved[two] / max(told.allocated[: two + 1])
    scaled = [(size if abs(size) == MARK else LARGER * size, at) for size, at in events]
    large = replay(scaled)
    found["reserved_over_peak_large"] = large.reserved[two] / max(large.allocated[: two + 1])
    found["reserved_over_between"] = told.reserved[two] / told.allocated[two]
    found["kept_after_empty"] = told.kept[2] / told.allocated[two]
    found["reserved_after_long"] = told.reserved[last] / told.reserved[two]
    found["reserved_when_deleted"] = told.reserved[-2]
    found["reserved_when_emptied"] = told.reserved[-1]

    top = list(accumulate(told.allocated, max))
    stride = max(1, len(top) // 240)
    shown = sorted(
        {*range(0, len(top), stride), *(told.allocated.index(t) for t in set(top)), len(top) - 1}
    )
    lines = {"alive": told.allocated, "highest": top, "reserved": told.reserved}
    found.draw("three_numbers", *(Line(n, shown, [y[i] for i in shown]) for n, y in lines.items()))


# --- the demo ------------------------------------------------------------------------------------


def on_gpu(config: Config, found: Findings) -> None:
    """The real counters."""
    training = Training(config)
    found["gpu_allocated"] = allocator_peak(lambda: training.step(training.batch))
    found["gpu_reserved"] = reserved = torch.cuda.max_memory_reserved()
    free, total = torch.cuda.mem_get_info()
    found["gpu_outside"] = total - free - reserved


def run(config: Config, progress: Progress) -> Result:
    """Four places of a step, a snapshot, and the counters that a caching allocator would have."""
    found = Findings(MEASURES, config)
    cpu = replace(config, device="cpu")  # the profiler's events are those of the CPU's allocator
    progress(0.0, "four places")
    peak = read_places(cpu, found)
    progress(0.3, "snapshot")
    walk(cpu, peak, found)
    progress(0.7, "reserved")
    reserve(cpu, found)
    if config.device == "cuda":
        progress(0.9, "GPU")
        on_gpu(config, found)
    progress(1.0, "")
    return found.result()

"""The bytes are free, and the allocation fails: where does the CUDA allocator lose them?

The question
    PyTorch asks the driver for *segments*, cuts *blocks* off them, and keeps what is freed. Why can a request
    fail although more than its size is free, and what does ``expandable_segments`` change?

The model
    The allocator's own rules, with its own constants (torch 2.13, ``c10/core/AllocatorConfig.h``; their use in
    ``c10/cuda/CUDACachingAllocator.cpp``: round_size, get_pool, get_allocation_size, get_free_block,
    should_split, try_merge_blocks, release_blocks, map_block, unmap_block), one stream, default settings:

        round the request up to 512 bytes; up to 1 MiB it is small, and has a pool of its own
        take the smallest free block that fits (best fit); else a new segment from the driver:
            small 2 MiB, below 10 MiB 20 MiB, above that the request rounded up to 2 MiB
        split off what is left: any 512 bytes in the small pool, more than 1 MiB in the large one
        a freed block merges with free neighbours of its own segment, never with another segment
        if the driver has nothing left: give back the segments that are wholly free, and try once more

    With expandable segments a pool has one segment, to whose end pages are mapped (2 MiB or 20 MiB each).
    Of the driver we assume that it serves any request up to what is left, at rising addresses.

The measurement
    Simulated: a hand-made heap whose requests fail; then every allocation and release of real training steps (traced on
    fake tensors, sizes of Llama 3 8B, sequence after sequence of a different length), replayed.
    On a GPU, the same heap by real allocations, within a limit that the allocator itself enforces.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runnable_demos.lab.findings import Line
from runnable_demos.lab.lives import when_freed
from runnable_demos.lab.measure import fake, storage_key
from runnable_demos.lab.mechanisms import Mechanisms, Span
from runnable_demos.lab.metrics import Progress, Result, Text, parameter
from runnable_demos.models.llama import Llama, Size

TITLE: Text = {"zh": "分配器与碎片", "en": "The allocator and fragmentation"}
QUESTION: Text = {
    "zh": "空着的显存够，为什么还是分配失败？",
    "en": "Enough memory is free; why does the allocation fail?",
}
GPU = 7

MEASURES = """
[[method]]
kind = "computed"
how = ["按分配器的规则模拟一次申请", "one request, by the allocator's rules, simulated"]
[method.metrics]
one_byte_allocated = ["B", "申请一个字节：记为已分配", "one byte asked for: counted as allocated"]
one_byte_reserved = ["B", "申请一个字节：向驱动要", "one byte asked for: taken from the driver"]
two_mib_reserved = ["B", "申请 2 MiB：向驱动要", "2 MiB asked for: taken from the driver"]
eleven_mib_reserved = ["B", "申请 11 MiB：向驱动要", "11 MiB asked for: taken from the driver"]
eleven_mib_allocated = ["B", "申请 11 MiB：记为已分配", "11 MiB asked for: counted as allocated"]

[[method]]
kind = "computed"
how = [
  "模拟：{segments} 个临时张量释放之后，{segments} 个常驻张量各占去一个 segment 的前一半多",
  "simulated: {segments} temporaries are freed, then {segments} lasting tensors take just over half of a segment each",
]
[method.metrics]
heap_card = ["B", "卡", "the card"]
heap_segment = ["B", "一个 segment", "one segment"]
heap_lasting = ["B", "一个常驻张量", "one lasting tensor"]
heap_free = ["B", "空闲，驱动的与缓存的相加", "free, with the driver and in the cache"]
heap_reserved_free = ["B", "保留而未分配", "reserved but unallocated"]
heap_largest = ["B", "默认：分得出的最大请求", "default: largest request that is served"]
heap_largest_expandable = [
  "B",
  "expandable：分得出的最大请求",
  "expandable: largest request that is served",
]
heap_fails = ["", "默认：申请空闲的一半，失败", "default: half of what is free is asked for, and fails"]
emptied_largest = [
  "B",
  "默认，先 empty_cache：分得出的最大请求",
  "default, after empty_cache: largest request that is served",
]
holes_largest = [
  "B",
  "整个 segment 交替释放：分得出的最大请求",
  "every other whole segment freed: largest request that is served",
]
holes_free = ["B", "整个 segment 交替释放：空闲", "every other whole segment freed: free bytes"]
slivers_free = ["B", "expandable，16 MiB 的张量交替释放：空闲", "expandable, every other tensor of 16 MiB freed: free bytes"]
slivers_kept = [
  "B",
  "expandable，16 MiB 的张量交替释放：还不回驱动的",
  "expandable, every other tensor of 16 MiB freed: what cannot go back to the driver",
]

[[method]]
kind = "computed"
how = [
  "{layers} 层 Llama 3 8B 尺寸的训练（bf16，AdamW），在 fake 张量上逐次记下分配与释放，再按分配器的规则重放；长度 {lengths}",
  "training of {layers} layers of the size of Llama 3 8B (bf16, AdamW): allocations and releases traced on fake tensors, replayed by the allocator's rules; lengths {lengths}",
]
[method.metrics]
trace_events = ["", "重放的分配与释放次数", "allocations and releases replayed"]
varied_allocated = ["B", "长度变化：已分配的峰值", "varied lengths: peak allocated"]
varied_reserved = ["B", "长度变化，默认：保留的峰值", "varied lengths, default: peak reserved"]
varied_expandable = ["B", "长度变化，expandable：保留的峰值", "varied lengths, expandable: peak reserved"]
varied_overhead = ["", "长度变化，默认：保留比已分配多", "varied lengths, default: reserved above allocated"]
varied_expandable_overhead = [
  "",
  "长度变化，expandable：保留比已分配多",
  "varied lengths, expandable: reserved above allocated",
]
fixed_overhead = ["", "长度不变，默认：保留比已分配多", "one length, default: reserved above allocated"]
states_first_overhead = [
  "",
  "优化器状态先建好，默认：保留比已分配多",
  "optimizer states created first, default: reserved above allocated",
]
longest_first_overhead = [
  "",
  "最长的放在最前，默认：保留比已分配多",
  "longest first, default: reserved above allocated",
]
tight_retries = [
  "",
  "卡只比峰值大 5%，默认：清空缓存重试的次数",
  "a card 5% larger than the peak, default: retries with an emptied cache",
]
tight_fails = ["", "同一张卡，默认：OOM", "the same card, default: out of memory"]
tight_expandable_survives = ["", "同一张卡，expandable：跑完", "the same card, expandable: finishes"]

[[method]]
kind = "measured"
how = [
  "真卡上的同一个堆，缩小到 {gpu_unit} MiB 一单位，用 per_process_memory_fraction 限制",
  "the same heap on the card, at {gpu_unit} MiB for a unit, limited by per_process_memory_fraction",
]
only = "gpu"
[method.metrics]
card_two_mib_reserved = ["B", "申请 2 MiB：memory_reserved", "2 MiB asked for: memory_reserved"]
card_heap_largest = ["B", "默认：分得出的最大请求", "default: largest request that is served"]
card_heap_largest_expandable = [
  "B",
  "expandable：分得出的最大请求",
  "expandable: largest request that is served",
]

[figure.heap]
title = [
  "同样的申请：上面各 segment 互不相通，下面只有一个 segment",
  "The same requests: above, segments that cannot join; below, a single segment",
]
kind = "computed"
x = {label = ["整张卡，各行首尾相接（GiB）", "along the card, row after row (GiB)"]}
y = {label = ["segment", "segment"]}
[figure.heap.series]
used = ["bar", "在用", "in use"]
free = ["bar", "缓存里空着", "free in the cache"]
driver = ["bar", "还在驱动那里", "left with the driver"]
[figure.heap.places]
default = ["默认", "default"]
expandable = ["expandable", "expandable"]
driver = ["驱动", "driver"]

[figure.reserved]
title = [
  "六步里保留的字节：长度 {lengths}",
  "Bytes reserved over six steps: lengths {lengths}",
]
kind = "computed"
x = {label = ["步", "step"]}
y = {label = ["字节", "bytes"], unit = "B"}
[figure.reserved.series]
default = ["measured", "默认：保留", "default: reserved"]
grown = ["measured", "expandable：保留", "expandable: reserved"]
allocated = ["theory", "已分配（每步的峰值）", "allocated (peak of each step)"]
"""  # noqa: E501 - a method is said on one line


@dataclass(frozen=True)
class Config:
    """The training whose allocations are replayed."""

    layers: int = parameter(4, {"zh": "层数", "en": "layers"}, 1, 32)
    longest: int = parameter(8192, {"zh": "最长的序列", "en": "longest sequence"}, 64, 32768)
    gpu_unit: int = parameter(
        20, {"zh": "真卡上一单位的 MiB", "en": "MiB of a unit on a GPU"}, 2, 512
    )
    device: str = parameter("cpu", {"zh": "设备", "en": "device"})
    seed: int = parameter(0, {"zh": "随机种子", "en": "seed"}, 0, 2**31)


PRESETS = {"small": Config(layers=1, longest=2048), "full": Config()}

KiB, MiB, GiB = 2**10, 2**20, 2**30
BLOCK = 512
"""kMinBlockSize: every size is a multiple of this."""
SMALL = 1 * MiB
"""kSmallSize: the largest request of the small pool."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MiB, 20 * MiB
"""kSmallBuffer and large_segment_size: segments, and the pages of expandable ones."""
OWN_SEGMENT, ROUND_LARGE = 10 * MiB, 2 * MiB
"""kMinLargeAlloc, from which a request has a segment of its own, rounded up to kRoundLarge."""
ENDLESS = 2**50


class OutOfMemory(Exception):
    """What ``torch.OutOfMemoryError`` is on the card."""


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment: ``prev`` and ``next`` are its neighbours there."""

    start: int
    size: int
    small: bool
    expandable: bool = False
    used: bool = False
    mapped: bool = True
    prev: Block | None = None
    next: Block | None = None


class Allocator:
    """The caching allocator for one stream, over a card of ``capacity`` bytes."""

    def __init__(self, capacity: int = ENDLESS, expandable: bool = False) -> None:
        self.capacity, self.expandable = capacity, expandable
        self.free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        """Free blocks of the small and the large pool, by size and then by address."""
        self.unmapped: dict[bool, list[Block]] = {True: [], False: []}
        self.heads: list[Block] = []
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.retries = 0
        self._next_address = 0

    # --- what a program calls ---

    def malloc(self, nbytes: int) -> Block:
        """A block for ``nbytes``: from the cache, from the driver, or from the driver once more."""
        size = -(-max(nbytes, 1) // BLOCK) * BLOCK
        block = self._cached(size, size <= SMALL) or self._grow(size, size <= SMALL)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._grow(size, size <= SMALL)
        if block is None:
            raise OutOfMemory
        left = block.size - size
        if left >= BLOCK if block.small or self.expandable else left > SMALL:
            self._insert(self._cut(block, size))
        block.used = True
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block: Block) -> None:
        """Back into the cache, merged with free neighbours."""
        block.used = False
        self.allocated -= block.size
        self._merge(block)
        self._insert(block)

    def empty_cache(self) -> None:
        """Give back segments that are wholly free, and whole pages of expandable ones."""
        for size, start, block in [*self.free[False], *self.free[True]]:
            if block.expandable:
                self._unmap(block)
            elif block.prev is None and block.next is None:
                self.free[block.small].remove((size, start, block))
                self.heads.remove(block)
                self.reserved -= size

    # --- the cache ---

    def _insert(self, block: Block) -> None:
        insort(self.free[block.small], (block.size, block.start, block))

    def _remove(self, block: Block) -> None:
        self.free[block.small].remove((block.size, block.start, block))

    def _cached(self, size: int, small: bool) -> Block | None:
        pool = self.free[small]
        at = bisect_left(pool, (size,))
        if at == len(pool):
            return None
        if self.expandable:  # what can still grow counts as large as it may become
            while at + 1 < len(pool) and _room(pool[at + 1][2]) < _room(pool[at][2]):
                at += 1
        return pool.pop(at)[2]

    def _cut(self, block: Block, size: int) -> Block:
        """Shorten ``block`` to ``size``; the rest becomes its neighbour."""
        rest = Block(block.start + size, block.size - size, block.small, block.expandable)
        rest.mapped = block.mapped
        rest.prev, rest.next = block, block.next
        if block.next is not None:
            block.next.prev = rest
        block.next, block.size = rest, size
        return rest

    def _merge(self, block: Block) -> None:
        """Swallow neighbours that are free and alike."""
        for other in (block.prev, block.next):
            if other is None or other.used or other.mapped != block.mapped:
                continue
            if other.mapped:
                self._remove(other)
            else:
                self.unmapped[block.small].remove(other)
            if other is block.prev:
                block.start, block.prev = other.start, other.prev
                if block.prev is None:
                    self.heads[self.heads.index(other)] = block
                else:
                    block.prev.next = block
            else:
                block.next = other.next
                if block.next is not None:
                    block.next.prev = block
            block.size += other.size

    # --- the driver ---

    def _grow(self, size: int, small: bool) -> Block | None:
        if self.expandable:
            return self._expand(size, small)
        nbytes = SMALL_SEGMENT if small else LARGE_SEGMENT
        if size >= OWN_SEGMENT:
            nbytes = -(-size // ROUND_LARGE) * ROUND_LARGE
        return self._segment(nbytes, small) if self._take(nbytes) else None

    def _segment(self, nbytes: int, small: bool, mapped: bool = True) -> Block:
        block = Block(self._next_address, nbytes, small, self.expandable, mapped=mapped)
        self._next_address += nbytes
        self.heads.append(block)
        return block

    def _take(self, nbytes: int) -> bool:
        if self.reserved + nbytes > self.capacity:
            return False
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _expand(self, size: int, small: bool) -> Block | None:
        """The lowest place with room, its missing pages mapped."""
        block = self._place(size, small)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.next
            assert after is not None
            if not self._map(after, min(size - block.size, after.size)):
                return None
            block = after
        self._remove(block)
        return block

    def _place(self, size: int, small: bool) -> Block:
        block: Block | None
        for hole in sorted(self.unmapped[small], key=lambda b: b.start):
            first = hole.prev if hole.prev is not None and not hole.prev.used else hole
            room, block = 0, first
            while room < size and block is not None and not block.used:
                room += block.size
                block = block.next
            if room >= size:
                return first
        page = _page(small)
        space = -(-(self.capacity + self.capacity // 8) // page) * page
        block = self._segment(space, small, mapped=False)
        self.unmapped[small].append(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        nbytes = -(-size // _page(block.small)) * _page(block.small)
        if not self._take(nbytes):
            return False
        self.unmapped[block.small].remove(block)
        if nbytes < block.size:
            self.unmapped[block.small].append(self._cut(block, nbytes))
        block.mapped = True
        self._merge(block)
        self._insert(block)
        return True

    def _unmap(self, block: Block) -> None:
        page = _page(block.small)
        begin = -(-block.start // page) * page
        end = (block.start + block.size) // page * page
        if begin >= end:
            return
        self._remove(block)
        if begin > block.start:
            whole, block = block, self._cut(block, begin - block.start)
            self._insert(whole)
        if end < block.start + block.size:
            self._insert(self._cut(block, end - block.start))
        self.reserved -= end - begin
        block.mapped = False
        self._merge(block)
        self.unmapped[block.small].append(block)


def _page(small: bool) -> int:
    return SMALL_SEGMENT if small else LARGE_SEGMENT


def _room(block: Block) -> int:
    after = block.next
    return block.size + (after.size if after is not None and not after.mapped else 0)


def blocks(head: Block) -> Iterator[Block]:
    """The blocks of a segment, in order."""
    block: Block | None = head
    while block is not None:
        yield block
        block = block.next


# --- a heap made by hand ---------------------------------------------------------------------------

SEGMENTS, CARD, TEMPORARY, LASTING = 4, 80, 15, 8
"""In units, of 1 GiB where it is simulated: temporaries leave segments, of which lasting tensors take a part."""


def heap(expandable: bool, unit: int = GiB) -> tuple[Allocator, list[Block]]:
    """Temporaries come and go, then tensors stay that take more than half of a temporary's segment."""
    card = Allocator(CARD * unit, expandable)
    for block in [card.malloc(TEMPORARY * unit) for _ in range(SEGMENTS)]:
        card.release(block)
    return card, [card.malloc(LASTING * unit) for _ in range(SEGMENTS)]


def holes() -> Allocator:
    """A card full of segments of their own, of which every other one is freed."""
    card = Allocator(CARD * GiB)
    for block in [card.malloc(LASTING * GiB) for _ in range(CARD // LASTING)][::2]:
        card.release(block)
    return card


def slivers(nbytes: int, pairs: int) -> Allocator:
    """One expandable segment of equal tensors, of which every other one is freed, and the cache emptied."""
    card = Allocator(CARD * GiB, expandable=True)
    for block in [card.malloc(nbytes) for _ in range(2 * pairs)][::2]:
        card.release(block)
    card.empty_cache()
    return card


def served(card: Allocator, nbytes: int) -> bool:
    """Whether a request succeeds."""
    try:
        card.malloc(nbytes)
    except OutOfMemory:
        return False
    return True


def largest(make: Callable[[], Allocator]) -> int:
    """The largest request, in MiB steps, that a card made anew serves."""
    least, most = 0, CARD * KiB
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if served(make(), middle * MiB) else (least, middle - 1)
    return least * MiB


def emptied() -> Allocator:
    """The heap by hand after ``torch.cuda.empty_cache()``."""
    card, _ = heap(expandable=False)
    card.empty_cache()
    return card


def draw_heap(found: Mechanisms) -> None:
    """Each segment on a row, one after another along the card; what the driver has left comes last."""
    spans, rows = [], list[str | int]()
    for name, expandable in (("default", False), ("expandable", True)):
        card, _ = heap(expandable)
        rows.append(name)
        end = 0.0
        for number, head in enumerate(card.heads, start=1):
            for block in blocks(head):
                if block.mapped:
                    size = block.size / GiB
                    kind = "used" if block.used else "free"
                    spans.append(Span(len(rows), kind, end, end + size, f"{size:.0f}"))
                    end += size
            rows.append(number)
        if not expandable:
            rows.append("driver")
        spans.append(Span(len(rows) - 1, "driver", end, CARD, f"{CARD - end:.0f}"))
    found.lanes("heap", spans, rows)


# --- real training, replayed -----------------------------------------------------------------------

SHARES = (5, 6, 4, 7, 6.5, 8)
"""Lengths of the steps, in eighths of the longest."""

Event = tuple[int, int]
"""A storage's number, and its bytes where it is made, or 0 where it is released."""


class Trace(TorchDispatchMode):
    """Every storage that is made, and every one that is released, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []
        self.alive: set[int] = set()
        self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note what it made."""
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and storage_key(t) not in self.alive:
                self.made += 1
                self.alive.add(storage_key(t))
                self.events.append((self.made, t.untyped_storage().nbytes()))
                when_freed(t, self._gone, storage_key(t), self.made)
        return out

    def _gone(self, key: int, number: int) -> None:
        self.alive.remove(key)
        self.events.append((number, 0))


def train(
    layers: int, lengths: Sequence[int], states_first: bool = False
) -> tuple[list[Event], list[int]]:
    """Events of a training with a step of each length, and where each step ends among them.

    AdamW creates its states in the first step, unless they are to be there before it.
    """
    size = Size(h=4096, f=14336, L=layers, a=32, g=8, V=128256)
    ends = []
    with fake(), Trace() as trace:
        model = Llama(size)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        for p in model.parameters() if states_first else ():
            moments = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[p] = {"step": torch.tensor(0.0), **moments}
        for length in lengths:
            tokens = torch.zeros(1, length, dtype=torch.long)
            model(tokens, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(len(trace.events))
        events = list(trace.events)
    return events, ends


def replay(events: Sequence[Event], card: Allocator) -> Iterator[int]:
    """What a trace does on a card; the number of events done, one by one."""
    held: dict[int, Block] = {}
    for done, (number, nbytes) in enumerate(events, start=1):
        if nbytes:
            held[number] = card.malloc(nbytes)
        elif number in held:
            card.release(held.pop(number))
        yield done


def replayed(events: Sequence[Event], card: Allocator) -> bool:
    """Whether a card gets through a trace."""
    try:
        for _ in replay(events, card):
            pass
    except OutOfMemory:
        return False
    return True


def overhead(events: Sequence[Event], expandable: bool = False) -> float:
    """By how much the reserved peak lies above the allocated one, on an endless card."""
    card = Allocator(expandable=expandable)
    replayed(events, card)
    return card.peak_reserved / card.peak_allocated - 1


def over_steps(
    events: Sequence[Event], ends: Sequence[int], expandable: bool
) -> list[tuple[int, int]]:
    """The most that an endless card has allocated in each step, and the most that it has reserved so far."""
    card, after = Allocator(expandable=expandable), list[tuple[int, int]]()
    for done in replay(events, card):
        if done in ends:
            after.append((card.peak_allocated, card.peak_reserved))
            card.peak_allocated = card.allocated
    return after


# --- the demo ------------------------------------------------------------------------------------


def one_request(found: Mechanisms) -> None:
    """What single requests take."""
    for name, nbytes in (("one_byte", 1), ("two_mib", 2 * MiB), ("eleven_mib", 11 * MiB)):
        card = Allocator()
        card.malloc(nbytes)
        found[f"{name}_reserved"] = card.reserved
        if name != "two_mib":
            found[f"{name}_allocated"] = card.allocated


def by_hand(found: Mechanisms) -> None:
    """Heaps whose bytes are free, and what they serve."""
    card, lasting = heap(expandable=False)
    found["heap_card"] = card.capacity
    found["heap_segment"] = sum(block.size for block in blocks(card.heads[0]))
    found["heap_lasting"] = lasting[0].size
    free = card.capacity - card.allocated
    found["heap_free"] = free
    found["heap_reserved_free"] = card.reserved - card.allocated
    found["heap_fails"] = not served(card, free // 2)
    found["heap_largest"] = largest(lambda: heap(expandable=False)[0])
    found["heap_largest_expandable"] = largest(lambda: heap(expandable=True)[0])
    found["emptied_largest"] = largest(emptied)
    full = holes()
    found["holes_free"] = full.capacity - full.allocated
    found["holes_largest"] = largest(holes)
    fine = slivers(16 * MiB, 640)
    found["slivers_free"] = sum(size for size, _, _ in fine.free[False])
    found["slivers_kept"] = fine.reserved - fine.allocated


def training(config: Config, lengths: Sequence[int], found: Mechanisms) -> None:
    """Real steps of changing lengths, of one length, and the longest first."""
    events, ends = train(config.layers, lengths)
    found["trace_events"] = len(events)
    default, grown = (over_steps(events, ends, expandable) for expandable in (False, True))
    peak = max(allocated for allocated, _ in default)
    found["varied_allocated"] = peak
    found["varied_reserved"] = default[-1][1]
    found["varied_expandable"] = grown[-1][1]
    found["varied_overhead"] = overhead(events)
    found["varied_expandable_overhead"] = overhead(events, expandable=True)
    tight = Allocator(peak * 105 // 100)
    found["tight_fails"] = not replayed(events, tight)
    found["tight_retries"] = tight.retries
    found["tight_expandable_survives"] = replayed(events, Allocator(tight.capacity, True))
    steps = range(1, len(lengths) + 1)
    found.draw(
        "reserved",
        Line("default", steps, [reserved for _, reserved in default]),
        Line("grown", steps, [reserved for _, reserved in grown]),
        Line("allocated", steps, [allocated for allocated, _ in default]),
    )
    found["states_first_overhead"] = overhead(train(config.layers, lengths, states_first=True)[0])
    found["longest_first_overhead"] = overhead(train(config.layers, sorted(lengths)[::-1])[0])
    found["fixed_overhead"] = overhead(train(config.layers, [config.longest] * 3)[0])


def on_the_card(config: Config, found: Mechanisms) -> None:
    """The heap by hand, by real allocations, on a card that the allocator is told to be small."""
    unit = config.gpu_unit * MiB
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    two = torch.empty(2 * MiB, dtype=torch.uint8, device=config.device)
    found["card_two_mib_reserved"] = torch.cuda.memory_reserved() - before
    del two
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((before + CARD * unit + MiB) / total)
    try:
        for name, expandable in (("", False), ("_expandable", True)):
            torch.cuda.empty_cache()
            torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{expandable}")
            least, most = 0, CARD * config.gpu_unit
            while least < most:
                middle = (least + most + 1) // 2
                fits = served_on_card(unit, middle * MiB, config.device)
                least, most = (middle, most) if fits else (least, middle - 1)
            found[f"card_heap_largest{name}"] = least * MiB
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
        torch.cuda.set_per_process_memory_fraction(1.0)


def served_on_card(unit: int, nbytes: int, device: str) -> bool:
    """Whether a request succeeds after the temporaries are gone and the lasting tensors are there."""
    torch.cuda.empty_cache()

    def empty(n: int) -> Tensor:
        return torch.empty(n, dtype=torch.uint8, device=device)

    temporaries = [empty(TEMPORARY * unit) for _ in range(SEGMENTS)]
    del temporaries
    lasting = [empty(LASTING * unit) for _ in range(SEGMENTS)]
    try:
        empty(nbytes)
    except torch.OutOfMemoryError:
        return False
    return len(lasting) == SEGMENTS


def run(config: Config, progress: Progress) -> Result:
    """Single requests, the heap by hand, then the training."""
    lengths = [int(config.longest * share / 8) for share in SHARES]
    told = ", ".join(map(str, lengths))
    found = Mechanisms(MEASURES, config, segments=SEGMENTS, lengths=told)
    progress(0.0, "rules")
    one_request(found)
    progress(0.1, "heap")
    by_hand(found)
    draw_heap(found)
    progress(0.3, "training")
    training(config, lengths, found)
    if config.device == "cuda":
        progress(0.9, "card")
        on_the_card(config, found)
    progress(1.0, "")
    return found.result()

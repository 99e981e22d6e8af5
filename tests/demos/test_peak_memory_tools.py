"""Four places of a step by hand, peaks by PyTorch's tracker, and the allocator's rules written a second time."""

from __future__ import annotations

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from runnable_demos.lab.metrics import Result
from runnable_demos.peak_memory_tools import (
    MARK,
    PRESETS,
    Cache,
    Training,
    allocations,
    record,
    replay,
    run,
)

CONFIG = PRESETS["small"]
H, L, ROWS, LONG = CONFIG.width, CONFIG.layers, CONFIG.rows, CONFIG.long_rows
P = L * (2 * 4 * H * H + 4 * H + H)
BATCHES = 4 * H * (ROWS + LONG)
REST = 12 * P + 4 * 4 * L + BATCHES  # parameters, moments, a counter a tensor, both batches
GRAPH = 4 * ROWS * H * 9 * L  # GELU's input and output, and each block's sum
MIB = 2**20


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


@pytest.fixture(scope="module")
def events() -> list[tuple[int, int]]:
    """What the allocator did over the four steps."""
    return allocations(record(CONFIG, ("batch", "batch", "long", "batch"), stacks=False))


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


def tracked(rows: int) -> int:
    """The peak of a second step with so many rows, by PyTorch's own tracker, beside both batches."""
    training = Training(CONFIG)
    x = training.batch if rows == ROWS else training.long
    training.step(x)
    tracker = MemTracker()
    tracker.track_external(training.model, training.optimizer, training.batch, training.long)
    with tracker:
        training.step(x)
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def test_four_places_by_hand(result: Result) -> None:
    """Weights; with moments and batches; with the graph and the loss; with the gradients instead."""
    assert value(result, "weights") == 4 * P
    assert value(result, "between") == REST
    assert value(result, "after_forward") == REST + GRAPH + 4
    assert value(result, "after_backward") == REST + 4 * P + 4


def test_peaks_are_those_of_pytorchs_own_tracker(result: Result) -> None:
    """Of the ordinary step, of the long one, and their ratio."""
    peak = tracked(ROWS)
    assert value(result, "peak") == peak
    assert value(result, "peak_over_between") == peak / REST
    assert value(result, "peak_over_weights") == peak / (4 * P)
    assert value(result, "unreset_over_reset") == tracked(LONG) / peak
    assert value(result, "snapshot_peak") == peak
    assert value(result, "snapshot_agrees") is True


def test_what_the_snapshot_shows_at_its_peak(result: Result) -> None:
    """Blocks by the allocator's own events; the rest from the network's shapes."""
    raw = allocations(record(CONFIG, ("batch", "batch"), stacks=False))
    alive, most, blocks = dict[int, int](), 0, 0
    for size, address in raw:
        if size > 0:
            alive[address] = size
        else:
            del alive[address]
        if sum(alive.values()) > most:
            most, blocks = sum(alive.values()), len(alive)
    assert value(result, "snapshot_blocks") == blocks
    assert value(result, "snapshot_largest") == 4 * ROWS * 4 * H
    assert value(result, "snapshot_gelu") == 4 * ROWS * 4 * H * L / most
    kept = GRAPH - 4 * ROWS * H + 4 + 4  # but the last sum, whose place its square has; two scalars
    assert value(result, "snapshot_activations") == kept / most


def join(parts: list[list[int | None]]) -> None:
    """Free pieces beside one another become one."""
    i = 0
    while i + 1 < len(parts):
        if parts[i][1] is None and parts[i + 1][1] is None:
            parts[i : i + 2] = [[int(parts[i][0] or 0) + int(parts[i + 1][0] or 0), None]]
        else:
            i += 1


def size_of_segment(need: int) -> int:
    """What the driver is asked for."""
    if need <= MIB:
        return 2 * MIB
    return 20 * MIB if need < 10 * MIB else (need + 2 * MIB - 1) // (2 * MIB) * 2 * MIB


def by_hand(events: list[tuple[int, int]]) -> tuple[list[int], list[int], list[int]]:
    """Allocated and reserved after each event, and kept at each mark: segments as plain lists of pieces.

    A piece is ``[size, owner]``, owner None where it is free; a segment is ``(small, pieces)``.
    """
    segments: list[tuple[bool, list[list[int | None]]]] = []
    allocated, reserved, kept = [], [], []

    def pieces(small: bool) -> list[tuple[int, int, int, int]]:
        found = []
        for s, (pool, parts) in enumerate(segments):
            for i, (size, owner) in enumerate(parts):
                if pool == small and owner is None:
                    found.append((int(size or 0), s, i, s))
        return sorted(found)

    for size, address in events:
        if abs(size) == MARK:
            if size > 0:
                used = [p for _, p in segments if any(owner is not None for _, owner in p)]
                kept.append(sum(int(n or 0) for p in used for n, _ in p))
            continue
        if size > 0:
            need = (size + 511) // 512 * 512
            small = need <= MIB
            fits = [each for each in pieces(small) if each[0] >= need]
            if not fits:
                new = size_of_segment(need)
                segments.append((small, [[new, None]]))
                fits = [(new, len(segments) - 1, 0, 0)]
            whole, s, i, _ = fits[0]
            parts = segments[s][1]
            rest = whole - need
            if (small and rest >= 512) or (not small and rest > MIB):
                parts[i : i + 1] = [[need, address], [rest, None]]
            else:
                parts[i] = [whole, address]
        else:
            for _, parts in segments:
                for i, (_, owner) in enumerate(parts):
                    if owner == address:
                        parts[i][1] = None
                join(parts)
        allocated.append(
            sum(int(n or 0) for _, p in segments for n, owner in p if owner is not None)
        )
        reserved.append(sum(int(n or 0) for _, p in segments for n, _ in p))
    return allocated, reserved, kept


def test_what_would_be_reserved(result: Result, events: list[tuple[int, int]]) -> None:
    """The rules a second time, on the same allocations."""
    allocated, reserved, kept = by_hand(events)
    told = replay(events)
    assert told.allocated[:-1] == allocated
    assert told.reserved[:-1] == reserved
    two, four = told.marks[2] - 1, told.marks[4] - 1
    assert value(result, "reserved_peak") == reserved[two]
    assert value(result, "reserved_over_peak") == reserved[two] / max(allocated[: two + 1])
    larger = [(size if abs(size) == MARK else 64 * size, at) for size, at in events]
    wide, kept_wide, _ = by_hand(larger)
    assert value(result, "reserved_over_peak_large") == kept_wide[two] / max(wide[: two + 1])
    assert value(result, "reserved_over_between") == reserved[two] / allocated[two]
    assert value(result, "kept_after_empty") == kept[2] / allocated[two]
    assert value(result, "reserved_after_long") == reserved[four] / reserved[two]
    assert value(result, "reserved_when_deleted") == reserved[-1]
    assert value(result, "reserved_when_emptied") == 0
    sizes = [size for size, _ in events if abs(size) != MARK]
    total = most = at = 0
    for i, size in enumerate(sizes[:two]):
        total += size
        if total > most:
            most, at = total, i
    assert value(result, "allocated_over_requested") == allocated[at] / most


def test_the_rules_on_a_few_requests() -> None:
    """Rounded, packed into segments of 2 and 20 MiB, joined when freed, kept until emptied."""
    cache = Cache()
    first, second = cache.take(1), cache.take(1000)
    assert (cache.allocated, cache.reserved) == (512 + 1024, 2 * MIB)
    third = cache.take(3 * MIB)
    assert cache.reserved == 22 * MIB
    whole = cache.take(11 * MIB)  # from the rest of the 20
    assert (whole.size, cache.reserved) == (11 * MIB, 22 * MIB)
    cache.take(13 * MIB)
    assert cache.reserved == 36 * MIB  # 14, of which 1 is too little to split off
    for block in (first, second, third, whole):
        cache.give(block)
    assert cache.allocated == 14 * MIB
    assert cache.reserved == 36 * MIB
    cache.empty()
    assert cache.reserved == 14 * MIB


def test_the_figure_shows_three_counters(result: Result, events: list[tuple[int, int]]) -> None:
    """The highest of each is on it; what is reserved ends at nothing."""
    allocated, reserved, _ = by_hand(events)
    lines = {series.name: series.y for series in result.figures[0].series}
    assert max(lines["alive"]) == max(lines["highest"]) == max(allocated)
    assert max(lines["reserved"]) == max(reserved)
    assert lines["alive"][-1] == lines["reserved"][-1] == 0

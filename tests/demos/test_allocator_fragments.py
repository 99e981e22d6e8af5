"""The simulated allocator against hand counts, PyTorch's own published examples, and a second simulation.

The second one keeps no lists of neighbours: a segment is a row of bytes, each of them free or not.
"""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

import pytest
import torch

from runnable_demos import allocator_fragments
from runnable_demos.allocator_fragments import (
    CARD,
    LASTING,
    PRESETS,
    SEGMENTS,
    TEMPORARY,
    Allocator,
    Block,
    GiB,
    MiB,
    OutOfMemory,
    blocks,
    replay,
    run,
    slivers,
    train,
)
from runnable_demos.lab.mechanisms import Lanes
from runnable_demos.lab.metrics import Result

CONFIG = PRESETS["small"]


@pytest.fixture(scope="module")
def result() -> Result:
    """One run at small size."""
    return run(CONFIG, lambda share, what: None)


def value(result: Result, name: str) -> float:
    """A metric's value."""
    return next(m.value for m in result.metrics if m.name == name)


# --- hand counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("one_byte_allocated", 512),
        ("one_byte_reserved", 2 * 2**20),
        ("two_mib_reserved", 20 * 2**20),
        ("eleven_mib_reserved", 12 * 2**20),
        ("eleven_mib_allocated", 12 * 2**20),  # 1 MiB is left, which is not split off
        ("heap_card", 80 * 2**30),
        ("heap_segment", 15 * 2**30),
        ("heap_lasting", 8 * 2**30),
        ("heap_free", (80 - 4 * 8) * 2**30),
        ("heap_reserved_free", 4 * (15 - 8) * 2**30),
        ("heap_largest", (80 - 4 * 15) * 2**30),  # what the driver has; a sliver is only 7
        ("heap_largest_expandable", (80 - 4 * 8) * 2**30),
        ("emptied_largest", (80 - 4 * 15) * 2**30),
        ("holes_free", 40 * 2**30),
        ("holes_largest", 40 * 2**30),
        ("slivers_free", 640 * 16 * 2**20),
        ("slivers_kept", 640 * 16 * 2**20),  # a hole of 16 MiB holds no page of 20
    ],
)
def test_small_cases_by_hand(result: Result, name: str, nbytes: int) -> None:
    """Each is counted by hand from the allocator's documented constants."""
    assert value(result, name) == nbytes


def test_it_fails_although_the_bytes_are_free(result: Result) -> None:
    """Half of what is free is more than the driver has and more than any sliver."""
    assert value(result, "heap_fails") is True
    assert value(result, "heap_free") / 2 > value(result, "heap_largest")


def test_holes_larger_than_a_page_go_back_but_for_their_edges() -> None:
    """Of holes of 64 MiB, 40 or 60 MiB are whole pages: a page boundary lies every 20 MiB."""
    card = slivers(64 * MiB, 128)
    back = sum(
        (64 * (2 * k + 1) // 20 - -(-64 * 2 * k // 20)) * 20 for k in range(128)
    )  # hole k reaches from 128k to 128k + 64 MiB
    mapped = -(-64 * 256 // 20) * 20
    assert card.reserved == (mapped - back) * MiB


# --- PyTorch's own examples ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expandable", "first", "second", "reserved"),
    [
        (False, (8, 16), (4, 32), 256),
        (False, (4, 32), (8, 16), 128),
        (True, (8, 16), (4, 32), 140),
    ],
)
def test_the_examples_of_the_developers(
    expandable: bool, first: tuple[int, int], second: tuple[int, int], reserved: int
) -> None:
    """MiB reserved as pytorch/devlogs, 2026-06-01-cuda-caching-allocator.md, counts on a GPU."""
    card = Allocator(expandable=expandable)
    for count, size in (first, second):
        for block in [card.malloc(size * MiB) for _ in range(count)]:
            card.release(block)
    assert card.reserved == reserved * MiB


def test_pages_are_mapped_as_the_developers_list_them() -> None:
    """Eight tensors of 16 MiB map 20, 40, 60, 80, 80, 100, 120 and 140 MiB, as in the same text."""
    card = Allocator(expandable=True)
    mapped = []
    for _ in range(8):
        card.malloc(16 * MiB)
        mapped.append(card.reserved // MiB)
    assert mapped == [20, 40, 60, 80, 80, 100, 120, 140]


def test_the_pools_do_not_share() -> None:
    """2 MiB, freed, then half a MiB: 22 MiB reserved, and 20 MiB where the second is 2 MiB as well."""
    for second, reserved in ((MiB // 2, 22), (2 * MiB, 20)):
        card = Allocator(expandable=True)
        card.release(card.malloc(2 * MiB))
        card.malloc(second)
        assert card.reserved == reserved * MiB


# --- a second simulation ---------------------------------------------------------------------------


class Rows:
    """Default settings, in units of 512 bytes: each segment a row of owners, 0 where nobody is.

    The runs of free units are found anew at each request.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity // 512
        self.rows: dict[int, tuple[bool, list[int]]] = {}
        self.next = 0

    @property
    def reserved(self) -> int:
        """Units of all segments."""
        return sum(len(row) for _, row in self.rows.values())

    def runs(self, small: bool) -> list[tuple[int, int, int]]:
        """Free runs of a pool: length, segment, place."""
        found = []
        for start, (kind, row) in self.rows.items():
            if kind == small:
                at = 0
                for owner, run_ in itertools.groupby(row):
                    length = len(list(run_))
                    if owner == 0:
                        found.append((length, start, at))
                    at += length
        return sorted(found)

    def malloc(self, owner: int, nbytes: int) -> bool:
        """Best fit, else a new segment, else one more try without the segments that are free."""
        units = -(-nbytes // 512)
        small = units <= 2048
        fits = [run_ for run_ in self.runs(small) if run_[0] >= units]
        if not fits:
            segment = 4096 if small else 40960 if units < 20480 else -(-units // 4096) * 4096
            if self.reserved + segment > self.capacity:
                self.rows = {s: kr for s, kr in self.rows.items() if any(kr[1])}
            if self.reserved + segment > self.capacity:
                return False
            self.rows[self.next] = (small, [0] * segment)
            fits = [(segment, self.next, 0)]
            self.next += segment
        length, start, at = fits[0]
        left = length - units
        taken = units if (left >= 1 if small else left > 2048) else length
        self.rows[start][1][at : at + taken] = [owner] * taken
        return True

    def release(self, owner: int) -> None:
        """Nobody's again."""
        for _, row in self.rows.values():
            if owner in row:
                at, count = row.index(owner), row.count(owner)
                row[at : at + count] = [0] * count


def layout(card: Allocator, owners: dict[int, int]) -> list[list[tuple[int, int]]]:
    """Owner and units of each block, segment by segment."""
    return [
        [(owners[id(b)] if b.used else 0, b.size // 512) for b in blocks(head)]
        for head in card.heads
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_leave_the_same_heap(seed: int) -> None:
    """After each request and release, both simulations have the same segments, or both fail."""
    draw = random.Random(seed)
    card, rows = Allocator(160 * MiB), Rows(160 * MiB)
    held: dict[int, Block] = {}
    failed = 0
    for owner in range(1, 120):
        if held and draw.random() < 0.45:
            gone = draw.choice(sorted(held))
            card.release(held.pop(gone))
            rows.release(gone)
            continue
        nbytes = draw.choice((draw.randint(1, MiB), draw.randint(MiB, 40 * MiB)))
        fits = rows.malloc(owner, nbytes)
        try:
            held[owner] = card.malloc(nbytes)
        except OutOfMemory:
            failed += 1
            assert not fits
        else:
            assert fits
        owners = {id(block): name for name, block in held.items()}
        told = [
            [(name, len(list(run_))) for name, run_ in itertools.groupby(row)]
            for _, row in rows.rows.values()
        ]
        assert layout(card, owners) == told
        assert card.reserved == 512 * rows.reserved
    assert failed or seed > 2


@pytest.mark.parametrize("seed", range(4))
def test_expandable_heaps_stay_sound(seed: int) -> None:
    """Blocks tile each segment, free ones never touch, and pages held are bytes reserved."""
    draw = random.Random(seed)
    card = Allocator(400 * MiB, expandable=True)
    held: list[Block] = []
    for _ in range(300):
        if held and draw.random() < 0.5:
            card.release(held.pop(draw.randrange(len(held))))
        else:
            try:
                held.append(card.malloc(draw.randint(1, 60 * MiB)))
            except OutOfMemory:
                card.empty_cache()
        mapped = 0
        for head in card.heads:
            row = list(blocks(head))
            for a, b in itertools.pairwise(row):
                assert a.start + a.size == b.start
                assert a.used or b.used or a.mapped != b.mapped
            mapped += sum(b.size for b in row if b.mapped)
        assert mapped == card.reserved <= card.capacity
        assert card.allocated == sum(b.size for b in held)


# --- the training --------------------------------------------------------------------------------


@pytest.mark.parametrize("states_first", [False, True])
def test_the_trace_ends_with_parameters_and_states_alone(states_first: bool) -> None:
    """What is alive after the last step: weights, two moments and a step counter each, and no more."""
    events, _ = train(1, (256, 128), states_first)
    alive = dict(event for event in events if event[1])
    for number, nbytes in events:
        if not nbytes:
            alive.pop(number)
    h, f, v = 4096, 14336, 128256
    shapes = [v * h, v * h, h * h, h * h, h * h // 4, h * h // 4, h * f, h * f, h * f, h, h, h]
    large = sorted(n for n in alive.values() if n > 4096)
    assert large == sorted(2 * n for n in shapes for _ in range(3) if 2 * n > 4096)


class Runs:
    """A card in units of 512 bytes as runs of one owner each, 0 where nobody is; nothing else is kept.

    Expandable: a row for each pool, whose end grows by pages; it is never short, so that it never shrinks.
    """

    def __init__(self, capacity: float, expandable: bool) -> None:
        self.capacity, self.expandable = capacity / 512, expandable
        self.rows: list[tuple[bool, list[list[int]]]] = []
        self.allocated = self.peak_allocated = self.peak_reserved = self.retries = 0

    @property
    def reserved(self) -> int:
        """Units of all rows."""
        return sum(length for _, row in self.rows for length, _ in row)

    def malloc(self, owner: int, nbytes: int) -> bool:
        """Whether there is room."""
        units = -(-nbytes // 512)
        small = units <= 2048
        page = 4096 if small else 40960
        fits = [
            (self.expandable and at == len(row) - 1, row[at][0], number, at)
            for number, (kind, row) in enumerate(self.rows)
            for at in range(len(row))
            if kind == small and not row[at][1] and row[at][0] >= units
        ]
        if fits:
            _, _, number, at = min(fits)
        elif self.expandable:
            number = next((n for n, (kind, _) in enumerate(self.rows) if kind == small), -1)
            if number < 0:
                self.rows.append((small, [[0, 0]]))
            row = self.rows[number][1]
            if row[-1][1]:
                row.append([0, 0])
            row[-1][0] += -(-(units - row[-1][0]) // page) * page
            at = len(row) - 1
        else:
            segment = page if units < 20480 else -(-units // 4096) * 4096
            if self.reserved + segment > self.capacity:
                self.rows = [kr for kr in self.rows if any(who for _, who in kr[1])]
                self.retries += 1
            if self.reserved + segment > self.capacity:
                return False
            self.rows.append((small, [[segment, 0]]))
            number, at = -1, 0
        row = self.rows[number][1]
        length = row[at][0]
        left = length - units
        split = left >= 1 if small or self.expandable else left > 2048
        row[at : at + 1] = [[units, owner], [left, 0]] if split else [[length, owner]]
        self.allocated += row[at][0]
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def release(self, owner: int) -> None:
        """Nobody's again, in one run with nobody's beside it."""
        for _, row in self.rows:
            for at in range(len(row)):
                if row[at][1] == owner:
                    self.allocated -= row[at][0]
                    row[at][1] = 0
                    row[:] = [
                        [sum(length for length, _ in same), who]
                        for who, group in itertools.groupby(row, lambda run_: run_[1])
                        for same in ([*group],)
                    ]
                    return


@cache
def second(kind: str, expandable: bool = False, spare: float = 0) -> Runs | None:
    """The small training again, in the second simulation; None where it runs out of memory."""
    lengths = [int(CONFIG.longest * share / 8) for share in (5, 6, 4, 7, 6.5, 8)]
    if kind == "fixed":
        lengths = [CONFIG.longest] * 3
    if kind == "longest_first":
        lengths.sort(reverse=True)
    capacity = float("inf")
    if spare and (endless := second(kind)) is not None:
        capacity = endless.peak_allocated * 512 * 105 // 100
    events, _ = train(CONFIG.layers, lengths, states_first=kind == "states_first")
    card, alive = Runs(capacity, expandable), set[int]()
    for number, nbytes in events:
        if nbytes:
            alive.add(number)
            if not card.malloc(number, nbytes):
                RETRIES.append(card.retries)
                return None
        elif number in alive:
            card.release(number)
    RETRIES.append(card.retries)
    return card


RETRIES: list[int] = []
"""Of the last card in the second simulation."""


@pytest.mark.parametrize("kind", ["varied", "fixed", "states_first", "longest_first"])
def test_the_training_reserves_what_the_second_simulation_does(result: Result, kind: str) -> None:
    """Peaks of both simulations are the same, to the byte."""
    card = second(kind)
    assert card is not None
    over = card.peak_reserved / card.peak_allocated - 1
    assert value(result, f"{kind}_overhead") == pytest.approx(over, abs=1e-12)


def test_peaks_of_the_varied_training(result: Result) -> None:
    """Bytes allocated and reserved, by default and expandable, and the events that led there."""
    default, grown = second("varied"), second("varied", expandable=True)
    assert default is not None
    assert grown is not None
    assert value(result, "varied_allocated") == 512 * default.peak_allocated
    assert value(result, "varied_reserved") == 512 * default.peak_reserved
    assert value(result, "varied_expandable") == 512 * grown.peak_reserved
    over = grown.peak_reserved / grown.peak_allocated - 1
    assert value(result, "varied_expandable_overhead") == pytest.approx(over, abs=1e-12)


@cache
def small_events() -> int:
    """How often the small training allocates and releases."""
    lengths = [int(CONFIG.longest * share / 8) for share in (5, 6, 4, 7, 6.5, 8)]
    return len(train(CONFIG.layers, lengths)[0])


@cache
def tight() -> tuple[bool, int]:
    """Whether a card 5% larger than the peak fails by default, and its retries."""
    fails = second("varied", spare=1.05) is None
    return fails, RETRIES[-1]


def test_a_tight_card(result: Result) -> None:
    """By default it fails, or does not, after as many retries in both simulations."""
    fails, retries = tight()
    assert value(result, "tight_fails") is fails
    assert value(result, "tight_retries") == retries
    assert value(result, "tight_expandable_survives") is True
    assert value(result, "trace_events") == small_events()


def test_replaying_frees_what_was_taken() -> None:
    """A trace whose storages all go leaves nothing allocated, and the bytes reserved."""
    card = Allocator()
    assert list(replay([(1, 3 * MiB), (2, 5), (1, 0), (2, 0)], card)) == [1, 2, 3, 4]
    assert (card.allocated, card.reserved) == (0, 22 * MiB)
    assert card.peak_allocated == 3 * MiB + 512


# --- the figure ----------------------------------------------------------------------------------


def test_the_figure_is_the_heap_by_hand(result: Result) -> None:
    """Four segments of 8 in use and 7 free, 20 left; or one row of 32 in use, 28 free and 20 left."""
    figure = next(f for f in result.figures if f.name == "heap")
    assert isinstance(figure, Lanes)
    told = [(s.row, s.kind, s.start, s.end) for s in figure.spans]
    hand: list[tuple[int, str, float, float]] = []
    for n in range(SEGMENTS):
        start = n * TEMPORARY
        hand += [(n + 1, "used", start, start + LASTING)]
        hand += [(n + 1, "free", start + LASTING, start + TEMPORARY)]
    hand += [(5, "driver", 60, CARD)]
    hand += [(7, "used", 8 * n, 8 * n + 8) for n in range(SEGMENTS)]
    hand += [(7, "free", 32, 60), (7, "driver", 60, CARD)]
    assert told == hand


# --- a card that is none ---------------------------------------------------------------------------


class FakeCard:
    """``torch.cuda`` as far as the demo calls it, over the simulated allocator."""

    def __init__(self) -> None:
        self.card = Allocator(141 * GiB)

    def empty(self, nbytes: int, **_: Any) -> Any:
        """A tensor, whose block goes back with it."""
        try:
            block = self.card.malloc(nbytes)
        except OutOfMemory as error:
            raise torch.OutOfMemoryError from error
        return Held(self.card, block)

    def empty_cache(self) -> None:
        """That of the card of the moment."""
        self.card.empty_cache()

    def limit(self, fraction: float) -> None:
        """What set_per_process_memory_fraction does."""
        self.card.capacity = int(fraction * 141 * GiB)

    def settings(self, text: str) -> None:
        """What setAllocatorSettings does, on a card without segments."""
        assert self.card.reserved == 0 or text.endswith("False")
        self.card = Allocator(self.card.capacity, text.endswith("True"))


class Held:
    """A tensor of the fake card."""

    def __init__(self, card: Allocator, block: Block) -> None:
        self.card, self.block = card, block

    def __del__(self) -> None:
        self.card.release(self.block)


def test_what_the_card_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card that behaves as simulated, the GPU's metrics are the simulated ones, scaled."""
    fake = FakeCard()
    cuda = torch.cuda
    monkeypatch.setattr(torch, "empty", fake.empty)
    monkeypatch.setattr(cuda, "empty_cache", fake.empty_cache)
    monkeypatch.setattr(cuda, "memory_reserved", lambda: fake.card.reserved)
    monkeypatch.setattr(cuda, "set_per_process_memory_fraction", fake.limit)
    properties = type("Properties", (), {"total_memory": 141 * GiB})
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", fake.settings)
    found: dict[str, float] = {}
    allocator_fragments.on_the_card(CONFIG, found)  # type: ignore[arg-type]
    assert found["card_two_mib_reserved"] == 20 * MiB
    assert found["card_heap_largest"] == 20 * CONFIG.gpu_unit * MiB
    assert found["card_heap_largest_expandable"] == 48 * CONFIG.gpu_unit * MiB

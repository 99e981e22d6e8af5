"""The CPU allocator's own account of what ``LiveMemory`` measures: an independent meter.

``torch.profiler`` with ``profile_memory=True`` hands out each allocation and each release of the CPU
allocator, with address and bytes, whoever asked for it: a dispatched operation, a kernel's inside, or
C++ that no Python sees. ``audited`` turns it on wherever a demo enters ``LiveMemory``, and takes both
readings of the same bytes.

Run as a module in ranks it audits a rank demo: ``--task '{"demo": "fsdp", …}'``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from runnable_demos import ranks
from runnable_demos.measure import LiveMemory

OPERATION = "one dispatched operation"


@dataclass(frozen=True, slots=True)
class Reading:
    """How far the bytes rose above those at the start, in one use of ``LiveMemory``.

    ``lasting`` leaves out what was taken and released within one dispatched operation: a kernel's
    scratch, which the meter says that it does not see.
    """

    meter: int
    allocator: int
    lasting: int


@dataclass(slots=True)
class _Window:
    """What is noted while one ``LiveMemory`` is open."""

    profiler: profile
    older: set[int]
    """Addresses of followed storages that are older than the window: their release counts, too."""
    before: int = 0
    """Bytes of those."""
    top: int = 0
    """The most bytes that the meter saw above ``before``."""
    registering: bool = False


def _allocations(
    nodes: Any, within: int | None = None
) -> Iterator[tuple[int, int, int, int | None]]:
    """Time, address, signed bytes, and the dispatched operation in which it happened, if any."""
    for node in nodes:
        kind, fields = node.typed
        inner = within
        if kind == torch._C._profiler._EventType.Allocation:
            yield node.start_time_ns, fields.ptr, fields.alloc_size, within
        elif within is None and node.name == OPERATION:
            inner = node.start_time_ns
        yield from _allocations(node.children, inner)


def _peaks(window: _Window) -> tuple[int, int]:
    """The allocator's peak above the start: of everything, and of what outlives an operation."""
    tree = window.profiler.profiler.kineto_results.experimental_event_tree()  # type: ignore[union-attr]
    events = sorted(_allocations(tree), key=lambda event: event[0])
    taken: dict[int, int] = {}  # address to place in ``steps``
    steps: list[tuple[int, bool]] = []  # signed bytes, and whether it lasts
    made_in: dict[int, int | None] = {}
    for _, address, size, operation in events:
        if size > 0:
            taken[address] = len(steps)
            made_in[address] = operation
            steps.append((size, True))
        elif address in taken:
            start = taken.pop(address)
            scratch = operation is not None and made_in.pop(address) == operation
            steps.append((size, not scratch))
            if scratch:
                steps[start] = (steps[start][0], False)
        elif address in window.older:
            window.older.remove(address)
            steps.append((size, True))
    now = peak = lasting_now = lasting = 0
    for size, lasts in steps:
        now += size
        lasting_now += size if lasts else 0
        peak, lasting = max(peak, now), max(lasting, lasting_now)
    return peak, lasting


@contextmanager
def audited() -> Iterator[list[Reading]]:
    """Every ``LiveMemory`` within the context is read by the allocator as well.

    Those on fake tensors are left out, as there is nothing to allocate. What a demo registers was
    there before; where it was not, the meter had missed it, and the readings differ.
    """
    readings: list[Reading] = []
    windows: dict[LiveMemory, _Window] = {}
    own = {
        name: getattr(LiveMemory, name)
        for name in ("__enter__", "__exit__", "__torch_dispatch__", "register", "_add", "_event")
    }

    def enter(live: LiveMemory) -> LiveMemory:
        modes = _get_current_dispatch_mode_stack()  # type: ignore[no-untyped-call]
        if not any(isinstance(mode, FakeTensorMode) for mode in modes):
            profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            windows[live] = _Window(profiler, set())
            profiler.start()
        entered: LiveMemory = own["__enter__"](live)
        return entered

    def leave(live: LiveMemory, *error: Any) -> None:
        own["__exit__"](live, *error)
        window = windows.pop(live, None)
        if window is not None:
            window.profiler.stop()
            readings.append(Reading(window.top, *_peaks(window)))

    def dispatch(live: LiveMemory, *arguments: Any) -> Any:
        with torch._C._profiler._RecordFunctionFast(OPERATION):
            return own["__torch_dispatch__"](live, *arguments)

    def register(live: LiveMemory, category: Any, tree: object) -> None:
        window = windows.get(live)
        if window is not None:
            window.registering = True
        own["register"](live, category, tree)
        if window is not None:
            window.registering = False

    def add(live: LiveMemory, storage: torch.UntypedStorage, category: Any) -> None:
        own["_add"](live, storage, category)
        window = windows.get(live)
        if window is not None and window.registering:
            window.before += storage.nbytes()
            window.older.add(storage.data_ptr())

    def event(live: LiveMemory) -> None:
        own["_event"](live)
        window = windows.get(live)
        if window is not None:
            window.top = max(window.top, live.current - window.before)

    patches = (enter, leave, dispatch, register, add, event)
    for name, patch in zip(own, patches, strict=True):
        setattr(LiveMemory, name, patch)
    try:
        yield readings
    finally:
        for name, original in own.items():
            setattr(LiveMemory, name, original)


def measure(task: Mapping[str, Any]) -> ranks.Report:
    """In a rank: a demo's own ``measure``, audited."""
    rest = dict(task)
    demo = importlib.import_module(f"runnable_demos.{rest.pop('demo')}")
    with audited() as readings:
        demo.measure(rest)
    return {"readings": [asdict(reading) for reading in readings]}


if __name__ == "__main__":
    ranks.work(measure, {})

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
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from runnable_demos.lab import ranks
from runnable_demos.lab.measure import LiveMemory, _storages

OPERATION = "one dispatched operation"


@dataclass(frozen=True, slots=True)
class Reading:
    """How far the bytes rose above those at the start, in one use of ``LiveMemory``.

    ``tensors`` is the allocator's without what operations take for themselves and hand to nobody: the
    scratch of a kernel, the staging of a collective, which the meter says that it does not see.
    """

    meter: int
    allocator: int
    tensors: int


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
    results: list[set[int]] = field(default_factory=list)
    """Addresses of what each dispatched operation returned, in the order in which they began."""


def _flat(nodes: Any, within: int | None = None) -> Iterator[tuple[int, Any, int | None]]:
    """Each node of the profiler's tree: its time, itself, and when the operation around it began.

    What gloo copies on its own thread, after the operation has returned, is an operation as well.
    """
    for node in nodes:
        yield node.start_time_ns, node, within
        own = within is None and (node.name == OPERATION or node.name.startswith("gloo:"))
        yield from _flat(node.children, node.start_time_ns if own else within)


def _is_allocation(node: Any) -> bool:
    """Whether a node is one allocation or one release."""
    return isinstance(node.typed[1], torch._C._profiler._ExtraFields_Allocation)


def _peaks(window: _Window) -> tuple[int, int]:
    """The allocator's peak above the start: of everything, and of the program's own tensors."""
    tree = window.profiler.profiler.kineto_results.experimental_event_tree()  # type: ignore[union-attr]
    nodes = sorted(_flat(tree), key=lambda entry: entry[0])
    begun = [time for time, node, within in nodes if within is None and node.name == OPERATION]
    results = dict(zip(begun, window.results, strict=True))
    # An address may be used twice within an operation; what is returned there came last.
    last = {
        (within, node.typed[1].ptr): time
        for time, node, within in nodes
        if _is_allocation(node) and node.typed[1].alloc_size > 0
    }
    taken: dict[int, tuple[int, bool]] = {}  # by address: bytes, and whether the program sees them
    now = peak = tensors_now = tensors = 0
    for time, node, within in nodes:
        if not _is_allocation(node):
            continue
        address, size = node.typed[1].ptr, node.typed[1].alloc_size
        if size > 0:
            returned = within is not None and address in results.get(within, ())
            seen = within is None or (returned and last[within, address] == time)
            taken[address] = size, seen
            now += size
            tensors_now += size if seen else 0
        elif address in taken:
            nbytes, seen = taken.pop(address)
            now -= nbytes
            tensors_now -= nbytes if seen else 0
        elif address in window.older:
            window.older.remove(address)
            now += size
            tensors_now += size
        peak, tensors = max(peak, now), max(tensors, tensors_now)
    return peak, tensors


@contextmanager
def audited() -> Iterator[list[Reading]]:
    """Every ``LiveMemory`` within the context is read by the allocator as well.

    Those on fake tensors are left out, as there is nothing to allocate. What a demo registers was
    there before; where it was not, the meter had missed it, and the readings differ.

    Products are BLAS's, which takes its scratch from nobody's allocator. oneDNN, to which PyTorch sends
    them on some processors alone, takes it from PyTorch's.
    """
    readings: list[Reading] = []
    windows: dict[LiveMemory, _Window] = {}
    own = {
        name: getattr(LiveMemory, name)
        for name in ("__enter__", "__exit__", "__torch_dispatch__", "register", "_add", "_event")
    }

    def enter(live: LiveMemory) -> LiveMemory:
        modes = _get_current_dispatch_mode_stack()
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
        window = windows.get(live)
        if window is None:
            return own["__torch_dispatch__"](live, *arguments)
        returned: set[int] = set()
        window.results.append(returned)
        with torch._C._profiler._RecordFunctionFast(OPERATION):
            out = own["__torch_dispatch__"](live, *arguments)
        # A tangent that is all zeros has no memory, and asked for its address it raises.
        held = [x for x in tree_leaves(out) if isinstance(x, Tensor) and not x._is_zerotensor()]
        returned |= {
            storage.data_ptr() for storage in _storages(held) if storage.device.type == "cpu"
        }
        return out

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

    patches = dict(zip(own, (enter, leave, dispatch, register, add, event), strict=True))
    blas = torch.backends.mkldnn.flags(enabled=False, allow_tf32=False)
    with mock.patch.multiple(LiveMemory, **patches), blas:
        yield readings


def measure(task: Mapping[str, Any]) -> ranks.Report:
    """In a rank: a demo's own ``measure``, audited."""
    rest = dict(task)
    demo = importlib.import_module(f"runnable_demos.{rest.pop('demo')}")
    with audited() as readings:
        demo.measure(rest)
    return {"readings": [asdict(reading) for reading in readings]}


if __name__ == "__main__":
    ranks.work(measure, {})

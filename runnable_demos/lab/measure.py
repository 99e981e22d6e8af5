"""Bytes and FLOPs of PyTorch code, exact and the same from run to run.

Four questions, one tool each:

- What does the graph keep for the backward?  ``saved_tensors``
- How many bytes are live, when, and whose?   ``LiveMemory``
- How much arithmetic is done?                ``count_flops``
- What would a model need that does not fit?  the same tools inside ``fake()``

``cuda_peak`` and ``allocator_peak`` read the CUDA allocator instead.
What the first tools count are tensors' storages, as dispatched operations make them. What a kernel
takes and drops within one operation, and the allocator's rounding, are seen by the allocator alone.
A test holds ``LiveMemory`` against the CPU allocator's own events for every demo that reads a peak.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, UntypedStorage, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

Category = Literal["parameters", "gradients", "optimizer", "activations", "inputs", "other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

aten = torch.ops.aten


def fake() -> FakeTensorMode:
    """A context in which tensors have shapes and storages but no memory.

    Everything is created inside: ``with fake(): model = Model(); …``.
    Peaks are those of the CPU kernels.
    """
    return FakeTensorMode()


# --- storages ------------------------------------------------------------------------------------


def _plain(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor itself, or the plain tensors within a wrapper such as ``DTensor``."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            inner = getattr(tensor, name)
            if isinstance(inner, Tensor):  # a DTensor names its mesh, too
                yield from _plain(inner)
    else:
        yield tensor


def _storages(tree: object) -> Iterator[UntypedStorage]:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            for tensor in _plain(leaf):
                if tensor.layout is torch.strided:
                    yield tensor.untyped_storage()


def _key(storage: UntypedStorage) -> int:
    # Not data_ptr(): it is 0 for every fake tensor.
    return int(storage._cdata)


def storage_key(tensor: Tensor) -> int:
    """What tells the storage behind ``tensor`` from every other one that is alive, fake ones too."""
    return _key(tensor.untyped_storage())


def storage_bytes(tree: object) -> int:
    """Bytes of all storages behind the tensors in ``tree`` (any nesting), each counted once."""
    return sum({_key(s): s.nbytes() for s in _storages(tree)}.values())


# --- saved for backward --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor that a node of the graph keeps.

    ``nbytes`` is the size of the whole storage, which stays alive even where ``shape`` is a part.
    ``op`` is the Python function that saved it (``torch.nn.functional.linear``), ``""`` where none
    is known: within an ``autograd.Function``.
    ``shared`` is true where the same storage was saved before, so that it costs nothing.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int
    op: str
    shared: bool


@dataclass(slots=True)
class Saved:
    """What the graph kept, in the order in which it was saved."""

    tensors: list[SavedTensor] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes of the storages saved, each counted once."""
        return sum(t.nbytes for t in self.tensors if not t.shared)

    def bytes_by_op(self) -> dict[str, int]:
        """Bytes by the op that saved them first."""
        total: dict[str, int] = {}
        for t in self.tensors:
            total[t.op] = total.get(t.op, 0) + (0 if t.shared else t.nbytes)
        return total


class _CurrentFunction(TorchFunctionMode):
    """Knows the outermost torch function that is being called."""

    name = ""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before, self.name = self.name, resolve_name(func) or getattr(func, "__name__", "")
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.name = before


@contextmanager
def saved_tensors(exclude: Iterable[Tensor] = ()) -> Iterator[Saved]:
    """Record every tensor saved for the backward within the context, except those in ``exclude``.

    Pass the parameters as ``exclude``: they are alive anyway. An exclusion is by storage, so it
    covers their views too (``weight.t()``). The graph works as usual, apart from two things:
    in-place changes of saved tensors go unnoticed, since hooks replace autograd's version check,
    and double backward is cut.
    """
    saved = Saved()
    excluded = {_key(s) for s in _storages(list(exclude))}
    # Held until the end, so that the address of a freed storage does not come back as another one.
    seen: dict[int, UntypedStorage] = {}
    function = _CurrentFunction()

    def pack(tensor: Tensor) -> Tensor:
        for plain in _plain(tensor):
            storage = plain.untyped_storage()
            key = _key(storage)
            if key not in excluded:
                saved.tensors.append(
                    SavedTensor(
                        tuple(plain.shape),
                        plain.dtype,
                        storage.nbytes(),
                        function.name,
                        shared=key in seen,
                    )
                )
                seen[key] = storage
        return tensor.detach()  # an output packed as it is would hold its own node, for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), function:
        yield saved


# --- live bytes ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    nbytes: int
    category: Category
    finalizer: Any


class LiveMemory(TorchDispatchMode):
    """Bytes of the storages that are alive, followed event by event.

    Counted: what is registered when the context is entered (``model``, its gradients, ``inputs``,
    the state of ``optimizer``) and every storage created inside. Tensors made before and not
    registered stay uncounted, so that a bare ``LiveMemory()`` measures what its body adds.

    Categories
        ``parameters``   parameters and buffers of ``model``
        ``gradients``    ``.grad`` of the parameters of ``model`` and ``optimizer``
        ``optimizer``    the optimizer's state, and parameters that it has beside those of ``model``
        ``activations``  created while grad mode is on: in the forward, or in a recomputation
        ``inputs``       as registered
        ``other``        the rest: gradients of activations, the optimizer step's transients

    Nest it *inside* ``fake()``. One object measures once. Two functions that allocate beside the
    dispatcher are patched meanwhile: ``torch.UntypedStorage.resize_``, by which FSDP2 frees and takes
    memory, and ``torch.get_rng_state``, of which ``torch.utils.checkpoint`` keeps a result for each
    checkpoint unless it is told ``preserve_rng_state=False``.
    """

    def __init__(
        self,
        *,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        inputs: object = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._optimizer = optimizer
        self._inputs = inputs
        self._blocks: dict[int, _Block] = {}
        self._live: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
        self._hooks: list[Any] = []
        self.timeline: list[tuple[int, ...]] = []
        """Live bytes after each event, by category in the order of ``CATEGORIES``."""
        self.peak = 0
        """The most bytes that were live at once."""
        self.at_peak: dict[Category, int] = dict(self._live)
        """What those bytes were."""

    @property
    def current(self) -> int:
        """Bytes live now."""
        return sum(self._live.values())

    @property
    def by_category(self) -> dict[Category, int]:
        """Bytes live now, by category."""
        return dict(self._live)

    def reset_peak(self) -> None:
        """Forget the peak so far; it starts again from what is live now."""
        self.peak = self.current
        self.at_peak = dict(self._live)

    def register(self, category: Category, tree: object) -> None:
        """Count the tensors in ``tree`` as ``category``, followed before or not."""
        for storage in _storages(tree):
            block = self._blocks.get(_key(storage))
            if block is None:
                self._add(storage, category)
            else:
                self._live[block.category] -= block.nbytes
                self._live[category] += block.nbytes
                block.category = category
        self._event()

    # --- entering and leaving ---

    def __enter__(self) -> LiveMemory:
        self._all_fake = any(
            isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()
        )
        parameters = list(self._model.parameters()) if self._model else []
        buffers = list(self._model.buffers()) if self._model else []
        stepped = (
            [p for g in self._optimizer.param_groups for p in g["params"]]
            if self._optimizer
            else []
        )
        self._trained = list({id(p): p for p in (*parameters, *stepped)}.values())
        self.register("inputs", self._inputs)
        self.register("optimizer", stepped)
        self.register("parameters", [*parameters, *buffers])
        self._sort_gradients()
        self._sort_state()
        for p in self._trained:
            if p.requires_grad and p.is_leaf:
                hook = lambda p: self.register("gradients", [p.grad])  # noqa: E731 - one use
                self._hooks.append(p.register_post_accumulate_grad_hook(hook))
        if self._optimizer is not None:
            self._hooks += [
                self._optimizer.register_step_pre_hook(lambda *_: self._sort_gradients()),
                self._optimizer.register_step_post_hook(lambda *_: self._sort_state()),
            ]
        self._patch_resize()
        self._patch_rng_state()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        torch.get_rng_state = self._get_rng_state
        for hook in self._hooks:
            hook.remove()
        for block in self._blocks.values():
            block.finalizer.detach()

    def _sort_gradients(self) -> None:
        self.register("gradients", [p.grad for p in self._trained])

    def _sort_state(self) -> None:
        if self._optimizer is not None:
            self.register("optimizer", list(self._optimizer.state.values()))

    def _patch_resize(self) -> None:
        self._resize = original = torch.UntypedStorage.resize_

        def resize_(storage: UntypedStorage, size: int) -> UntypedStorage:
            original(storage, size)
            block = self._blocks.get(_key(storage))
            if block is not None:
                self._live[block.category] += size - block.nbytes
                block.nbytes = size
                self._event()
            return storage

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]

    def _patch_rng_state(self) -> None:
        self._get_rng_state = original = torch.get_rng_state

        def get_rng_state() -> Tensor:
            state = original()
            self._follow(state)
            return state

        torch.get_rng_state = get_rng_state

    # --- following storages ---

    def _follow(self, tree: object, known: Container[int] = ()) -> None:
        """Count the storages in ``tree``, but those followed already and the ``known`` ones.

        On real tensors, those of PyTorch's own fake ones are no memory: DTensor and the compiler work
        out shapes on them.
        """
        # The backward runs with grad mode off, a recomputation within it with grad mode on.
        category: Category = "activations" if torch.is_grad_enabled() else "other"
        for storage in _storages(tree):
            key = _key(storage)
            pretended = storage.device.type == "meta" and not self._all_fake
            if key not in known and key not in self._blocks and not pretended:
                self._add(storage, category)
        self._event()

    def _add(self, storage: UntypedStorage, category: Category) -> None:
        key = _key(storage)
        finalizer = weakref.finalize(storage, self._remove, key)
        self._blocks[key] = _Block(storage.nbytes(), category, finalizer)
        self._live[category] += storage.nbytes()

    def _remove(self, key: int) -> None:
        block = self._blocks.pop(key)
        self._live[block.category] -= block.nbytes
        self._event()

    def _event(self) -> None:
        now = tuple(self._live.values())
        if self.timeline and self.timeline[-1] == now:
            return
        self.timeline.append(now)
        if sum(now) > self.peak:
            self.peak = sum(now)
            self.at_peak = dict(self._live)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # A wrapper such as DTensor goes first; this mode then sees the ops on its plain tensors.
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented
        kwargs = kwargs or {}
        if (
            func is aten._efficientzerotensor.default
        ):  # a tangent that is none: a size, and no bytes
            return func(*args, **kwargs)
        # torch.tensor(…) fills a tensor unseen and passes it to lift_fresh: that one is new.
        fresh = func is aten.lift_fresh.default
        before = set() if fresh else {_key(s) for s in _storages((args, kwargs))}
        out = func(*args, **kwargs)
        self._follow(out, before)
        return out


# --- arithmetic ----------------------------------------------------------------------------------


def _sdpa_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _sdpa_backward_flops(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


_CPU_FLASH = {
    # PyTorch counts the CUDA flash kernels and takes the CPU's for 0.
    aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_flops,
}


def count_flops(function: Callable[[], object]) -> int:
    """FLOPs of the matrix products, convolutions and attention that ``function()`` executes.

    A multiply-add is two. Element-wise work counts 0; a causal mask is not credited. The backward
    of a flash kernel counts five products, since it recomputes the scores; the math kernel's four.
    The counter keeps tensors alive, so read no peak inside ``function``.
    """
    with FlopCounterMode(display=False, custom_mapping=_CPU_FLASH) as counter:
        function()
    total: int = counter.get_total_flops()
    return total


# --- CUDA ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class CudaPeak:
    """Bytes by the CUDA allocator: at the start, and the most allocated at once since."""

    start: int
    peak: int = 0

    @property
    def added(self) -> int:
        """How far the peak rose above the start."""
        return self.peak - self.start


@contextmanager
def cuda_peak() -> Iterator[CudaPeak]:
    """Read ``torch.cuda.max_memory_allocated`` over the context; needs a CUDA device."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    reading = CudaPeak(torch.cuda.memory_allocated())
    try:
        yield reading
    finally:
        torch.cuda.synchronize()
        reading.peak = torch.cuda.max_memory_allocated()


def allocator_peak(function: Callable[[], object]) -> int:
    """How far ``function()`` raises the CUDA allocator's peak, in bytes.

    It runs twice: at the first call libraries take workspaces that they keep.
    """
    function()
    with cuda_peak() as reading:
        function()
    return reading.added

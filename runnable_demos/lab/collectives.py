"""Count what ranks tell each other: every collective that PyTorch issues, with its bytes.

DDP, FSDP and code of one's own all call the same operators of ``c10d``, so one dispatch mode sees
them, those within the backward too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "recv"]

_KINDS: dict[str, Kind] = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::_allgather_base_": "all_gather",
    "c10d::broadcast_": "broadcast",
    "c10d::send": "send",
    "c10d::recv_": "recv",
}

# How often the whole message passes through a rank, up to the factor (N−1)/N of a ring:
# an all-reduce is a reduce-scatter and an all-gather.
_PASSES: dict[Kind, int] = {
    "all_reduce": 2,
    "reduce_scatter": 1,
    "all_gather": 1,
    "broadcast": 1,
    "send": 1,
    "recv": 0,
}


def volume(calls: Iterable[tuple[Kind, int]]) -> int:
    """Bytes through a rank, times N/(N−1), of collectives given as kind and bytes of the message."""
    return sum(_PASSES[kind] * nbytes for kind, nbytes in calls)


@dataclass(frozen=True, slots=True)
class Collective:
    """One call; ``nbytes`` is the whole message, not one rank's part of it."""

    kind: Kind
    nbytes: int


class Collectives(TorchDispatchMode):
    """A context that lists in ``calls`` the collectives that this rank issues within it.

    Raises ``ValueError`` at a collective that it does not know, rather than miss it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Collective] = []

    def nbytes(self, kind: Kind) -> int:
        """Bytes of all messages of one kind."""
        return sum(call.nbytes for call in self.calls if call.kind == kind)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # A wrapper such as DTensor goes first; this mode then sees the ops on its plain tensors.
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented
        if func.namespace == "c10d" and func._schema.name not in (
            "c10d::barrier",
            "c10d::monitored_barrier_",
        ):
            if func._schema.name not in _KINDS:
                raise ValueError(f"{func._schema.name} is not counted")
            sizes = [t.nbytes for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            kind = _KINDS[func._schema.name]
            # Of a gather's or scatter's two tensors one is this rank's part.
            whole = max(sizes) if kind in ("reduce_scatter", "all_gather") else sum(sizes)
            self.calls.append(Collective(kind, whole))
        return func(*args, **(kwargs or {}))

"""How long tensors are alive, counted in the actions of a pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


def when_freed(tensor: Tensor, call: Callable[..., object], *arguments: Any) -> None:
    """Call ``call(*arguments)`` once the memory behind ``tensor`` is free: the last view of it is gone."""
    weakref.finalize(tensor.untyped_storage(), call, *arguments)


@dataclass(frozen=True, slots=True)
class Life:
    """A storage with ``nbytes`` is alive from within action ``born`` until within action ``gone``, from 1 on."""

    what: str | int
    nbytes: int
    born: int
    gone: int


@dataclass(slots=True)
class Lives:
    """Follows storages through the actions of a pass, such as each layer's forward and backward."""

    action: int = 0
    ended: list[Life] = field(default_factory=list)
    """In the order in which they ended."""

    def begin(self, *_: object) -> None:
        """The next action."""
        self.action += 1

    def follow(self, what: str | int, tensor: Tensor) -> None:
        """Note when ``tensor``, made in this action, dies."""
        nbytes = tensor.untyped_storage().nbytes()
        when_freed(tensor, self._end, what, nbytes, self.action)

    def _end(self, what: str | int, nbytes: int, born: int) -> None:
        self.ended.append(Life(what, nbytes, born, self.action))

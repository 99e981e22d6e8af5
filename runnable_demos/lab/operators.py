"""Which function of PyTorch saved which tensors for the backward, call by call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runnable_demos.lab.measure import storage_key


@dataclass(slots=True)
class Entry:
    """A function that was called, and the tensors that it saved."""

    function: str
    tensors: list[Tensor] = field(default_factory=list)


class Operators(TorchFunctionMode):
    """Notes which function saves which tensors, those of ``exclude`` apart.

    ``pack`` is to be one of the hooks of ``saved_tensors_hooks``. An ``autograd.Function`` has no name.
    """

    def __init__(self, exclude: Iterable[Tensor]) -> None:
        super().__init__()
        self._excluded = {storage_key(tensor) for tensor in exclude}
        self._calls = [Entry("")]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function; what is packed meanwhile is its own, and afterwards nobody's."""
        self._calls.append(Entry(func.__name__))
        out = func(*args, **(kwargs or {}))
        self._calls.append(Entry(""))
        return out

    def pack(self, tensor: Tensor) -> Tensor:
        """A hook of autograd: one tensor is being saved."""
        with torch._C.DisableTorchFunction():  # what the hook calls is no operator of the model
            if storage_key(tensor) not in self._excluded:
                self._calls[-1].tensors.append(tensor.detach())
            return tensor.detach()

    @property
    def entries(self) -> list[Entry]:
        """The calls that saved something."""
        return [call for call in self._calls if call.tensors]

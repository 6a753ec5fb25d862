"""What a selective checkpoint keeps, guarded against changes in place that PyTorch does not see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dryfit.train.torch_private import written_by


class KeptOutputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entered inside a selective checkpoint's first context: notes in `changed` whether what is kept was changed.

    PyTorch compares version counters, in the backward pass. `torch.matmul` of more than two dimensions gives a tensor
    with a counter of its own and the storage that is kept, so `scores += bias` would be done twice, without an error.
    It raises nothing itself: an error inside leaves the checkpoint's contexts entered as long as its traceback lives.
    """

    def __init__(self, operators: Collection[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators = operators
        self.changed = False
        self._addresses: set[int] = set()  # of storages, which the checkpoint keeps alive

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.changed |= any(_address_of(each) in self._addresses for each in written_by(func, args, kwargs))
        output = func(*args, **kwargs)
        if func in self._operators:
            for each in output if isinstance(output, (tuple, list)) else (output,):
                if isinstance(each, torch.Tensor) and each.numel():
                    self._addresses.add(_address_of(each))
        return output


def _address_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()

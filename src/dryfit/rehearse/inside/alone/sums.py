"""What tensors of the host hold after a sum: over gloo's stand-in nothing is added, and all ranks brought the same."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

# By function, the argument that is written. One that newer versions call by another name is left to that name.
_WRITTEN = {"all_reduce": "tensor", "reduce": "tensor", "reduce_scatter": "output", "reduce_scatter_single": "output"}


def multiply(c10d: ModuleType, modules: Iterable[ModuleType]) -> None:
    """Have the reductions of `torch.distributed.distributed_c10d` give N times what this rank brought, of N ranks.

    They are replaced in all of `modules`. The card's tensors are left alone: NCCL's stand-in has added.
    """
    written = _WRITTEN
    if not hasattr(c10d, "reduce_scatter_single"):  # torch 2.14 has it, 2.11 has not
        written = {**_WRITTEN, "reduce_scatter_tensor": "output"}
    for name, argument in written.items():
        if hasattr(c10d, name):
            function = _multiplied(getattr(c10d, name), argument)
            for module in modules:
                setattr(module, name, function)


def _multiplied(real: Callable[..., Any], written: str) -> Callable[..., Any]:
    import torch
    import torch.distributed as dist

    signature = inspect.signature(real)

    @functools.wraps(real)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        tensor, ranks = given[written], dist.get_world_size(given.get("group"))
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and ranks > 1:
            operation = given.get("op", dist.ReduceOp.SUM)
            with torch.no_grad():
                if operation == dist.ReduceOp.SUM:
                    tensor.mul_(ranks)
                elif operation == dist.ReduceOp.PRODUCT:
                    tensor.pow_(ranks)
        return result

    return reduce

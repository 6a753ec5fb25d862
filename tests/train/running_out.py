"""Steps that run out of memory, or say so, for the tests of `micro_batched`."""

from __future__ import annotations

from typing import Any

import torch

MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 514.19 MiB is "
    "free."
)


class FailsInBackward(torch.autograd.Function):
    """Passes a tensor through; its backward runs out of memory when asked to."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, fails: bool) -> torch.Tensor:
        ctx.fails = fails
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.fails:
            raise torch.OutOfMemoryError(MESSAGE)
        return gradient, None


def runs_out(rows: int, limit: int) -> None:
    if rows > limit:
        raise torch.OutOfMemoryError(MESSAGE)

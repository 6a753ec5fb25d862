"""What PyTorch did in old versions that takes memory, to see how much of a difference is due to it."""

from typing import Any

import torch
from torch import Tensor


class _KeepsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, logarithm: bool) -> Tensor:
        y = torch.log_softmax(x, dim) if logarithm else torch.softmax(x, dim)
        ctx.save_for_backward(x, y)
        ctx.dim, ctx.logarithm = dim, logarithm
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, y = ctx.saved_tensors
        backward = torch.ops.aten._log_softmax_backward_data if ctx.logarithm else torch.ops.aten._softmax_backward_data
        return backward(gradient, y, ctx.dim, x.dtype), None, None


def softmax_that_keeps_its_input(x: Tensor, dim: int = -1) -> Tensor:
    """Before PyTorch 1.11, softmax kept its input for backward beside its output, for the type alone."""
    return _KeepsInput.apply(x, dim, False)


def log_softmax_that_keeps_its_input(x: Tensor, dim: int = -1) -> Tensor:
    """As softmax did."""
    return _KeepsInput.apply(x, dim, True)

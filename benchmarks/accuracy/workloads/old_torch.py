"""What PyTorch did in old versions that takes memory, to see how much of a difference is due to it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_attention = F.scaled_dot_product_attention


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


def attention_that_copies(*tensors: Tensor, **options: Any) -> Tensor:
    """Before PyTorch 2.2 flash attention kept its output in an order that had to be copied to another."""
    return _attention(*tensors, **options).clone(memory_format=torch.contiguous_format)


def log_softmax_that_keeps_its_input(x: Tensor, dim: int = -1) -> Tensor:
    """As softmax did."""
    return _KeepsInput.apply(x, dim, True)

"""Gradients of bf16 and fp16 parameters, summed over a window in fp32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.utils.hooks import RemovableHandle


class Fp32Gradients:
    """The sums of a window's gradients, in fp32.

    Each parameter's gradient moves into its sum as soon as a backward has made it, so beside the sums (4 bytes per
    parameter of 2 bytes) only the gradients on their way exist. Optimizers take gradients in the parameters' dtype: the
    sum is rounded to it once, after clipping, when the optimizer is due.
    """

    def __init__(self, parameters: Callable[[], list[nn.Parameter]]) -> None:
        self._all_parameters = parameters  # asked anew each time, as layers may be unfrozen or added between epochs
        self._sums: dict[nn.Parameter, torch.Tensor] = {}

    def parameters(self, *, low: bool) -> list[nn.Parameter]:
        """Those to be trained, of 2 bytes or of more."""
        return [each for each in self._all_parameters() if each.requires_grad and _is_low(each) == low]

    @property
    def sum_bytes(self) -> int:
        """What the sums take while a window runs, beyond gradients in the parameters' dtype: half of this less."""
        return sum(4 * parameter.numel() for parameter in self.parameters(low=True))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Take every gradient that a backward makes."""
        register = torch.Tensor.register_post_accumulate_grad_hook
        handles: list[RemovableHandle] = [
            register(parameter, self._take)  # type: ignore[no-untyped-call]
            for parameter in self.parameters(low=True)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.clear()

    def _take(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None and isinstance(parameter, nn.Parameter)
        if parameter in self._sums:
            self._sums[parameter].add_(gradient)
        else:
            self._sums[parameter] = gradient.float()
        parameter.grad = None

    def has(self, parameter: nn.Parameter) -> bool:
        """Whether the window has given this parameter a gradient."""
        return parameter in self._sums or parameter.grad is not None

    def add_ranks(self, group: Any) -> None:
        """Sum every gradient over the ranks, in fp32; all ranks take all parameters in the same order."""
        parameters = [*self.parameters(low=True), *self.parameters(low=False)]
        if not parameters:
            return
        device = parameters[0].device
        used = torch.tensor([self.has(parameter) for parameter in parameters], dtype=torch.int32, device=device)
        torch.distributed.all_reduce(used, op=torch.distributed.ReduceOp.MAX, group=group)
        handles = []
        for parameter, is_used in zip(parameters, used.tolist(), strict=True):
            if is_used:  # by some rank: one that has no gradient adds zeros
                handles.append(torch.distributed.all_reduce(self._total(parameter), group=group, async_op=True))
        for handle in handles:
            handle.wait()

    def _total(self, parameter: nn.Parameter) -> torch.Tensor:
        if _is_low(parameter):
            if parameter not in self._sums:
                self._sums[parameter] = torch.zeros_like(parameter, dtype=torch.float32, requires_grad=False)
            return self._sums[parameter]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        return parameter.grad

    def carriers(self) -> list[torch.Tensor]:
        """Tensors whose `.grad` are the gradients in fp32, for clipping in place."""
        carriers: list[torch.Tensor] = [*self.parameters(low=False)]
        for total in self._sums.values():
            carrier = total.view_as(total)
            carrier.grad = total
            carriers.append(carrier)
        return carriers

    def round_into_gradients(self) -> None:
        """Give each parameter its gradient, in its own dtype, and let go of the sums."""
        for parameter in list(self._sums):
            parameter.grad = self._sums.pop(parameter).to(parameter.dtype)

    def clear(self) -> None:
        """Let go of the sums."""
        self._sums.clear()


def _is_low(parameter: nn.Parameter) -> bool:
    return parameter.dtype in (torch.bfloat16, torch.float16)

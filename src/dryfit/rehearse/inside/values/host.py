"""Small tensors of the virtual card, seen and computed by the CPU: the card's memory is memory of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values.operators import Operator, with_tensors_for_numbers

_CPU = torch.device("cpu")
# The program's own generators are never drawn from: its CPU numbers stay what they were, and CUDA's state is torch's.
_generator = torch.Generator().manual_seed(0)
# For the operators that take no generator, and so draw from the program's: its state is put back, by one at a time.
_drawing = threading.Lock()


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor of the CPU."""
    if tensor.numel() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU)
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    storage = torch_private.host_storage(tensor.data_ptr(), elements * tensor.itemsize)
    return torch.empty(0, dtype=tensor.dtype, device=_CPU).set_(storage, 0, tensor.shape, tensor.stride())


def cuda_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of the card in an argument or a result, lists looked into."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            if not isinstance(item, torch.Tensor):
                yield from cuda_tensors(item)
            elif item.is_cuda:  # without a generator for each: optimizers pass hundreds at once
                yield item


def run(operator: Operator, args: Any, kwargs: Any, result: Any) -> None:
    """Compute an operator on the CPU, over the bytes of the card's tensors; `result` is what its CUDA kernel returned.

    Raises whatever the CPU kernel raises, and ValueError if its result is of another shape or type than the card's.
    """
    with torch_private.without_torch_function(), torch_private.below_autograd():
        computed = compute(operator, args, kwargs)
        if not operator.written:
            for card, host in zip(_tensors(result), _tensors(computed), strict=True):
                if card.is_cuda:
                    _write(card, host)


def compute(operator: Operator, args: Any, kwargs: Any) -> Any:
    """What the operator gives on the CPU."""
    args = [_twin(value) for value in with_tensors_for_numbers(operator, args)]
    kwargs = {name: _twin(value) for name, value in kwargs.items()}
    if not operator.is_random:
        return operator.overload(*args, **kwargs)
    if operator.takes_generator:
        return operator.overload(*args, **{**kwargs, "generator": _generator})
    with _drawing:
        state = torch.default_generator.get_state()
        try:
            return operator.overload(*args, **kwargs)
        finally:
            torch.default_generator.set_state(state)


def _write(card: torch.Tensor, host: torch.Tensor) -> None:
    if card.shape != host.shape or card.dtype != host.dtype:
        of_host, of_card = f"{host.dtype} of {tuple(host.shape)}", f"{card.dtype} of {tuple(card.shape)}"
        raise ValueError(f"the CPU gave {of_host}, the card {of_card}")
    on_host(card).copy_(host)


def _twin(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return on_host(value) if value.is_cuda else value
    if isinstance(value, (list, tuple)):
        return [_twin(item) for item in value]
    if isinstance(value, torch.device):
        return _CPU
    if isinstance(value, torch.Generator):
        return _generator
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []

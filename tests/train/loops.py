"""Loops with `accumulate` whose gradients can be compared, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.train.language import Batch, Steps, language_model, loss_of
from torch import nn

from dryfit.errors import UsageError
from dryfit.train.accumulation import accumulate

EQUAL = 1e-6  # the largest relative difference of a gradient in fp32


def still(model: nn.Module) -> tuple[torch.optim.Optimizer, Steps]:
    """An optimizer that leaves the model as it is, so that every window can be compared with the first model's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return optimizer, Steps(optimizer)


def run(
    batches: list[Batch], *, steps: int, loss: Callable[[nn.Module, Batch], torch.Tensor] = loss_of, **rest: Any
) -> Steps:
    model = language_model()
    optimizer, taken = still(model)
    for window in accumulate(batches, model, optimizer, steps=steps, **rest):
        for batch in window:
            window.backward(loss(model, batch))
        window.step()
    return taken


def walked(accumulation: Any, model: nn.Module) -> Iterator[Any]:
    for window in accumulation:
        for batch in window:
            window.backward(loss_of(model, batch))
        window.step()
        yield window


def sizes(accumulation: Any, model: nn.Module) -> list[int]:
    return [len(window) for window in walked(accumulation, model)]


def refused(act: Callable[[], Any]) -> str:
    """What a UsageError says."""
    with pytest.raises(UsageError) as refused:
        act()
    return str(refused.value)

"""The end of a window in the one right order: unscale once, clip, step, update the scale, clear; then the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from dryfit.errors import UsageError
from dryfit.train.fp32_gradients import Fp32Gradients
from dryfit.train.synchronising import Wrappers


@dataclass(slots=True, kw_only=True)
class Stepper:
    """What a window's step acts on, and which optimizers it has really stepped."""

    optimizers: tuple[Optimizer, ...]
    schedulers: tuple[Any, ...]
    scaler: GradScaler | None
    clip_norm: float | None
    wrappers: Wrappers
    fp32: Fp32Gradients | None
    _stepping: bool = False
    _stepped: set[Optimizer] = field(default_factory=set)

    def parameters(self) -> list[nn.Parameter]:
        """Every parameter of the optimizers, once."""
        return parameters_of(self.optimizers)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Refuse steps by hand, and note which optimizers a GradScaler lets step."""

        def before_step(optimizer: Optimizer, _: Any, __: Any) -> None:
            if not self._stepping:
                raise UsageError(
                    f"{type(optimizer).__name__}.step() was called by hand inside the loop over windows, where "
                    f"window.step() is what steps. Take optimizer.step(), scaler.step() and optimizer.zero_grad() out "
                    f"of the loop. (If it was another loop's window.step(), the two loops share this optimizer.)"
                )
            self._stepped.add(optimizer)

        with ExitStack() as stack:
            for optimizer in self.optimizers:
                stack.callback(optimizer.register_step_pre_hook(before_step).remove)
            if self.fp32:
                stack.enter_context(self.fp32.collecting())
            yield

    def has_gradient(self, parameter: nn.Parameter) -> bool:
        """Whether a gradient is there, wherever it is kept."""
        return parameter.grad is not None if self.fp32 is None else self.fp32.has(parameter)

    def step(self) -> tuple[torch.Tensor | None, bool]:
        """Step, and give the gradient's norm before clipping and whether every optimizer stepped.

        Raises:
            UsageError: an optimizer's parameters have no gradient at all.
        """
        self._require_gradients()
        if self.fp32 and self.wrappers.ddp:
            self.fp32.add_ranks(self.wrappers.ddp[0].process_group)
        if self.scaler and self.clip_norm is not None:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        norm = None if self.clip_norm is None else self._clip(self.clip_norm)
        if self.fp32:
            self.fp32.round_into_gradients()
        stepped = self._step_optimizers()
        self.clear()
        for scheduler in self.schedulers:
            if scheduled(scheduler, self.optimizers) in stepped:
                scheduler.step()
        return norm, len(stepped) == len(self.optimizers)

    def _step_optimizers(self) -> set[Optimizer]:
        self._stepped.clear()
        self._stepping = True
        try:
            if self.scaler is None:
                for optimizer in self.optimizers:
                    optimizer.step()
                return set(self.optimizers)
            scale = self.scaler.get_scale()
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
            self.scaler.update()
        finally:
            self._stepping = False
        if self.scaler.get_scale() < scale and len(self._stepped) == len(self.optimizers):
            return set()  # fused optimizers are always called, and skip by themselves; which one did is not known
        return set(self._stepped)

    def _clip(self, clip_norm: float) -> torch.Tensor:
        if self.wrappers.fsdp1:
            norm: torch.Tensor = self.wrappers.fsdp1[0].clip_grad_norm_(clip_norm)
            return norm
        carriers = self.fp32.carriers() if self.fp32 else self.parameters()
        norm = torch.nn.utils.clip_grad_norm_([_with_dense_gradient(each) for each in carriers], clip_norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def clear(self) -> None:
        """Free the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if self.fp32:
            self.fp32.clear()

    def _require_gradients(self) -> None:
        if self.wrappers.fsdp1:  # a rank may hold no part of a small model
            return
        for number, optimizer in enumerate(self.optimizers):
            own = parameters_of([optimizer])
            if not any(self.has_gradient(parameter) for parameter in own):
                which = type(optimizer).__name__ if len(self.optimizers) == 1 else f"Optimizer {number}"
                raise UsageError(
                    f"{which} has {len(own)} parameters, and after a whole window none of them has a gradient, so its "
                    f"step would do nothing. Was it made before the model was wrapped, moved or replaced? Make it from "
                    f"the parameters of the model that gives the loss."
                )


def _with_dense_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """The parameter, or what carries the values of its sparse gradient, of which older versions have no norm."""
    if parameter.grad is None or parameter.grad.layout is not torch.sparse_coo:
        return parameter
    parameter.grad = parameter.grad.coalesce()
    values = parameter.grad.values()  # shared with the gradient, which is scaled through them
    carrier = values.view_as(values)
    carrier.grad = values
    return carrier


def scheduled(scheduler: Any, optimizers: Sequence[Optimizer]) -> Any:
    """The optimizer that a scheduler is for; one of a kind of its own that does not say is for the first."""
    return getattr(scheduler, "optimizer", optimizers[0])


def parameters_of(optimizers: Sequence[Optimizer]) -> list[nn.Parameter]:
    """The optimizers' parameters, each once, in their order."""
    found = {id(each): each for one in optimizers for group in one.param_groups for each in group["params"]}
    return list(found.values())

"""Gradients freed before the forward pass, instead of kept through it to be zeroed before the backward pass."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments


def _why_not(facts: Facts) -> str:
    if not facts.has_optimizer:
        return "the program has no optimizer"
    if not facts.gradient_bytes_in_forward:
        return "gradients are freed before the forward pass already"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    # Only gradients that an optimizer has used are freed: another's may be gathered over several of its steps.
    stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
    all_have_stepped = False

    def watch(optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_step_post_hook(lambda each, *_: stepped.add(each))

    def note() -> None:
        nonlocal all_have_stepped
        all_have_stepped = True

    def free(model: torch.nn.Module, *_: Any) -> None:
        nonlocal all_have_stepped
        if not all_have_stepped or not torch.is_grad_enabled() or next(model.parameters(), None) is None:
            return
        all_have_stepped = False
        for optimizer in list(stepped):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad = None
                        moments.acts()
        stepped.clear()

    def to_none(real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def zero_grad(self: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                moments.acts()
            real(self, set_to_none=True)

        return zero_grad

    moments.when_optimizer_was_made(watch)
    moments.when_all_have_stepped(note)
    moments.when_model_is_called(free)
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        kind.zero_grad = to_none(kind.zero_grad)  # type: ignore[method-assign]


MEASURES = (
    Measure(
        name="zero-grad",
        title="gradients freed before the forward pass",
        what="The gradients of the step before are set to None before the next forward pass, and not kept through it.",
        group="gradients",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        not_counted="A parameter that gets no gradient in a step is then left as it is, where a gradient of zeros "
        "would still have moved it by weight decay and momentum.",
        snippets={
            "pytorch": "optimizer.zero_grad()  # sets gradients to None; before the forward pass, and not after it\n"
            "loss = loss_of(model(batch))\n"
            "loss.backward()\n"
            "optimizer.step()",
            "lightning": "def training_step(self, batch, batch_idx):\n"
            "    if batch_idx % self.trainer.accumulate_grad_batches == 0:\n"
            "        self.optimizers().zero_grad()\n"
            "    ...",
        },
    ),
)

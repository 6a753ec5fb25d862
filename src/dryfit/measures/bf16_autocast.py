"""bf16 autocast: matrix multiplications and what is kept of them in bfloat16, weights and their updates in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dryfit.measures import settings
from dryfit.measures.facts import Facts
from dryfit.measures.instead import instead
from dryfit.measures.measure import Measure, changes_precision
from dryfit.measures.moments import Moments

_HALVES = {"bfloat16", "float16"}


def _why_not(facts: Facts) -> str:
    if facts.autocast:
        return f"autocast is on already ({facts.autocast})"
    dtypes = {name for model in facts.models for name, size in model.parameter_bytes.items() if size}
    if dtypes and dtypes <= _HALVES:
        return f"all parameters are {' and '.join(sorted(dtypes))} already"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    region: torch.autocast | None = None
    is_evaluation = False
    is_of_trainer = False  # a trainer of the program's has been told to do it, and does it in its own way

    def enter(model: Any, *_: Any) -> None:
        nonlocal region, is_evaluation
        # A module without parameters prepares data, or is the loss.
        if is_of_trainer or region is not None or next(model.parameters(), None) is None:
            return
        is_evaluation = not torch.is_grad_enabled()
        region = torch.autocast("cuda", dtype=torch.bfloat16)
        region.__enter__()  # type: ignore[no-untyped-call]
        moments.acts()

    def leave() -> None:
        nonlocal region
        if region is not None:
            region.__exit__(None, None, None)
            region = None

    def leave_evaluation(_: Any) -> None:
        if is_evaluation:
            leave()

    def of_training_arguments(arguments: Any) -> None:
        nonlocal is_of_trainer
        is_of_trainer = True
        if not arguments.fp16:
            arguments.bf16 = True
            moments.acts()

    def of_accelerator(given: settings.Settings) -> None:
        nonlocal is_of_trainer
        is_of_trainer = True
        if given.get("mixed_precision") in (None, "no"):
            given["mixed_precision"] = "bf16"
            moments.acts()

    def of_lightning(given: settings.Settings) -> None:
        nonlocal is_of_trainer
        is_of_trainer = True
        if given.get("precision") in (None, 32, "32", "32-true"):
            given["precision"] = "bf16-mixed"
            moments.acts()

    def leave_before_backward(real: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        # Before it makes the gradient of the loss: what autocast keeps of small weights is gone by then.
        moments.guard(leave)()
        real(*args, **kwargs)

    instead(torch.autograd, "backward", leave_before_backward)
    moments.when_model_is_called(enter)
    moments.when_model_returned(leave_evaluation)
    moments.when_backward_begins(leave)
    moments.when_all_have_stepped(leave)
    settings.of_training_arguments(moments, of_training_arguments)
    settings.of_accelerator(moments, of_accelerator)
    settings.of_lightning_trainer(moments, of_lightning)


MEASURES = (
    Measure(
        name="bf16-autocast",
        title="bf16 autocast",
        what="Matrix multiplications and convolutions take and give bfloat16, so that what is kept for the backward "
        "pass is half as large; weights, gradients and optimizer states stay float32.",
        group="precision",
        why_not=_why_not,
        changes=changes_precision,
        switch_on=_switch_on,
        not_counted="It is faster on cards with bfloat16 units (from Ampere on), slower on those without (T4, V100).",
        snippets={
            "pytorch": 'with torch.autocast("cuda", dtype=torch.bfloat16):\n'
            "    loss = loss_of(model(batch))\n"
            "loss.backward()  # not within",
            "transformers": "TrainingArguments(..., bf16=True)",
            "lightning": 'Trainer(..., precision="bf16-mixed")',
            "accelerate": 'Accelerator(mixed_precision="bf16")',
        },
    ),
)

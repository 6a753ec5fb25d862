"""Gradients as views of DDP's buckets, in place of a copy of each gradient in them."""

from __future__ import annotations

from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.instead import instead
from dryfit.measures.measure import TRANSFORMERS, Measure, changes_nothing
from dryfit.measures.moments import Moments


def _why_not(facts: Facts) -> str:
    wrapped = [model for model in facts.models if model.is_distributed == "DDP"]
    if not wrapped:
        return "no model of the program is wrapped in DistributedDataParallel"
    if all(model.has_bucket_views for model in wrapped):
        return "the gradients are views of DDP's buckets already"
    if facts.way == TRANSFORMERS:
        return "transformers' Trainer makes DDP itself, and TrainingArguments have no word for this"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    def make(real: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("gradient_as_bucket_view"):
            kwargs["gradient_as_bucket_view"] = True
            moments.acts()
        real(self, *args, **kwargs)

    instead(torch.nn.parallel.DistributedDataParallel, "__init__", make)


MEASURES = (
    Measure(
        name="gradient-as-bucket-view",
        title="gradients as views of DDP's buckets",
        what="DDP reduces gradients in buckets, which are a second copy of all of them; with views of the buckets as "
        "gradients there is only one.",
        group="buckets",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        not_counted="a gradient that is a view cannot be detached in place (detach_())",
        snippets={
            "pytorch": "model = DistributedDataParallel(model, ..., gradient_as_bucket_view=True)",
            "lightning": "Trainer(..., strategy=DDPStrategy(gradient_as_bucket_view=True))",
            "accelerate": "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])",
        },
    ),
)

"""torch.compile: operators are fused, so that fewer of their results are made and kept."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments

if TYPE_CHECKING:
    import torch


def _why_not(facts: Facts) -> str:
    if not facts.models:
        return "no model is trained, so there is none to compile"
    if all(model.is_compiled for model in facts.models):
        return "the program's model is compiled already"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    known: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def compile_model(model: torch.nn.Module, *_: Any) -> None:
        import torch

        if model in known or not (model.training and torch.is_grad_enabled()):
            return
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return
        known.update(model.modules())
        if not _is_compiled(model):
            model.compile()
            moments.acts()

    moments.when_model_is_called(compile_model)


def _is_compiled(model: torch.nn.Module) -> bool:
    """Whether it or a part of it is: in place by `compile()`, or wrapped by `torch.compile` (torch 2.4 to 2.14)."""
    return any(module._compiled_call_impl is not None or hasattr(module, "_orig_mod") for module in model.modules())


MEASURES = (
    Measure(
        name="torch-compile",
        title="torch.compile",
        what="The model is compiled: operators are fused, so that fewer of their results are made and kept.",
        group="compiling",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        snippets={
            "pytorch": "model.compile()  # in place; or model = torch.compile(model)",
            "transformers": "TrainingArguments(..., torch_compile=True)",
        },
        takes_long="it compiles the model for each rehearsal, which takes minutes for a large one",
        not_counted="Compilation takes minutes when the first batch comes, and again for batches of other shapes.",
    ),
)

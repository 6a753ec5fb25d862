"""Activations kept on the host: what the forward pass saves is copied there, and back when backward comes to it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments

if TYPE_CHECKING:
    import torch


def _why_not(facts: Facts) -> str:
    return "" if facts.models else "no model is trained, so no activations are kept for a backward pass"


def _switch_on(moments: Moments, _: str) -> None:
    saving: list[AbstractContextManager[Any]] = []  # the one that is entered, if one is

    def enter(model: torch.nn.Module, *_: Any) -> None:
        import torch

        if saving or not (model.training and torch.is_grad_enabled()):
            return
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return
        saving.append(torch.autograd.graph.save_on_cpu(pin_memory=True))
        saving[0].__enter__()
        moments.acts()

    def leave() -> None:
        if saving:
            saving.pop().__exit__(None, None, None)

    moments.when_model_is_called(enter)
    moments.when_backward_begins(leave)
    moments.when_all_have_stepped(leave)


MEASURES = (
    Measure(
        name="offload-activations",
        title="activations kept on the host",
        what="What the forward pass saves for the backward pass, weights too, is copied to pinned memory of the host "
        "and back when its turn comes.",
        group="activations on the host",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        snippets={
            "pytorch": """
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    loss = ...  # the forward pass and the loss, as they are
loss.backward()
""",
            "transformers": """
class OffloadingTrainer(Trainer):
    def compute_loss(self, *args, **kwargs):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return super().compute_loss(*args, **kwargs)
""",
            "lightning": """
def training_step(self, batch, batch_idx):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = ...  # as it is
    return loss
""",
        },
        not_counted="The host needs room for what is saved, in pinned memory that PyTorch rounds up to a power of two; "
        "copies wait for each other and for the card.",
    ),
)

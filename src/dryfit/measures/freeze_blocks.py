"""Freezing: only the last half of the model's blocks is trained, and what comes after them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from dryfit.measures.blocks import repeated_blocks
from dryfit.measures.facts import Facts
from dryfit.measures.given_to_ddp import before_ddp_gets
from dryfit.measures.measure import Measure, changes_method
from dryfit.measures.moments import Moments, WantedOptimizer
from dryfit.measures.owners import keep_trainable, owners

if TYPE_CHECKING:
    import torch


def _why_not(facts: Facts) -> str:
    if not facts.has_optimizer:
        return "the program makes no optimizer, so nothing is trained"
    if any(model.is_peft for model in facts.models):
        return "the program trains adapters, and has frozen the model already"
    if not facts.blocks:
        return "no repeated blocks were found in the model, of which a part could be frozen"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    frozen: WeakSet[torch.nn.Module] = WeakSet()

    def freeze_of(wanted: WantedOptimizer) -> None:
        for model in owners(wanted.parameters):
            if model not in frozen and _freeze(model):
                frozen.add(model)
        if frozen:
            keep_trainable(wanted)
            moments.acts()

    moments.when_optimizer_is_wanted(freeze_of)
    before_ddp_gets(moments, _freeze)


def _freeze(model: torch.nn.Module) -> bool:
    """Freeze all that comes before the block in the middle, in the model's own order."""
    blocks = repeated_blocks(model)
    if not blocks:
        return False
    first_trained = next(blocks[len(blocks) // 2].parameters())
    for parameter in model.parameters():
        if parameter is first_trained:
            break
        parameter.requires_grad_(False)
    return True


MEASURES = (
    Measure(
        name="freeze-blocks",
        title="first half frozen",
        what="Embeddings and the first half of the blocks are not trained: they need neither gradients nor optimizer "
        "states, and keep no activations.",
        group="trained",
        why_not=_why_not,
        changes=changes_method,
        switch_on=_switch_on,
        snippets={
            "pytorch": """
blocks = [module for module in model.modules() if isinstance(module, {blocks})]
first_trained = next(blocks[len(blocks) // 2].parameters())
for parameter in model.parameters():  # embeddings come first, then the blocks
    if parameter is first_trained:
        break
    parameter.requires_grad_(False)
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], ...)
""",
            "transformers": """
blocks = [module for module in model.modules() if isinstance(module, {blocks})]
first_trained = next(blocks[len(blocks) // 2].parameters())
for parameter in model.parameters():  # embeddings come first, then the blocks
    if parameter is first_trained:
        break
    parameter.requires_grad_(False)
trainer = Trainer(model, ...)
""",
        },
    ),
)

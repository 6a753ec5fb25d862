"""Adam and AdamW of bitsandbytes: states of 8 bits, on the card or in memory that the driver pages to the host."""

from __future__ import annotations

import functools

from dryfit.measures.adam import keep_settings, optimizers_of, when_adam_is_wanted, why_not_adam
from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_precision
from dryfit.measures.moments import Moments, WantedOptimizer

_SETTINGS = ("lr", "betas", "eps", "weight_decay")
_CANNOT = ("amsgrad", "maximize", "differentiable")
# bitsandbytes 0.50.
_OTHERWISE = "Adam8bit takes weight decay off the weights, as AdamW does, where torch's Adam adds it to the gradients."


def _why_not(facts: Facts) -> str:
    if any(model.is_distributed == "FSDP2" for model in facts.models):
        return "bitsandbytes' optimizers do not take the sharded parameters (DTensor) of FSDP2"
    return why_not_adam(facts)


def _switch_on(moments: Moments, _: str, *, prefix: str, trainers_name: str) -> None:
    def use_8bit(wanted: WantedOptimizer) -> None:
        wanted.kind = getattr(optimizers_of("bitsandbytes"), f"{prefix}{wanted.kind.__name__}8bit")
        keep_settings(wanted, _SETTINGS)

    when_adam_is_wanted(moments, use_8bit, trainers_name=trainers_name, cannot=_CANNOT)


def _snippets(kind: str, trainers_name: str) -> dict[str, str]:
    made = f"import bitsandbytes as bnb\n{{}}bnb.optim.{kind}({{}}.parameters(), ...)"
    return {
        "pytorch": made.format("optimizer = ", "model"),
        "transformers": f'TrainingArguments(..., optim="{trainers_name}")',
        "lightning": made.format("return ", "self") + "  # in configure_optimizers",
    }


MEASURES = (
    Measure(
        name="adamw-8bit",
        title="8-bit AdamW",
        what="bitsandbytes keeps both moments in 8 bits with a scale for every 256 values, some 2 bytes a parameter in "
        "place of 8; those of tensors below 4096 elements stay in 32 bits.",
        group="optimizer",
        why_not=_why_not,
        changes=changes_precision,
        switch_on=functools.partial(_switch_on, prefix="", trainers_name="adamw_bnb_8bit"),
        not_counted=_OTHERWISE,
        needs="bitsandbytes",
        snippets=_snippets("AdamW8bit", "adamw_bnb_8bit"),
    ),
    Measure(
        name="paged-adamw-8bit",
        title="paged 8-bit AdamW",
        what="The 8-bit moments of tensors from 100,000 elements on are in managed memory, outside PyTorch's "
        "allocator; the driver moves them to the host when the card is full.",
        group="optimizer",
        why_not=_why_not,
        changes=changes_precision,
        switch_on=functools.partial(_switch_on, prefix="Paged", trainers_name="paged_adamw_8bit"),
        not_counted="Managed memory counts as none of the card's: what of it is there at a time depends on what else "
        "is. Where the states do not stay on the card, up to 2 bytes a parameter move over the bus in each direction "
        f"at every step. {_OTHERWISE}",
        needs="bitsandbytes",
        snippets=_snippets("PagedAdamW8bit", "paged_adamw_8bit"),
    ),
)

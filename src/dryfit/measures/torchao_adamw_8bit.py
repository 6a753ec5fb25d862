"""Adam and AdamW of torchao: states of 8 bits in a tensor class of its own, the step compiled by torch.compile."""

from __future__ import annotations

from dryfit.measures.adam import keep_settings, optimizers_of, when_adam_is_wanted, why_not_adam
from dryfit.measures.measure import Measure, changes_precision
from dryfit.measures.moments import Moments, WantedOptimizer

_SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad")
_CANNOT = ("maximize", "differentiable")


def _switch_on(moments: Moments, _: str) -> None:
    def use_8bit(wanted: WantedOptimizer) -> None:
        wanted.kind = getattr(optimizers_of("torchao"), f"{wanted.kind.__name__}8bit")
        keep_settings(wanted, _SETTINGS)

    when_adam_is_wanted(moments, use_8bit, trainers_name="adamw_torch_8bit", cannot=_CANNOT)


MEASURES = (
    Measure(
        name="torchao-adamw-8bit",
        title="8-bit AdamW of torchao",
        what="torchao keeps both moments in 8 bits with a scale for every 256 values, some 2 bytes a parameter in "
        "place of 8; those of tensors below 4096 elements, or of a number that 256 does not divide, keep its dtype.",
        group="optimizer",
        why_not=why_not_adam,
        changes=changes_precision,
        switch_on=_switch_on,
        not_counted="The first step compiles a kernel for every shape of parameter there is: about a second each.",
        needs="torchao",
        snippets={
            "pytorch": "from torchao.optim import AdamW8bit\noptimizer = AdamW8bit(model.parameters(), ...)",
            "transformers": 'TrainingArguments(..., optim="adamw_torch_8bit")',
            "lightning": "from torchao.optim import AdamW8bit\n"
            "return AdamW8bit(self.parameters(), ...)  # in configure_optimizers",
        },
    ),
)

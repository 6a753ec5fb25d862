"""Adafactor: the second moment of a matrix by its rows and columns, and no first moment."""

from __future__ import annotations

from dryfit.measures.adam import keep_settings, when_adam_is_wanted, why_not_adam
from dryfit.measures.measure import Measure, changes_method
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

# Its `eps` and `betas` are something else, and `foreach`, for which it makes copies, is off unless asked for.
_SETTINGS = ("lr", "weight_decay", "maximize")


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    def use_adafactor(wanted: WantedOptimizer) -> None:
        if not hasattr(torch.optim, "Adafactor"):
            raise CannotSwitchOn(f"torch.optim.Adafactor came with torch 2.5, and this is {torch.__version__}")
        _keep_default_decay(wanted)
        wanted.kind = torch.optim.Adafactor
        keep_settings(wanted, _SETTINGS)

    when_adam_is_wanted(moments, use_adafactor, trainers_name="adafactor", cannot=("differentiable",))


def _keep_default_decay(wanted: WantedOptimizer) -> None:
    """AdamW decays weights by 0.01 unless told otherwise, and Adafactor does not."""
    if wanted.kind.__name__ == "AdamW":
        wanted.settings.setdefault("weight_decay", 1e-2)


MEASURES = (
    Measure(
        name="adafactor",
        title="Adafactor",
        what="The second moment of a matrix is kept as one number for each row and each column, and the first moment "
        "not at all: almost no states.",
        group="optimizer",
        why_not=why_not_adam,
        changes=changes_method,
        switch_on=_switch_on,
        not_counted="It scales a step by the size of the weights: the learning rate has to be found anew.",
        snippets={
            "pytorch": "optimizer = torch.optim.Adafactor(model.parameters(), lr=..., weight_decay=...)",
            "transformers": 'TrainingArguments(..., optim="adafactor")',
            "lightning": "return torch.optim.Adafactor(self.parameters(), lr=..., weight_decay=...)  "
            "# in configure_optimizers",
        },
    ),
)

"""torch's Adam and AdamW, and what the measures have in common that put another optimizer in their place."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from dryfit.measures import settings
from dryfit.measures.facts import Facts
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

_ADAMS = ("Adam", "AdamW")
# What transformers' Trainer calls them, in `TrainingArguments(optim=...)` (4.51 to 5.24).
_ADAMS_OF_TRAINER = ("adamw_torch", "adamw_torch_fused")


def is_adam(kind: str) -> bool:
    """Whether an optimizer's class, with its module, is one of the two, and not a class of the program's.

    >>> is_adam("torch.optim.adamw.AdamW"), is_adam("train.AdamW")
    (True, False)
    """
    module, _, name = kind.rpartition(".")
    return name in _ADAMS and module.startswith("torch.optim.")


def why_not_adam(facts: Facts) -> str:
    """Why a measure that replaces them does not apply, or ""."""
    if any(is_adam(each.kind) for each in facts.optimizers):
        return ""
    kinds = sorted({each.kind.rpartition(".")[2] for each in facts.optimizers})
    if not kinds:
        return "the program has no optimizer"
    return f"the program's optimizer is {' and '.join(kinds)}, and this stands in for torch.optim's Adam and AdamW"


def when_adam_is_wanted(
    moments: Moments, do: Callable[[WantedOptimizer], None], *, trainers_name: str = "", cannot: Sequence[str] = ()
) -> None:
    """Have `do(wanted)` put another optimizer in the place of each Adam and AdamW that the program is about to make.

    Where transformers' Trainer makes it, the Trainer is told its own name for the other, `trainers_name`, if it has
    one: it has settings of its own for some. `cannot` are settings that the other does not have, or refuses.
    """

    def replace(wanted: WantedOptimizer) -> None:
        if not is_adam(f"{wanted.kind.__module__}.{wanted.kind.__name__}"):
            return
        groups = [group for group in wanted.groups if isinstance(group, dict)]
        for name in cannot:
            if any(each.get(name) for each in (wanted.settings, *groups)):
                raise CannotSwitchOn(
                    f"the program makes {wanted.kind.__name__} with {name}={_value(wanted, name)}, which the optimizer "
                    "that takes its place does not have"
                )
        do(wanted)
        moments.acts()

    def tell_trainer(arguments: Any) -> None:
        if getattr(arguments.optim, "value", arguments.optim) in _ADAMS_OF_TRAINER:
            arguments.optim = trainers_name
            moments.acts()

    moments.when_optimizer_is_wanted(replace)
    if trainers_name:
        settings.of_training_arguments(moments, tell_trainer)


def keep_settings(wanted: WantedOptimizer, names: Sequence[str]) -> None:
    """Leave of an Adam's settings those of these names, in its groups too; a group's own further entries stay."""
    dropped = {*_SETTINGS_OF_ADAM} - {*names}
    wanted.settings = {name: value for name, value in wanted.settings.items() if name in names}
    wanted.groups = [
        {name: value for name, value in group.items() if name not in dropped} if isinstance(group, dict) else group
        for group in wanted.groups
    ]


def optimizers_of(package: str) -> Any:
    """The module of a package's optimizers.

    Raises:
        CannotSwitchOn: it cannot be imported.
    """
    try:
        return importlib.import_module(f"{package}.optim")
    except ImportError as error:
        raise CannotSwitchOn(
            f"{package} cannot be imported ({error}); install it with `pip install {package}`"
        ) from error


# Of torch 2.4 to 2.14.
_SETTINGS_OF_ADAM = (
    "lr", "betas", "eps", "weight_decay", "amsgrad", "foreach", "maximize", "capturable", "differentiable", "fused",
    "decoupled_weight_decay",
)  # fmt: skip


def _value(wanted: WantedOptimizer, name: str) -> Any:
    return wanted.settings.get(name) or next(
        group[name] for group in wanted.groups if isinstance(group, dict) and group.get(name)
    )

"""Settings of the program's trainer (Hugging Face's, Accelerate, Lightning): changed as the program gives them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dryfit.measures.moments import Moments

Settings = dict[str, Any]

_LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def of_training_arguments(moments: Moments, change: Callable[[Any], None]) -> None:
    """Have `change(arguments)` called with each TrainingArguments of transformers before it looks at its own fields."""

    def wrap(module: ModuleType) -> None:
        kind, changes = module.TrainingArguments, moments.guard(change)
        real = kind.__post_init__

        @functools.wraps(real)
        def __post_init__(self: Any) -> None:
            changes(self)
            real(self)

        kind.__post_init__ = __post_init__

    moments.after_import("transformers.training_args", wrap)


def of_accelerator(moments: Moments, change: Callable[[Settings], None]) -> None:
    """Have `change(settings)` called with the settings, by name, of each Accelerator that is made."""
    moments.after_import("accelerate.accelerator", lambda module: _before(module.Accelerator, moments.guard(change)))


def of_lightning_trainer(moments: Moments, change: Callable[[Settings], None]) -> None:
    """Have `change(settings)` called with the settings, by name, of each Trainer of Lightning that is made."""
    for place in _LIGHTNING:
        moments.after_import(place, lambda module: _before(module.Trainer, moments.guard(change)))


def _before(kind: Any, change: Callable[[Settings], None]) -> None:
    real = kind.__init__
    signature = inspect.signature(real)

    @functools.wraps(real)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            settings = signature.bind(self, *args, **kwargs).arguments
        except TypeError:
            real(self, *args, **kwargs)  # which says what is wrong
            raise
        _, *given = settings.items()
        named: Settings = {}
        for name, value in given:
            is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            named |= value if is_rest else {name: value}
        change(named)
        real(self, **named)

    kind.__init__ = __init__

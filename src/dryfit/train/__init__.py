"""For your own training loop: the measures that save memory, done right.

    from dryfit.train import accumulate

    for window in accumulate(loader, model, optimizer, steps=4):
        for batch in window:
            window.backward(loss_of(model(batch)))
        window.step()

Each name is loaded when it is first used; importing this module loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dryfit.train.accumulation import Accumulation, accumulate
    from dryfit.train.checkpointing import Checkpointed, checkpoint_blocks
    from dryfit.train.equivalence import Equivalence, check_equivalence
    from dryfit.train.warning_classes import AccumulationWarning, BatchNormWarning
    from dryfit.train.window import Window

__all__ = [
    "Accumulation",
    "AccumulationWarning",
    "BatchNormWarning",
    "Checkpointed",
    "Equivalence",
    "Window",
    "accumulate",
    "check_equivalence",
    "checkpoint_blocks",
]

_HOMES = {
    "Accumulation": "accumulation",
    "AccumulationWarning": "warning_classes",
    "BatchNormWarning": "warning_classes",
    "Checkpointed": "checkpointing",
    "Equivalence": "equivalence",
    "Window": "window",
    "accumulate": "accumulation",
    "check_equivalence": "equivalence",
    "checkpoint_blocks": "checkpointing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

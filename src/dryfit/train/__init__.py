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
    from dryfit.train.devices import ToDevice, to_device
    from dryfit.train.equivalence import Equivalence, check_equivalence
    from dryfit.train.evaluating import evaluation
    from dryfit.train.lightning_callback import LightningMemoryCallback
    from dryfit.train.memory_report import MemoryGrowthWarning
    from dryfit.train.micro_batching import MicroBatched, MicroBatchWarning, micro_batched
    from dryfit.train.out_of_memory import is_out_of_memory
    from dryfit.train.peaks import PeakMemory, peak_memory
    from dryfit.train.predictions import PredictedPeaks
    from dryfit.train.releasing import Released, release
    from dryfit.train.training_mistakes import TrainingMistakeWarning
    from dryfit.train.transformers_callback import TransformersMemoryCallback
    from dryfit.train.two_passes import two_pass
    from dryfit.train.warning_classes import AccumulationWarning, BatchNormWarning
    from dryfit.train.window import Window

__all__ = [
    "Accumulation",
    "AccumulationWarning",
    "BatchNormWarning",
    "Checkpointed",
    "Equivalence",
    "LightningMemoryCallback",
    "MemoryGrowthWarning",
    "MicroBatchWarning",
    "MicroBatched",
    "PeakMemory",
    "PredictedPeaks",
    "Released",
    "ToDevice",
    "TrainingMistakeWarning",
    "TransformersMemoryCallback",
    "Window",
    "accumulate",
    "check_equivalence",
    "checkpoint_blocks",
    "evaluation",
    "is_out_of_memory",
    "micro_batched",
    "peak_memory",
    "release",
    "to_device",
    "two_pass",
]

_HOMES = {
    "Accumulation": "accumulation",
    "AccumulationWarning": "warning_classes",
    "BatchNormWarning": "warning_classes",
    "Checkpointed": "checkpointing",
    "Equivalence": "equivalence",
    "LightningMemoryCallback": "lightning_callback",
    "MemoryGrowthWarning": "memory_report",
    "MicroBatchWarning": "micro_batching",
    "MicroBatched": "micro_batching",
    "PeakMemory": "peaks",
    "PredictedPeaks": "predictions",
    "Released": "releasing",
    "ToDevice": "devices",
    "TrainingMistakeWarning": "training_mistakes",
    "TransformersMemoryCallback": "transformers_callback",
    "Window": "window",
    "accumulate": "accumulation",
    "check_equivalence": "equivalence",
    "checkpoint_blocks": "checkpointing",
    "evaluation": "evaluating",
    "is_out_of_memory": "out_of_memory",
    "micro_batched": "micro_batching",
    "peak_memory": "peaks",
    "release": "releasing",
    "to_device": "devices",
    "two_pass": "two_passes",
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

"""A callback for Lightning's Trainer that measures memory; loaded only where Lightning is there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dryfit.train.memory_report import BACKWARD, EVALUATION, FORWARD, OPTIMIZER_STEP, MemoryReport, say
from dryfit.train.missing_package import MissingPackage
from dryfit.train.predictions import PredictedPeaks
from dryfit.train.training_mistakes import warn_of_missing_gradients, warn_of_mistakes
from dryfit.watching.device_memory import Memory


def _callback_class() -> Any:
    """Lightning's base class, of whichever of its two packages the program uses."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if sys.modules.get(name)]
    installed = [name for name in names if importlib.util.find_spec(name.partition(".")[0])]
    if not [*loaded, *installed]:
        raise MissingPackage("LightningMemoryCallback", "Lightning", "lightning")
    return importlib.import_module(f"{[*loaded, *installed][0]}.callbacks").Callback


class LightningMemoryCallback(_callback_class()):  # type: ignore[misc]
    """Report the peaks of each phase of training when it ends, beside what `dryfit run` predicted.

        # before: dryfit run --gpu l4 --output predicted.json train.py
        trainer = Trainer(..., callbacks=[LightningMemoryCallback("predicted.json")])
        trainer.fit(model, loader)   # ends with a table: forward, backward, optimizer step, evaluation, ...

    `predicted` is such a file, a `PredictedPeaks`, or None for what is measured alone. The table goes to `tell`, on the
    first process of several, each of which has its own in `str(callback.report)`; `callback.peaks` has the figures, in
    bytes.

    Warns (`MemoryGrowthWarning`) when each of ten steps leaves more allocated than the one before, and before training
    (`BatchNormWarning`, `TrainingMistakeWarning`) of BatchNorm under gradient accumulation and, in models of
    transformers, of a cache of keys and values beside checkpointing, reentrant checkpointing, and in the first step of
    gradients that are missing for it. It reads PyTorch's counters a few times per step, restarts its peaks, and changes
    nothing else.

    Raises:
        UsageError: the file is no result of `dryfit run`.
    """

    def __init__(
        self, predicted: str | Path | PredictedPeaks | None = None, *, tell: Callable[[str], None] = print
    ) -> None:
        super().__init__()
        self.report = MemoryReport(predicted)
        self._tell = tell
        self._stepped = 0

    @property
    def peaks(self) -> dict[str, Memory]:
        """The peak of each phase so far, by its name."""
        return self.report.phases

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        warn_of_mistakes(pl_module, trainer.accumulate_grad_batches)
        self._stepped = trainer.global_step

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.report.enter(FORWARD)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self.report.enter(BACKWARD)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if not self.report.steps:
            warn_of_missing_gradients(pl_module)
        self.report.enter(OPTIMIZER_STEP)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self.report.end_step()
        else:
            self.report.leave()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.report.enter(EVALUATION)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.report.leave()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.report.leave()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            say(self.report, self._tell)
        else:
            self.report.leave()

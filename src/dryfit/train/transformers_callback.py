"""A callback for Hugging Face's Trainer that measures memory; loaded only where transformers is there."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dryfit.train.memory_report import (
    AFTER_STEP,
    BACKWARD,
    EVALUATION,
    FORWARD,
    FORWARD_AND_BACKWARD,
    OPTIMIZER_STEP,
    MemoryReport,
    say,
)
from dryfit.train.missing_package import MissingPackage
from dryfit.train.predictions import PredictedPeaks
from dryfit.train.training_mistakes import warn_of_missing_gradients, warn_of_mistakes
from dryfit.watching.device_memory import Memory

if importlib.util.find_spec("transformers") is None:
    raise MissingPackage("TransformersMemoryCallback", "transformers", "transformers")
_TrainerCallback: Any = importlib.import_module("transformers.trainer_callback").TrainerCallback


class TransformersMemoryCallback(_TrainerCallback):  # type: ignore[misc]
    """Report the peaks of each phase of training when it ends, beside what `dryfit run` predicted.

        # before: dryfit run --gpu l4 --output predicted.json train.py
        trainer = Trainer(..., callbacks=[TransformersMemoryCallback("predicted.json")])
        trainer.train()     # ends with a table: forward, backward, optimizer step, evaluation, allocated, reserved

    `predicted` is such a file, a `PredictedPeaks`, or None for what is measured alone. The table goes to `tell`, on the
    first process of several, each of which has its own in `str(callback.report)`; `callback.peaks` has the figures, in
    bytes. The forward pass ends with the call of the model, so what a loss function outside of it makes counts as
    backward; with `torch_compile` the two are not told apart.

    Warns (`MemoryGrowthWarning`) when each of ten steps leaves more allocated than the one before, and before training
    (`BatchNormWarning`, `TrainingMistakeWarning`) of BatchNorm under gradient accumulation, a cache of keys and values
    beside checkpointing, reentrant checkpointing, and in the first step of gradients that are missing for it. It reads
    PyTorch's counters a few times per step, restarts its peaks, and changes nothing else.

    Raises:
        UsageError: the file is no result of `dryfit run`.
    """

    def __init__(
        self, predicted: str | Path | PredictedPeaks | None = None, *, tell: Callable[[str], None] = print
    ) -> None:
        self.report = MemoryReport(predicted)
        self._tell = tell
        self._hooks: list[Any] = []
        self._first = FORWARD
        self._has_stepped = self._is_training = False

    @property
    def peaks(self) -> dict[str, Memory]:
        """The peak of each phase so far, by its name."""
        return self.report.phases

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        warn_of_mistakes(model, args.gradient_accumulation_steps)
        self._has_stepped, self._is_training = False, True
        self._remove_hooks()  # of a training that an error has ended, maybe of another model
        if args.torch_compile:
            self._first = FORWARD_AND_BACKWARD
        else:
            self._hooks = [
                model.register_forward_pre_hook(self._before_forward),
                model.register_forward_hook(self._after_forward),
            ]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.report.enter(self._first)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._has_stepped:
            warn_of_missing_gradients(kwargs["model"])
        self._has_stepped = True
        self.report.enter(OPTIMIZER_STEP)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.report.enter(AFTER_STEP)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.report.end_step()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Told after the step: where no hook has seen it begin, the phase goes on to what follows.
        if self._first is FORWARD_AND_BACKWARD:
            self.report.enter(EVALUATION)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._is_training:
            self.report.enter(AFTER_STEP)
        else:
            self.report.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._is_training = False
        self._remove_hooks()
        if state.is_world_process_zero:
            say(self.report, self._tell)
        else:
            self.report.leave()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before_forward(self, *_: Any) -> None:
        self.report.enter(FORWARD if torch.is_grad_enabled() else EVALUATION)

    def _after_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self.report.enter(BACKWARD)

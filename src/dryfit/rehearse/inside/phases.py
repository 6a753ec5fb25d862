"""Which step and phase of training the program is in, and the peaks of each.

A phase lasts until the next one begins:

    setup            until the first module is called: building the model, moving it, loading data
    forward          from a module's call: the forward pass, the loss, and what surrounds them
    evaluation       the same with gradients off
    backward         while autograd's engine runs; modules called inside it are recomputation
    after backward   from there to whatever comes next: unscaling, clipping, logging
    optimizer step   while an optimiser's `step` runs
    after the step   from there until a module is called again: zero_grad, data, logging

A step lasts from a forward pass to the next one after all optimisers have stepped. Only changes of phase cost anything
(about 0.1 ms: the allocator's statistics are read), not every module's call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dryfit.recording import model
from dryfit.rehearse.inside.peaks import PeakMeter, Window
from dryfit.watching.rounds import Rounds

SETUP, FORWARD, EVALUATION = model.SETUP, model.FORWARD, model.EVALUATION
BACKWARD, AFTER_BACKWARD = model.BACKWARD, model.AFTER_BACKWARD
OPTIMIZER_STEP, AFTER_STEP = model.OPTIMIZER_STEP, model.AFTER_STEP
_BEGINNINGS = (FORWARD, EVALUATION, BACKWARD)

StepEvent = dict[str, Any]


class Progress:
    """Counts steps and keeps the peaks of each step by phase; `step` 0 is the setup.

    `on_figures(step event)` is called as soon as all optimisers have stepped, so that a crash loses nothing, and again
    when the step is over. `on_end(step event)` is called then, too. `on_phase(step, phase)` is called as each begins.
    """

    def __init__(
        self,
        meter: PeakMeter,
        on_figures: Callable[[StepEvent], None],
        on_end: Callable[[StepEvent], None],
        on_phase: Callable[[int, str], None],
    ) -> None:
        self._meter, self._on_figures, self._on_end, self._on_phase = meter, on_figures, on_end, on_phase
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child that is a process of its own now."""
        self.phase = SETUP
        self.steps_done = 0
        self._step_peaks: list[dict[str, Window]] = [{}]
        self._rounds = Rounds()
        self._step_began, self._step_seconds = time.monotonic(), 0.0
        self._figures: StepEvent = {}

    @property
    def step(self) -> int:
        """The step the program is in, from 1; 0 during the setup."""
        return len(self._step_peaks) - 1

    @property
    def all_have_stepped(self) -> bool:
        """Whether every optimiser has stepped since the step began."""
        return self._rounds.is_complete

    @property
    def all_optimizers_have_stepped_twice(self) -> bool:
        """Whether every optimiser there is has made its states in one step, and held them through another."""
        return self._rounds.all_have_stepped_twice

    def enter(self, phase: str) -> None:
        """Begin a phase; a forward pass, or a backward without one, after all optimisers stepped begins a step too."""
        self._close_window()
        if self.phase == SETUP and phase != SETUP:
            self._begin_step()
        elif phase in _BEGINNINGS and self._rounds.is_complete:
            self._end_step()
        self._begin(phase)

    def optimizer_made(self, optimizer: Any) -> None:
        """The program has made an optimiser."""
        self._rounds.made(optimizer)

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimiser begins its step."""
        self._close_window()
        if self.phase == SETUP:
            self._begin_step()
        elif self._rounds.begins_anew_with(optimizer):
            self._end_step()
        self._begin(OPTIMIZER_STEP)

    def optimizer_ended(self, optimizer: Any, before: str) -> None:
        """An optimiser has stepped; inside a backward pass that goes on."""
        self._close_window()
        self._begin(BACKWARD if before == BACKWARD else AFTER_STEP)
        self._rounds.stepped(optimizer)
        if self._rounds.is_complete:
            self.steps_done += 1
            self._tell_figures()

    def finish(self) -> list[StepEvent]:
        """All steps' peaks, the unfinished last step's too if it has any; the process is about to end."""
        self._close_window()
        return [step_event(number, phases) for number, phases in enumerate(self._step_peaks) if phases]

    def _begin(self, phase: str) -> None:
        self.phase = phase
        self._on_phase(self.step, phase)

    def _close_window(self) -> None:
        phases = self._step_peaks[-1]
        phases[self.phase] = phases.get(self.phase, Window()).joined(self._meter.close_window())

    def _tell_figures(self) -> None:
        if not self._step_seconds:
            self._step_seconds = time.monotonic() - self._step_began
        self._figures = {**step_event(self.step, self._step_peaks[-1]), "seconds": self._step_seconds}
        self._on_figures(self._figures)

    def _end_step(self) -> None:
        if not self._rounds.is_complete:  # ended by an optimiser's second step
            self.steps_done += 1
        self._tell_figures()
        self._rounds.begin()
        self._on_end(self._figures)
        self._begin_step()

    def _begin_step(self) -> None:
        self._step_peaks.append({})
        self._step_began, self._step_seconds = time.monotonic(), 0.0


def step_event(number: int, phases: dict[str, Window]) -> StepEvent:
    """One step's peaks as plain values: {"step": n, "phases": {phase: [allocated, reserved, used]}}, in bytes."""
    return {
        "step": number,
        "phases": {name: [w.allocated_bytes, w.reserved_bytes, w.used_bytes] for name, w in phases.items()},
    }

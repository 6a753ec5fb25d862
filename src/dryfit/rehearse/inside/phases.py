"""Which step and phase of training the program is in, and the peaks of each.

A phase lasts until the next one begins:

    setup            until the first module is called: building the model, moving it, loading data
    forward          from a module's call: the forward pass, the loss, and what surrounds them
    evaluation       the same with gradients off
    backward         while autograd's engine runs; modules called inside it are recomputation
    after backward   from there to whatever comes next: unscaling, clipping, logging
    optimizer step   while an optimiser's `step` runs
    between steps    after an optimiser's step, until the next module is called: zero_grad, data, logging

Only changes of phase cost anything (about 0.1 ms: the allocator's statistics are read), not every module's call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dryfit.rehearse.inside.peaks import PeakMeter, Window

SETUP, FORWARD, EVALUATION = "setup", "forward", "evaluation"
BACKWARD, AFTER_BACKWARD = "backward", "after backward"
OPTIMIZER_STEP, BETWEEN = "optimizer step", "between steps"


class Progress:
    """Counts steps and keeps the peaks of each step by phase; `step` 0 is the setup.

    `on_step(progress)` is called at the end of each optimiser step, with that step's peaks in `step_peaks[-1]`.
    """

    def __init__(self, meter: PeakMeter, on_step: Callable[[Progress], None]) -> None:
        self.phase = SETUP
        self.steps_done = 0
        self.step_peaks: list[dict[str, Window]] = [{}]
        self.step_seconds: list[float] = []
        self._meter, self._on_step = meter, on_step
        self._step_began = time.monotonic()

    @property
    def step(self) -> int:
        """The step the program is in, from 1; 0 during the setup."""
        return len(self.step_peaks) - 1

    def enter(self, phase: str) -> None:
        """Close the window of the phase so far and begin `phase`; the first forward also begins step 1."""
        self.close_window()
        if self.phase == SETUP and phase != SETUP:
            self._begin_step()
        self.phase = phase

    def close_window(self) -> None:
        """Add the peaks since the last change of phase to the phase they belong to."""
        phases = self.step_peaks[-1]
        phases[self.phase] = phases.get(self.phase, Window()).joined(self._meter.close_window())

    def end_step(self) -> None:
        """An optimiser has stepped: the step's figures are final."""
        self.close_window()
        self.steps_done += 1
        self.step_seconds.append(time.monotonic() - self._step_began)
        self._on_step(self)
        self._begin_step()
        self.phase = BETWEEN

    def _begin_step(self) -> None:
        self.step_peaks.append({})
        self._step_began = time.monotonic()

    def peaks_by_step(self) -> list[dict[str, Any]]:
        """All steps' peaks as plain values for an event, the unfinished last step too if it has any."""
        self.close_window()
        return [step_event(number, phases) for number, phases in enumerate(self.step_peaks) if phases]


def step_event(number: int, phases: dict[str, Window]) -> dict[str, Any]:
    """One step's peaks as plain values: {"step": n, "phases": {phase: [allocated, reserved, used]}}, in bytes."""
    return {
        "step": number,
        "phases": {name: [w.allocated_bytes, w.reserved_bytes, w.used_bytes] for name, w in phases.items()},
    }

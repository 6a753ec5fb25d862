"""The peaks of a real run by phase of training, beside what a rehearsal predicted, and whether memory grows."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dryfit.recording import model
from dryfit.train.peaks import PeakMemory, peak_memory
from dryfit.train.predictions import PredictedPeaks, predicted_peaks
from dryfit.units import format_bytes
from dryfit.watching.device_memory import Memory, devices_in_use, memory_of, name_of
from dryfit.watching.rising import STEPS_IN_A_ROW, is_rising

FORWARD, BACKWARD, OPTIMIZER_STEP = model.FORWARD, model.BACKWARD, model.OPTIMIZER_STEP
AFTER_STEP, EVALUATION = model.AFTER_STEP, model.EVALUATION
FORWARD_AND_BACKWARD = "forward and backward"  # where a compiled model cannot be told when one ends

# A rehearsal knows finer phases than callbacks are told of.
_RULED = {
    FORWARD: (model.FORWARD, model.LOSS),
    BACKWARD: (model.BACKWARD, model.AFTER_BACKWARD, model.CLIP),
    FORWARD_AND_BACKWARD: (model.FORWARD, model.LOSS, model.BACKWARD, model.AFTER_BACKWARD, model.CLIP),
    OPTIMIZER_STEP: (model.OPTIMIZER_STEP,),
    EVALUATION: (model.EVALUATION,),
}
_AS_PREDICTED = 0.02


class MemoryGrowthWarning(UserWarning):
    """Each step leaves more memory allocated than the one before."""


class MemoryReport:
    """What a callback measures: the peaks of each phase, what steps leave allocated, and the text about them.

    `phases` has the peak of each phase so far, that of the device with most. `predicted` is a result that
    `dryfit run --output` saved, or the peaks themselves.
    """

    def __init__(self, predicted: str | Path | PredictedPeaks | None) -> None:
        self.predicted = (
            predicted if predicted is None or isinstance(predicted, PredictedPeaks) else predicted_peaks(predicted)
        )
        self.phases: dict[str, Memory] = {}
        self.steps = 0
        self._phase = ""
        self._block: PeakMemory | None = None
        self._ends: deque[int] = deque(maxlen=STEPS_IN_A_ROW)
        self._has_warned = False

    def enter(self, phase: str) -> None:
        """Begin a phase, which lasts until the next one begins."""
        self.leave()
        self._phase, self._block = phase, peak_memory().__enter__()

    def leave(self) -> None:
        """End the phase at hand."""
        if self._block is not None:
            self._block.__exit__(None, None, None)
            peak = Memory(allocated_bytes=self._block.allocated_bytes, reserved_bytes=self._block.reserved_bytes)
            self.phases[self._phase] = peak.at_least(self.phases.get(self._phase, Memory()))
            self._block = None

    def end_step(self) -> None:
        """Note what is allocated now, at the same point of every step, and warn once if that keeps growing."""
        self.enter(AFTER_STEP)
        self.steps += 1
        self._ends.append(sum(memory_of(device).allocated_bytes for device in devices_in_use()))
        if is_rising([*self._ends]) and not self._has_warned:
            first, last = self._ends[0], self._ends[-1]
            self._has_warned = True
            warnings.warn(
                f"Each of the last {STEPS_IN_A_ROW} steps left more allocated than the one before, from "
                f"{format_bytes(first)} after step {self.steps - STEPS_IN_A_ROW + 1} to {format_bytes(last)} after "
                f"step {self.steps}, about {format_bytes((last - first) // (STEPS_IN_A_ROW - 1))} a step. Something "
                f"is kept from step to step, such as a loss with its graph, or outputs in a list. "
                f"`dryfit run --report` names who holds it, and the line.",
                MemoryGrowthWarning,
                stacklevel=2,
            )

    def __str__(self) -> str:
        """A table of the peaks by phase, and a sentence on how they compare."""
        whole = Memory()
        for peak in self.phases.values():
            whole = whole.at_least(peak)
        if not whole.reserved_bytes:
            return (
                f"dryfit: {_steps(self.steps)} ran without a CUDA or XPU device. PyTorch does not count memory of the "
                f"host, so there are no peaks to report."
            )
        device = max(devices_in_use(), key=lambda each: memory_of(each).reserved_bytes)
        lines = [f"dryfit: memory of {_steps(self.steps)} on {device}, {name_of(device)}"]
        rows = [
            (phase, self._predicted_for(phase), self.phases[phase].allocated_bytes)
            for phase in _RULED
            if phase in self.phases
        ]
        told = self.predicted
        rows += [
            ("allocated", told.peak_allocated_bytes if told else None, whole.allocated_bytes),
            ("reserved", told.peak_reserved_bytes if told else None, whole.reserved_bytes),
        ]
        if self.predicted is None:
            lines += [f"  {name:<20}  {format_bytes(found):>11}" for name, _, found in rows]
            return "\n".join(lines)
        lines.append(f"  {'':<20}  {'predicted':>11}  {'measured':>11}")
        lines += [
            f"  {name:<20}  {'-' if size is None else format_bytes(size):>11}  {format_bytes(found):>11}"
            for name, size, found in rows
        ]
        lines.append(self._compare(self.predicted.peak_allocated_bytes, whole.allocated_bytes))
        return "\n".join(lines)

    def _predicted_for(self, phase: str) -> int | None:
        if self.predicted is None:
            return None
        known = self.predicted.phase_peaks
        return max((known[each] for each in _RULED[phase] if each in known), default=None)

    @staticmethod
    def _compare(predicted: int, measured: int) -> str:
        if not predicted:
            return "The rehearsal took no memory, so there is nothing to compare with."
        off = measured / predicted - 1
        if abs(off) <= _AS_PREDICTED:
            return f"Tensors held at most what was predicted, within {100 * _AS_PREDICTED:.0f} %: {100 * off:+.2f} %."
        return (
            f"Tensors held {100 * abs(off):.1f} % {'more' if off > 0 else 'less'} at most than predicted. Was the "
            f"rehearsal of the same batch, lengths of sequences, precision and versions, and of an evaluation too?"
        )


def say(report: MemoryReport, tell: Callable[[str], None]) -> None:
    """Tell a report at the end of a run."""
    report.leave()
    tell(str(report))


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"

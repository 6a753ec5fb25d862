"""The peaks of the whole run, of each step and of each phase, with their owners."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dryfit.analyse.footprint import Peak, PhasePeak, StepFootprint
from dryfit.analyse.holdings import Holdings
from dryfit.analyse.timeline import BEFORE_EVENTS, Span, Timeline
from dryfit.recording.replay import Replay


class Levels:
    """The allocator's figures after each event, and before the first."""

    def __init__(self, replay: Replay) -> None:
        self._allocated = array("Q", [replay.before_allocated_bytes]) + array("Q", replay.allocated_bytes)
        self._active = array("Q", [replay.before_active_bytes]) + array("Q", replay.active_bytes)
        self._reserved = array("Q", [replay.before_reserved_bytes]) + array("Q", replay.reserved_bytes)
        self.last_state = len(self._allocated) - 2

    def allocated(self, state: int) -> int:
        return self._allocated[state + 1]

    def active(self, state: int) -> int:
        return self._active[state + 1]

    def reserved(self, state: int) -> int:
        return self._reserved[state + 1]

    def last_as_reserved_as(self, state: int) -> int:
        """The last state before reserved memory changes."""
        reserved_bytes = self.reserved(state)
        while state < self.last_state and self.reserved(state + 1) == reserved_bytes:
            state += 1
        return state

    def highest_allocated(self, first: int = BEFORE_EVENTS, last: int | None = None) -> int:
        """The first state, from `first` to `last`, where allocated memory is highest."""
        return _first_highest(self._allocated, first, self.last_state if last is None else last)

    def highest_reserved(self, first: int = BEFORE_EVENTS, last: int | None = None) -> int:
        return _first_highest(self._reserved, first, self.last_state if last is None else last)


def _first_highest(column: array[int], first: int, last: int) -> int:
    return column.index(max(column[first + 1 : last + 2]), first + 1) - 1


class PhaseMoments(NamedTuple):
    """Where a phase of a step has its peaks."""

    allocated: int
    reserved_bytes: int


class StepMoments(NamedTuple):
    """Where a step has its peak and where it is over."""

    step: int
    peak: int
    peak_phase: str
    phases: dict[str, PhaseMoments]
    end: int


def step_moments(timeline: Timeline, levels: Levels) -> list[StepMoments]:
    """Where each step and phase has its peak; of equal ones the first."""
    steps: dict[int, list[Span]] = {}
    for span in timeline.spans():
        steps.setdefault(span.step, []).append(span)
    return [_of_step(step, spans, timeline, levels) for step, spans in steps.items()]


def _of_step(step: int, spans: list[Span], timeline: Timeline, levels: Levels) -> StepMoments:
    phases: dict[str, PhaseMoments] = {}
    for span in spans:
        found = PhaseMoments(
            levels.highest_allocated(span.first, span.last),
            levels.reserved(levels.highest_reserved(span.first, span.last)),
        )
        known = phases.get(span.phase, found)
        higher = levels.allocated(found.allocated) > levels.allocated(known.allocated)
        phases[span.phase] = PhaseMoments(
            found.allocated if higher else known.allocated, max(found.reserved_bytes, known.reserved_bytes)
        )
    peak = min((at.allocated for at in phases.values()), key=lambda state: (-levels.allocated(state), state))
    # A step may begin with its peak, which then belongs to the event before it.
    reached_in, phase = timeline.at(peak)
    return StepMoments(step, peak, phase if reached_in == step else spans[0].phase, phases, spans[-1].last)


def peak_at(state: int, step: int, phase: str, levels: Levels, holdings: Holdings) -> Peak:
    """The figures of one moment."""
    return Peak(
        event=state,
        step=step,
        phase=phase,
        allocated_bytes=levels.allocated(state),
        active_bytes=levels.active(state),
        requested_bytes=holdings.requested_bytes,
        reserved_bytes=levels.reserved(state),
        owners=holdings.owners,
        fixed_bytes=holdings.allocated_bytes - holdings.grows_with_batch_bytes,
        grows_with_batch_bytes=holdings.grows_with_batch_bytes,
        logits_and_loss_bytes=holdings.logits_and_loss_bytes,
    )


def states_of(moments: Iterable[StepMoments]) -> set[int]:
    """The states at which the holdings of these steps have to be known."""
    return {
        state for each in moments for state in (each.peak, each.end, *(at.allocated for at in each.phases.values()))
    }


def step_footprint(moments: StepMoments, levels: Levels, holdings: Mapping[int, Holdings]) -> StepFootprint:
    """One step's figures."""
    return StepFootprint(
        step=moments.step,
        peak=peak_at(moments.peak, moments.step, moments.peak_phase, levels, holdings[moments.peak]),
        phases=tuple(
            PhasePeak(
                phase=phase,
                peak_allocated_bytes=levels.allocated(at.allocated),
                peak_reserved_bytes=at.reserved_bytes,
                owners=holdings[at.allocated].owners,
            )
            for phase, at in moments.phases.items()
        ),
        end_allocated_bytes=levels.allocated(moments.end),
    )

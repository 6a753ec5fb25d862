"""Where in the program an event lies: its step and phase, from a recording's marks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from dryfit.recording.model import BACKWARD, DATA, EVALUATION, FORWARD, LOSS, Mark

BEFORE_EVENTS = -1
"""The state before the first event, where the state after event n is n."""

# What is allocated in these is made of a batch; in the others, of the model.
_PHASES_OF_A_BATCH = (DATA, FORWARD, LOSS, EVALUATION, BACKWARD)


class Span(NamedTuple):
    """States `first` to `last`, both included, of one phase; `first` is the state that the phase began with."""

    step: int
    phase: str
    first: int
    last: int


class Timeline:
    """A recording's marks, to be asked where an event lies.

    >>> timeline = Timeline([Mark(0, 0, "setup"), Mark(5, 1, "forward")], event_count=9)
    >>> timeline.words(4), timeline.words(5)
    ('setup', 'step 1, forward')
    """

    def __init__(self, marks: Sequence[Mark], event_count: int) -> None:
        self._marks = sorted(marks, key=lambda mark: mark.event)
        self._events = [mark.event for mark in self._marks]
        self.event_count = event_count

    @property
    def is_known(self) -> bool:
        return bool(self._marks)

    def at(self, event: int) -> tuple[int, str]:
        """The step and phase of an event; phase "" where no mark says it."""
        if event == BEFORE_EVENTS and self._events[:1] == [0]:
            return self._marks[0].step, self._marks[0].phase
        place = bisect_right(self._events, event) - 1
        return (self._marks[place].step, self._marks[place].phase) if place >= 0 else (0, "")

    def words(self, event: int) -> str:
        """The step and phase of an event as a person says it; "" where they are not known."""
        step, phase = self.at(event)
        return f"step {step}, {phase}" if step else phase

    def spans(self) -> list[Span]:
        """Every mark's stretch, in order."""
        last_state = self.event_count - 1
        spans = []
        for mark, end in self._marks_with_ends():
            first = min(mark.event - 1, last_state)
            spans.append(Span(mark.step, mark.phase, first, max(first, min(end - 1, last_state))))
        return spans

    def is_of_a_batch(self) -> bytearray:
        """By event: 1 where a program works on a batch, or may, the phase not being known."""
        flags = bytearray(b"\1") * self.event_count
        for mark, end in self._marks_with_ends():
            if mark.phase and mark.phase not in _PHASES_OF_A_BATCH:
                stop = min(end, self.event_count)
                flags[mark.event : stop] = bytes(max(0, stop - mark.event))
        return flags

    def _marks_with_ends(self) -> zip[tuple[Mark, int]]:
        return zip(self._marks, [*self._events[1:], self.event_count][: len(self._marks)], strict=True)

"""The allocator's record of its own events, taken out in parts, and the whole recording at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable
from typing import Any

from dryfit.recording.file import save
from dryfit.recording.joining import joined
from dryfit.recording.model import Recording
from dryfit.recording.snapshot import from_snapshot
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.module_calls import module_frame
from dryfit.rehearse.inside.placing import place
from dryfit.rehearse.inside.recorder import Recorder
from dryfit.virtual_card import calls

# The allocator keeps about a kilobyte for each event, the recording some 40 bytes; reading a recording of so many
# events takes some seconds. A step has some thousands, of the largest models some tens of thousands.
_MOST_IN_THE_ALLOCATOR = 400_000
_MOST_EVENTS = 2_000_000


def _without_collections(call: Callable[..., None]) -> Callable[..., None]:
    """Let Python's collector rest meanwhile: a snapshot is a million new objects, and none of them is garbage."""

    def run(*args: Any) -> None:
        was_on = gc.isenabled()
        gc.disable()
        try:
            call(*args)
        finally:
            if was_on:
                gc.enable()

    return run


class History:
    """Starts the allocator's record as soon as CUDA is there, and takes it out before it grows large."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._start_record, self._stop_record, self._snapshot = torch_private.memory_history(_MOST_EVENTS)
        self.begin_anew(is_wanted=is_wanted)
        torch_private.when_cuda_is_ready(self._start)
        torch_private.replace_history_switch(self._switched_by_the_program)

    def begin_anew(self, *, is_wanted: bool) -> None:
        """Forget everything, as in a forked child."""
        self._is_wanted = is_wanted
        self._parts: list[tuple[int, Recording]] = []
        self._is_on = self._is_cut = self._has_lost_events = False
        self._counted_when_taken = 0
        if torch_private.cuda_is_initialized():  # by an import, in the process that this one was forked from
            self._start()

    def take_if_large(self, counted: int) -> bool:
        """Take out what was recorded, if there is much; `counted` is what the allocators have counted altogether.

        With very many events the record ends, at a time when nothing else goes on; says whether it goes on.
        """
        if self._is_on and counted - self._counted_when_taken > _MOST_IN_THE_ALLOCATOR:
            self._counted_when_taken = counted
            self._take()
            if counted > _MOST_EVENTS:
                self._is_on, self._is_cut = False, True
                self._stop_record()
        return not self._is_cut

    def write(self, path: str, recorder: Recorder) -> None:
        """Write the recording of this process, if its allocator did anything."""
        if self._is_on:
            self._take()
        if not any(part.devices for _, part in self._parts):
            return
        whole = joined(self._parts)
        # Where events are lost, nobody knows which were counted first.
        marks, labels = ([], []) if self._has_lost_events else (recorder.marks, recorder.labels.given)
        save(
            dataclasses.replace(
                whole,
                source="rehearsal",
                devices=tuple(place(trace, marks, labels, whole.stacks) for trace in whole.devices),
                modules=tuple(recorder.outputs.values()),
                workspaces=tuple(calls.workspaces()),
                about={**whole.about, "is_cut": self._is_cut, "lost_events": self._has_lost_events},
            ),
            path,
        )

    def _start(self) -> None:
        if not self._is_wanted:
            return
        with contextlib.suppress(RuntimeError):  # backend:cudaMallocAsync has no record
            self._start_record()
            self._is_on = True

    def _switched_by_the_program(self, on: bool) -> None:
        """Let a snapshot that the program takes begin where it switched the record on; ours goes on either way."""
        if on and self._is_on:
            self._take()

    @_without_collections
    def _take(self) -> None:
        snapshot = self._snapshot()
        self._start_record()
        times = [trace[0]["time_us"] for trace in snapshot["device_traces"] if trace]
        # Only a program that calls no module and no backward comes so far unasked.
        self._has_lost_events |= any(len(trace) == _MOST_EVENTS for trace in snapshot["device_traces"])
        self._parts.append((min(times, default=0), from_snapshot(snapshot, frame_of=module_frame)))

"""The allocator's record of its own events, taken out in parts, and the whole recording at the end."""

from __future__ import annotations

import contextlib
import dataclasses
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

# The allocator keeps about a kilobyte for each event, the recording some 40 bytes.
_EVENTS_TO_KEEP = 400_000


class History:
    """Starts the allocator's record as soon as CUDA is there, and takes it out before it grows large."""

    def __init__(self) -> None:
        self.begin_anew()
        self._start_record, self._snapshot = torch_private.memory_history()
        torch_private.when_cuda_is_ready(self._start)
        torch_private.replace_history_switch(self._switched_by_the_program)

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child."""
        self._parts: list[tuple[int, Recording]] = []
        self._is_on = False

    def take_if_large(self, counted: int) -> None:
        """Take out what was recorded, if there is much; `counted` is what the allocator has counted altogether."""
        taken = sum(len(trace.events) for _, part in self._parts for trace in part.devices)
        if self._is_on and counted - taken > _EVENTS_TO_KEEP:
            self._take()

    def write(self, path: str, recorder: Recorder, about: dict[str, Any]) -> None:
        """Write the recording of this process, if its allocator did anything."""
        if not self._is_on:
            return
        self._take()
        whole = joined(self._parts)
        if not whole.devices:
            return
        placed = [place(trace, recorder.marks, recorder.labels, whole.stacks) for trace in whole.devices]
        save(
            dataclasses.replace(
                whole,
                source="rehearsal",
                devices=tuple(placed),
                modules=tuple(recorder.outputs.values()),
                workspaces=tuple(calls.workspaces()),
                about={**whole.about, **about},
            ),
            path,
        )

    def _start(self) -> None:
        with contextlib.suppress(RuntimeError):  # backend:cudaMallocAsync has no record
            self._start_record()
            self._is_on = True

    def _switched_by_the_program(self, on: bool) -> None:
        """Let a snapshot that the program takes begin where it switched the record on; ours goes on either way."""
        if on and self._is_on:
            self._take()

    def _take(self) -> None:
        snapshot = self._snapshot()
        self._start_record()
        times = [trace[0]["time_us"] for trace in snapshot["device_traces"] if trace]
        self._parts.append((min(times, default=0), from_snapshot(snapshot, frame_of=module_frame)))

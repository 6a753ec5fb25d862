"""Everything that is watched in one process once torch is there, and the facts it comes to."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dryfit.rehearse.events import EventWriter, Orders
from dryfit.rehearse.inside import oom, torch_hooks, torch_private
from dryfit.rehearse.inside.peaks import PeakMeter
from dryfit.rehearse.inside.phases import Progress, step_event
from dryfit.rehearse.inside.stopping import seen_enough
from dryfit.virtual_card import calls


class Watch:
    """The hooks of one process, placed; `facts()` says what they have seen so far."""

    def __init__(self, orders: Orders, writer: EventWriter, stop: Callable[[str], None]) -> None:
        self._orders, self._writer, self._stop = orders, writer, stop
        self._pid = os.getpid()
        self._progress = Progress(PeakMeter(calls.take_peak_used_bytes), self._step_ended)
        self._peaks: list[tuple[int, int]] = []
        torch_hooks.place(self._progress)
        oom.watch(self._progress, writer)
        self._values = None
        if orders.values:
            from dryfit.rehearse.inside import values

            self._values = values.install(calls.answer, calls.forget)

    def versions(self) -> dict[str, str | None]:
        """What the figures depend on: Python, torch, the CUDA it was built with."""
        return {"python": platform.python_version(), **torch_private.versions()}

    def facts(self) -> dict[str, Any]:
        """What is known now, as plain values for the `end` event."""
        return {
            "steps_done": self._progress.steps_done,
            "phase": self._progress.phase,
            "steps": self._progress.peaks_by_step(),
            "step_seconds": self._progress.step_seconds,
            "cuda_used": torch_private.cuda_is_initialized(),
            "allocator_settings": torch_private.allocator_settings(),
            "unfaithful_calls": calls.unfaithful_calls(),
            "inventions": [asdict(invention) for invention in self._values.inventions()] if self._values else [],
            "values": self._values.front_end if self._values else None,
        }

    def _step_ended(self, progress: Progress) -> None:
        if os.getpid() != self._pid:
            return
        event = step_event(progress.step, progress.step_peaks[-1])
        self._writer.write("step", **event, seconds=progress.step_seconds[-1])
        windows = progress.step_peaks[-1].values()
        self._peaks.append((max(w.allocated_bytes for w in windows), max(w.reserved_bytes for w in windows)))
        why = seen_enough(self._peaks, self._orders.steps)
        if why is not None:
            self._stop(why)

"""The peaks of a live run, of each step and each phase of it, on each device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from dryfit.recording import model
from dryfit.watching.device_memory import Memory, devices_in_use, memory_of, peak_of, restart_peak
from dryfit.watching.host_memory import resident_bytes
from dryfit.watching.torch_private import memory_counts

KEPT_STEPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPeaks:
    """What one step took: by phase, and of each by device ("cuda:0"), the most that was allocated and reserved.

    `left` is what was held on each device as the step ended, `host_bytes` the process's own memory then.
    """

    step: int
    seconds: float
    phases: Mapping[str, Mapping[str, Memory]] = field(default_factory=dict)
    left: Mapping[str, Memory] = field(default_factory=dict)
    host_bytes: int = 0

    def peak(self, device: str) -> Memory:
        """The most of a device in any phase."""
        whole = Memory()
        for by_device in self.phases.values():
            whole = whole.at_least(by_device.get(device, Memory()))
        return whole


class StepMeter:
    """Follows the phases of the step at hand; the last hundred steps are kept, and the highest peaks of all.

    PyTorch has one peak for each device, which every change of phase restarts. `restarts` False leaves it alone, and
    then there are no peaks.
    """

    def __init__(self, *, restarts: bool) -> None:
        self.steps: deque[StepPeaks] = deque(maxlen=KEPT_STEPS)
        self.highest: dict[str, tuple[int, str, Memory]] = {}
        self.by_phase: dict[str, dict[str, Memory]] = {}
        self._restarts = restarts
        self._devices: list[torch.device] = []
        self._phases: dict[str, dict[str, Memory]] = {}
        self._phase = model.SETUP
        self._began = time.monotonic()
        self._find_devices()
        self._restart()

    @property
    def phase(self) -> str:
        """The phase at hand."""
        return self._phase

    def enter(self, phase: str) -> None:
        """Begin a phase; the one before is over."""
        if phase == self._phase:
            return
        self._close()
        self._phase = phase

    def end_step(self, step: int) -> StepPeaks:
        """End the step at hand, whatever phase it is in."""
        self._close()
        now = time.monotonic()
        left = {str(device): _now_of(device) for device in self._devices}
        ended = StepPeaks(
            step=step, seconds=now - self._began, phases=self._phases, left=left, host_bytes=resident_bytes()
        )
        self._count_among_highest(step)
        self.steps.append(ended)
        self._phases, self._began = {}, now
        self._find_devices()
        return ended

    def settle(self, step: int) -> None:
        """Count the phases of the step at hand among the highest, though it is not over."""
        self._close()
        self._count_among_highest(step)

    def _count_among_highest(self, step: int) -> None:
        for phase, by_device in self._phases.items():
            for device, peak in by_device.items():
                known = self.by_phase.setdefault(phase, {})
                known[device] = peak.at_least(known.get(device, Memory()))
                highest = self.highest.get(device)
                if highest is None or peak.allocated_bytes > highest[2].allocated_bytes:
                    self.highest[device] = (step, phase, peak)

    def _close(self) -> None:
        if not self._restarts:
            return
        known = self._phases.setdefault(self._phase, {})
        for device in self._devices:
            name = str(device)
            known[name] = _peak_of(device).at_least(known.get(name, Memory()))
        self._restart()

    def _restart(self) -> None:
        if self._restarts:
            for device in self._devices:
                restart_peak(device)

    def _find_devices(self) -> None:
        """Those that something is reserved on: a machine may have eight, and the program use one."""
        self._devices = [device for device in devices_in_use() if _now_of(device).reserved_bytes]


def _peak_of(device: torch.device) -> Memory:
    counts = memory_counts(device.index) if device.type == "cuda" else None
    if counts is None:
        return peak_of(device)
    return Memory(allocated_bytes=counts[2], reserved_bytes=counts[3])


def _now_of(device: torch.device) -> Memory:
    counts = memory_counts(device.index) if device.type == "cuda" else None
    if counts is None:
        return memory_of(device)
    return Memory(allocated_bytes=counts[0], reserved_bytes=counts[1])

"""The most memory that a stretch of a program takes, also within another such stretch."""

from __future__ import annotations

import weakref
from types import TracebackType

import torch

from dryfit.units import format_bytes
from dryfit.watching.device_memory import Memory, devices_in_use, memory_of, peak_of, restart_peak


def peak_memory() -> PeakMemory:
    """Measure the most memory that tensors and PyTorch hold while a block of code runs.

        with peak_memory() as peak:
            loss_of(model(batch)).backward()
        print(peak)     # peak on cuda:0: 9.10 GiB allocated, 9.92 GiB reserved

    Blocks may lie within each other: PyTorch keeps one peak per device, which each block restarts, and the outer ones
    are told before. `print(peak_memory())` without a block gives the peaks since the process began or since something
    restarted them.

    Figures are bytes, and those of this process alone: nvidia-smi shows more, the CUDA context among it. A call of
    `torch.cuda.reset_peak_memory_stats` inside a block hides what was before it. Without a CUDA or XPU device there is
    nothing to read, as PyTorch does not count memory of the host: `devices` is empty, and the text says so.
    """
    return PeakMemory()


class PeakMemory:
    """The peaks of a block of code; `peak_memory` makes it.

    While the block runs the figures are those so far, and afterwards they stay.
    """

    def __init__(self) -> None:
        self._at_start: dict[torch.device, Memory] | None = None
        self._noted: dict[torch.device, Memory] = {}
        self._is_over = False

    def __enter__(self) -> PeakMemory:
        devices = devices_in_use()
        _note_and_restart(devices)
        self._at_start = {device: memory_of(device) for device in devices}
        self._noted, self._is_over = {}, False
        _RUNNING.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._noted = self.devices
        self._is_over = True
        _RUNNING.discard(self)

    @property
    def devices(self) -> dict[torch.device, Memory]:
        """The peaks of each device, those in use by this process."""
        if self._is_over:
            return self._noted
        return {device: peak_of(device).at_least(self._noted.get(device, Memory())) for device in devices_in_use()}

    @property
    def allocated_bytes(self) -> int:
        """What tensors held at most, on the device with the highest such peak; 0 without a device."""
        return max((peak.allocated_bytes for peak in self.devices.values()), default=0)

    @property
    def reserved_bytes(self) -> int:
        """What PyTorch held from the driver at most, on the device with the highest such peak; 0 without a device."""
        return max((peak.reserved_bytes for peak in self.devices.values()), default=0)

    def __str__(self) -> str:
        used = {device: peak for device, peak in self.devices.items() if peak.reserved_bytes}
        if not used:
            return "no peak: no CUDA or XPU device is in use, and PyTorch does not count memory of the host"
        return "peak on " + ", ".join(
            f"{device}: {format_bytes(peak.allocated_bytes)} allocated{self._more_than_before(device, peak)}, "
            f"{format_bytes(peak.reserved_bytes)} reserved"
            for device, peak in used.items()
        )

    def _more_than_before(self, device: torch.device, peak: Memory) -> str:
        if self._at_start is None:
            return ""
        before = self._at_start.get(device, Memory()).allocated_bytes
        return f" ({format_bytes(peak.allocated_bytes - before)} more than before)" if before else ""


def _note_and_restart(devices: list[torch.device]) -> None:
    """Let the blocks around the one that begins remember the peaks that this one restarts."""
    for block in _RUNNING:
        block._noted = block.devices
    for device in devices:
        restart_peak(device)


# The blocks that have begun and not ended; one that is let go without an end, as by an error, is gone.
_RUNNING: weakref.WeakSet[PeakMemory] = weakref.WeakSet()

"""Peaks of the allocator by window, unseen by the program.

The allocator keeps one peak since the last reset. To learn the peak of each phase it has to be reset at each
boundary; the program, which may print `torch.cuda.max_memory_allocated()` or reset it, must not notice. So the two
functions behind torch's memory statistics are replaced: what the program reads is the highest of all windows since
*its* last reset, which is what it would have read without us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dryfit.rehearse.inside import torch_private

_Stats = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The highest figures of one stretch of time, in bytes; all zero before CUDA is used."""

    allocated_bytes: int = 0
    reserved_bytes: int = 0
    used_bytes: int = 0

    def joined(self, other: Window) -> Window:
        """The higher of both, figure by figure."""
        return Window(
            allocated_bytes=max(self.allocated_bytes, other.allocated_bytes),
            reserved_bytes=max(self.reserved_bytes, other.reserved_bytes),
            used_bytes=max(self.used_bytes, other.used_bytes),
        )


class PeakMeter:
    """Closes windows on the allocator's peaks, over all devices of this process.

    `take_used_peak` gives the highest number of bytes the card itself has handed out since it was last called: the
    allocator's segments and whatever else allocates (NCCL, extensions).
    """

    def __init__(self, take_used_peak: Callable[[], int]) -> None:
        self._take_used_peak = take_used_peak
        self._read, self._reset = torch_private.memory_statistics()
        self._of_the_program: dict[int, dict[tuple[str, str], int]] = {}
        self._open = Window()
        torch_private.replace_memory_statistics(self._raise_peaks, self._reset_by_the_program)

    def close_window(self) -> Window:
        """The peaks since the last call; a new window begins."""
        window = self._open.joined(self._take())
        self._open = Window()
        return window

    def peak_so_far(self) -> Window:
        """The peaks since the last window was closed; this one stays open."""
        self._open = self._open.joined(self._take())
        return self._open

    def _take(self) -> Window:
        if not torch_private.cuda_is_initialized():
            return Window()
        window = Window(used_bytes=self._take_used_peak())
        for device in range(torch_private.device_count()):
            stats = self._read(device)
            self._remember(device, stats)
            self._reset(device)
            window = window.joined(
                Window(
                    allocated_bytes=stats["allocated_bytes"]["all"]["peak"],
                    reserved_bytes=stats["reserved_bytes"]["all"]["peak"],
                )
            )
        return window

    def _remember(self, device: int, stats: _Stats) -> None:
        highest = self._of_the_program.setdefault(device, {})
        for name, pool, values in _peaks(stats):
            highest[name, pool] = max(values["peak"], highest.get((name, pool), 0))

    def _raise_peaks(self, device: int, stats: _Stats) -> _Stats:
        highest = self._of_the_program.get(device, {})
        for name, pool, values in _peaks(stats):
            values["peak"] = max(values["peak"], highest.get((name, pool), 0))
        return stats

    def _reset_by_the_program(self, device: int) -> None:
        self.peak_so_far()
        self._of_the_program.pop(device, None)


def _peaks(stats: _Stats) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Every (statistic, pool, values) of a statistics dict; which pools there are varies, some entries are numbers."""
    for name, pools in stats.items():
        if isinstance(pools, dict):
            if "peak" in pools:
                yield name, "", pools
            for pool, values in pools.items():
                if isinstance(values, dict) and "peak" in values:
                    yield name, pool, values

"""The limits of a rehearsal: time, and this machine's memory."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.units import format_bytes

TIME, HOST_MEMORY, INTERRUPTED = "time limit", "host memory", "interrupted"
DEFAULT_SECONDS = 600.0
_SHARE_OF_FREE_MEMORY = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a program may run and how much of this machine's memory all its processes may hold."""

    seconds: float
    host_memory_bytes: int

    def in_words(self, which: str | None) -> str:
        """The limit that stopped a program, for a sentence."""
        if which == TIME:
            return f"{self.seconds:g} seconds"
        return format_bytes(self.host_memory_bytes) if which == HOST_MEMORY else ""


def limits_of(seconds: float, host_memory_bytes: int | None) -> Limits:
    """Check the limits asked for; without one on memory, nine tenths of what this machine has free.

    Raises:
        UsageError: the time is not above zero.
    """
    if not seconds > 0:
        raise UsageError(f"--seconds {seconds:g} leaves no time to run the program; give a number above 0.")
    return Limits(seconds=seconds, host_memory_bytes=host_memory_bytes or int(_SHARE_OF_FREE_MEMORY * _free_bytes()))


def _free_bytes() -> int:
    """Memory this machine can give without swapping, as the kernel estimates it; less in a container with a limit."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free_bytes = int(found[1]) << 10 if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory"):  # version 2 and 1, as a container sees its own
        with contextlib.suppress(OSError, ValueError, StopIteration):  # no such group, or no limit ("max")
            free_bytes = min(free_bytes, _free_bytes_of(Path(group)))
    return free_bytes


def _free_bytes_of(group: Path) -> int:
    """What a control group may still take; cached files that nobody has used lately are given back when asked for."""
    names = ("memory.max", "memory.current") if (group / "memory.max").exists() else (
        "memory.limit_in_bytes", "memory.usage_in_bytes",
    )  # fmt: skip
    limit_bytes, used_bytes = (int((group / name).read_text()) for name in names)
    statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached_bytes = int(statistics.get("total_inactive_file", statistics.get("inactive_file", 0)))
    return limit_bytes - used_bytes + cached_bytes

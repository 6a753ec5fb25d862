"""What this process takes of the host's memory."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STATM = "/proc/self/statm"


def resident_bytes() -> int:
    """The memory that is resident now (RSS), shared pages among it; 0 where the system does not say."""
    try:
        opened = os.open(_STATM, os.O_RDONLY)  # a tenth of the time of a file object, and this is once a step
    except OSError:
        return 0
    try:
        return int(os.read(opened, 256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(opened)

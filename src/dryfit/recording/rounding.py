"""How the allocator rounds a request; the constants are those of PyTorch's `c10/core/AllocatorConfig.h`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SMALLEST_BLOCK_BYTES = 512
SMALL_POOL_BYTES = 1 << 20
"""The largest block of the small pool; also what has to be left over, and more, for a large block to be split."""
SMALL_SEGMENT_BYTES = 2 << 20
NO_LIMIT = 1 << 64

# `roundup_power2_divisions` is set by the power of two below the size, from 1 MiB to 32 GiB.
_FIRST_POWER, _POWERS = 20, 16


def round_up(size: int) -> int:
    """Round a request up to whole blocks of 512 bytes.

    >>> round_up(1), round_up(512), round_up(513)
    (512, 512, 1024)
    """
    return max(SMALLEST_BLOCK_BYTES, -(-size // SMALLEST_BLOCK_BYTES) * SMALLEST_BLOCK_BYTES)


def rounding(settings: Mapping[str, Any] | None) -> Callable[[int], int]:
    """Give the function that rounds a request, in bytes, under PyTorch's settings (a snapshot's `allocator_settings`).

    >>> rounding({"roundup_power2_divisions": {"1": 4}})(1200 << 10) >> 10  # quarters of the way from 1 to 2 MiB
    1280
    """
    divisions = _divisions(settings or {})
    if not any(divisions):
        return round_up

    def rounded(size: int) -> int:
        parts = divisions[min(max(size.bit_length() - 1 - _FIRST_POWER, 0), _POWERS - 1)]
        if parts <= 1 or size <= SMALLEST_BLOCK_BYTES * parts:
            return round_up(size)
        power = 1 << (size.bit_length() - 1)
        if size == power:
            return size
        part = power >> (parts.bit_length() - 1)
        return -(-size // part) * part if part else 2 * power

    return rounded


def max_split_bytes(settings: Mapping[str, Any] | None) -> int:
    """Give the size from which blocks are not split, in bytes; `NO_LIMIT` where PyTorch's settings have none.

    >>> max_split_bytes({"max_split_size": 64 << 20}), max_split_bytes({"max_split_size": -1}) == NO_LIMIT
    (67108864, True)
    """
    size = (settings or {}).get("max_split_size")
    return size if isinstance(size, int) and size > 0 else NO_LIMIT


def _divisions(settings: Mapping[str, Any]) -> list[int]:
    """Those set, by power of two; 0 where none are. PyTorch's keys are the powers in MiB, as text."""
    found = settings.get("roundup_power2_divisions")
    if isinstance(found, int):
        found = {str(1 << place): found for place in range(_POWERS)}
    if not isinstance(found, Mapping):
        return [0] * _POWERS
    wanted = [found.get(str(1 << place)) for place in range(_POWERS)]
    return [parts if isinstance(parts, int) and parts > 0 else 0 for parts in wanted]

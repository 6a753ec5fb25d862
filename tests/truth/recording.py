"""Reads a PyTorch CUDA memory snapshot and works out the peaks that the card it was recorded on reached."""

from __future__ import annotations

import bisect
import io
import lzma
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Segment = dict[str, Any]

SMALLEST_BLOCK_BYTES = 512
SMALL_POOL_LIMIT_BYTES = 1 << 20


class _ContainersOnly(pickle.Unpickler):
    """A snapshot holds lists, dicts, strings and numbers. Anything else is refused: a pickle can run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a memory snapshot names no classes, this file names {module}.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    allocated_bytes: int
    reserved_bytes: int
    end_error_bytes: int
    """Allocated by the replay's last state less what the snapshot itself states: 0 when the replay is exact."""


def load(path: Path) -> tuple[list[Event], list[Segment]]:
    """The events and the final segments of device 0 of a snapshot, `.pickle` or `.pickle.xz`."""
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    snapshot = _ContainersOnly(io.BytesIO(content)).load()
    segments = [segment for segment in snapshot["segments"] if segment.get("device", 0) == 0]
    return snapshot["device_traces"][0], segments


def peaks(events: list[Event], segments: list[Segment]) -> Peaks:
    """Replays the events from the state before the first of them; for traces without expandable segments.

    An event states the size asked for, not the size of the block it got. A block is the whole free extent at its
    address unless the allocator split it, which it does when 512 bytes (small pool) or more than 1 MiB (large pool)
    would be left over (`should_split` in PyTorch's CUDACachingAllocator).
    """
    segment_bytes = _segments_before(events, segments)
    block_bytes = _blocks_before(events, segments)
    segment_starts, block_starts = sorted(segment_bytes), sorted(block_bytes)
    allocated = sum(block_bytes.values())
    reserved = sum(segment_bytes.values())
    peak_allocated, peak_reserved = allocated, reserved
    waiting: set[int] = set()
    for event in events:
        action, address, size = event["action"], event["addr"], event["size"]
        if action == "segment_alloc":
            bisect.insort(segment_starts, address)
            segment_bytes[address] = size
            reserved += size
        elif action == "segment_free":
            segment_starts.remove(address)
            reserved -= segment_bytes.pop(address)
        elif action == "alloc":
            segment = segment_starts[bisect.bisect_right(segment_starts, address) - 1]
            end = segment + segment_bytes[segment]
            place = bisect.bisect_left(block_starts, address)
            if place < len(block_starts):
                end = min(end, block_starts[place])
            rounded = _rounded(size)
            small = rounded <= SMALL_POOL_LIMIT_BYTES
            left = end - address - rounded
            split = left >= SMALLEST_BLOCK_BYTES if small else left > SMALL_POOL_LIMIT_BYTES
            block_starts.insert(place, address)
            block_bytes[address] = rounded if split else end - address
            allocated += block_bytes[address]
        elif action == "free_requested":
            allocated -= block_bytes[address]
            waiting.add(address)
        elif action == "free_completed":
            block = block_bytes.pop(address)
            block_starts.remove(address)
            if address not in waiting:
                allocated -= block
            waiting.discard(address)
        peak_allocated = max(peak_allocated, allocated)
        peak_reserved = max(peak_reserved, reserved)
    stated = sum(segment["allocated_size"] for segment in segments)
    return Peaks(allocated_bytes=peak_allocated, reserved_bytes=peak_reserved, end_error_bytes=allocated - stated)


def _rounded(size: int) -> int:
    return max(SMALLEST_BLOCK_BYTES, -(-size // SMALLEST_BLOCK_BYTES) * SMALLEST_BLOCK_BYTES)


def _segments_before(events: list[Event], segments: list[Segment]) -> dict[int, int]:
    found = {segment["address"]: segment["total_size"] for segment in segments}
    for event in reversed(events):
        if event["action"] == "segment_alloc":
            del found[event["addr"]]
        elif event["action"] == "segment_free":
            found[event["addr"]] = event["size"]
    return found


def _blocks_before(events: list[Event], segments: list[Segment]) -> dict[int, int]:
    """Blocks that no event allocated: freed by an event, or in use at the end."""
    found: dict[int, int] = {}
    born: set[int] = set()
    for event in events:
        if event["action"] == "alloc":
            born.add(event["addr"])
        elif event["action"] == "free_completed":
            if event["addr"] not in born:
                found[event["addr"]] = _rounded(event["size"])
            born.discard(event["addr"])
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"].startswith("active") and address not in born:
                found[address] = block["size"]
            address += block["size"]
    return found

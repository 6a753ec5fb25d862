"""Every allocation's block, from its first event to its last, and the allocator's figures after each event."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

BEFORE = -1
"""The `begin` of an allocation made before the first event."""


class Lifetimes:
    """Allocations as columns of equal length, in the order they were made; those from before the first event first.

    `begin` is the number of the event that made it (`BEFORE` if none did), `end` that of its free_requested event (the
    number of events if it was never freed), `completed` that of its free_completed event (likewise).
    `requested_bytes` is what was asked for, `block_bytes` what the allocator counts as allocated for it.
    """

    __slots__ = ("address", "begin", "block_bytes", "completed", "end", "requested_bytes", "stack", "stream")

    def __init__(self) -> None:
        self.address, self.requested_bytes, self.block_bytes = array("Q"), array("Q"), array("Q")
        self.begin, self.end, self.completed = array("q"), array("q"), array("q")
        self.stream, self.stack = array("Q"), array("I")

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The allocator's figures after each event, in bytes as torch.cuda.memory_stats() counts them, and all lifetimes.

    `before_*` are the figures before the first event. `end_error_bytes` is what is allocated after the last event less
    what the recorded final state says: 0 when the replay is exact, None when there is no final state.
    """

    lifetimes: Lifetimes
    allocated_bytes: array[int]
    active_bytes: array[int]
    reserved_bytes: array[int]
    before_allocated_bytes: int
    before_active_bytes: int
    before_reserved_bytes: int
    end_error_bytes: int | None

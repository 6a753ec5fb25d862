"""What nvidia-smi would show, as a sum of parts, each known within a range of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TAKEN = "taken from the card by PyTorch and its libraries"
OUTSIDE = "CUDA's context and kernels"
NCCL = "NCCL's buffers"
WORKSPACES = "workspaces of convolutions"
FIRST_BUCKETS = "DDP's first buckets"
ADDRESSES = "the order of addresses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One term of what nvidia-smi would show.

    A doubt about memory that another part has counted expects 0 bytes, and reaches below it and above. `gives_way` is
    said of memory that PyTorch does without where the card has no room for it, so that it decides no verdict.
    """

    what: str
    low_bytes: int
    expected_bytes: int
    high_bytes: int
    gives_way: bool = False

    @property
    def is_certain(self) -> bool:
        return self.low_bytes == self.high_bytes


def range_of(parts: Sequence[Part]) -> dict[str, int]:
    """Add parts up, end by end.

    >>> range_of([
    ...     Part(what=TAKEN, low_bytes=900, expected_bytes=900, high_bytes=900),
    ...     Part(what=OUTSIDE, low_bytes=300, expected_bytes=400, high_bytes=500),
    ... ])
    {'low': 1200, 'expected': 1300, 'high': 1400}
    """
    return {
        "low": max(0, sum(part.low_bytes for part in parts)),
        "expected": sum(part.expected_bytes for part in parts),
        "high": sum(part.high_bytes for part in parts),
    }


def has_to_fit_bytes(parts: Sequence[Part]) -> int:
    """The most that nvidia-smi would show, less what gives way where the card has no room for it."""
    return sum(part.expected_bytes if part.gives_way else part.high_bytes for part in parts)

"""Whether free memory lies in pieces too small for a request, in figures and in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dryfit.analyse.block_map import BlockPool, Hole
from dryfit.recording.rounding import SMALL_POOL_BYTES, SMALL_SEGMENT_BYTES
from dryfit.units import MIB, format_bytes

# What the large pool of expandable segments maps and gives back at a time (`large_segment_size`),
# and what a request below the next takes from the card.
_PAGE_BYTES = 20 * MIB
# From here on a request has a segment of its own, rounded up (`kMinLargeAlloc`, `kRoundLarge`).
_LARGE_BYTES, _ROUNDING_BYTES = 10 * MIB, 2 * MIB
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The free blocks that a request could have gone to, had they been large enough. All in bytes.

    `elsewhere_bytes` are the free blocks where the request cannot go, `returnable_bytes` the segments without any
    tensor, wherever, which PyTorch gives back to the card before it fails. `pageable_bytes` is what expandable segments
    could have moved elsewhere, at the very least: the whole pages in holes of other segments, wherever these begin.
    """

    request_bytes: int
    total_bytes: int
    largest_bytes: int
    elsewhere_bytes: int
    returnable_bytes: int
    pageable_bytes: int

    @property
    def are_too_small(self) -> bool:
        """Whether together they would do, and none does: that is fragmentation."""
        return self.largest_bytes < self.request_bytes <= self.total_bytes


def pieces_for(request_bytes: int, stream: int, pool: int, holes: Iterable[Hole]) -> Pieces:
    """The free blocks of the stream, pool and size class that a request belongs to.

    >>> block_pool = BlockPool(stream=0, pool=0, is_small=False)
    >>> holes = [Hole(address, 30 * MIB, block_pool, is_whole=False, is_expandable=False) for address in (0, 1 << 30)]
    >>> pieces_for(40 * MIB, 0, 0, holes).are_too_small
    True
    """
    block_pool = BlockPool(stream, pool, request_bytes <= SMALL_POOL_BYTES)
    holes = list(holes)
    fitting = [hole for hole in holes if hole.block_pool == block_pool]
    return Pieces(
        request_bytes=request_bytes,
        total_bytes=sum(hole.size for hole in fitting),
        largest_bytes=max((hole.size for hole in fitting), default=0),
        elsewhere_bytes=sum(hole.size for hole in holes if hole.block_pool != block_pool),
        returnable_bytes=sum(hole.size for hole in holes if hole.is_whole),
        # A hole that begins within a page loses up to a page at its two ends together.
        pageable_bytes=sum(
            max(0, hole.size // _PAGE_BYTES - 1) * _PAGE_BYTES
            for hole in fitting
            if not hole.is_whole and not hole.is_expandable
        ),
    )


def why_it_failed(pieces: Pieces, free_bytes: int) -> str:
    """Say of a request that failed whether memory was too little or in pieces; `free_bytes` were left on the card."""
    asked = format_bytes(pieces.request_bytes)
    lie = (
        f"{format_bytes(pieces.total_bytes)} lie free in PyTorch's segments in pieces of at most "
        f"{format_bytes(pieces.largest_bytes)}"
        if pieces.total_bytes
        else "nothing that could serve it lies free in PyTorch's segments"
    )
    what = f"The request that failed needs {asked} in one piece; {lie}, and {format_bytes(free_bytes)} on the card."
    segment_bytes = _segment_bytes(pieces.request_bytes)
    if free_bytes >= segment_bytes:
        return (
            f"{what} The card has enough: the program's own limit decided "
            "(torch.cuda.set_per_process_memory_fraction), or another process that took memory just then."
        )
    if free_bytes >= pieces.request_bytes:
        return f"{what} PyTorch takes whole segments from the card, here of {format_bytes(segment_bytes)}: it is full."
    short_bytes = pieces.request_bytes - pieces.total_bytes - free_bytes
    if 0 < short_bytes <= pieces.elsewhere_bytes:
        return (
            f"{what} Even in one piece that would be {format_bytes(short_bytes)} too little. Another "
            f"{format_bytes(pieces.elsewhere_bytes)} lie free where it cannot go: other streams, memory pools and "
            "sizes have memory of their own."
        )
    if short_bytes > 0:
        return (
            f"{what} Even in one piece that would be {format_bytes(short_bytes)} too little: fragmentation is not the "
            "cause, the program needs more than there is."
        )
    if pieces.pageable_bytes + free_bytes >= pieces.request_bytes:
        return (
            f"{what} This is fragmentation: together they would do. {EXPANDABLE} can put them "
            "together; rehearse with it."
        )
    return (
        f"{what} This is fragmentation: together they would do. The pieces are too small for expandable segments "
        f"to help for certain (these move whole pages of {format_bytes(_PAGE_BYTES)}); allocating the largest tensors "
        "first does, as by running the largest batch first."
    )


def _segment_bytes(request_bytes: int) -> int:
    """What PyTorch takes from the card for a request (`get_allocation_size` in c10/cuda/CUDACachingAllocator.cpp)."""
    if request_bytes <= SMALL_POOL_BYTES:
        return SMALL_SEGMENT_BYTES
    if request_bytes < _LARGE_BYTES:
        return _PAGE_BYTES
    return -(-request_bytes // _ROUNDING_BYTES) * _ROUNDING_BYTES

"""Works out which segments and blocks are left after a recording's last event, from the events alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import Any, NamedTuple

from dryfit.recording.model import (
    ALLOCATED,
    AWAITING_FREE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Block,
    DeviceTrace,
    Events,
    Segment,
)
from dryfit.recording.replay import replay
from dryfit.recording.rounding import SMALL_POOL_BYTES, SMALL_SEGMENT_BYTES


class _Piece(NamedTuple):
    """Memory held from the card: a segment, or a mapped piece of an expandable one."""

    address: int
    size: int
    stream: int
    pool: int
    is_expandable: bool
    is_small: bool


def final_segments(trace: DeviceTrace, settings: Mapping[str, Any] | None = None) -> tuple[Segment, ...]:
    """The state after the last event, as a snapshot has it; blocks that are free are left out.

    >>> final_segments(DeviceTrace(device=0, events=Events()))
    ()

    `settings` are PyTorch's own, as for `replay`. A block outside every segment gets a segment of its own: the event
    that made its segment was lost.
    """
    blocks = _held_blocks(trace, settings)
    addresses = sorted(blocks)
    found: list[Segment] = []
    place = 0
    for piece in [*_joined(_pieces(trace.events)), None]:
        while place < len(addresses) and (piece is None or addresses[place] < piece.address):
            block, stream = blocks[addresses[place]]
            found.append(_segment(_of_a_block(block, stream), (block,)))
            place += 1
        if piece is not None:
            inside = []
            while place < len(addresses) and addresses[place] < piece.address + piece.size:
                inside.append(blocks[addresses[place]][0])
                place += 1
            found.append(_segment(piece, tuple(inside)))
    return tuple(found)


def _held_blocks(trace: DeviceTrace, settings: Mapping[str, Any] | None) -> dict[int, tuple[Block, int]]:
    """Blocks and their streams by address."""
    lifetimes, never = replay(trace, settings).lifetimes, len(trace.events)
    held = {}
    for index, completed in enumerate(lifetimes.completed):
        if completed == never:
            state = ALLOCATED if lifetimes.end[index] == never else AWAITING_FREE
            address = lifetimes.address[index]
            block = Block(
                address,
                lifetimes.block_bytes[index],
                lifetimes.requested_bytes[index],
                state,
                lifetimes.stack[index],
            )
            held[address] = (block, lifetimes.stream[index])
    return held


def _pieces(events: Events) -> list[_Piece]:
    segments: dict[int, _Piece] = {}
    mapped: dict[int, _Piece] = {}
    starts: list[int] = []  # of what is mapped, in order
    for kind, address, size, stream, pool in zip(
        events.kind, events.address, events.size, events.stream, events.pool, strict=True
    ):
        if kind == SEGMENT_ALLOC:
            segments[address] = _Piece(address, size, stream, pool, False, size <= SMALL_SEGMENT_BYTES)
        elif kind == SEGMENT_FREE:
            segments.pop(address, None)
        elif kind == SEGMENT_MAP:
            if address not in mapped:
                insort(starts, address)
            mapped[address] = _Piece(address, size, stream, pool, True, size <= SMALL_SEGMENT_BYTES)
        elif kind == SEGMENT_UNMAP:
            # It may be unmapped in other pieces than it was mapped in.
            end = address + size
            first = bisect_right(starts, address)
            if first and _end(mapped[starts[first - 1]]) > address:
                first -= 1
            last = bisect_left(starts, end, lo=first)
            met = [mapped.pop(start) for start in starts[first:last]]
            kept = [piece._replace(size=address - piece.address) for piece in met[:1] if piece.address < address]
            kept += [piece._replace(address=end, size=_end(piece) - end) for piece in met[-1:] if _end(piece) > end]
            starts[first:last] = [piece.address for piece in kept]
            mapped.update((piece.address, piece) for piece in kept)
    return sorted([*segments.values(), *mapped.values()])


def _of_a_block(block: Block, stream: int) -> _Piece:
    """What stands in for the segment of a block, of which no more is known."""
    return _Piece(block.address, block.size, stream, 0, False, block.size <= SMALL_POOL_BYTES)


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Neighbouring pieces of an expandable segment as one."""
    joined: list[_Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and _end(last) == piece.address and last[2:] == piece[2:] and piece.is_expandable:
            joined[-1] = last._replace(size=last.size + piece.size)
        else:
            joined.append(piece)
    return joined


def _segment(piece: _Piece, blocks: tuple[Block, ...]) -> Segment:
    size = piece.size
    if blocks:  # a block that reaches out of its segment shows that the segment was larger
        size = max(size, blocks[-1].address + blocks[-1].size - piece.address)
    return Segment(piece.address, size, piece.stream, piece.is_small, piece.is_expandable, piece.pool, blocks)


def _end(piece: _Piece) -> int:
    return piece.address + piece.size

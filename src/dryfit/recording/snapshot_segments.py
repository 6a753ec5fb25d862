"""The segments and blocks of a memory snapshot: the state after its last event, and before its first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from dryfit.recording.expected import MAX_SUM_BYTES, Unexpected, check_count, list_of, pool_id, shown, whole
from dryfit.recording.model import (
    AWAITING_FREE,
    BLOCK_STATES,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Block,
    Events,
    Segment,
)

MAX_BLOCKS = 16_000_000


def segments_by_device(snapshot: Mapping[str, Any], stack_of: Callable[[Any], int]) -> dict[int, list[Segment]] | None:
    """The segments of each device in the order of their addresses; None where the snapshot does not tell any."""
    if "segments" not in snapshot:
        return None
    found: dict[int, list[Segment]] = {}
    total = blocks = 0
    for segment in list_of(snapshot["segments"], "segments"):
        if not isinstance(segment, dict):
            raise Unexpected(f"{shown(segment)} in segments", "a segment, a dictionary with an address,")
        blocks += len(list_of(segment.get("blocks", []), "the blocks of a segment"))
        check_count("blocks", blocks, MAX_BLOCKS)
        read = _segment(segment, stack_of)
        total += read.total_size
        found.setdefault(whole(segment.get("device", 0), "the device of a segment"), []).append(read)
    if total >= MAX_SUM_BYTES:
        raise Unexpected(f"segments of {total} bytes together", "less than any card could have")
    for segments in found.values():
        segments.sort(key=itemgetter(0))
    return found


def _segment(segment: dict[str, Any], stack_of: Callable[[Any], int]) -> Segment:
    """A segment; its `pool` is still PyTorch's id: `with_places` puts the place among the device's pools there."""
    address = whole(segment.get("address"), "the address of a segment")
    size = whole(segment.get("total_size"), "the total_size of a segment")
    blocks = []
    place = address
    for block in segment.get("blocks", []):
        if not isinstance(block, dict):
            raise Unexpected(f"{shown(block)} in the blocks of a segment", "a block, a dictionary with a size,")
        read = _block(block, place, stack_of)
        if read.address < place or read.address + read.size > address + size:
            raise Unexpected(
                f"a block of {read.size} bytes at address {read.address}, in a segment of {size} bytes at {address}",
                "one inside its segment, behind the block before it",
            )
        blocks.append(read)
        place = read.address + read.size
    return Segment(
        address,
        size,
        whole(segment.get("stream", 0), "the stream of a segment"),
        segment.get("segment_type") == "small",
        segment.get("is_expandable") is True,
        pool_id(segment.get("segment_pool_id", (0, 0)), "the segment_pool_id of a segment"),  # type: ignore[arg-type]
        tuple(blocks),
    )


def _block(block: dict[str, Any], place: int, stack_of: Callable[[Any], int]) -> Block:
    """A block. Up to torch 2.0 it has no address, and the request and its frames are the first of its history."""
    size = whole(block.get("size"), "the size of a block")
    history = block.get("history")
    first = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
    state = block.get("state")
    if state == "active_pending_free":  # what torch writes; its documentation has the other name
        state = AWAITING_FREE
    if state not in BLOCK_STATES:
        raise Unexpected(f"{shown(state)} as the state of a block", f"one of {', '.join(BLOCK_STATES)}")
    return Block(
        whole(block.get("address", place), "the address of a block"),
        size,
        whole(block.get("requested_size", first.get("real_size", size)), "the requested_size of a block"),
        state,
        stack_of(block.get("frames", first.get("frames"))),
    )


def with_places(segments: tuple[Segment, ...] | None, pools: tuple[tuple[int, int], ...]) -> tuple[Segment, ...] | None:
    """The segments with their pools as places among the device's."""
    places: dict[Any, int] = {pool: place for place, pool in enumerate(pools)}
    return None if segments is None else tuple(segment._replace(pool=places[segment.pool]) for segment in segments)


def began_empty(events: Events, segments: tuple[Segment, ...]) -> bool:
    """Whether nothing was reserved before the first event: undone from the last to the first, events leave nothing.

    Of expandable segments, which are mapped in pieces that the final state joins, only the sum is known.
    """
    reserved = {segment.address: segment.total_size for segment in segments if not segment.is_expandable}
    mapped_bytes = sum(segment.total_size for segment in segments if segment.is_expandable)
    for index in range(len(events) - 1, -1, -1):
        kind = events.kind[index]
        if kind == SEGMENT_ALLOC:
            if reserved.pop(events.address[index], None) != events.size[index]:
                return False  # events and segments do not fit together
        elif kind == SEGMENT_FREE:
            reserved[events.address[index]] = events.size[index]
        elif kind == SEGMENT_MAP:
            mapped_bytes -= events.size[index]
        elif kind == SEGMENT_UNMAP:
            mapped_bytes += events.size[index]
    return not reserved and not mapped_bytes

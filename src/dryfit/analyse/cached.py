"""What PyTorch holds from the card but no tensor uses, where reserved memory is highest, and why."""

from __future__ import annotations

from dryfit.analyse.block_map import BlockMap, block_map
from dryfit.analyse.footprint import Cached
from dryfit.analyse.peaks import Levels
from dryfit.analyse.pieces import EXPANDABLE, Pieces, pieces_for
from dryfit.analyse.timeline import BEFORE_EVENTS
from dryfit.recording.model import ALLOC, SEGMENT_ALLOC, SEGMENT_MAP, DeviceTrace
from dryfit.recording.replay import Replay
from dryfit.recording.rounding import round_up
from dryfit.units import format_bytes

# Less than this part of reserved memory is not worth a person's time.
_LITTLE = 0.05


def cached_at_the_reserved_peak(
    trace: DeviceTrace, replay: Replay, levels: Levels, largest_request_bytes: int, out_of_memory_sentence: str
) -> Cached:
    """The holes at the reserved peak, once the request that raised it is served, and what they mean."""
    peak = levels.highest_reserved()
    state = _served(trace, levels, peak)
    reserved_bytes, allocated_bytes, active_bytes = (
        levels.reserved(state),
        levels.allocated(state),
        levels.active(state),
    )
    blocks = block_map(trace, replay, state, reserved_bytes)
    sentence = _sentence(
        blocks, reserved_bytes, reserved_bytes - active_bytes, _pieces_before(trace, replay, levels, peak, state)
    )
    return Cached(
        event=state,
        reserved_bytes=reserved_bytes,
        allocated_bytes=allocated_bytes,
        cached_bytes=reserved_bytes - active_bytes,
        whole_segments_bytes=blocks.whole_segments_bytes(),
        split_bytes=blocks.split_bytes(),
        largest_hole_bytes=max((hole.size for hole in blocks.holes), default=0),
        largest_request_bytes=largest_request_bytes,
        sentence=out_of_memory_sentence or sentence,
        awaiting_bytes=active_bytes - allocated_bytes,
    )


def _served(trace: DeviceTrace, levels: Levels, peak: int) -> int:
    """The event that allocates from the segment that an event made; the segment's own where there is none.

    Where reserved memory was as high when the record began, what raised it is not there; the fullest moment counts.
    """
    kinds = trace.events.kind
    if peak == BEFORE_EVENTS:
        return levels.highest_allocated(peak, levels.last_as_reserved_as(peak))
    for event in range(peak, len(kinds)):
        if kinds[event] == ALLOC:
            return event if levels.reserved(event) == levels.reserved(peak) else peak
        if kinds[event] not in (SEGMENT_ALLOC, SEGMENT_MAP):
            break
    return peak


def _pieces_before(trace: DeviceTrace, replay: Replay, levels: Levels, peak: int, served: int) -> Pieces | None:
    """What lay free when the request came that made reserved memory highest."""
    events = trace.events
    if served == peak or peak == BEFORE_EVENTS:
        return None
    before = peak - 1
    while before >= 0 and events.kind[before] in (SEGMENT_ALLOC, SEGMENT_MAP):
        before -= 1
    blocks = block_map(trace, replay, before, levels.reserved(before))
    return pieces_for(round_up(events.size[served]), events.stream[served], events.pool[served], blocks.holes)


def _sentence(blocks: BlockMap, reserved_bytes: int, cached_bytes: int, pieces: Pieces | None) -> str:
    if not blocks.is_whole_truth:
        in_use = f"of at least {format_bytes(reserved_bytes)}, {format_bytes(reserved_bytes - cached_bytes)} are in use"
        return f"The record does not say all that PyTorch holds from the card: {in_use}."
    if not cached_bytes:
        return "PyTorch uses every byte it holds at the peak of reserved memory."
    held = f"{format_bytes(reserved_bytes)} that PyTorch holds at the peak of reserved memory"
    unused = f"{format_bytes(cached_bytes)} of the {held}"
    if cached_bytes < _LITTLE * reserved_bytes:
        return f"Nothing is wrong: {unused}, {cached_bytes / reserved_bytes:.1%}, are not in use."
    whole_bytes, split_bytes = blocks.whole_segments_bytes(), blocks.split_bytes()
    parts = [f"{unused} are not in use:"]
    if whole_bytes:
        parts.append(
            f"{format_bytes(whole_bytes)} in segments without any tensor, a cache of what was used before, which "
            f"PyTorch gives back by itself before it runs out of memory{'; and' if split_bytes else '.'}"
        )
    if split_bytes:
        parts.append(f"{format_bytes(split_bytes)} in holes between tensors that share segments.")
    if pieces is not None:
        parts.append(_why_it_grew(pieces, reserved_bytes))
    return " ".join(parts)


def _why_it_grew(pieces: Pieces, reserved_bytes: int) -> str:
    asked = format_bytes(pieces.request_bytes)
    if not pieces.total_bytes:
        return (
            f"Of this nothing could have served the request that raised it last, of {asked}: other streams, memory "
            "pools and sizes have memory of their own."
        )
    free = f"{format_bytes(pieces.total_bytes)} lay free in pieces of at most {format_bytes(pieces.largest_bytes)}"
    why = f"Reserved memory grew for a request of {asked} while {free}"
    if pieces.returnable_bytes >= pieces.request_bytes:
        given_back = f"{format_bytes(pieces.returnable_bytes)} in whole segments"
        return f"{why}; on a full card PyTorch would have given back {given_back} first, so nothing is lost."
    kind = "this is fragmentation" if pieces.are_too_small else "too little even together"
    if pieces.pageable_bytes < _LITTLE * reserved_bytes:
        return f"{why}: {kind}."
    usable = format_bytes(pieces.pageable_bytes)
    return f"{why}: {kind}. On a card that this fills, {EXPANDABLE} can use at least {usable} of them."

"""The last out-of-memory error of a recording, and whether fragmentation was its cause."""

from __future__ import annotations

from dryfit.analyse.block_map import block_map
from dryfit.analyse.footprint import FailedRequest
from dryfit.analyse.peaks import Levels
from dryfit.analyse.pieces import pieces_for, why_it_failed
from dryfit.analyse.timeline import Timeline
from dryfit.recording.model import OOM, DeviceTrace
from dryfit.recording.replay import Replay


def last_out_of_memory(trace: DeviceTrace, replay: Replay, levels: Levels, timeline: Timeline) -> FailedRequest | None:
    """The request that failed last; None if none did.

    Of its event the address is what the card had free, and the size is the rounded request.
    """
    events = trace.events
    if OOM not in events.kind:
        return None
    event = len(events) - 1 - events.kind[::-1].index(OOM)
    step, phase = timeline.at(event)
    blocks = block_map(trace, replay, event, levels.reserved(event))
    pieces = pieces_for(events.size[event], events.stream[event], events.pool[event], blocks.holes)
    free_bytes = events.address[event]
    return FailedRequest(
        event=event,
        step=step,
        phase=phase,
        requested_bytes=events.size[event],
        free_bytes=free_bytes,
        allocated_bytes=levels.allocated(event),
        reserved_bytes=levels.reserved(event),
        holes_bytes=pieces.total_bytes,
        largest_hole_bytes=pieces.largest_bytes,
        sentence=why_it_failed(pieces, free_bytes),
    )

"""Recordings written event by event, where it matters what lies where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dryfit.recording.model import DeviceTrace, Events, Mark, Recording, Segment
from dryfit.recording.stacks import Stacks


def recording(
    *rows: tuple[int, int, int] | tuple[int, int, int, int],
    marks: Sequence[Mark] = (),
    segments: tuple[Segment, ...] | None = None,
    starts_empty: bool = True,
    about: dict[str, Any] | None = None,
    dropped_events: int = 0,
) -> Recording:
    """A recording of events (kind, address, size), and a stream where it is not the default one."""
    events = Events()
    for number, (kind, address, size, *stream) in enumerate(rows):
        events.kind.append(kind)
        events.address.append(address)
        events.size.append(size)
        events.stream.append(stream[0] if stream else 0)
        events.pool.append(0)
        events.stack.append(0)
        events.time_us.append(number)
    trace = DeviceTrace(
        device=0,
        events=events,
        segments=segments,
        marks=tuple(marks),
        starts_empty=starts_empty,
        dropped_events=dropped_events,
    )
    return Recording(source="snapshot", devices=(trace,), stacks=Stacks(), about=about or {})

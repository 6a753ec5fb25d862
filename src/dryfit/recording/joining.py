"""Puts recordings of one process that follow each other together, as if it had been one."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence

from dryfit.recording.model import DeviceTrace, Events, Recording, Segment
from dryfit.recording.stacks import Stacks


def joined(parts: Sequence[tuple[int, Recording]]) -> Recording:
    """One recording from parts in their order, each with the time of its first event in microseconds.

    Parts without events may have any time. What is not events (the final segments, `about`) is the last part's. Marks
    and labels are not carried over: they are placed once the events are whole.
    """
    if len(parts) == 1:
        return parts[0][1]
    first_us = next((began_us for began_us, part in parts if any(len(trace.events) for trace in part.devices)), 0)
    stacks = Stacks()
    devices: dict[int, DeviceTrace] = {}
    for began_us, part in parts:
        renumbered = _added(part.stacks, stacks)
        for trace in part.devices:
            known = devices.get(trace.device)
            events = Events() if known is None else known.events
            pools = trace.pools if known is None else known.pools
            pools = (*pools, *(pool for pool in trace.pools if pool not in pools))
            places = [pools.index(pool) for pool in trace.pools]
            events.kind.extend(trace.events.kind)
            events.address.extend(trace.events.address)
            events.size.extend(trace.events.size)
            events.stream.extend(trace.events.stream)
            events.pool.extend(array("H", [places[pool] for pool in trace.events.pool]))
            events.stack.extend(array("I", [renumbered[stack] for stack in trace.events.stack]))
            offset_us = max(began_us - first_us, 0)
            events.time_us.extend(array("Q", [time + offset_us for time in trace.events.time_us]))
            starts_empty = trace.starts_empty if known is None else known.starts_empty
            devices[trace.device] = DeviceTrace(
                device=trace.device,
                events=events,
                segments=_renumbered(trace.segments, places, renumbered),
                pools=pools,
                starts_empty=starts_empty,
                dropped_events=trace.dropped_events if known is None else known.dropped_events,
            )
    last = parts[-1][1]
    return dataclasses.replace(last, devices=tuple(devices[device] for device in sorted(devices)), stacks=stacks)


def _renumbered(
    segments: tuple[Segment, ...] | None, pools: Sequence[int], stacks: Sequence[int]
) -> tuple[Segment, ...] | None:
    if segments is None:
        return None
    return tuple(
        segment._replace(
            pool=pools[segment.pool],
            blocks=tuple(block._replace(stack=stacks[block.stack]) for block in segment.blocks),
        )
        for segment in segments
    )


def _added(of: Stacks, to: Stacks) -> list[int]:
    """By number in one set of stacks, the number in the other, where they are added."""
    numbers = [0]
    for stack in range(1, len(of)):
        numbers.append(to.call(numbers[of.caller_of[stack]], of.all_frames[of.frame_of[stack]]))
    return numbers

"""Turns a recording back into a memory snapshot that PyTorch's own tools open."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

from dryfit.recording.final_state import final_segments
from dryfit.recording.model import (
    ALLOCATED,
    AWAITING_FREE,
    INACTIVE,
    KINDS,
    OOM,
    Block,
    DeviceTrace,
    Recording,
    Segment,
)
from dryfit.recording.stacks import EMPTY, Stacks
from dryfit.whole_files import whole_file

PICKLE_PROTOCOL = 4
"""The highest that PyTorch's viewer, https://pytorch.org/memory_viz, reads."""

_STATES = {AWAITING_FREE: "active_pending_free"}
"""Where what torch writes differs from what it documents, and the recording has."""

Frames = list[dict[str, Any]]


def to_snapshot(recording: Recording) -> dict[str, Any]:
    """The recording as `torch.cuda.memory._snapshot()` gives it, for `torch.cuda._memory_viz` and other tools.

        torch.cuda._memory_viz.trace_plot(to_snapshot(recording))

    Calls of modules are frames of the file "<module>". Times are microseconds from the first event, sizes bytes. What
    snapshots have no place for (owners, steps and phases) is left out. Where the recording has no final state, it is
    what the replay of the events leaves.
    """
    frames = _FramesOf(recording.stacks)
    settings = recording.about.get("allocator_settings", {})
    traces: list[list[dict[str, Any]]] = []
    segments: list[dict[str, Any]] = []
    for device in recording.devices:
        traces += ([] for _ in range(len(traces), device.device + 1))
        traces[device.device] = _trace(device, frames)
        final = device.segments if device.segments is not None else final_segments(device, settings)
        segments += (_segment(segment, device, frames) for segment in final)
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": settings,
        "external_annotations": [],
    }


def save_snapshot(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write the recording as a pickle that https://pytorch.org/memory_viz and `torch.cuda._memory_viz` open.

        save_snapshot(recording, "snapshot.pickle")

    Raises:
        UsageError: the file cannot be written.
    """
    snapshot = to_snapshot(recording)
    with whole_file(path, "snapshot") as file:
        pickle.dump(snapshot, file, protocol=PICKLE_PROTOCOL)


class _FramesOf:
    """Frames of stacks as PyTorch has them: one dictionary a frame and one list a stack, so a pickle stays small."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._frames = [{"name": frame.name, "filename": frame.file, "line": frame.line} for frame in stacks.all_frames]
        self._known: dict[int, Frames] = {}

    def __call__(self, stack: int) -> Frames:
        known = self._known.get(stack)
        if known is None:
            known = self._known[stack] = []
            while stack != EMPTY:
                known.append(self._frames[self._stacks.frame_of[stack]])
                stack = self._stacks.caller_of[stack]
        return known


def _trace(device: DeviceTrace, frames: _FramesOf) -> list[dict[str, Any]]:
    events = device.events
    trace = []
    for kind, address, size, stream, pool, stack, time_us in zip(
        events.kind, events.address, events.size, events.stream, events.pool, events.stack, events.time_us, strict=True
    ):
        trace.append(
            {
                "action": KINDS[kind],
                "device_free" if kind == OOM else "addr": address,
                "size": size,
                "stream": stream,
                "time_us": time_us,
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": device.pools[pool],
                "frames": frames(stack),
            }
        )
    return trace


def _segment(segment: Segment, device: DeviceTrace, frames: _FramesOf) -> dict[str, Any]:
    blocks = list(_whole(segment))
    allocated = [block for block in blocks if block.state == ALLOCATED]
    return {
        "device": device.device,
        "address": segment.address,
        "total_size": segment.total_size,
        "allocated_size": sum(block.size for block in allocated),
        "active_size": sum(block.size for block in blocks if block.state != INACTIVE),
        "requested_size": sum(block.requested_size for block in allocated),
        "stream": segment.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": device.pools[segment.pool],
        "is_expandable": segment.is_expandable,
        "frames": [],
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested_size,
                "state": _STATES.get(block.state, block.state),
                "frames": frames(block.stack),
            }
            for block in blocks
        ],
    }


def _whole(segment: Segment) -> Iterator[Block]:
    """The blocks without gaps: PyTorch's viewer adds sizes up to find addresses."""
    place = segment.address
    for block in segment.blocks:
        if block.address > place:
            yield Block(place, block.address - place, 0, INACTIVE)
        yield block
        place = block.address + block.size
    end = segment.address + segment.total_size
    if end > place:
        yield Block(place, end - place, 0, INACTIVE)

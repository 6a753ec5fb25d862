"""Recordings taken out in parts become what one recording of the same events would have been."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dryfit.recording.joining import joined
from dryfit.recording.model import KINDS, PARAMETER, SETUP, DeviceTrace, Events, Label, Mark, Recording
from dryfit.recording.replay import replay
from dryfit.recording.snapshot import from_snapshot

from .allocator import KIB, MIB, STREAM, Allocator, Piece
from .snapshots import BASE, FORWARD, MAIN, block, event, segment

START_US = 1_700_000_000_000_000
SMALL_POOL, LARGE_POOL = (0, 0), (0, 1)
STACKS = ([], [MAIN], [FORWARD, MAIN], [{**FORWARD, "line": 4}, MAIN])

# An allocation of so many bytes; below zero, a free of one of those held; zero empties the cache.
OPERATIONS = st.one_of(st.integers(1, MIB), st.sampled_from([3 * MIB, 11 * MIB, 40 * MIB]), st.integers(-99, 0))
PARTS = st.lists(st.lists(OPERATIONS, max_size=12), min_size=1, max_size=5)


def part(traces: list[list[dict[str, Any]]], segments: list[dict[str, Any]] | None) -> tuple[int, Recording]:
    """A part as a rehearsal takes it, with the time of its first event, 0 where it has none."""
    state = {} if segments is None else {"segments": segments}
    times = [trace[0]["time_us"] for trace in traces if trace]
    return min(times, default=0), from_snapshot({"device_traces": traces, **state})


def perform(allocator: Allocator, held: list[Piece], operation: int) -> None:
    if operation > 0:
        held.append(allocator.alloc(operation))
    elif operation == 0:
        allocator.empty_cache()
    elif held:
        piece = held.pop(operation % len(held))
        allocator.free(piece)
        allocator.complete(piece)


def snapshot_of(allocator: Allocator, first: int = 0) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The events from one on and the segments, as PyTorch has them. Neighbours differ in pool and stack."""
    columns = (getattr(allocator.events, name) for name in ("kind", "address", "size", "time_us"))
    trace = [
        event(
            KINDS[kind], address, size, time_us=START_US + 10 * time, frames=STACKS[time % len(STACKS)],
            pool_id=LARGE_POOL if size > MIB else SMALL_POOL,
        )
        for kind, address, size, time in zip(*columns, strict=True)
    ][first:]  # fmt: skip
    segments = [
        segment(
            *(block(p.size, p.state, address=p.address, requested_size=p.requested, frames=[MAIN]) for p in m.pieces),
            address=m.address, total_size=m.size, stream=STREAM,
            segment_pool_id=SMALL_POOL if m.is_small else LARGE_POOL,
        )
        for m in allocator.memories
    ]  # fmt: skip
    return [trace], segments


def columns(recording: Recording, trace: DeviceTrace) -> dict[str, list[Any]]:
    """A trace's events, with what the numbers of pools and stacks stand for."""
    found: dict[str, list[Any]] = {name: list(getattr(trace.events, name)) for name in Events.__slots__}
    found["pool"] = [trace.pools[pool] for pool in found["pool"]]
    found["stack"] = [recording.stacks.frames(stack) for stack in found["stack"]]
    return found


def state(recording: Recording, trace: DeviceTrace) -> list[Any]:
    """A trace's final segments, likewise."""
    return [
        (*s[:5], trace.pools[s.pool], [(*b[:4], recording.stacks.frames(b.stack)) for b in s.blocks])
        for s in trace.segments or ()
    ]


@given(PARTS)
def test_parts_are_the_whole_without_loss_or_repetition(parts: list[list[int]]) -> None:
    allocator, held, taken = Allocator(), [], []
    for operations in parts:
        first = len(allocator.events)
        for operation in operations:
            perform(allocator, held, operation)
        taken.append(part(*snapshot_of(allocator, first)))
    _, whole = part(*snapshot_of(allocator))
    found = joined(taken)
    assert len(found.devices) == len(whole.devices)
    for ours, expected in zip(found.devices, whole.devices, strict=True):
        assert columns(found, ours) == columns(whole, expected)
        assert state(found, ours) == state(whole, expected)
        assert ours.starts_empty
        replayed = replay(ours)
        figures = zip(replayed.allocated_bytes, replayed.active_bytes, replayed.reserved_bytes, strict=True)
        assert list(figures) == allocator.figures
        assert replayed.end_error_bytes == 0


def test_a_frame_that_several_parts_have_is_kept_once() -> None:
    parts = [part([[event("alloc", BASE + n * KIB, frames=STACKS[2], time_us=START_US)]], None) for n in range(3)]
    found = joined(parts)
    assert len(found.stacks) == 3  # the empty one, main, and forward on top of it
    assert set(found.devices[0].events.stack) == {2}


def test_times_count_from_the_first_event_though_nothing_had_happened_when_the_first_part_was_taken() -> None:
    early, late = START_US, START_US + 500
    parts = [
        part([[]], []),
        part([[event("alloc", time_us=early), event("alloc", BASE + KIB, time_us=early + 7)]], None),
        part([[]], [segment(block(512))]),
        part([[event("free_requested", time_us=late), event("free_completed", time_us=late + 1)]], None),
    ]
    assert list(joined(parts).devices[0].events.time_us) == [0, 7, 500, 501]


def test_a_clock_that_was_set_back_does_not_stop_the_joining() -> None:
    parts = [part([[event("alloc", BASE + n * KIB, time_us=START_US - n)]], None) for n in range(2)]
    assert list(joined(parts).devices[0].events.time_us) == [0, 0]


def test_a_device_that_a_part_does_not_have_keeps_what_it_had() -> None:
    first, second = event("alloc", size=1024, time_us=START_US), event("alloc", size=2048, time_us=START_US + 50)
    on_first, on_second = segment(block(2 * MIB)), segment(block(2 * MIB, frames=[MAIN]), device=1)
    parts = [part([[first]], [on_first]), part([[], [second]], [on_first, on_second]), part([[], []], [on_first])]
    found = joined(parts)
    assert [trace.device for trace in found.devices] == [0, 1]
    assert [list(trace.events.size) for trace in found.devices] == [[1024], [2048]]
    assert [list(trace.events.time_us) for trace in found.devices] == [[0], [50]]
    assert [len(trace.segments or ()) for trace in found.devices] == [1, 1]
    assert found.stacks.frames(found.devices[1].segments[0].blocks[0].stack)[0].name == "main"  # type: ignore[index]


def test_a_state_that_is_not_known_stays_so() -> None:
    parts = [part([[event("alloc", time_us=START_US)]], segments) for segments in ([segment(block(512))], None)]
    assert joined(parts).devices[0].segments is None
    assert joined(parts[::-1]).devices[0].segments is not None


def test_marks_and_labels_of_parts_are_not_carried_over() -> None:
    began, recording = part([[event("alloc", time_us=START_US)]], None)
    (trace,) = recording.devices
    marked = Recording(
        source="rehearsal",
        devices=(
            DeviceTrace(
                device=0, events=trace.events, marks=(Mark(0, 0, SETUP),), labels=(Label(0, PARAMETER, "weight"),)
            ),
        ),
        stacks=recording.stacks,
    )
    found = joined([(began, recording), (began, marked)]).devices[0]
    assert (found.marks, found.labels) == ((), ())


def test_one_part_is_itself() -> None:
    began, recording = part([[event("alloc", time_us=START_US)]], None)
    assert joined([(began, recording)]) is recording

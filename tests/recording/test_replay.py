"""The replay against a plain allocator whose every figure is known, and against traces that no allocator makes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.recording import model
from dryfit.recording.model import Block, DeviceTrace, Events, Segment
from dryfit.recording.replay import BEFORE, Replay, replay
from dryfit.recording.rounding import max_split_bytes, rounding

from .allocator import KIB, MIB, Allocator, Piece

SIZES = st.one_of(
    st.sampled_from([1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB, 11 * MIB, 19 * MIB, 21 * MIB]),
    st.integers(1, 64 * KIB),
    st.integers(MIB, 12 * MIB),
    st.integers(10 * MIB, 90 * MIB),
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), SIZES),
        st.tuples(st.sampled_from(["free", "free later", "complete"]), st.integers(0, 99)),
        st.tuples(st.just("empty cache"), st.just(0)),
    ),
    max_size=60,
)


def ran(operations: list[tuple[str, int]], **options: Any) -> Allocator:
    allocator = Allocator(**options)
    allocated: list[Piece] = []
    awaiting: list[Piece] = []
    for what, number in operations:
        if what == "alloc":
            allocated.append(allocator.alloc(number))
        elif what == "empty cache":
            allocator.empty_cache()
        elif what == "complete" and awaiting:
            allocator.complete(awaiting.pop(number % len(awaiting)))
        elif what.startswith("free") and allocated:
            piece = allocated.pop(number % len(allocated))
            allocator.free(piece)
            if what == "free":
                allocator.complete(piece)
            else:
                awaiting.append(piece)
    return allocator


def figures(replayed: Replay) -> list[tuple[int, int, int]]:
    return list(zip(replayed.allocated_bytes, replayed.active_bytes, replayed.reserved_bytes, strict=True))


def trace_of(*events: tuple[int, int, int], **fields: Any) -> DeviceTrace:
    columns = Events()
    for kind, address, size in events:
        columns.kind.append(kind)
        columns.address.append(address)
        columns.size.append(size)
        for column in (columns.stream, columns.pool, columns.stack, columns.time_us):
            column.append(0)
    return DeviceTrace(device=0, events=columns, **fields)


def block_bytes_of(requested: int, segment: int, **settings: Any) -> int:
    """The block that a request gets at the start of a new segment."""
    trace = trace_of((model.SEGMENT_ALLOC, 0, segment), (model.ALLOC, 0, requested), starts_empty=True)
    return replay(trace, settings).lifetimes.block_bytes[0]


def check_lifetimes(replayed: Replay) -> None:
    """Lifetimes sum to the figures, and blocks alive at the same time do not overlap."""
    lifetimes = replayed.lifetimes
    rows = list(
        zip(lifetimes.address, lifetimes.block_bytes, lifetimes.begin, lifetimes.end, lifetimes.completed, strict=True)
    )
    for event in range(BEFORE, len(replayed.allocated_bytes)):
        allocated = sum(size for _, size, begin, end, _ in rows if begin <= event < end)
        alive = sorted((address, size) for address, size, begin, _, completed in rows if begin <= event < completed)
        expected = (
            (replayed.before_allocated_bytes, replayed.before_active_bytes)
            if event == BEFORE
            else (replayed.allocated_bytes[event], replayed.active_bytes[event])
        )
        assert (allocated, sum(size for _, size in alive)) == expected
        assert all(first + size <= second for (first, size), (second, _) in itertools.pairwise(alive))
    assert list(lifetimes.begin) == sorted(lifetimes.begin)


@given(OPERATIONS, st.sampled_from([0, 4, 8]), st.sampled_from([1 << 64, 20 * MIB, 40 * MIB]), st.booleans())
def test_whole_traces_are_replayed_exactly(
    operations: list[tuple[str, int]], divisions: int, max_split: int, is_expandable: bool
) -> None:
    options = {"divisions": divisions, "is_expandable": is_expandable}
    allocator = ran(operations, **options, max_split_bytes=1 << 64 if is_expandable else max_split)
    allocator_settings = {
        "roundup_power2_divisions": {str(1 << power): divisions for power in range(16)},
        "max_split_size": -1 if max_split == 1 << 64 else max_split,
    }
    replayed = replay(allocator.trace(), allocator_settings)
    assert figures(replayed) == allocator.figures
    assert replayed.end_error_bytes == 0
    assert replayed.before_reserved_bytes == 0
    check_lifetimes(replayed)


@given(OPERATIONS, st.integers(0, 150), st.booleans())
def test_traces_that_begin_in_the_middle_are_replayed_as_exactly_as_they_tell(
    operations: list[tuple[str, int]], first: int, is_expandable: bool
) -> None:
    allocator = ran(operations, is_expandable=is_expandable)
    first = min(first, len(allocator.figures))
    replayed = replay(replace(allocator.trace(first), starts_empty=False))
    true = allocator.figures[first:]
    before = allocator.figures[first - 1] if first else (0, 0, 0)
    assert replayed.end_error_bytes == 0
    assert replayed.before_reserved_bytes == before[2]
    assert [reserved for *_, reserved in figures(replayed)] == [reserved for *_, reserved in true]
    check_lifetimes(replayed)

    # Of a block from before, freed by an event, what the allocator did not split off may not show; nothing else is off.
    lifetimes = replayed.lifetimes
    doubtful = [
        completed
        for begin, completed, size in zip(lifetimes.begin, lifetimes.completed, lifetimes.block_bytes, strict=True)
        if begin == BEFORE and completed < len(true) and size > MIB
    ]
    found = [(replayed.before_allocated_bytes, replayed.before_active_bytes, before[2]), *figures(replayed)]
    for event, (ours, theirs) in enumerate(zip(found, [before, *true], strict=True), BEFORE):
        most = MIB * sum(event < completed for completed in doubtful)
        assert 0 <= theirs[0] - ours[0] <= most
        assert 0 <= theirs[1] - ours[1] <= most


def test_a_block_from_before_is_as_large_as_the_gap_behind_it_tells() -> None:
    allocator = Allocator()
    first = allocator.alloc(11 * MIB)  # of a segment of 12 MiB, which is not split
    allocator.alloc(3 * MIB)
    cut = len(allocator.events)
    allocator.free(first)
    allocator.complete(first)
    replayed = replay(allocator.trace(cut))
    assert replayed.before_allocated_bytes == 15 * MIB
    assert list(replayed.allocated_bytes) == [3 * MIB, 3 * MIB]


def test_a_block_from_before_is_as_large_as_a_later_neighbour_tells() -> None:
    # A request of 9.5 MiB took a hole of 10; behind it 2 MiB are free, then a block fills the segment.
    taken, behind, last = (0, 9 * MIB + MIB // 2), (10 * MIB, 2 * MIB), (12 * MIB, 8 * MIB)
    blocks = (
        Block(0, 10 * MIB, 0, "inactive"),
        Block(*behind, 2 * MIB, "active_allocated"),
        Block(*last, 8 * MIB, "active_allocated"),
    )
    replayed = replay(
        trace_of(
            (model.ALLOC, *behind),
            (model.FREE_REQUESTED, *taken),
            (model.FREE_COMPLETED, *taken),
            (model.ALLOC, *taken),
            segments=(Segment(0, 20 * MIB, 0, False, False, 0, blocks),),
        )
    )
    assert replayed.before_allocated_bytes == 18 * MIB
    assert list(replayed.allocated_bytes) == [20 * MIB, 10 * MIB, 10 * MIB, 20 * MIB]
    assert list(replayed.lifetimes.block_bytes) == [10 * MIB, 8 * MIB, 2 * MIB, 10 * MIB]


COLUMN = st.one_of(st.integers(0, 8), st.integers(0, 40).map(lambda n: n * MIB), st.integers(0, (1 << 64) - 1))
HOSTILE_EVENTS = st.lists(st.tuples(st.one_of(st.integers(0, 7), st.integers(0, 255)), COLUMN, COLUMN), max_size=40)
HOSTILE_BLOCKS = st.builds(Block, COLUMN, COLUMN, COLUMN, st.sampled_from(["active_allocated", "inactive", "?"]))
HOSTILE_SEGMENTS = st.builds(
    Segment, COLUMN, COLUMN, COLUMN, st.booleans(), st.booleans(), st.just(0), st.lists(HOSTILE_BLOCKS).map(tuple)
)


@given(
    HOSTILE_EVENTS,
    st.none() | st.lists(HOSTILE_SEGMENTS, max_size=5).map(tuple),
    st.booleans(),
    st.dictionaries(st.sampled_from(["max_split_size", "roundup_power2_divisions"]), st.none() | COLUMN | st.text()),
)
def test_a_hostile_trace_ends_in_one_sentence_or_in_sensible_figures(
    events: list[tuple[int, int, int]],
    segments: tuple[Segment, ...] | None,
    starts_empty: bool,
    allocator_settings: dict[str, Any],
) -> None:
    try:
        replayed = replay(trace_of(*events, segments=segments, starts_empty=starts_empty), allocator_settings)
    except UsageError as error:
        assert "beyond 64 bits" in str(error)
        return
    assert len(replayed.allocated_bytes) == len(events)
    for allocated, active, reserved in figures(replayed):
        assert 0 <= allocated <= active <= reserved


def test_columns_of_different_lengths_are_refused() -> None:
    trace = trace_of((model.ALLOC, 0, 512))
    trace.events.size.pop()
    with pytest.raises(UsageError, match=r"^The recording's columns of events differ in length: it is damaged"):
        replay(trace)


def test_addresses_beyond_64_bits_are_refused() -> None:
    largest = (1 << 64) - 1
    with pytest.raises(UsageError, match=r"^The recording has addresses or sizes beyond 64 bits, which no card has"):
        replay(trace_of((model.ALLOC, 0, largest), (model.ALLOC, 1, largest), starts_empty=True))


@pytest.mark.parametrize(
    ("requested", "segment", "block"),
    [
        (1, 2 * MIB, 512),
        (511, 2 * MIB, 512),
        (512, 2 * MIB, 512),
        (513, 2 * MIB, 1024),
        (MIB, 2 * MIB, MIB),
        (2 * MIB - 512, 20 * MIB, 2 * MIB - 512),
        (10 * MIB - 512, 20 * MIB, 10 * MIB - 512),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB left: not split
        (11 * MIB - 512, 12 * MIB, 11 * MIB - 512),  # 512 bytes more: split
        (19 * MIB, 20 * MIB, 20 * MIB),
        (21 * MIB + 1, 22 * MIB, 22 * MIB),
    ],
)
def test_blocks_are_split_where_the_allocator_splits_them(requested: int, segment: int, block: int) -> None:
    assert block_bytes_of(requested, segment) == block


def test_blocks_from_the_largest_split_size_on_are_not_split() -> None:
    assert block_bytes_of(30 * MIB, 40 * MIB, max_split_size=30 * MIB) == 40 * MIB
    assert block_bytes_of(30 * MIB - 512, 40 * MIB, max_split_size=30 * MIB) == 30 * MIB - 512


def test_blocks_of_expandable_segments_are_split_to_512_bytes() -> None:
    trace = trace_of((model.SEGMENT_MAP, 0, 20 * MIB), (model.ALLOC, 0, 20 * MIB - 512), starts_empty=True)
    assert figures(replay(trace)) == [(0, 0, 20 * MIB), (20 * MIB - 512, 20 * MIB - 512, 20 * MIB)]


def test_segments_side_by_side_do_not_merge() -> None:
    trace = trace_of(
        (model.SEGMENT_ALLOC, 0, 12 * MIB),
        (model.SEGMENT_ALLOC, 12 * MIB, 12 * MIB),
        (model.ALLOC, 0, 12 * MIB),
        (model.FREE_COMPLETED, 0, 12 * MIB),
        (model.ALLOC, 0, 11 * MIB),
        starts_empty=True,
    )
    assert replay(trace).allocated_bytes[-1] == 12 * MIB  # with its neighbour 13 MiB would be left, and split off


def test_what_awaits_other_streams_is_active_but_not_allocated() -> None:
    allocator = Allocator()
    piece = allocator.alloc(MIB)
    allocator.free(piece)
    allocator.alloc(512)
    allocator.complete(piece)
    replayed = replay(allocator.trace())
    assert list(replayed.allocated_bytes) == [0, MIB, 0, 512, 512]
    assert list(replayed.active_bytes) == [0, MIB, MIB, MIB + 512, 512]
    assert (replayed.lifetimes.end[0], replayed.lifetimes.completed[0]) == (2, 4)


def test_a_block_that_awaited_its_free_before_the_first_event_was_not_allocated() -> None:
    replayed = replay(trace_of((model.SNAPSHOT, 0, 0), (model.FREE_COMPLETED, 4096, 600)))
    assert (replayed.before_allocated_bytes, replayed.before_active_bytes) == (0, 1024)
    assert (replayed.lifetimes.begin[0], replayed.lifetimes.end[0]) == (BEFORE, BEFORE)
    assert list(replayed.active_bytes) == [1024, 0]


def test_no_allocation_asked_for_more_than_its_block_has() -> None:
    """Where a broken file's final state says otherwise of a block from before, the block counts."""
    asked_for_too_much = Block(0, 512, 4096, "active_allocated")
    another_block = Block(1024, 512, 512, "active_allocated")
    segment = Segment(0, 2 * MIB, 0, True, False, 0, (asked_for_too_much, another_block))
    replayed = replay(trace_of((model.FREE_REQUESTED, 1024, 4096), segments=(segment,)))
    lifetimes = replayed.lifetimes
    assert list(zip(lifetimes.requested_bytes, lifetimes.block_bytes, strict=True)) == [(512, 512), (4096, 4096)]


def test_without_final_segments_the_events_tell_what_was_held() -> None:
    replayed = replay(
        trace_of(
            (model.FREE_REQUESTED, 0, 12 * MIB),
            (model.FREE_COMPLETED, 0, 12 * MIB),
            (model.SEGMENT_FREE, 0, 12 * MIB),
            (model.SEGMENT_UNMAP, 1 << 40, 20 * MIB),
            (model.ALLOC, 1 << 41, 8 * MIB),
        )
    )
    assert replayed.end_error_bytes is None
    assert replayed.before_allocated_bytes == 12 * MIB
    # The last block lies in memory of which no event tells; that was there all the time.
    assert replayed.before_reserved_bytes == 12 * MIB + 20 * MIB + 8 * MIB
    assert figures(replayed)[-1] == (8 * MIB, 8 * MIB, 8 * MIB)


def test_a_free_without_its_allocation_and_an_allocation_without_its_free_are_passed_over() -> None:
    trace = trace_of(
        (model.SEGMENT_ALLOC, 0, 2 * MIB),
        (model.FREE_COMPLETED, 0, 512),
        (model.ALLOC, 0, 512),
        (model.ALLOC, 0, 1024),
        starts_empty=True,
    )
    replayed = replay(trace)
    assert list(replayed.allocated_bytes) == [0, 0, 512, 1024]
    assert list(replayed.lifetimes.completed) == [3, 4]


def test_other_events_change_nothing() -> None:
    trace = trace_of(*((kind, 4096, MIB) for kind in (model.OOM, model.SNAPSHOT, model.OTHER)), starts_empty=True)
    assert figures(replay(trace)) == [(0, 0, 0)] * 3


def test_the_final_state_shows_how_far_the_replay_is_off() -> None:
    block = Block(0, 4 * MIB, 3 * MIB, "active_allocated")
    segment = Segment(0, 20 * MIB, 0, False, False, 0, (block,))
    events = ((model.SEGMENT_ALLOC, 0, 20 * MIB), (model.ALLOC, 0, 3 * MIB))
    assert replay(trace_of(*events, segments=(segment,))).end_error_bytes == -MIB


@pytest.mark.parametrize(
    ("divisions", "requested", "rounded"),
    [
        ({"1": 4}, 1200 * KIB, 1280 * KIB),
        ({"1": 4}, MIB, MIB),
        ({"1": 4}, 2 * MIB + 1, 2 * MIB + 512),  # the setting of another power
        ({"1": 4, "2": 8}, 2 * MIB + 1, 2 * MIB + MIB // 4),
        ({"1": 4}, 2048, 2048),  # below 512 bytes a part
        ({"1": 4}, 2049, 2560),
        ({"32768": 2}, (1 << 40) + 1, 3 << 39),  # beyond the last power
        ({"1": "4", "2": None, "4": -3}, 5 * MIB + 1, 5 * MIB + 512),
        (4, 1200 * KIB, 1280 * KIB),
        ("4", 1200 * KIB + 1, 1200 * KIB + 512),
    ],
)
def test_divisions_of_powers_of_two_round_as_the_allocator_does(
    divisions: object, requested: int, rounded: int
) -> None:
    assert rounding({"roundup_power2_divisions": divisions})(requested) == rounded


def test_a_largest_split_size_that_is_none_is_no_limit() -> None:
    assert {max_split_bytes(found) for found in (None, {}, {"max_split_size": -1}, {"max_split_size": "64"})} == {
        1 << 64
    }

"""What is asked of the allocator for a recording, told from its events alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.recording import model
from dryfit.recording.model import ALLOCATED, Block, DeviceTrace, Events, Segment
from dryfit.rehearse.allocator_settings import AllocatorSettings, parse_settings, recorded_settings
from dryfit.rehearse.inside import retrace as play
from dryfit.rehearse.requests import Requests, requests_of

MIB = 1 << 20
PLAIN = AllocatorSettings()
NAMES = {
    play.ALLOC: "alloc", play.ALLOC_TO_WAIT: "alloc to wait", play.FREE: "free", play.WAIT: "wait",
    play.FREE_AFTER_WAIT: "free after wait", play.EMPTY_CACHE: "empty cache", play.TRY: "try",
    play.DROP_POOL: "drop pool", play.BEGIN: "begin",
}  # fmt: skip


def trace_of(*events: tuple[int, int, int] | tuple[int, int, int, int], **fields: object) -> DeviceTrace:
    """Events as kind, address, size, and the number of their stack where that matters."""
    columns = Events()
    for kind, address, size, *stack in events:
        for name, value in (("kind", kind), ("address", address), ("size", size), ("stack", stack[0] if stack else 0)):
            getattr(columns, name).append(value)
        for name in ("stream", "pool", "time_us"):
            getattr(columns, name).append(0)
    return DeviceTrace(device=0, events=columns, **fields)  # type: ignore[arg-type]


def told(requests: Requests) -> list[tuple[str, int]]:
    return [(NAMES[kind], number) for kind, number in zip(requests.kind, requests.number, strict=True)]


def asked(*events: tuple[int, int, int] | tuple[int, int, int, int]) -> Requests:
    return requests_of(trace_of(*events, starts_empty=True), PLAIN, PLAIN)


def test_a_free_belongs_to_its_allocation_and_not_to_its_address() -> None:
    found = asked(
        (model.ALLOC, 64, 100), (model.FREE_REQUESTED, 64, 100), (model.FREE_COMPLETED, 64, 100),
        (model.ALLOC, 64, 200), (model.ALLOC, 64, 300), (model.FREE_COMPLETED, 999, 5),
    )  # fmt: skip
    assert told(found) == [("begin", 0), ("alloc", 100), ("free", 0), ("alloc", 200), ("free", 1), ("alloc", 300)]
    assert list(found.event) == [-1, 0, 2, 3, 4, 4]


def test_a_free_that_is_completed_later_waits() -> None:
    found = asked(
        (model.ALLOC, 64, 100), (model.FREE_REQUESTED, 64, 100), (model.ALLOC, 99, 5), (model.FREE_COMPLETED, 64, 100)
    )
    assert told(found) == [("begin", 0), ("alloc to wait", 100), ("wait", 0), ("alloc", 5), ("free after wait", 0)]


# Of two whole segments the first goes back; what is asked for next needs a new one.
def given_back(next_stack: int, next_bytes: int) -> Requests:
    return asked(
        (model.SEGMENT_ALLOC, 0, 40 * MIB, 1), (model.SEGMENT_ALLOC, 1 << 30, 60 * MIB, 1),
        (model.SEGMENT_FREE, 0, 40 * MIB, 7), (model.SEGMENT_ALLOC, 0, next_bytes, next_stack),
    )  # fmt: skip


def test_segments_that_the_allocator_gives_back_for_a_request_tell_what_the_card_had() -> None:
    found = given_back(7, 30 * MIB)
    assert (found.cache_was_emptied, found.capacity_bytes) == (0, 130 * MIB - 1)


def test_segments_that_go_from_another_line_went_because_the_program_emptied_the_cache() -> None:
    found = given_back(8, 30 * MIB)
    assert (found.cache_was_emptied, found.capacity_bytes) == (1, None)
    assert ("empty cache", 0) in told(found)


def test_a_card_that_later_gave_more_had_not_refused() -> None:
    events = [
        (model.SEGMENT_ALLOC, 0, 40 * MIB, 1), (model.SEGMENT_FREE, 0, 40 * MIB, 7),
        (model.SEGMENT_ALLOC, 0, 20 * MIB, 7), (model.SEGMENT_ALLOC, 1 << 30, 600 * MIB, 9),
    ]  # fmt: skip
    found = asked(*events)
    assert (found.cache_was_emptied, found.capacity_bytes) == (1, None)


@pytest.mark.parametrize(("free", "capacity"), [(6 * MIB, 106 * MIB), (500 * MIB, 130 * MIB - 1)])
def test_a_failure_tells_what_the_card_had_or_the_limit_was(free: int, capacity: int) -> None:
    found = asked((model.SEGMENT_ALLOC, 0, 100 * MIB), (model.OOM, free, 30 * MIB))
    assert found.capacity_bytes == capacity
    assert told(found)[-1] == ("try", 30 * MIB)


def test_what_was_held_is_cut_from_its_segments_in_their_order() -> None:
    blocks = (
        Block(100 * MIB, 3 * MIB, 3 * MIB - 7, ALLOCATED),
        Block(107 * MIB, 2 * MIB, 2 * MIB, ALLOCATED),
    )
    segment = Segment(100 * MIB, 20 * MIB, 0, False, False, 0, blocks)
    trace = trace_of(
        (model.FREE_REQUESTED, 107 * MIB, 2 * MIB), (model.FREE_COMPLETED, 107 * MIB, 2 * MIB), segments=(segment,)
    )
    found = requests_of(trace, PLAIN, PLAIN)
    assert found.begins_as_recorded
    assert found.begin_reserved_bytes == 20 * MIB
    sizes = [number // MIB for kind, number in zip(found.kind, found.number, strict=True) if kind == play.ALLOC]
    assert sizes == [20, 3, 4, 2, 11]  # all of it; then its blocks, and between them what is free
    assert told(found)[-1] == ("free", 3)

    packed = requests_of(trace, PLAIN, AllocatorSettings(expandable_segments=True))
    assert not packed.begins_as_recorded
    assert told(packed) == [("alloc", 3 * MIB - 7), ("alloc", 2 * MIB), ("begin", 0), ("free", 1)]


SETTINGS = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    max_split_size_bytes=st.one_of(st.none(), st.integers(21, 4096).map(lambda size: size * MIB)),
    roundup_power2_divisions=st.one_of(
        st.just(()), st.lists(st.sampled_from([1, 2, 4, 8]), min_size=16, max_size=16).map(tuple)
    ),
    garbage_collection_threshold=st.sampled_from([0.0, 0.5, 0.8]),
)


@given(SETTINGS)
def test_settings_are_read_back_from_their_text_and_from_a_snapshot(settings: AllocatorSettings) -> None:
    assert parse_settings(settings.text()) == settings
    values = {
        **settings.for_rounding(),
        "expandable_segments": settings.expandable_segments,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
    }
    assert recorded_settings(values) == settings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "max_split_size_mb:big",
            "max_split_size_mb cannot be 'big': PyTorch takes a whole number from 20 on; write settings as "
            "PYTORCH_CUDA_ALLOC_CONF has them, such as",
        ),
        ("expandable_segments:maybe", "expandable_segments cannot be 'maybe': PyTorch takes True or False;"),
        ("max_split_size_mb:10", "max_split_size_mb cannot be '10': PyTorch takes a whole number from 20 on;"),
        ("max_split_size_mb:-5", "max_split_size_mb cannot be '-5': PyTorch takes a whole number from 20 on;"),
        ("garbage_collection_threshold:3", "garbage_collection_threshold cannot be '3': PyTorch takes a number "),
        ("roundup_power2_divisions:3", "roundup_power2_divisions cannot be '3': PyTorch takes a power of two,"),
        ("roundup_power2_divisions:[256:1,>:6]", "roundup_power2_divisions cannot be '[256:1,>:6]'"),
        ("backend:cudaMallocAsync", "backend:cudaMallocAsync is no setting that dryfit can replay a recording under"),
        ("expandable segments", "'expandable segments' are no settings of PyTorch's allocator"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(text)
    assert str(caught.value).startswith(sentence)


def test_settings_that_move_no_block_are_passed_over() -> None:
    assert parse_settings("PYTORCH_CUDA_ALLOC_CONF=pinned_num_register_threads:8,backend:native") == PLAIN

"""Whether addresses can have decided anything: never no where they did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from tests.recording.test_replay import OPERATIONS, ran

from dryfit.recording import model
from dryfit.recording.model import DeviceTrace, Events
from dryfit.rehearse.allocator_settings import AllocatorSettings
from dryfit.rehearse.requests import requests_of
from dryfit.rehearse.retrace import AllocatorProcess, allocator_process
from dryfit.rehearse.ties import go_by_address, may_decide
from dryfit.virtual_card import CardSettings
from dryfit.virtual_card.settings import ADDRESS_ORDERS

MIB = 1 << 20
PLAIN = AllocatorSettings()


@pytest.fixture(scope="module")
def process() -> Iterator[AllocatorProcess]:
    with allocator_process() as started:
        yield started


def trace_of(*events: tuple[int, int, int], starts_empty: bool = True) -> DeviceTrace:
    """Of kinds, addresses and sizes in MiB."""
    columns = Events()
    for kind, address, size in events:
        for name, value in (("kind", kind), ("address", address * MIB), ("size", size * MIB)):
            getattr(columns, name).append(value)
        for name in ("stream", "pool", "stack", "time_us"):
            getattr(columns, name).append(0)
    return DeviceTrace(device=0, events=columns, starts_empty=starts_empty)


def segment(address: int, size: int) -> tuple[int, int, int]:
    return model.SEGMENT_ALLOC, address, size


def alloc(address: int, size: int) -> tuple[int, int, int]:
    return model.ALLOC, address, size


def free(address: int) -> tuple[int, int, int]:
    return model.FREE_COMPLETED, address, 0


TWO_SEGMENTS = (segment(100, 20), alloc(100, 15), segment(200, 20), alloc(200, 15))


def test_two_rests_of_one_size_in_two_segments_are_a_tie() -> None:
    assert may_decide(trace_of(*TWO_SEGMENTS, alloc(115, 2)))
    assert not may_decide(trace_of(*TWO_SEGMENTS))  # nobody asked for one


def test_rests_of_different_sizes_are_none() -> None:
    rests = (segment(100, 20), alloc(100, 15), segment(200, 20), alloc(200, 14), alloc(115, 2))
    assert not may_decide(trace_of(*rests))


def test_whole_segments_may_change_places() -> None:
    emptied = (*TWO_SEGMENTS, free(100), free(200), alloc(100, 12))
    assert not may_decide(trace_of(*emptied))
    assert may_decide(trace_of(*emptied, alloc(200, 12), alloc(112, 3)))


def test_a_whole_segment_and_a_rest_of_its_size_may_not() -> None:
    mixed = (segment(100, 40), alloc(100, 20), segment(200, 20), alloc(200, 15), free(200), alloc(120, 12))
    assert may_decide(trace_of(*mixed))


def test_blocks_of_one_segment_stay_where_they_are_in_it() -> None:
    inside = (segment(100, 40), alloc(100, 8), alloc(108, 8), alloc(116, 8), alloc(124, 8), free(100), free(116))
    assert not may_decide(trace_of(*inside, alloc(100, 8)))


def test_what_is_given_back_joins_its_neighbours() -> None:
    pieces = (segment(100, 30), alloc(100, 10), alloc(110, 10), alloc(120, 10), segment(200, 30), alloc(200, 10))
    joined = (*pieces, free(100), free(120), free(110), free(200))  # both whole again, from above and below
    assert not may_decide(trace_of(*joined, alloc(100, 25), alloc(200, 25)))
    assert may_decide(trace_of(*pieces, free(110), free(120), alloc(110, 20)))  # 20 MiB are left in the other, too


def test_segments_that_went_count_no_more() -> None:
    gone = (*TWO_SEGMENTS, free(200), (model.SEGMENT_FREE, 200, 20), alloc(115, 2))
    assert not may_decide(trace_of(*gone))


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(starts_empty=False),
        trace_of((model.SEGMENT_MAP, 100, 20)),
        trace_of(alloc(100, 4)),
    ],
    ids=["begins later", "expandable", "of no segment"],
)
def test_what_cannot_be_told_counts_as_yes(trace: DeviceTrace) -> None:
    assert may_decide(trace)


def test_garbage_goes_by_age() -> None:
    assert may_decide(trace_of(), {"garbage_collection_threshold": 0.5})
    assert not may_decide(trace_of(), {"garbage_collection_threshold": 0.0})


@pytest.mark.parametrize(
    ("torch", "by_address"),
    [("2.4.1+cu121", True), ("2.11.0+cu128", True), ("2.12.0", False), ("2.14.1+cu130", False), ("3.0.0", False)],
)
def test_the_version_says_what_ties_go_by(torch: str, by_address: bool) -> None:
    assert go_by_address(torch) is by_address


@given(OPERATIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_without_a_tie_all_orders_come_to_the_same(
    process: AllocatorProcess, operations: list[tuple[str, int]]
) -> None:
    trace = ran(operations).trace()
    if may_decide(trace):
        return
    requests = requests_of(trace, PLAIN, PLAIN)
    peaks = set()
    for order in ADDRESS_ORDERS:
        card = CardSettings(name="card", sm=80, sms=108, memory_bytes=1 << 40, order=order)
        played = process.play(requests, PLAIN, card=card)
        peaks.add((played.peak_allocated_bytes, played.peak_active_bytes, played.peak_reserved_bytes))
    assert len(peaks) == 1

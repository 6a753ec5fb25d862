"""What is reserved and not used, why, and why a request failed; the numbers people compare."""

from __future__ import annotations

from typing import Any

import pytest

from dryfit.analyse.block_map import block_map, segments_at
from dryfit.analyse.footprint import FailedRequest, Footprint
from dryfit.cards import find_card
from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Block,
    Mark,
    Segment,
)
from dryfit.recording.replay import replay

from .build import MIB
from .by_event import recording
from .by_label import footprint

A, B, C = 1 << 40, 2 << 40, 3 << 40
Row = tuple[int, int, int] | tuple[int, int, int, int]


def freed(address: int, size: int, *stream: int) -> tuple[Row, Row]:
    return (FREE_REQUESTED, address, size, *stream), (FREE_COMPLETED, address, size, *stream)  # type: ignore[return-value]


def halves(segment: int) -> tuple[Row, ...]:
    """A segment of 100 MiB with two holes of 40 MiB, and 20 MiB in use between them."""
    return (
        (SEGMENT_ALLOC, segment, 100 * MIB),
        (ALLOC, segment, 40 * MIB),
        (ALLOC, segment + 40 * MIB, 20 * MIB),
        (ALLOC, segment + 60 * MIB, 40 * MIB),
        *freed(segment, 40 * MIB),
        *freed(segment + 60 * MIB, 40 * MIB),
    )


def test_fragmentation_is_proved_by_figures() -> None:
    cached = footprint(recording(*halves(A), (SEGMENT_ALLOC, B, 60 * MIB), (ALLOC, B, 60 * MIB))).cached
    assert cached.event == 9
    assert (cached.reserved_bytes, cached.allocated_bytes, cached.cached_bytes) == (160 * MIB, 80 * MIB, 80 * MIB)
    assert (cached.whole_segments_bytes, cached.split_bytes) == (0, 80 * MIB)
    assert (cached.largest_hole_bytes, cached.largest_request_bytes) == (40 * MIB, 60 * MIB)
    assert cached.sentence == (
        "80.00 MiB of the 160.00 MiB that PyTorch holds at the peak of reserved memory are not in use: 80.00 MiB in "
        "holes between tensors that share segments. Reserved memory grew for a request of 60.00 MiB while 80.00 MiB "
        "lay free in pieces of at most 40.00 MiB: this is fragmentation. On a card that this fills, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can use at least 40.00 MiB of them."
    )


def test_holes_too_small_in_all_are_no_fragmentation() -> None:
    cached = footprint(recording(*halves(A), (SEGMENT_ALLOC, B, 90 * MIB), (ALLOC, B, 90 * MIB))).cached
    assert cached.sentence.endswith(
        "Reserved memory grew for a request of 90.00 MiB while 80.00 MiB lay free in pieces of at most 40.00 MiB: too "
        "little even together. On a card that this fills, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can use at "
        "least 40.00 MiB of them."
    )


def test_segments_without_tensors_come_back_by_themselves() -> None:
    cached = footprint(
        recording(
            *((SEGMENT_ALLOC, A, 100 * MIB), (ALLOC, A, 100 * MIB), *freed(A, 100 * MIB)),
            *((SEGMENT_ALLOC, B, 300 * MIB), (ALLOC, B, 300 * MIB)),
        )
    ).cached
    assert (cached.whole_segments_bytes, cached.split_bytes, cached.largest_hole_bytes) == (100 * MIB, 0, 100 * MIB)
    assert cached.sentence == (
        "100.00 MiB of the 400.00 MiB that PyTorch holds at the peak of reserved memory are not in use: 100.00 MiB in "
        "segments without any tensor, a cache of what was used before, which PyTorch gives back by itself before it "
        "runs out of memory. Reserved memory grew for a request of 300.00 MiB while 100.00 MiB lay free in pieces of "
        "at most 100.00 MiB: too little even together."
    )


def test_segments_in_pieces_come_back_too() -> None:
    """Two whole segments of 40 MiB do not serve a request of 60, but on a full card they are given back for it."""
    two = [row for at in (A, C) for row in ((SEGMENT_ALLOC, at, 40 * MIB), (ALLOC, at, 40 * MIB), *freed(at, 40 * MIB))]
    cached = footprint(recording(*two, (SEGMENT_ALLOC, B, 60 * MIB), (ALLOC, B, 60 * MIB))).cached
    assert cached.sentence.endswith(
        "Reserved memory grew for a request of 60.00 MiB while 80.00 MiB lay free in pieces of at most 40.00 MiB; on a "
        "full card PyTorch would have given back 80.00 MiB in whole segments first, so nothing is lost."
    )


def test_reserved_before_the_record_began() -> None:
    """What raised it is not known; the fullest moment shows what is never used."""
    final = (Segment(A, 100 * MIB, 0, False, False, 0, (Block(A, 100 * MIB, 0, "inactive"),)),)
    rows = ((ALLOC, A, 30 * MIB), (ALLOC, A + 30 * MIB, 40 * MIB), *freed(A + 30 * MIB, 40 * MIB), *freed(A, 30 * MIB))
    cached = footprint(recording(*rows, segments=final, starts_empty=False)).cached
    assert (cached.event, cached.allocated_bytes, cached.split_bytes) == (1, 70 * MIB, 30 * MIB)
    assert cached.sentence == (
        "30.00 MiB of the 100.00 MiB that PyTorch holds at the peak of reserved memory are not in use: 30.00 MiB in "
        "holes between tensors that share segments."
    )


def test_expandable_segments_are_not_named_where_holes_have_no_whole_page() -> None:
    rows = [(SEGMENT_ALLOC, A, 240 * MIB), *((ALLOC, A + at * 20 * MIB, 20 * MIB) for at in range(12))]
    holes = [row for at in range(0, 12, 2) for row in freed(A + at * 20 * MIB, 20 * MIB)]
    cached = footprint(recording(*rows, *holes, (SEGMENT_ALLOC, B, 100 * MIB), (ALLOC, B, 100 * MIB))).cached
    assert cached.sentence.endswith("while 120.00 MiB lay free in pieces of at most 20.00 MiB: this is fragmentation.")


def test_where_segments_are_not_known() -> None:
    found = footprint(recording((ALLOC, A, 30 * MIB), starts_empty=False))
    assert found.cached.sentence == (
        "The record does not say all that PyTorch holds from the card: of at least 30.00 MiB, 30.00 MiB are in use."
    )
    assert found.numbers[3].why == "At least the same; the record does not say what PyTorch caches."


def test_another_streams_cache_serves_nothing_here() -> None:
    cached = footprint(
        recording(
            *((SEGMENT_ALLOC, A, 100 * MIB, 7), (ALLOC, A, 100 * MIB, 7), *freed(A, 100 * MIB, 7)),
            *((SEGMENT_ALLOC, B, 60 * MIB), (ALLOC, B, 60 * MIB)),
        )
    ).cached
    assert cached.sentence.endswith(
        "Of this nothing could have served the request that raised it last, of 60.00 MiB: other streams, memory pools "
        "and sizes have memory of their own."
    )


def test_a_little_is_not_worth_a_word() -> None:
    cached = footprint(recording((SEGMENT_ALLOC, A, 100 * MIB), (ALLOC, A, 98 * MIB))).cached
    assert cached.sentence == (
        "Nothing is wrong: 2.00 MiB of the 100.00 MiB that PyTorch holds at the peak of reserved memory, 2.0%, are not "
        "in use."
    )


def test_every_byte_in_use() -> None:
    cached = footprint(recording((SEGMENT_ALLOC, A, 100 * MIB), (ALLOC, A, 100 * MIB))).cached
    assert cached.sentence == "PyTorch uses every byte it holds at the peak of reserved memory."


def out_of_memory(request_bytes: int, free_bytes: int, *rows: Row) -> Footprint:
    oom = (OOM, free_bytes, request_bytes)
    return footprint(recording(*rows, oom, marks=[Mark(0, 0, "setup"), Mark(5, 3, "backward")]))


def test_out_of_memory_by_fragmentation() -> None:
    found = out_of_memory(75 * MIB, 12 * MIB, *halves(A))
    sentence = (
        "The request that failed needs 75.00 MiB in one piece; 80.00 MiB lie free in PyTorch's segments in pieces of "
        "at most 40.00 MiB, and 12.00 MiB on the card. This is fragmentation: together they would do. The pieces are "
        "too small for expandable segments to help for certain (these move whole pages of 20.00 MiB); allocating the "
        "largest tensors first does, as by running the largest batch first."
    )
    assert found.out_of_memory == FailedRequest(
        event=8,
        step=3,
        phase="backward",
        requested_bytes=75 * MIB,
        free_bytes=12 * MIB,
        allocated_bytes=20 * MIB,
        reserved_bytes=100 * MIB,
        holes_bytes=80 * MIB,
        largest_hole_bytes=40 * MIB,
        sentence=sentence,
    )
    assert found.cached.sentence == sentence


def test_expandable_segments_are_advised_where_whole_pages_lie_free() -> None:
    # Holes of 40 MiB have at least one page of 20 MiB each, wherever it begins.
    found = out_of_memory(52 * MIB, 12 * MIB, *halves(A))
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence.endswith(
        "and 12.00 MiB on the card. This is fragmentation: together they would do. "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can put them together; rehearse with it."
    )


def test_out_of_memory_where_there_is_too_little() -> None:
    found = out_of_memory(512 * MIB, 12 * MIB, *halves(A))
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence.endswith(
        "Even in one piece that would be 420.00 MiB too little: fragmentation is not the cause, the program needs more "
        "than there is."
    )


def test_out_of_memory_with_nothing_free() -> None:
    found = out_of_memory(512 * MIB, 0)
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence.startswith(
        "The request that failed needs 512.00 MiB in one piece; nothing that could serve it lies free in PyTorch's "
        "segments, and 0 B on the card. Even in one piece that would be 512.00 MiB too little"
    )


def test_out_of_memory_by_the_programs_own_limit() -> None:
    found = out_of_memory(90 * MIB, 4096 * MIB, *halves(A))
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence.endswith(
        "4.00 GiB on the card. The card has enough: the program's own limit decided "
        "(torch.cuda.set_per_process_memory_fraction), or another process that took memory just then."
    )


@pytest.mark.parametrize(("request_mib", "free_mib", "segment"), [(3, 19, "20.00"), (1, 1, "2.00"), (11, 11, "12.00")])
def test_out_of_memory_with_less_than_a_segment_left(request_mib: int, free_mib: int, segment: str) -> None:
    found = out_of_memory(request_mib * MIB, free_mib * MIB)
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence.endswith(
        f"PyTorch takes whole segments from the card, here of {segment} MiB: it is full."
    )


def test_out_of_memory_beside_another_streams_holes() -> None:
    rows = [(*row, 7) for row in halves(A)]
    found = out_of_memory(75 * MIB, 12 * MIB, *rows)
    assert found.out_of_memory is not None
    assert found.out_of_memory.sentence == (
        "The request that failed needs 75.00 MiB in one piece; nothing that could serve it lies free in PyTorch's "
        "segments, and 12.00 MiB on the card. Even in one piece that would be 63.00 MiB too little. Another 80.00 MiB "
        "lie free where it cannot go: other streams, memory pools and sizes have memory of their own."
    )


def test_the_last_of_several_errors() -> None:
    found = footprint(recording((OOM, 0, 1 * MIB), (OOM, 5, 2 * MIB), (SEGMENT_ALLOC, A, 2 * MIB)))
    assert found.out_of_memory is not None
    assert (found.out_of_memory.event, found.out_of_memory.requested_bytes) == (1, 2 * MIB)


class TestSegments:
    """The segments at a moment: from the events on, and from the final state back."""

    rows = (
        (SEGMENT_ALLOC, A, 20 * MIB),
        (SEGMENT_MAP, B, 40 * MIB),
        (SEGMENT_MAP, B + 40 * MIB, 20 * MIB),
        (SEGMENT_UNMAP, B + 20 * MIB, 20 * MIB),
        (SEGMENT_FREE, A, 20 * MIB),
        (SEGMENT_MAP, B + 20 * MIB, 20 * MIB),
    )
    final = (Segment(B, 60 * MIB, 0, False, True, 0, (Block(B, 60 * MIB, 60 * MIB, "inactive"),)),)
    expected = (
        [],
        [(A, 20)],
        [(A, 20), (B, 40)],
        [(A, 20), (B, 60)],
        [(A, 20), (B, 20), (B + 40 * MIB, 20)],
        [(B, 20), (B + 40 * MIB, 20)],
        [(B, 60)],
    )

    @pytest.mark.parametrize("segments", [None, final], ids=["forward", "back"])
    def test_after_every_event(self, segments: tuple[Segment, ...] | None) -> None:
        trace = recording(*self.rows, segments=segments).devices[0]
        for state, expected in enumerate(self.expected, start=-1):
            found = [(each.start, (each.end - each.start) // MIB) for each in segments_at(trace, state)]
            assert found == expected, state

    def test_holes_of_an_expandable_segment(self) -> None:
        rows = ((SEGMENT_MAP, B, 40 * MIB), (ALLOC, B + 10 * MIB, 5 * MIB), (SEGMENT_MAP, C, 2 * MIB))
        trace = recording(*rows).devices[0]
        found = block_map(trace, replay(trace), 2, 42 * MIB)
        assert found.is_whole_truth
        assert [(each.address, each.size // MIB, each.is_whole) for each in found.holes] == [
            (B, 10, False),
            (B + 15 * MIB, 25, False),
            (C, 2, True),
        ]
        assert [each.block_pool.is_small for each in found.holes] == [False, False, True]


class TestNumbers:
    """From what tensors asked for to nvidia-smi."""

    rows = (
        (SEGMENT_ALLOC, A, 12 * MIB),
        (ALLOC, A, 11 * MIB - 100),
        (SEGMENT_ALLOC, B, 40 * MIB),
        (ALLOC, B, 30 * MIB),
        (FREE_REQUESTED, B, 30 * MIB),
        (SEGMENT_ALLOC, C, 40 * MIB),
        (ALLOC, C, 36 * MIB),
        (FREE_COMPLETED, B, 30 * MIB),
        *freed(C, 36 * MIB),
        (SEGMENT_ALLOC, C + 40 * MIB, 50 * MIB),
    )
    marks = (Mark(0, 0, "setup"), Mark(3, 1, "forward"), Mark(8, 2, "backward"))

    def found(self, about: dict[str, Any] | None = None) -> list[tuple[str, int, str]]:
        numbers = footprint(recording(*self.rows, marks=self.marks, about=about)).numbers
        return [(each.name, each.size_bytes, each.why) for each in numbers]

    def test_every_difference_has_its_reason(self) -> None:
        assert self.found()[:5] == [
            ("requested by tensors", 47 * MIB - 100, "What 2 allocations asked for."),
            (
                "allocated",
                48 * MIB,
                "100 B because sizes are rounded up to 512 bytes, and 1.00 MiB left over in blocks that the allocator "
                "did not split.",
            ),
            (
                "active",
                78 * MIB,
                "30.00 MiB of blocks that are freed, but wait until another stream is done with them.",
            ),
            (
                "reserved",
                92 * MIB,
                '14.00 MiB in holes between tensors ("inactive split"), which PyTorch caches.',
            ),
            (
                "reserved at its own peak",
                142 * MIB,
                "50.00 MiB more at another moment, in step 2, backward: PyTorch keeps what it took from the card, and "
                "takes more where nothing free is large enough.",
            ),
        ]

    def test_a_named_card(self) -> None:
        card = find_card("l4")
        name, size_bytes, why = self.found({"card": card.to_dict()})[-1]
        assert (name, size_bytes) == ("nvidia-smi", 142 * MIB + card.outside_bytes)
        assert "outside PyTorch's allocator: the CUDA context, its kernels and libraries on NVIDIA L4" in why
        assert why.endswith("This number decides whether it fits.")

    @pytest.mark.parametrize("about", [{}, {"card": None}, {"card": find_card("unlimited").to_dict()}])
    def test_no_card_named(self, about: dict[str, Any]) -> None:
        name, size_bytes, why = self.found(about)[-1]
        assert name == "nvidia-smi"
        assert 142 * MIB + 200 * MIB < size_bytes < 142 * MIB + 1024 * MIB
        assert "The card is not known" in why

    def test_nothing_differs(self) -> None:
        numbers = footprint(recording((SEGMENT_ALLOC, A, 20 * MIB), (ALLOC, A, 20 * MIB))).numbers
        assert [(each.name, each.size_bytes) for each in numbers[:4]] == [
            ("requested by tensors", 20 * MIB),
            ("allocated", 20 * MIB),
            ("active", 20 * MIB),
            ("reserved", 20 * MIB),
        ]
        assert [each.why for each in numbers[1:4]] == [
            "The same: every size is a multiple of 512 bytes.",
            "The same: no freed block waits for another stream.",
            "The same: nothing is cached.",
        ]

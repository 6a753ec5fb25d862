"""Settles a close call by a second rehearsal, at the other end of what may be outside PyTorch's allocator.

How much of a card a process holds outside the allocator is known within a margin. A peak close to the card's limit says
little by itself: the allocator keeps what it can, and gives cached memory back when it has to. So where the margin
could decide, the program is run again with the whole margin taken away (or, after an out-of-memory error, granted).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dryfit.cards import Card
from dryfit.rehearse import growth
from dryfit.rehearse.endings import EXIT_FITS, EXIT_INTERRUPTED, EXIT_LIMIT, OUT_OF_MEMORY, WHOLE
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, Result
from dryfit.rehearse.total import FIRST_BUCKETS, NCCL, has_to_fit_bytes
from dryfit.units import format_bytes


def needs(result: Result, card: Card) -> int | None:
    """The bytes to take outside the allocator in a second run; None where the first one settled it, or none can.

    None can say that a program fits which takes more with each step.
    """
    if result.card is None or not card.outside_margin_bytes or growth.of_result(result):
        return None
    too_much = has_to_fit_bytes(result.total_parts) > card.total_bytes
    if result.verdict == UNKNOWN and result.ending.how in WHOLE and too_much:
        return card.outside_bytes + more_outside_bytes(result)
    oom = result.out_of_memory
    if result.verdict != DOES_NOT_FIT or (oom is not None and oom.allowed_bytes < card.total_bytes):
        return None
    if oom is None or oom.requested_bytes - oom.free_bytes <= less_outside_bytes(result):
        return max(0, card.outside_bytes - less_outside_bytes(result))
    return None


def by(first: Result, second: Result) -> Result:
    """The first result, with the verdict that the second one allows."""
    less, more = format_bytes(less_outside_bytes(first)), format_bytes(more_outside_bytes(first))
    changed: dict[str, Any]
    if second.ending.how not in (*WHOLE, OUT_OF_MEMORY):
        note = f"A second run, to settle a close call, came to no answer: {second.ending.sentence}"
        code = EXIT_INTERRUPTED if second.exit_code == EXIT_INTERRUPTED else EXIT_LIMIT
        changed = {"verdict": UNKNOWN, "exit_code": code}
    elif first.verdict == DOES_NOT_FIT and second.verdict == DOES_NOT_FIT:
        note = f"It would not fit with {less} less outside PyTorch's allocator either: a second run said so."
        changed = {}
    elif first.verdict == DOES_NOT_FIT:
        note = f"With {less} less outside PyTorch's allocator than expected it would fit: a second run said so."
        changed = {"verdict": UNKNOWN, "exit_code": EXIT_LIMIT}
    elif second.verdict == DOES_NOT_FIT:
        note = (
            f"With {more} more outside PyTorch's allocator than expected it runs out of memory: a second run said so."
        )
        changed = {}
    else:
        note = f"It fits with {more} more outside PyTorch's allocator than expected, too: a second run said so."
        changed = {"verdict": FITS, "exit_code": EXIT_FITS}
    verdict = changed.get("verdict", first.verdict)
    changed["ranks"] = [  # those as close as the one that decides are settled with it
        dataclasses.replace(rank, verdict=verdict) if rank.verdict == first.verdict else rank for rank in first.ranks
    ]
    seconds = round(first.wall_seconds + second.wall_seconds, 3)
    return dataclasses.replace(first, notes=[note, *first.notes], wall_seconds=seconds, **changed)


def less_outside_bytes(result: Result) -> int:
    """By how much less a process may have outside the allocator than is expected."""
    assert result.card is not None
    of_context: int = result.card["outside_bytes"] - result.card["outside_low_bytes"]
    return of_context + sum(part.expected_bytes - part.low_bytes for part in result.total_parts if part.what == NCCL)


def more_outside_bytes(result: Result) -> int:
    """By how much more."""
    assert result.card is not None
    of_context: int = result.card["outside_margin_bytes"]
    found = [part for part in result.total_parts if part.what in (NCCL, FIRST_BUCKETS)]
    return of_context + sum(part.high_bytes - part.expected_bytes for part in found)

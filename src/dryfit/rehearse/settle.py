"""Settles a close call by a second rehearsal, at the other end of what may be outside PyTorch's allocator.

How much of a card a process holds outside the allocator is known within a margin. A peak close to the card's limit says
little by itself: the allocator keeps what it can, and gives cached memory back when it has to. So where the margin
could decide, the program is run again with the whole margin taken away (or, after an out-of-memory error, granted).
"""

from __future__ import annotations

import dataclasses

from dryfit.cards import Card
from dryfit.rehearse.endings import EXIT_FITS, EXIT_LIMIT, WHOLE
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, Result
from dryfit.units import format_bytes


def needs(result: Result, card: Card) -> int | None:
    """The bytes to take outside the allocator in a second run; None where the first one settled it."""
    if result.card is None or not card.outside_margin_bytes:
        return None
    if result.verdict == UNKNOWN and result.ending.how in WHOLE and result.peak_total_bytes:
        return card.outside_bytes + card.outside_margin_bytes
    oom = result.out_of_memory
    if result.verdict == DOES_NOT_FIT and oom is not None:
        lacking_bytes = oom.requested_bytes - oom.free_bytes
        if lacking_bytes <= card.outside_margin_bytes:
            return max(0, card.outside_bytes - card.outside_margin_bytes)
    return None


def by(first: Result, second: Result) -> Result:
    """The first result, with the verdict that the second one allows."""
    margin = format_bytes(first.peak_total_range_bytes["high"] - first.peak_total_range_bytes["expected"])
    if first.verdict == DOES_NOT_FIT:
        if second.verdict == DOES_NOT_FIT:
            return first
        note = f"With {margin} less outside PyTorch's allocator than expected it would fit: a second run said so."
        return dataclasses.replace(first, verdict=UNKNOWN, exit_code=EXIT_LIMIT, notes=[note, *first.notes])
    if second.ending.how in WHOLE:
        note = f"It fits with {margin} more outside PyTorch's allocator than expected, too: a second run said so."
        return dataclasses.replace(first, verdict=FITS, exit_code=EXIT_FITS, notes=[note, *first.notes])
    note = f"With {margin} more outside PyTorch's allocator than expected it runs out of memory: a second run said so."
    return dataclasses.replace(first, notes=[note, *first.notes])

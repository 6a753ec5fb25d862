"""Which allocations a page leaves out when a recording has more than it can carry, and the sentence that says so."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from dryfit.recording.replay import Lifetimes
from dryfit.units import format_bytes

# The first to go are those that live within about one pixel of the whole picture.
_PIXELS = 1000


class Thinned(NamedTuple):
    """The allocations to show, by their place in the lifetimes, and what was left out, in words ("" if nothing was)."""

    kept: list[int]
    sentence: str


def thin(lifetimes: Lifetimes, events: int, exact_at: Iterable[int], keep_at_most: int) -> Thinned:
    """Leave out small and short-lived allocations until no more than `keep_at_most` are left.

    What is allocated after one of the events `exact_at`, and what was never freed, always stays: there the picture is
    exact, and nowhere is it too high.
    """
    count = len(lifetimes)
    if count <= keep_at_most:
        return Thinned(list(range(count)), "")
    candidates = _not_allocated_at(lifetimes, events, sorted(set(exact_at)))
    begin, end, size = lifetimes.begin, lifetimes.end, lifetimes.block_bytes
    within, wanted = max(1, events // _PIXELS), min(count - keep_at_most, len(candidates))
    short = [place for place in candidates if end[place] - begin[place] <= within]
    while len(short) < wanted:
        within *= 2
        short = [place for place in candidates if end[place] - begin[place] <= within]
    if not short:
        return Thinned(list(range(count)), "")
    largest = sorted(size[place] for place in short)[wanted - 1]
    left_out = [place for place in short if size[place] <= largest]
    gone = bytearray(count)
    for place in left_out:
        gone[place] = 1
    return Thinned(
        [place for place in range(count) if not gone[place]],
        f"{len(left_out):,} of {count:,} allocations are left out of both pictures: blocks of at most "
        f"{format_bytes(largest)} that were freed within {within:,} events. None of them was allocated at the peak of "
        f"the run or of a step, so the peaks are exact; elsewhere the picture is too low by "
        f"{format_bytes(_most_at_once(lifetimes, left_out))} at most.",
    )


def _not_allocated_at(lifetimes: Lifetimes, events: int, exact_at: list[int]) -> list[int]:
    found = []
    for place, (begin, end) in enumerate(zip(lifetimes.begin, lifetimes.end, strict=True)):
        if end < events:
            following = bisect_left(exact_at, begin)
            if following == len(exact_at) or exact_at[following] >= end:
                found.append(place)
    return found


def _most_at_once(lifetimes: Lifetimes, places: list[int]) -> int:
    changes = [(lifetimes.begin[place], lifetimes.block_bytes[place]) for place in places]
    changes += [(lifetimes.end[place], -lifetimes.block_bytes[place]) for place in places]
    most = held = 0
    for _, change in sorted(changes):  # of changes in one event, the frees come first
        held += change
        most = max(most, held)
    return most

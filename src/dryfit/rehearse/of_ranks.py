"""Results of several ranks of one world -> the result of the one that decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dryfit.rehearse.result import DOES_NOT_FIT, FITS, RankPeak, Result


def worst_of(results: Sequence[Result]) -> Result:
    """The result of the rank that decides, with the peaks of all of them.

    That is one that does not fit, or else one whose answer is not known, or else the one that takes most. They took as
    long as all of them together.
    """
    if len(results) == 1:
        return results[0]
    worst = max(results, key=lambda each: (_how_bad(each), each.peak_total_bytes, each.peak_allocated_bytes))
    ranks = [
        RankPeak(
            rank=result.world.rank,
            verdict=result.verdict,
            peak_allocated_bytes=result.peak_allocated_bytes,
            peak_reserved_bytes=result.peak_reserved_bytes,
            peak_total_bytes=result.peak_total_bytes,
            sent_bytes=sum(each.sent_bytes for each in result.communication.values()),
        )
        for result in results
        if result.world is not None
    ]
    seconds = round(sum(result.wall_seconds for result in results), 3)
    return dataclasses.replace(worst, ranks=ranks, wall_seconds=seconds)


def _how_bad(result: Result) -> int:
    return {FITS: 0, DOES_NOT_FIT: 2}.get(result.verdict, 1)

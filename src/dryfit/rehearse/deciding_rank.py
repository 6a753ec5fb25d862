"""Results of several ranks of one world -> the result of the one that decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dryfit.rehearse.endings import EXIT_INTERRUPTED, WHOLE
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, RankPeak, Result, sent_bytes_of


def worst_of(results: Sequence[Result]) -> Result:
    """The result of the rank that decides, with the peaks of all of them.

    That is one that was interrupted, or else one that does not fit, or has no answer, as after an error of its own, or
    one that is too close to call, or else the one that takes most. They took as long as all of them together.
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
            sent_bytes=sent_bytes_of(result.communication),
        )
        for result in results
        if result.world is not None
    ]
    seconds = round(sum(result.wall_seconds for result in results), 3)
    return dataclasses.replace(worst, ranks=ranks, wall_seconds=seconds)


def _how_bad(result: Result) -> int:
    if result.exit_code == EXIT_INTERRUPTED:
        return 4
    if result.verdict == DOES_NOT_FIT:
        return 3
    if result.ending.how not in WHOLE:
        return 2
    return 0 if result.verdict == FITS else 1

"""Results of several ranks of one world -> the result of the one that decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dryfit.rehearse.endings import EXIT_INTERRUPTED, OUT_OF_MEMORY, WHOLE, names_of_ranks
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, RankPeak, Result, sent_bytes_of


def worst_of(results: Sequence[Result]) -> Result:
    """The result of the rank that decides, with the peaks of all of them.

    That is one that was interrupted, or else one that does not fit, or has no answer, as after an error of its own, or
    one that is too close to call, or else the one that takes most. One that ended without using a card decides only
    where all did. How any other rank ended without an answer is a note. They took as long as all of them together.
    """
    if len(results) == 1:
        return dataclasses.replace(results[0], notes=[*results[0].notes, *_note_on_others(results[0])])
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
    others = [result for result in results if result is not worst]
    return dataclasses.replace(worst, ranks=ranks, wall_seconds=seconds, notes=[*_notes_on(others), *worst.notes])


def _how_bad(result: Result) -> int:
    if result.exit_code == EXIT_INTERRUPTED:
        return 5
    if result.verdict == DOES_NOT_FIT:
        return 4
    if result.ending.how not in WHOLE:
        return 3
    if not result.peak_total_bytes:
        return 0
    return 1 if result.verdict == FITS else 2


def _note_on_others(result: Result) -> list[str]:
    """That a rank which has played alone is one of several, where its world is the one that was asked for."""
    world, has_figures = result.world, result.peak_total_bytes and result.ending.how in (*WHOLE, OUT_OF_MEMORY)
    if world is None or world.size < 2 or result.ranks or result.world_notes or not has_figures:
        return []
    sees = "also sees the last one" if world.rank == 0 else "sees the first and the last"
    return [f"Only rank {world.rank} was rehearsed; --ranks 0,last {sees}, whose shards may differ."]


def _notes_on(results: Sequence[Result]) -> list[str]:
    """What became of ranks that have no figures, or only those of a part of the program."""
    failed: dict[str, list[int]] = {}
    unused: list[int] = []
    for result in results:
        if result.world is not None and result.ending.how not in WHOLE:
            failed.setdefault(result.ending.sentence, []).append(result.world.rank)
        elif result.world is not None and not result.peak_total_bytes:
            unused.append(result.world.rank)
    notes = [f"{names_of_ranks(ranks)}: {sentence}" for sentence, ranks in failed.items()]
    return [*notes, f"{names_of_ranks(unused)} used no card."] if unused else notes

"""Ranks that ran together, each as a process of its own, and the peaks of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dryfit.rehearse.endings import names_of_ranks
from dryfit.rehearse.processes import Process
from dryfit.rehearse.result import RankPeak, sent_bytes_of
from dryfit.rehearse.total import Part, range_of
from dryfit.rehearse.world import World


def ranks_among(processes: Sequence[Process]) -> list[Process]:
    """The processes that are ranks, by number; none where there is one only. Of two of one number the first counts."""
    by_rank: dict[int, Process] = {}
    for process in processes:
        if process.rank is not None:
            by_rank.setdefault(process.rank, process)
    return [by_rank[rank] for rank in sorted(by_rank)] if len(by_rank) > 1 else []


def notes_on_idle(ranks: Sequence[Process]) -> list[str]:
    """A sentence on those that used no card, where others did."""
    idle = [process.rank for process in ranks if not process.used_peak_bytes and not process.ooms]
    return [f"{names_of_ranks(idle)} used no card."] if 0 < len(idle) < len(ranks) else []


def world_of_ranks(main: Process | None, ranks: Sequence[Process]) -> World | None:
    """The rank that the figures are of, and in which world."""
    if main is None or main.rank is None or not ranks:
        return None
    return World(size=main.ranks, rank=main.rank)


def peaks_of_ranks(
    ranks: Sequence[Process], parts_of: Mapping[int, Sequence[Part]], verdicts: Mapping[int, str]
) -> list[RankPeak]:
    """The peaks of each; its parts and its verdict are those of its process number."""
    return [
        RankPeak(
            rank=process.rank if process.rank is not None else -1,
            verdict=verdicts[process.pid],
            peak_allocated_bytes=process.allocated_bytes,
            peak_reserved_bytes=process.reserved_bytes,
            peak_total_bytes=range_of(parts_of[process.pid])["expected"],
            sent_bytes=sent_bytes_of(process.communication),
        )
        for process in ranks
    ]

"""Searches in several worlds, of programs whose memory is a formula."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dryfit.errors import UsageError
from dryfit.search.found import Fit

from .simulated import GIB, Simulated, number_after, result_of

Search = Callable[..., Fit]


def sharded(more_on_last: int = 0) -> Simulated:
    """30 GiB over all ranks, and one for each sample."""

    def rehearse(words: list[str], *, world: int = 1, nodes: int = 1, ranks: str = "0", **options: object) -> object:
        extra = more_on_last if ranks == "last" else 0
        need = 30 * GIB // world + number_after(words, "--batch") * GIB + extra
        return result_of(words, need, **options)  # type: ignore[arg-type]

    return Simulated(rehearse)  # type: ignore[arg-type]


def test_the_smallest_world_that_fits_and_the_accumulation(search: Search) -> None:
    found = search(sharded(), world=[4, 1, 2], effective=64)
    assert [(each.world, each.largest, each.rank) for each in found.answers] == [(1, None, 0), (2, 8, 0), (4, 15, 0)]
    assert [each.world for each in found.smallest_worlds] == [2]
    assert found.exit_code == 0
    split = found.answers[1].effective
    assert split is not None
    assert (split.micro, split.accumulation, split.gpus) == (8, 4, 2)


def test_the_last_rank_decides_where_it_takes_more(search: Search) -> None:
    (answer,) = search(sharded(2 * GIB), world=[2]).answers
    assert (answer.largest, answer.rank, answer.beyond) == (6, 1, 7)


def test_bad_worlds_are_named(search: Search) -> None:
    with pytest.raises(UsageError, match=r"--world 0: a world has 1 to 1048576 ranks, one for each card\."):
        search(sharded(), world=[2, 0])

"""Searches in several worlds, of programs whose memory is a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.search.found import Fit

from .simulated import GIB, MIB, Simulated, failure, number_after, result_of

Search = Callable[..., Fit]


def sharded(more_on_last: int = 0, *, too_big_on_first: Sequence[int] = (), refused: Sequence[int] = ()) -> Simulated:
    """30 GiB over all ranks, and one for each sample; the first rank has no room for some numbers of samples."""

    def rehearse(words: list[str], *, world: int = 1, nodes: int = 1, ranks: str = "0", **options: Any) -> Any:
        if world in refused:
            return failure(words, gpu=options["gpu"], message=f"{world} ranks make no mesh")
        batch = number_after(words, "--batch")
        extra = more_on_last if ranks == "last" else 100 * GIB if batch in too_big_on_first else 0
        return result_of(words, 30 * GIB // world + batch * GIB + extra, **options)

    return Simulated(rehearse)


def asked(simulated: Simulated) -> list[tuple[int, int, str, int]]:
    """World, nodes, ranks and batch of each rehearsal that was run, in order."""
    return [
        (options["world"], options["nodes"], options["ranks"], number_after(words, "--batch"))
        for words, options in simulated.calls
    ]


def test_the_smallest_world_that_fits_and_the_accumulation(search: Search) -> None:
    found = search(sharded(), world=[4, 1, 2], effective=64)
    assert [(each.world, each.largest, each.rank) for each in found.answers] == [(1, None, 0), (2, 8, 0), (4, 15, 0)]
    assert [each.world for each in found.smallest_worlds] == [2]
    assert found.exit_code == 0
    split = found.answers[1].effective
    assert split is not None
    assert (split.micro, split.accumulation, split.gpus) == (8, 4, 2)


def test_the_last_rank_decides_where_it_takes_more_and_the_first_is_rehearsed_with_the_same(search: Search) -> None:
    program = sharded(2 * GIB)
    (answer,) = search(program, world=2).answers
    assert (answer.largest, answer.rank, answer.beyond) == (6, 1, 7)
    first, last = answer.first_rank, answer.last_rank
    assert first is not None
    assert last is not None
    assert (first.value, last.value, first.kind) == (6, 6, "fits")
    assert last.peak_total_bytes - first.peak_total_bytes == 2 * GIB
    assert {ranks for _, _, ranks, batch in asked(program) if batch == 6} == {"0", "last"}


def test_what_surely_fits_does_so_on_the_rank_that_decides(search: Search) -> None:
    """Of 100 MiB that may be outside beyond the expected, 47 leaves 126 MiB on the first rank, and 96 on the last."""
    card = find_card("rtx-3090")
    assert card.outside_margin_bytes == 100 * MIB

    def rehearse(words: list[str], *, world: int, nodes: int, ranks: str, **options: Any) -> Any:
        left_bytes = (50 - number_after(words, "--batch")) * 32 * MIB + (0 if ranks == "last" else 30 * MIB)
        return result_of(words, card.usable_bytes - left_bytes, **options)

    (answer,) = search(Simulated(rehearse), world=2, vary={"batch": [47, 50]}).answers
    assert (answer.largest, answer.surely, answer.rank) == (50, None, 1)
    assert [trial.value for trial in answer.trials] == [50]  # the last rank's


def test_what_the_last_rank_leaves_has_to_fit_on_the_first_too(search: Search) -> None:
    (answer,) = search(sharded(2 * GIB, too_big_on_first=[6]), world=2).answers
    assert (answer.largest, answer.rank) == (5, 1)
    assert answer.first_rank is not None
    assert (answer.first_rank.value, answer.first_rank.kind) == (5, "fits")


def test_a_world_that_the_program_refuses_is_no_lack_of_memory(search: Search) -> None:
    found = search(sharded(refused=[3]), world=[2, 3])
    assert [(each.world, each.largest, each.why_none) for each in found.answers] == [(2, 8, None), (3, None, "failed")]
    assert ([each.world for each in found.smallest_worlds], found.exit_code) == ([2], 0)
    assert found.answers[1].trials[0].error == "ValueError: 3 ranks make no mesh"
    assert search(sharded(refused=[3]), world=[3]).exit_code == 2


def test_another_world_or_another_number_of_machines_is_another_rehearsal(search: Search) -> None:
    first = search(sharded(), world=4)
    assert (first.from_cache, first.nodes) == (0, None)
    for other in ({"world": 2}, {"world": 4, "nodes": 2}, {}):
        assert search(sharded(), **other).from_cache == 0
    again = search(sharded(), world=4)
    assert (again.rehearsals, again.from_cache) == (0, first.rehearsals)


def test_each_world_is_on_machines_of_eight_cards_or_as_many_as_asked(search: Search) -> None:
    program = sharded()
    search(program, world=[16, 64])
    assert {(world, nodes) for world, nodes, _, _ in asked(program)} == {(16, 2), (64, 8)}
    program = sharded()
    search(program, world=[4, 16], nodes=4)
    assert {(world, nodes) for world, nodes, _, _ in asked(program)} == {(4, 4), (16, 4)}


def test_it_is_saved_and_read_back(search: Search, tmp_path: Path) -> None:
    found = search(sharded(2 * GIB), world=[1, 2], nodes=1, effective=64, longest="p99", steps=5)
    assert found.options == {"longest": "p99", "steps": 5}
    found.save(tmp_path / "found.json")
    assert Fit.load(tmp_path / "found.json") == found


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"world": [2, 0]}, r"--world 0: a world has 1 to 1048576 ranks, one for each card\."),
        ({"world": 0}, r"--world 0: a world has 1 to 1048576 ranks, one for each card\."),
        (
            {"world": [4, 8], "nodes": 3},
            r"--world 4 --nodes 3: 4 ranks cannot be shared out equally among 3 nodes; every node has as many cards as "
            r"the others\.",
        ),
        (
            {"nodes": 2},
            r"--nodes says how many machines share a world: give its number of ranks, as in --world 8\.",
        ),
        (
            {"world": 8, "gpus": 2, "effective": 64},
            r"--gpus 2 and --world both say how many cards share the batch; leave out --gpus\.",
        ),
        (
            {"world": [2, 4], "cards": 4},
            r"--cards 4 --world 2,4: the world says how many cards there are; leave one out",
        ),
        (
            {"world": [8, 64], "effective": 32},
            r"--effective 32 cannot be split over --world 64: each rank needs at least 1\.",
        ),
    ],
)
def test_bad_worlds_are_named(search: Search, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        search(sharded(), **options)

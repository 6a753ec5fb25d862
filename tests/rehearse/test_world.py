"""The words of `--world`, `--nodes` and `--ranks`, and what a rank is told; no torch."""

from __future__ import annotations

import pytest

from dryfit.errors import UsageError
from dryfit.rehearse.world import World, ranks_of, world_of


@pytest.mark.parametrize(
    ("size", "nodes", "expected"), [(1, 1, 1), (8, 1, 8), (12, 1, 12), (16, 2, 8), (64, 8, 8), (20, 1, 20)]
)
def test_machines_have_eight_cards_where_eight_divide_the_world(size: int, nodes: int, expected: int) -> None:
    world = world_of(size)
    assert (world.nodes, world.cards_of_a_node) == (nodes, expected)


def test_a_rank_is_told_what_torchrun_would_tell_it() -> None:
    variables = world_of(12, nodes=3).with_rank(6).variables()
    told = {
        name: variables[name]
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    }
    assert told == {
        "RANK": "6", "WORLD_SIZE": "12", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0", [0]), ("last", [7]), ("0,last", [0, 7]), ("2-4,3", [2, 3, 4]), ("6-last", [6, 7]), ("all", list(range(8)))],
)
def test_ranks_in_words(text: str, ranks: list[int]) -> None:
    assert ranks_of(text, World(size=8)) == ranks


@pytest.mark.parametrize(
    ("size", "nodes", "sentence"),
    [
        (0, None, "--world 0: a world has 1 to 1048576 ranks, one for each card."),
        (-3, None, "--world -3: a world has 1 to 1048576 ranks, one for each card."),
        (
            10,
            4,
            "--world 10 --nodes 4: 10 ranks cannot be shared out equally among 4 nodes; every node has as many "
            "cards as the others.",
        ),
        (
            8,
            0,
            "--world 8 --nodes 0: 8 ranks cannot be shared out equally among 0 nodes; every node has as many "
            "cards as the others.",
        ),
        (
            128,
            1,
            "--world 128 --nodes 1: a node would have 128 cards, and 64 is the most; say with --nodes how many "
            "machines there are.",
        ),
    ],
)
def test_no_such_world(size: int, nodes: int | None, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        world_of(size, nodes)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8", "--ranks 8: there is no rank 8 in a world of 8; they are numbered from 0 to 7."),
        ("first", "--ranks first: 'first' is no rank; write numbers, `last` or `all`, as in --ranks 0,last."),
        ("", "--ranks : '' is no rank; write numbers, `last` or `all`, as in --ranks 0,last."),
        ("5-2", "--ranks 5-2: 5-2 ends before it begins."),
        ("-1", "--ranks -1: '-1' is no rank; write numbers, `last` or `all`, as in --ranks 0,last."),
    ],
)
def test_no_such_rank(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        ranks_of(text, World(size=8))
    assert str(refused.value) == sentence

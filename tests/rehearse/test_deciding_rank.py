"""Which of several ranks, each rehearsed alone, the result is of; no program runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.results import MIB, PLAIN_RESULT

import dryfit
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.child import Request
from dryfit.rehearse.deciding_rank import worst_of
from dryfit.rehearse.endings import EXIT_FITS, EXIT_INTERRUPTED, EXIT_USAGE
from dryfit.rehearse.limits import INTERRUPTED
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, Communication, Ending, Result
from dryfit.rehearse.world import World
from dryfit.virtual_card import CardSettings

WHOLE, FAILED = Ending(how="steady", sentence=""), Ending(how="raised", sentence="")


def rank(number: int, verdict: str, peak_bytes: int, ending: Ending = WHOLE, exit_code: int = EXIT_FITS) -> Result:
    return dataclasses.replace(
        PLAIN_RESULT,
        verdict=verdict,
        peak_total_bytes=peak_bytes,
        ending=ending,
        exit_code=exit_code,
        wall_seconds=1.5,
        world=World(size=4, rank=number),
        communication={
            "all-reduce": Communication(calls=1, payload_bytes=4, sent_bytes=6),
            "broadcast": Communication(calls=1, payload_bytes=number, sent_bytes=number),
        },
    )


@pytest.mark.parametrize(
    ("others", "decides"),
    [
        ([rank(1, FITS, 3 * MIB), rank(2, FITS, 2 * MIB)], 1),
        ([rank(1, FITS, 3 * MIB), rank(2, UNKNOWN, MIB)], 2),  # too close to call
        ([rank(1, UNKNOWN, 3 * MIB), rank(2, UNKNOWN, MIB, FAILED, EXIT_USAGE)], 2),  # without a card, or too close
        ([rank(1, DOES_NOT_FIT, MIB), rank(2, UNKNOWN, 3 * MIB, FAILED, EXIT_USAGE)], 1),
        ([rank(1, UNKNOWN, 0, exit_code=EXIT_USAGE)], 0),  # which used no card
        ([rank(1, UNKNOWN, 0, FAILED, EXIT_USAGE)], 1),
        ([rank(1, UNKNOWN, MIB, Ending(how=INTERRUPTED, sentence=""), 130), rank(2, DOES_NOT_FIT, 3 * MIB)], 1),
    ],
)
def test_the_rank_that_decides(others: list[Result], decides: int) -> None:
    results = [rank(0, FITS, 2 * MIB), *others]
    found = worst_of(results)
    assert found.world == World(size=4, rank=decides)
    assert [(each.rank, each.verdict, each.sent_bytes) for each in found.ranks] == [
        (number, result.verdict, 6 + number) for number, result in enumerate(results)
    ]
    assert found.wall_seconds == 1.5 * len(results)
    assert found.exit_code == results[decides].exit_code


def test_what_became_of_the_other_ranks_is_said() -> None:
    failed = Ending(how="raised", sentence="train.py failed.")
    unused = [rank(number, UNKNOWN, 0, exit_code=EXIT_USAGE) for number in (1, 3)]
    found = worst_of([rank(0, DOES_NOT_FIT, MIB), unused[0], rank(2, UNKNOWN, MIB, failed, EXIT_USAGE), unused[1]])
    assert found.notes == ["Rank 2: train.py failed.", "Ranks 1 and 3 used no card."]
    assert worst_of(unused).world == World(size=4, rank=1)
    assert worst_of(unused).exit_code == EXIT_USAGE


def test_one_rank_alone_is_said_to_be_one_of_several() -> None:
    first = rank(0, FITS, MIB)
    assert worst_of([first]).notes == [
        "Only rank 0 was rehearsed; --ranks 0,last also sees the last one, whose shards may differ."
    ]
    assert worst_of([rank(3, FITS, MIB)]).notes == [
        "Only rank 3 was rehearsed; --ranks 0,last sees the first and the last, whose shards may differ."
    ]
    alone = [
        dataclasses.replace(first, world=World(size=1)),
        dataclasses.replace(first, world=None),
        dataclasses.replace(first, world_notes=["The program never made a process group."]),
        dataclasses.replace(first, ranks=worst_of([first, rank(1, FITS, MIB)]).ranks),  # real ranks, together
        dataclasses.replace(first, ending=FAILED),
        dataclasses.replace(first, peak_total_bytes=0),
    ]
    assert [worst_of([result]).notes for result in alone] == [[]] * len(alone)


def test_after_ctrl_c_no_further_rank_begins(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("")
    begun: list[int] = []

    def interrupted(request: Request, card: CardSettings) -> Observed:
        assert request.world is not None
        begun.append(request.world.rank)
        stopped_by = INTERRUPTED if len(begun) == 2 else None
        return Observed(
            program=["train.py"], processes=[], status=0, signal=None, stopped_by=stopped_by, limit="",
            crash_place=None, wall_seconds=1.0, devices=8, total_bytes=0, notes=[], recordings={},
        )  # fmt: skip

    found = dryfit.run([str(program)], gpu="l4", world=8, ranks="all", figures_only=True, run=interrupted)
    assert begun == [0, 1]
    assert found.exit_code == EXIT_INTERRUPTED
    assert found.world == World(size=8, rank=1)

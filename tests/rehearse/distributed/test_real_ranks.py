"""Several real ranks in one result, and which of them failed first: events in, a result out; no process, no torch."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.rehearse.test_assemble import CARD, ERROR, OOM, events, result_of, step

from dryfit.rehearse import settle
from dryfit.rehearse.inside.rank import Rank
from dryfit.rehearse.result import RankPeak

GIB = 1 << 30
SAYS_MORE = "Its own output above says more."


def rank(number: int, *steps: dict[str, Any], ranks: int = 3, at: float = 0.0, **end: Any) -> list[dict[str, Any]]:
    """The events of one rank on a card of its own; `how=None` is for one that left no last word."""
    most = max((used for one in steps for _, _, used in one["phases"].values()), default=0)
    no_nccl = dict.fromkeys(("nccl_low_bytes", "nccl_expected_bytes", "nccl_high_bytes"), 0)
    device = {"device": number, "board": number, "most_used_bytes": most, **no_nccl}
    found = events(*steps, pid=10 + number, at=at, devices=[device], **end)
    found.insert(2, {"event": "rank", "rank": number, "ranks": ranks})
    return found


def failed(kind: str, message: str, file: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"type": kind, "is_out_of_memory": False, "message": message, "file": file, "line": line}


def launcher(kind: str, message: str = "", **exit_codes: int) -> list[dict[str, Any]]:
    """What started the ranks, and the exit codes that it knows of: `r1=3` for that of rank 1."""
    children = [{"pid": 10 + int(name[1:]), "exit_code": code} for name, code in exit_codes.items()]
    found = events(pid=9)
    found[-1]["error"] = {**failed(kind, message), "children": children}
    return found


def test_every_rank_is_listed_and_the_one_that_takes_most_decides() -> None:
    ranks = [rank(number, step(1, backward=size)) for number, size in ((2, 50), (0, 70), (1, 90))]
    result = result_of(*ranks, devices=3)
    assert result.world is not None
    assert (result.world.size, result.world.rank) == (3, 1)
    assert result.peak_allocated_bytes == 90
    assert result.ranks == [
        RankPeak(
            rank=number,
            verdict="fits",
            peak_allocated_bytes=size,
            peak_reserved_bytes=size + 100,
            peak_total_bytes=size + 200 + CARD.outside_bytes,
        )
        for number, size in ((0, 70), (1, 90), (2, 50))
    ]
    assert result.notes == ["3 ranks ran together, each on a card of its own; the figures are those of rank 1."]
    assert [process["rank"] for process in result.processes] == [1, 0, 2]


def test_ranks_that_used_no_card_are_named() -> None:
    used = [rank(number, step(1, backward=70)) for number in (0, 2)]
    assert result_of(*used, rank(1), devices=3).notes[-1] == "Rank 1 used no card."
    result = result_of(used[0], rank(1), rank(2), devices=3)
    assert (result.verdict, result.notes) == ("fits", ["Ranks 1 and 2 used no card."])
    assert result_of(rank(0), rank(1), devices=3).notes == []


def test_of_ranks_that_are_alike_the_first_decides() -> None:
    result = result_of(*(rank(number, step(1, backward=70)) for number in (2, 1, 0)), devices=3)
    assert result.world is not None
    assert result.world.rank == 0


def test_where_one_rank_runs_out_of_memory_nothing_is_known_of_the_others() -> None:
    small = rank(1, step(1, backward=GIB))
    small[-1]["error"] = {**ERROR, "file": "train.py", "line": 4}
    result = result_of(rank(0, step(1, backward=2 * GIB)), [*small[:-1], OOM, small[-1]], status=1, devices=3)
    assert (result.verdict, result.exit_code) == ("does not fit", 1)
    assert [(each.rank, each.verdict) for each in result.ranks] == [(0, "unknown"), (1, "does not fit")]
    assert result.ending.sentence == "Rank 1 ran out of memory (train.py:4)."


def test_a_second_run_settles_all_ranks_that_were_as_close() -> None:
    close = CARD.usable_bytes - 200
    first = result_of(rank(0, step(1, backward=close)), rank(1, step(1, backward=close)), devices=3)
    assert [each.verdict for each in first.ranks] == ["unknown", "unknown"]
    second = result_of(rank(0, step(1, backward=70)), rank(1, step(1, backward=70)), devices=3)
    settled = settle.by(first, second)
    assert [each.verdict for each in settled.ranks] == [settled.verdict] * 2 == ["fits", "fits"]


WAITED = "NCCL error\nLast error:\nrank {} waits for rank {}, whose process has ended; look at that rank's output."


def waiting(number: int, awaited: int, *, at: float) -> list[dict[str, Any]]:
    error = failed("DistBackendError", WAITED.format(number, awaited), "train.py", 20)
    found = rank(number, step(1, backward=90), at=at)
    found[-1]["error"] = error
    return found


def test_the_first_error_in_time_counts() -> None:
    first = rank(2, step(1, backward=50), at=5.0)
    first[-1]["error"] = failed("ValueError", "no such batch\nmore", "train.py", 12)
    later = waiting(0, 2, at=5.2)
    result = result_of(later, first, rank(1, step(1, backward=90), how=None), status=1, devices=3)
    assert (
        result.ending.sentence
        == f"Rank 2 failed after 1 optimiser step: ValueError: no such batch (train.py:12). {SAYS_MORE}"
    )
    assert (result.ending.how, result.exit_code, result.ending.file) == ("raised", 2, "train.py")


def test_who_waited_in_vain_names_who_was_gone() -> None:
    """Rank 0 waits for rank 1, which waited for rank 2, which had ended of its own accord."""
    gone = rank(2, step(1, backward=50), at=5.0)
    result = result_of(waiting(0, 1, at=5.3), waiting(1, 2, at=5.4), gone, status=1, devices=3)
    assert result.ending.sentence == "Rank 2 ended after 1 optimiser step, and rank 1 waited for it (train.py:20)."


@pytest.mark.parametrize(
    ("codes", "sentence"),
    [
        ({"r1": 3}, f"Rank 1 ended with status 3, after 1 optimiser step. {SAYS_MORE}"),
        (
            {"r0": -signal.SIGTERM, "r1": -signal.SIGKILL, "r2": -signal.SIGTERM},
            "Rank 1 was killed after 1 optimiser step with SIGKILL; the kernel does that when this machine's memory is "
            "used up.",
        ),
        (
            {"r1": -signal.SIGSEGV},
            "Rank 1 crashed after 1 optimiser step with SIGSEGV (model.py:7). If it runs on a real card, the virtual "
            "one is at fault: please report it with the program.",
        ),
    ],
)
def test_what_started_the_ranks_knows_of_one_that_said_nothing(codes: dict[str, int], sentence: str) -> None:
    ranks = [rank(number, step(1, backward=90), how=None) for number in range(3)]
    told = launcher("ChildFailedError", **codes)
    result = result_of(told, *ranks, status=1, devices=3, crash_place=("model.py", 7))
    assert result.ending.sentence == sentence


def test_an_error_that_a_spawned_rank_left_as_text() -> None:
    text = "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
    text += '  File "/home/me/train.py", line 12, in main\n    raise ValueError("bad")\nValueError: bad: batch\n'
    told = launcher("ProcessRaisedException", text, r1=1)
    ranks = [rank(number, how=None) if number else rank(0, step(1, backward=90)) for number in range(3)]
    result = result_of(told, *ranks, status=1, devices=3)
    assert (result.ending.error_type, result.ending.error_message) == ("ValueError", "bad: batch")
    assert result.ending.sentence == (
        "Rank 1 failed before its first optimiser step: ValueError: bad: batch (/home/me/train.py:12). " + SAYS_MORE
    )


def test_a_limit_says_who_was_behind_or_did_not_wait() -> None:
    stopped = {"stopped_by": "time limit", "limit": "60 seconds", "status": None, "devices": 3}
    start = "train.py was stopped after 1 optimiser step, at the limit of 60 seconds; --seconds sets another."
    ahead = rank(0, step(1, backward=90), step(2, backward=90))
    behind = [rank(number, step(1, backward=95)) for number in (1, 2)]
    result = result_of(ahead, *behind, **stopped)
    assert result.ending.sentence == f"{start} Ranks 1 and 2 were behind, after 1 optimiser step."
    stuck = [rank(number, step(1, backward=90), how=None) for number in (0, 2)]
    result = result_of(behind[0], *stuck, **stopped)
    assert result.ending.sentence == f"{start} Ranks 0 and 2 were waiting in a call, rank 1 was not."
    result = result_of(*behind, **stopped)
    assert result.ending.sentence == start


def test_one_rank_alone_is_no_list() -> None:
    result = result_of(rank(0, step(1, backward=90)))
    assert (result.ranks, result.world, result.notes) == ([], None, [])


def becomes(folder: Path, number: int, told: list[tuple[int, int]], *, alone: bool = False) -> Rank:
    """A process that has made its process group, as one of two ranks."""
    c10d = ModuleType("distributed_c10d")
    c10d.init_process_group = lambda: None  # type: ignore[attr-defined]
    c10d.get_rank, c10d.get_world_size = lambda: number, lambda: 2  # type: ignore[attr-defined]
    rank = Rank(str(folder), lambda *numbers: told.append(numbers), alone=alone)
    rank.watch(c10d)
    c10d.init_process_group()
    return rank


def test_ranks_stop_where_all_have_seen_enough_after_the_same_step(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    one, other = becomes(tmp_path, 0, told), becomes(tmp_path, 1, told)
    assert told == [(0, 2), (1, 2)]
    assert not other.all_have_seen_enough(1, this_one=False)
    assert not one.all_have_seen_enough(1, this_one=True)  # the other goes on, and needs it
    assert not one.all_have_seen_enough(2, this_one=False)
    assert not other.all_have_seen_enough(2, this_one=True)
    one.ends()  # by itself, so that nobody is to wait for it
    assert other.all_have_seen_enough(3, this_one=True)


def test_steps_before_the_process_group_count_too(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    one, other = becomes(tmp_path, 0, told), becomes(tmp_path, 1, told)
    assert not other.all_have_seen_enough(5, this_one=False)
    began = time.monotonic()
    assert not one.all_have_seen_enough(5, this_one=True)
    assert time.monotonic() - began < 10  # the patience with one that has not come so far is 60


def test_a_rank_alone_asks_nobody(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    assert becomes(tmp_path, 0, told, alone=True).all_have_seen_enough(1, this_one=True)
    assert told == []
    assert list(tmp_path.iterdir()) == []

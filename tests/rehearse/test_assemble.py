"""Events in, a result out: no process, no torch."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import Card, find_card
from dryfit.errors import UsageError
from dryfit.rehearse import settle
from dryfit.rehearse.assemble import Observed, assemble
from dryfit.rehearse.events import EventFolder, EventWriter, Orders
from dryfit.rehearse.result import Result
from dryfit.report.text import verdict_line

MIB, GIB = 1 << 20, 1 << 30
CARD = find_card("rtx-4090")


def step(number: int, **phases: int) -> dict[str, Any]:
    """A step's peaks; each phase has allocated, and reserved and used a little above it."""
    return {"step": number, "phases": {name: [n, n + 100, n + 200] for name, n in phases.items()}}


def events(*steps: dict[str, Any], how: str | None = "finished", pid: int = 7, **end: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"event": "python", "pid": pid},
        {"event": "torch", "versions": {"torch": "2.14.1"}},
        *({"event": "step", "seconds": 0.5, **one} for one in steps if one["step"]),
    ]
    if how is not None:
        found.append({"event": "end", "how": how, "error": None, "steps": list(steps), **end})
    return found


def observed(*processes: list[dict[str, Any]], **changes: Any) -> Observed:
    plain = Observed(
        program=["train.py"],
        processes=processes,
        status=0,
        signal=None,
        stopped_by=None,
        limit="",
        crash_place=None,
        wall_seconds=1.0,
        devices=1,
        total_bytes=CARD.total_bytes,
        notes=[],
        recordings={},
    )
    return dataclasses.replace(plain, **changes)


def result_of(*processes: list[dict[str, Any]], card: Card = CARD, named: bool = True, **changes: Any) -> Result:
    return assemble(observed(*processes, **changes), card, card_was_named=named)


def test_the_peak_is_the_highest_of_all_phases_and_its_first_step() -> None:
    run = events(step(0, setup=50), step(1, forward=300, backward=900), step(2, backward=900))
    result = result_of(run)
    assert (result.peak_allocated_bytes, result.peak_reserved_bytes) == (900, 1000)
    assert (result.peak_step, result.peak_phase) == (1, "backward")
    assert result.peak_total_bytes == 1100 + CARD.outside_bytes
    assert result.peak_total_range_bytes["high"] - result.peak_total_bytes == CARD.outside_margin_bytes
    assert [(peak.step, peak.seconds) for peak in result.step_peaks] == [(0, None), (1, 0.5), (2, 0.5)]


def test_without_a_last_word_the_finished_steps_count() -> None:
    result = result_of(events(step(1, backward=900), how=None), status=None, signal=9)
    assert (result.steps, result.peak_allocated_bytes) == (1, 900)
    assert result.ending.how == "crashed"
    assert "The process left no last word" in result.notes[0]


def test_the_process_with_most_of_the_card_gives_the_figures() -> None:
    small, large = events(step(1, backward=5), pid=1), events(step(1, backward=9), pid=2)
    launcher = events(step(0, setup=0), pid=3)
    launcher[-1]["steps"] = []
    result = result_of(launcher, small, large, devices=2)
    assert [process["pid"] for process in result.processes] == [2, 1]
    assert result.peak_allocated_bytes == 9
    assert result.peak_total_bytes == 209 + CARD.outside_bytes
    assert result.notes == ["2 processes used a card; the figures are those of the one that took most."]


def test_processes_that_share_a_card_are_added_up() -> None:
    half = CARD.usable_bytes // 2
    one, other = events(step(1, backward=half), pid=1), events(step(1, backward=half), pid=2)
    result = result_of(one, other)
    assert result.peak_total_bytes == 2 * (half + 200 + CARD.outside_bytes)
    assert (result.verdict, result.exit_code) == ("unknown", 3)
    assert "They share one card" in result.notes[0]
    assert result_of(one, other, devices=2).verdict == "fits"


def test_a_process_that_was_told_to_stop_without_a_limit_is_no_whole_run() -> None:
    small, large = events(step(1, backward=5), how="steady"), events(step(1, backward=9), how="told to stop")
    result = result_of(small, large, status=None)
    assert (result.verdict, result.exit_code, result.ending.how) == ("unknown", 3, "fell silent")


def test_an_out_of_memory_error_in_a_smaller_process_does_not_fit() -> None:
    parent, worker = events(step(1, backward=900)), events(step(0, setup=0), how=None, pid=8)
    parent[-1]["error"] = {**ERROR, "type": "ProcessRaisedException", "is_out_of_memory": False}
    result = result_of(parent, [*worker, {**OOM, "steps_done": 0, "step": 0}], status=1)
    assert (result.verdict, result.exit_code) == ("does not fit", 1)
    assert result.ending.sentence == "train.py ended with status 1 after an out-of-memory error in the setup."


def test_a_need_without_a_card_names_those_that_hold_it() -> None:
    result = result_of(events(step(1, backward=20 * GIB)), card=find_card("unlimited"), named=False)
    assert result.verdict == "unknown"
    assert result.exit_code == 0
    assert "rtx-3090" in result.fits_on
    assert "t4" in result.does_not_fit_on
    assert result.peak_total_range_bytes["low"] < result.peak_total_bytes < result.peak_total_range_bytes["high"]


def test_a_close_call_asks_for_a_second_run_with_the_margin_taken() -> None:
    result = result_of(events(step(1, backward=CARD.usable_bytes - 1000)))
    assert (result.verdict, result.exit_code) == ("unknown", 3)
    assert settle.needs(result, CARD) == CARD.outside_bytes + CARD.outside_margin_bytes
    again = result_of(events(step(1, backward=CARD.usable_bytes - 1000 - CARD.outside_margin_bytes)))
    settled = settle.by(result, again)
    assert (settled.verdict, settled.exit_code) == ("fits", 0)
    assert settled.peak_allocated_bytes == result.peak_allocated_bytes


def test_a_clear_answer_asks_for_no_second_run() -> None:
    assert settle.needs(result_of(events(step(1, backward=900))), CARD) is None


OOM = {
    "event": "oom",
    "step": 2,
    "steps_done": 1,
    "phase": "forward",
    "requested_bytes": 5 * GIB,
    "free_bytes": GIB,
    "allowed_bytes": CARD.total_bytes,
    "allocated_bytes": GIB,
    "reserved_bytes": GIB,
    "file": "train.py",
    "line": 9,
}
ERROR = {
    "type": "OutOfMemoryError",
    "is_out_of_memory": True,
    "message": "CUDA out of memory.",
    "file": None,
    "line": None,
}


def test_an_uncaught_out_of_memory_does_not_fit() -> None:
    run = events(step(1, backward=900))
    run[-1]["error"] = ERROR
    result = result_of([*run[:-1], OOM, run[-1]], status=1)
    assert (result.verdict, result.exit_code) == ("does not fit", 1)
    assert result.out_of_memory is not None
    assert not result.out_of_memory.caught
    assert result.out_of_memory.message == "CUDA out of memory."
    assert settle.needs(result, CARD) is None  # 4 GiB short: no margin would have helped


def test_an_out_of_memory_the_margin_could_have_prevented_asks_for_a_second_run() -> None:
    run = events(step(1, backward=900))
    run[-1]["error"] = ERROR
    close = {**OOM, "requested_bytes": GIB + 1000}
    result = result_of([*run[:-1], close, run[-1]], status=1)
    assert settle.needs(result, CARD) == CARD.outside_low_bytes
    assert settle.by(result, result_of(events(step(1, backward=900)))).verdict == "unknown"
    assert settle.by(result, result).verdict == "does not fit"


@pytest.mark.parametrize(("how", "code"), [("interrupted", 130), ("time limit", 3), ("host memory", 3)])
def test_a_second_run_that_was_stopped_settles_nothing(how: str, code: int) -> None:
    first = result_of(events(step(1, backward=CARD.usable_bytes - 1000)))
    second = result_of(events(step(1, backward=9), how="told to stop"), stopped_by=how, limit="9 s", status=None)
    settled = settle.by(first, second)
    assert (settled.verdict, settled.exit_code) == ("unknown", code)
    assert settled.notes[0].startswith("A second run, to settle a close call, came to no answer: train.py was stopped")
    assert settled.wall_seconds == 2.0


@pytest.mark.parametrize(
    ("how", "limit", "sentence"),
    [
        ("time limit", "9 seconds", "train.py was stopped after 1 optimiser step, at the limit of 9 seconds;"),
        ("host memory", "2.00 GiB", "it held more than 2.00 GiB of this machine's memory;"),
        ("interrupted", "", "train.py was stopped after 1 optimiser step, by Ctrl-C."),
    ],
)
def test_a_limit_is_named(how: str, limit: str, sentence: str) -> None:
    result = result_of(events(step(1, backward=900), how="told to stop"), stopped_by=how, limit=limit, status=None)
    assert sentence in result.ending.sentence
    assert result.verdict == "unknown"
    assert result.exit_code == (130 if how == "interrupted" else 3)


def test_what_can_change_the_bytes_comes_first_among_the_unknowns() -> None:
    invention = {
        "what": "item of float32", "answer": "1.0", "decides_size": False, "count": 9,
        "file": "train.py", "line": 3, "source": "loss.item()", "through": None, "to_change": "",
    }  # fmt: skip
    calls = {"cusolverDnSgetrf_bufferSize": 2, "cudaSomething": 1}
    run = events(step(1, backward=9), unfaithful_calls=calls, inventions=[invention])
    found = result_of(run).unknowns
    assert [(unknown.kind, unknown.decides_size) for unknown in found] == [
        ("memory", True), ("value", False), ("call", False),
    ]  # fmt: skip


def test_a_result_is_saved_and_read_back(tmp_path: Path) -> None:
    run = events(step(1, backward=900))
    run[-1]["error"] = ERROR
    result = result_of([*run[:-1], OOM, run[-1]], status=1)
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result
    newer = json.loads(result.to_json())
    newer["added_later"] = newer["ending"]["added_later"] = 1
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    assert Result.load(tmp_path / "newer.json") == result


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema_version": "x"}', '{"schema_version": 1}', "\x00"])
def test_what_is_no_result_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"x\.json is not a saved result of dryfit run"):
        Result.load(tmp_path / "x.json")


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema_version": 99}')
    with pytest.raises(UsageError, match="has schema version 99, and this dryfit knows up to 1; read it with"):
        Result.load(tmp_path / "x.json")


def test_events_are_read_as_they_grow_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    assert folder.read() == []
    writer = EventWriter(str(tmp_path))
    writer.write("python", pid=1)
    assert [event["event"] for event in folder.read()[0]] == ["python"]
    writer.write("end", how="steady")
    path = next(tmp_path.glob("*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert [event["event"] for event in folder.read()[0]] == ["python"]
    assert not folder.one_saw_enough()
    path.write_bytes(whole)
    assert folder.one_saw_enough()
    assert folder.seconds_silent() < 5


def test_orders_pass_through_the_environment() -> None:
    orders = Orders(folder="/tmp/a b", steps=0, values=False, skip_weights=True)
    assert Orders.from_text(orders.to_text()) == orders


def test_a_limit_of_the_programs_own_is_named_and_asks_for_no_second_run() -> None:
    run = events(step(1, backward=900))
    run[-1]["error"] = ERROR
    own = {**OOM, "requested_bytes": GIB + 1000, "allowed_bytes": 2 * GIB}
    result = result_of([*run[:-1], own, run[-1]], status=1)
    assert settle.needs(result, CARD) is None
    assert "The program's own limit decided: it allows itself 2.00 GiB" in result.notes[0]


def test_memory_that_grows_with_every_step_is_no_fit() -> None:
    run = events(*(step(n, backward=n * GIB) for n in range(1, 21)), how="most steps")
    result = result_of(run)
    assert (result.verdict, result.exit_code) == ("unknown", 3)
    assert verdict_line(result) == (
        "UNKNOWN on NVIDIA GeForce RTX 4090: took 20.45 GiB of 23.52 GiB, and about 1.00 GiB more with each step"
    )
    assert result.notes[0].startswith(
        "Each of the last steps took about 1.00 GiB more than the one before: the card would be full after about 3 "
        "more steps; something is kept"
    )
    assert settle.needs(result, CARD) is None
    nearly_full = CARD.usable_bytes - 1000
    close = events(*(step(n, backward=nearly_full - (20 - n) * 2 * MIB) for n in range(1, 21)), how="most steps")
    assert settle.needs(result_of(close), CARD) is None  # a second run has no other answer


def test_memory_that_moves_with_the_shapes_is_not_growth() -> None:
    run = events(*(step(n, backward=n % 3 * GIB) for n in range(1, 21)), how="most steps")
    result = result_of(run)
    assert result.verdict == "fits"
    assert "The steps' peaks did not settle" in " ".join(result.notes)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (11, "train.py crashed after 1 optimiser step with SIGSEGV. If it runs on a real card, the virtual one is at"),
        (9, "train.py was killed after 1 optimiser step with SIGKILL; the kernel does that when this machine's memory"),
        (15, "train.py was ended after 1 optimiser step by SIGTERM."),
    ],
)
def test_each_signal_in_words(number: int, sentence: str) -> None:
    result = result_of(events(step(1, backward=900), how=None), status=None, signal=number)
    assert result.ending.sentence.startswith(sentence)
    assert result.exit_code == 2


def test_steps_that_put_nothing_on_the_card() -> None:
    run = events({"step": 1, "phases": {"backward": [0, 0, 0]}}, how="most steps")
    nothing = result_of(run)
    assert nothing.exit_code == 2
    assert nothing.ending.sentence.startswith("train.py put nothing on the card in 1 optimiser step; check that it")
    assert "CUDA_VISIBLE_DEVICES" in nothing.ending.sentence


def test_a_process_without_addresses_says_nothing_of_the_card() -> None:
    run = events(step(1, backward=900), unfaithful_calls={"address space used up": 1})
    run[-1]["error"] = ERROR
    result = result_of([*run[:-1], OOM, run[-1]], status=1)
    assert (result.verdict, result.exit_code) == ("unknown", 3)
    assert result.unknowns[0].decides_size
    assert "look for a limit on virtual memory (ulimit -v)" in " ".join(result.notes)

"""The whole search, of programs whose memory is a formula."""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import cards_that_fit, find_card
from dryfit.errors import DryfitError, UnknownCard, UsageError
from dryfit.rehearse.result import Ending, Result
from dryfit.search.found import Fit

from .simulated import GIB, MIB, Simulated, failure, number_after, result_of, takes

Search = Callable[..., Fit]
CARD = find_card("rtx-3090")


def gib_for_each(words: list[str]) -> int:
    return 2 * GIB + number_after(words, "--batch") * GIB


def test_the_largest_batch_the_law_and_what_was_rehearsed(search: Search) -> None:
    program = takes(gib_for_each)
    found = search(program)
    (answer,) = found.answers
    assert (found.largest, answer.surely, answer.beyond) == (21, 21, 22)
    assert found.exit_code == 0
    assert (found.searched, found.lowest, found.highest) == ("batch", 1, 4096)
    assert [trial.kind for trial in answer.trials] == [
        "fits" if trial.value < 22 else "too big" for trial in answer.trials
    ]
    assert found.rehearsals == len(program.calls) == len(answer.trials)
    assert answer.law is not None
    assert answer.law.total is not None
    assert (answer.law.total.fixed_bytes, answer.law.total.per_sample_bytes) == (2 * GIB + CARD.outside_bytes, GIB)
    assert answer.law.total.points >= 4
    assert program.options["figures_only"]
    assert program.options["quiet"]


def test_a_search_is_saved_and_read_back(search: Search, tmp_path: Path) -> None:
    found = search(takes(gib_for_each), effective=64, gpus=2)
    found.save(tmp_path / "found.json")
    assert Fit.load(tmp_path / "found.json") == found
    with pytest.raises(UsageError, match="is not a saved search of dryfit fit"):
        Fit.load(tmp_path / "train.py")
    (tmp_path / "newer.json").write_text('{"schema_version": 99}')
    with pytest.raises(UsageError, match="has schema version 99, and this dryfit knows up to 1"):
        Fit.load(tmp_path / "newer.json")


def test_rows_and_cards_make_a_table(search: Search) -> None:
    program = takes(lambda words: GIB + number_after(words, "--batch") * number_after(words, "--seq") * MIB)
    found = search(program, "train.py --batch {batch} --seq {seq}", gpu=["rtx-3090", "t4"], vary={"seq": "512,1024"})
    table = {(answer.card["key"], answer.row["seq"]): answer.largest for answer in found.answers}
    assert table == {
        (key, seq): (find_card(key).usable_bytes - GIB) // (int(seq) * MIB)
        for seq in ("512", "1024")
        for key in ("rtx-3090", "t4")
    }
    assert [answer.card["key"] for answer in found.answers] == ["rtx-3090", "t4", "rtx-3090", "t4"]


def test_a_second_card_costs_less_since_the_first_says_where_to_look(search: Search) -> None:
    first = takes(gib_for_each)
    search(first, cache=False)
    both = takes(gib_for_each)
    found = search(both, gpu=["rtx-3090", "a100-40gb"], cache=False)
    assert [answer.largest for answer in found.answers] == [21, 37 - 1]
    on_second = [options for _, options in both.calls if options["gpu"] == "a100-40gb"]
    assert len(on_second) < len(first.calls)


def test_a_card_asked_for_by_two_names_is_one(search: Search) -> None:
    assert len(search(takes(gib_for_each), gpu=["rtx-3090", "RTX 3090"]).answers) == 1


def test_memory_to_leave_free_is_taken_from_the_card(search: Search) -> None:
    program = takes(gib_for_each)
    found = search(program, reserve_bytes=3 * GIB)
    assert found.largest == 18
    assert {options["reserve_bytes"] for _, options in program.calls} == {3 * GIB}


def test_a_close_call_is_searched_again_with_the_whole_margin_taken(search: Search) -> None:
    """40 MiB each: the last two or three lie within the margin of 100 MiB."""
    program = takes(lambda words: number_after(words, "--batch") * 40 * MIB)
    found = search(program)
    (answer,) = found.answers
    assert found.largest == CARD.usable_bytes // (40 * MIB)
    assert answer.surely == (CARD.usable_bytes - CARD.outside_margin_bytes) // (40 * MIB)
    strict = [words for words, options in program.calls if options["reserve_bytes"]]
    assert {options["reserve_bytes"] for _, options in program.calls} == {0, CARD.outside_margin_bytes}
    assert len(strict) <= 4


def test_a_reserve_as_large_as_the_margin_leaves_no_close_call(search: Search) -> None:
    found = search(
        takes(lambda words: number_after(words, "--batch") * 40 * MIB), reserve_bytes=CARD.outside_margin_bytes
    )
    assert found.answers[0].surely == found.largest
    assert not any(trial.is_close for trial in found.answers[0].trials)


def test_where_nothing_fits_the_smallest_card_that_would_is_rehearsed(search: Search) -> None:
    program = takes(lambda words: 30 * GIB + number_after(words, "--batch") * GIB)
    found = search(program)
    (answer,) = found.answers
    assert (answer.largest, answer.why_none, found.exit_code) == (None, "too big", 1)
    assert answer.need is not None
    assert answer.need.peak_total_bytes == 31 * GIB + CARD.outside_bytes
    assert answer.need.card == cards_that_fit(31 * GIB).fits[0].key
    words, options = program.calls[-1]
    assert (number_after(words, "--batch"), options["gpu"]) == (1, answer.need.card)


def test_where_no_card_holds_the_smallest_that_is_said(search: Search) -> None:
    found = search(takes(lambda words: 900 * GIB))
    assert found.answers[0].need is not None
    assert found.answers[0].need.card is None


def test_an_effective_batch_is_split_by_a_micro_batch_that_was_rehearsed(search: Search) -> None:
    found = search(takes(gib_for_each), effective=512, gpus=2)
    (answer,) = found.answers
    assert answer.effective is not None
    assert (answer.effective.micro, answer.effective.accumulation, answer.effective.gpus) == (16, 16, 2)
    assert answer.effective.remainder == 0
    micro = answer.trial(16)
    assert micro is not None
    assert micro.kind == "fits"
    uneven = search(takes(gib_for_each), effective=500, gpus=3).answers[0].effective
    assert uneven is not None
    assert (uneven.micro, uneven.accumulation, uneven.remainder) == (21, 7, 59)


def test_a_failure_for_another_reason_is_not_called_out_of_memory(search: Search) -> None:
    def rehearse(words: list[str], **options: Any) -> Result:
        batch = number_after(words, "--batch")
        if batch % 8:
            return failure(words, gpu=options["gpu"], message="batch must be a multiple of 8")
        return result_of(words, gib_for_each(words), **options)

    (answer,) = search(Simulated(rehearse)).answers
    assert (answer.largest, answer.multiple_of) == (16, 8)
    seventeen = answer.trial(17)
    assert seventeen is not None
    assert (seventeen.kind, seventeen.error) == ("failed", "ValueError: batch must be a multiple of 8")


def test_a_program_that_always_fails(search: Search) -> None:
    found = search(Simulated(lambda words, **options: failure(words, gpu=options["gpu"])))
    assert (found.answers[0].why_none, found.exit_code) == ("failed", 2)
    broken = Simulated(lambda words, **options: failure(words, gpu=options["gpu"], error="SyntaxError"))
    search(broken, cache=False)
    assert len(broken.calls) == 2


def test_a_program_that_never_uses_the_card_is_not_tried_over_and_over(search: Search) -> None:
    ending = Ending(how="finished", sentence="train.py ended without putting anything on the card; check that it ...")
    program = Simulated(
        lambda words, **options: result_of(words, 0, ending=ending, peak_total_bytes=0, verdict="unknown", **options)
    )
    found = search(program)
    assert (found.answers[0].why_none, len(program.calls)) == ("failed", 2)


def test_an_error_that_the_program_catches_counts_as_too_big(search: Search) -> None:
    def rehearse(words: list[str], **options: Any) -> Result:
        result = result_of(words, gib_for_each(words), **options)
        return dataclasses.replace(result, ending=Ending(how="steady", sentence="Stopped."), verdict="fits")

    (answer,) = search(Simulated(rehearse)).answers
    assert answer.largest == 21
    assert [trial.is_caught for trial in answer.trials] == [trial.value > 21 for trial in answer.trials]


def test_a_limit_of_ours_is_an_answer_of_its_own(search: Search) -> None:
    ending = Ending(
        how="time limit", sentence="train.py was stopped after 1 optimiser step, at the limit of 5 seconds."
    )
    found = search(Simulated(lambda words, **options: result_of(words, GIB, ending=ending, **options)))
    assert (found.answers[0].why_none, found.exit_code) == ("stopped", 3)


def test_the_time_and_memory_of_this_machine_are_shared_by_the_jobs(search: Search) -> None:
    program = takes(gib_for_each)
    search(program, seconds=5, host_memory_bytes=8 * GIB, jobs=4)
    assert program.options["seconds"] == 5
    assert program.options["host_memory_bytes"] == 2 * GIB


def test_a_repeated_search_comes_from_the_cache(search: Search) -> None:
    first, again = takes(gib_for_each), takes(gib_for_each)
    found, repeated = search(first), search(again)
    assert again.calls == []
    assert (repeated.rehearsals, repeated.from_cache) == (0, found.rehearsals)
    assert all(trial.from_cache for trial in repeated.answers[0].trials)
    assert repeated.largest == found.largest
    anew = takes(gib_for_each)
    search(anew, cache=False)
    assert len(anew.calls) == found.rehearsals


@pytest.mark.parametrize("what", ["script", "steps", "reserve", "variable", "words"])
def test_whatever_decides_the_answer_is_in_the_key_of_the_cache(
    what: str, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(takes(gib_for_each))
    options: dict[str, Any] = {}
    words = "train.py --batch {batch}"
    if what == "script":
        (tmp_path / "train.py").write_text("print('changed')\n")
    elif what == "variable":
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    elif what == "words":
        words += " --amp"
    else:
        options = {"steps": 4} if what == "steps" else {"reserve_bytes": 1}
    again = takes(gib_for_each)
    assert search(again, words, **options).from_cache == 0
    assert again.calls


def test_progress_has_a_line_for_each_rehearsal_where_there_is_no_terminal(search: Search) -> None:
    out = io.StringIO()
    found = search(takes(gib_for_each), progress=out)
    lines = out.getvalue().splitlines()
    assert len(lines) == found.rehearsals
    assert "dryfit: batch 21 on rtx-3090: fits, 23.31 GiB (2.0 s)" in lines
    assert "dryfit: batch 22 on rtx-3090: too big (2.0 s)" in lines


def test_progress_is_one_line_on_a_terminal_and_gone_at_the_end(search: Search) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    search(takes(gib_for_each), progress=out)
    assert "\n" not in out.getvalue()
    assert "rehearsing batch " in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[2K")


def test_a_fault_of_one_rehearsal_ends_all_and_is_the_one_that_is_raised(search: Search) -> None:
    def rehearse(words: list[str], **options: Any) -> Result:
        if options["gpu"] == "t4":
            raise DryfitError("The hooks on torch failed.")
        time.sleep(0.05)
        return result_of(words, gib_for_each(words), **options)

    with pytest.raises(DryfitError, match="The hooks on torch failed"):
        search(Simulated(rehearse), gpu=["rtx-3090", "t4", "a100-40gb"])


def test_ctrl_c_stops_what_runs_and_starts_nothing_more(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python does it: the exception comes up in the main thread, which waits; rehearsals run in others."""
    import _thread

    begun = threading.Event()

    class Waits(Simulated):
        def _one(self, words: list[str], *, stop: threading.Event, **options: Any) -> Result:
            self.calls.append((tuple(words), options))
            if len(self.calls) == 2:
                _thread.interrupt_main()
            begun.set()
            assert stop.wait(10), "nobody said stop"
            return result_of(words, GIB, ending=Ending(how="interrupted", sentence="Stopped."), **options)

    program = Waits(lambda words, **options: result_of(words, GIB, **options))
    with pytest.raises(KeyboardInterrupt):
        search(program)
    assert begun.is_set()
    assert len(program.calls) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gpu": None}, "A search needs a card to fit on: name one or several with --gpu, as in --gpu l4,rtx-3090"),
        ({"gpu": "unlimited"}, "On the unlimited card everything fits; name the card to be filled: --gpu l4"),
        (
            {"reserve_bytes": 30 * GIB},
            "--reserve 30.00 GiB leaves nothing of NVIDIA GeForce RTX 3090, which has 23.25 GiB for a program; "
            "reserve less.",
        ),
        ({"gpus": 0}, "--gpus 0 is no number of cards; it has to be 1 or more."),
        ({"gpus": 2}, "--gpus 2 says over how many cards to split the batch of --effective; give that too."),
        ({"effective": 3, "gpus": 4}, "--effective 3 cannot be split over 4 cards: each needs at least 1."),
        ({"jobs": 0}, "--jobs 0 would rehearse nothing; it has to be 1 or more."),
        ({"seconds": 0}, "--seconds 0 leaves no time to run the program; give a number above 0."),
    ],
)
def test_options_that_make_no_sense_are_said_before_anything_is_run(
    search: Search, options: dict[str, Any], sentence: str
) -> None:
    program = takes(gib_for_each)
    with pytest.raises(UsageError) as raised:
        search(program, **options)
    assert str(raised.value) == sentence
    assert program.calls == []


def test_a_card_that_is_not_known(search: Search) -> None:
    with pytest.raises(UnknownCard, match="knows no card called 'rtx-3900'"):
        search(takes(gib_for_each), gpu=["rtx-3090", "rtx-3900"])


def test_the_card_of_the_environment_counts(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYFIT_GPU", "t4")
    assert search(takes(gib_for_each), gpu=None).answers[0].card["key"] == "t4"

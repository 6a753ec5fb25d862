"""What a search keeps of a rehearsal."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.plain import from_plain
from dryfit.rehearse.result import Ending, StepPeak, Unknown
from dryfit.rehearse.total import NCCL, Part
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG, Trial, trial_of

from .simulated import GIB, MIB, failure, result_of

CARD = find_card("rtx-3090")
ROOM, MARGIN, LESS = CARD.usable_bytes, CARD.outside_margin_bytes, CARD.outside_bytes - CARD.outside_low_bytes
WORDS = ["train.py"]


def ending(how: str, **fields: Any) -> Ending:
    return Ending(how=how, sentence=f"It ended: {how}.", **fields)


def test_what_fits_has_its_peaks_and_where_they_were() -> None:
    trial = trial_of(8, result_of(WORDS, 10 * GIB, gpu="rtx-3090"))
    assert (trial.value, trial.kind, trial.step, trial.phase, trial.is_close) == (8, FITS, 2, "backward", False)
    assert trial.peak_total_bytes == 10 * GIB + CARD.outside_bytes
    assert from_plain(Trial, trial.to_dict() | {"newer": 1}) == trial


def test_what_is_too_big_has_what_was_asked_for_and_free() -> None:
    trial = trial_of(8, result_of(WORDS, 30 * GIB, gpu="rtx-3090"))
    assert (trial.kind, trial.step, trial.phase) == (TOO_BIG, 1, "backward")
    assert (trial.requested_bytes, trial.free_bytes) == (30 * GIB, ROOM)
    assert (trial.is_close, trial.is_caught) == (False, False)


@pytest.mark.parametrize(
    ("need_bytes", "kind", "is_close"),
    [
        (ROOM - MARGIN, FITS, False),
        (ROOM - MARGIN + 1, FITS, True),
        (ROOM, FITS, True),
        (ROOM + 1, TOO_BIG, True),
        (ROOM + LESS, TOO_BIG, True),
        (ROOM + LESS + 1, TOO_BIG, False),
    ],
)
def test_close_is_what_the_margin_outside_the_allocator_could_turn(need_bytes: int, kind: str, is_close: bool) -> None:
    trial = trial_of(8, result_of(WORDS, need_bytes, gpu="rtx-3090"))
    assert (trial.kind, trial.is_close) == (kind, is_close)


def test_the_margin_of_a_rank_is_that_of_nccls_buffers_too() -> None:
    buffers = Part(what=NCCL, low_bytes=100 * MIB, expected_bytes=300 * MIB, high_bytes=900 * MIB)
    for need_bytes, is_close in ((ROOM - MARGIN - 600 * MIB, False), (ROOM - MARGIN - 600 * MIB + 1, True)):
        trial = trial_of(8, result_of(WORDS, need_bytes, gpu="rtx-3090", total_parts=[buffers]))
        assert (trial.margin_bytes, trial.margin_below_bytes) == (MARGIN + 600 * MIB, LESS + 200 * MIB)
        assert (trial.kind, trial.is_close) == (FITS, is_close)
    for need_bytes, is_close in ((ROOM + LESS + 200 * MIB, True), (ROOM + LESS + 200 * MIB + 1, False)):
        trial = trial_of(8, result_of(WORDS, need_bytes, gpu="rtx-3090", total_parts=[buffers]))
        assert (trial.kind, trial.is_close) == (TOO_BIG, is_close)


def test_a_reserve_as_large_as_the_margin_settles_it() -> None:
    for need_bytes in (ROOM - MARGIN, ROOM - MARGIN + 1):
        result = result_of(WORDS, need_bytes, gpu="rtx-3090", reserve_bytes=MARGIN)
        assert not trial_of(8, result, reserve_bytes=MARGIN).is_close


def test_a_limit_that_the_program_sets_itself_is_no_close_call() -> None:
    result = result_of(WORDS, ROOM + 1, gpu="rtx-3090")
    assert result.out_of_memory is not None
    own = dataclasses.replace(result.out_of_memory, allowed_bytes=CARD.total_bytes // 2)
    assert not trial_of(8, dataclasses.replace(result, out_of_memory=own)).is_close


def test_a_caught_error_is_too_big_whatever_the_program_did_then() -> None:
    trial = trial_of(8, result_of(WORDS, 30 * GIB, gpu="rtx-3090", ending=ending("steady"), verdict="fits"))
    assert (trial.kind, trial.is_caught) == (TOO_BIG, True)


@pytest.mark.parametrize("how", ["time limit", "host memory", "fell silent"])
def test_a_limit_of_ours_is_neither(how: str) -> None:
    assert trial_of(8, result_of(WORDS, GIB, gpu="rtx-3090", ending=ending(how))).kind == STOPPED


def test_running_out_of_addresses_is_a_limit_of_this_machine() -> None:
    assert trial_of(8, result_of(WORDS, 30 * GIB, gpu="rtx-3090", verdict="unknown")).kind == STOPPED


@pytest.mark.parametrize(
    ("error", "for_good"),
    [("ValueError", False), ("AssertionError", False), ("SyntaxError", True), ("ModuleNotFoundError", True)],
)
def test_a_failure_says_its_error_and_whether_another_value_could_help(error: str, for_good: bool) -> None:
    trial = trial_of(8, failure(WORDS, gpu="rtx-3090", error=error, message="batch % 8"))
    assert (trial.kind, trial.error, trial.for_good) == (FAILED, f"{error}: batch % 8", for_good)


@pytest.mark.parametrize(("status", "for_good"), [(2, True), (1, False)])
def test_a_status_without_an_error_is_for_good_where_it_is_that_of_wrong_arguments(status: int, for_good: bool) -> None:
    result = result_of(WORDS, 0, gpu="rtx-3090", ending=ending("raised", exit_status=status), peak_total_bytes=0)
    assert (trial_of(8, result).kind, trial_of(8, result).for_good) == (FAILED, for_good)


def test_a_program_that_puts_nothing_on_the_card_fails_for_good() -> None:
    result = result_of(WORDS, 0, gpu="rtx-3090", ending=ending("finished"), peak_total_bytes=0)
    assert (trial_of(8, result).kind, trial_of(8, result).for_good) == (FAILED, True)


def test_growth_and_unknown_sizes_are_kept() -> None:
    peaks = [
        StepPeak(step=n, peak_allocated_bytes=n * 50 * MIB, peak_reserved_bytes=0, peak_phase="forward", seconds=0.1)
        for n in range(1, 21)
    ]
    unknown = Unknown(kind="memory", what="workspaces", answer="0 bytes", decides_size=True, count=1)
    result = result_of(
        WORDS, GIB, gpu="rtx-3090", ending=ending("most steps"), step_peaks=peaks, unknowns=[unknown], verdict="unknown"
    )
    trial = trial_of(8, result)
    assert (trial.kind, trial.growth_bytes, trial.sizes_unknown, trial.is_close) == (FITS, 50 * MIB, True, False)

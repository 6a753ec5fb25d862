"""Predictions: which is compared with a row, and how they are made of a result and kept."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy import predictions, run

from dryfit.rehearse.result import Ending, Result, StepPeak, Unknown
from dryfit.rehearse.total import ADDRESSES, OUTSIDE, TAKEN, WORKSPACES, Part

from .made import prediction, row


def result(**changes: Any) -> Result:
    def part(what: str, low: int, expected: int, high: int) -> Part:
        return Part(what=what, low_bytes=low, expected_bytes=expected, high_bytes=high)

    values: dict[str, Any] = {
        "verdict": "fits",
        "card": None,
        "program": ["p.py"],
        "peak_allocated_bytes": 800,
        "peak_reserved_bytes": 1000,
        "peak_total_bytes": 1400,
        "peak_total_range_bytes": {"low": 1250, "expected": 1400, "high": 1630},
        "total_parts": [
            part(TAKEN, 1000, 1000, 1000),
            part(OUTSIDE, 300, 400, 500),
            part(WORKSPACES, -20, 0, 90),
            part(ADDRESSES, -30, 0, 40),
        ],
        "usable_bytes": None,
        "peak_step": 1,
        "peak_phase": "backward",
        "steps": 4,
        "ending": Ending(how="finished", sentence="It ended."),
        "wall_seconds": 2.0,
        "exit_code": 0,
        "workspaces": {"less_bytes": 5, "more_bytes": 7},
    }
    return Result(**{**values, **changes})


@pytest.mark.parametrize(
    ("metric", "low", "expected", "high"),
    [("allocated", 795, 800, 807), ("reserved", 950, 1000, 1130), ("total", 1250, 1400, 1630)],
)
def test_the_range_of_each_metric(metric: str, low: int, expected: int, high: int) -> None:
    made = run.prediction_of(row(metric=metric), result(), None)
    assert (made.low_bytes, made.expected_bytes, made.high_bytes) == (low, expected, high)


def test_after_the_peak_was_set_back_the_last_step_counts() -> None:
    steps = [
        StepPeak(step=step, peak_allocated_bytes=bytes_, peak_reserved_bytes=1000, peak_phase="backward")
        for step, bytes_ in enumerate((300, 800, 700))
    ]
    made = run.prediction_of(row(metric="allocated_in_last_step"), result(step_peaks=steps), None)
    assert (made.low_bytes, made.expected_bytes, made.high_bytes) == (695, 700, 707)


def test_ranks_of_worlds_are_rehearsed_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    kept: predictions.Predictions = {}
    monkeypatch.setattr(run, "warm_rehearsals", lambda *_, **__: nullcontext(Rehearsals(asked)))
    monkeypatch.setattr(run, "installed", lambda: "0.0.1")
    monkeypatch.setattr(predictions, "load", lambda _: {})
    monkeypatch.setattr(predictions, "keep", lambda made, _: kept.update(made))
    rows = [
        row(id="a"),
        row(id="b", world=8, ranks="0"),
        row(id="c", world=8, ranks="0"),
        row(id="d", world=2, ranks="1"),
    ]
    assert run.predict(rows) == []
    assert list(kept) == ["a", "b", "c", "d"]
    assert asked == [{"gpu": "l4"}, {"gpu": "l4", "world": 8, "ranks": "0"}, {"gpu": "l4", "world": 2, "ranks": "1"}]


class Rehearsals:
    why_cold = ""

    def __init__(self, asked: list[dict[str, Any]]) -> None:
        self.asked = asked

    def __call__(self, words: list[str], **options: Any) -> Result:
        self.asked.append(options)
        return result()


def test_growth_is_what_came_after_the_first_reading() -> None:
    before = result(peak_reserved_bytes=200)
    made = run.prediction_of(row(metric="reserved_growth", before="x"), result(), before)
    assert (made.low_bytes, made.expected_bytes, made.high_bytes) == (750, 800, 930)
    sooner = run.prediction_of(row(metric="reserved_growth", before="x", or_sooner=True), result(), before)
    assert (sooner.low_bytes, sooner.expected_bytes, sooner.high_bytes) == (750, 800, 1130)


def test_only_what_can_change_sizes_counts_as_unknown() -> None:
    unknown = Unknown(kind="call", what="w", answer="a", decides_size=True, count=3)
    both = [unknown, dataclasses.replace(unknown, decides_size=False)]
    assert run.prediction_of(row(), result(unknowns=both), None).unknowns == 1


def test_a_rehearsal_that_failed_says_nothing() -> None:
    ended = result(ending=Ending(how="raised", sentence="p.py failed: KeyError."))
    with pytest.raises(ValueError, match=r"^a \(xmem_language.py gpt2 SGD 1 on l4\): p.py failed: KeyError.$"):
        run.prediction_of(row(), ended, None)
    assert run.prediction_of(row(), result(ending=Ending(how="out of memory", sentence="")), None).expected_bytes


def test_the_prediction_under_the_cards_own_torch_counts_or_the_nearest() -> None:
    of = row(torch="2.6.0")
    by_version = {version: {"a": prediction(of, int(version[2:].partition(".")[0]))} for version in ("2.14.1", "2.9.0")}
    assert predictions.of_the_card(of, by_version) == ("2.9.0", by_version["2.9.0"]["a"])
    by_version["2.6.0"] = {"a": prediction(of, 6)}
    chosen = {torch: predictions.of_the_card(row(torch=torch), by_version) for torch in ("2.6.0", "1.13.1", "2.15", "")}
    assert {torch: found[0] for torch, found in chosen.items() if found} == {
        "2.6.0": "2.6.0",
        "1.13.1": "2.6.0",
        "2.15": "2.14.1",
        "": "2.14.1",
    }


def test_a_prediction_is_of_the_very_words(tmp_path: Path) -> None:
    of = row()
    predictions.keep({"a": prediction(of, 5)}, "2.6.0", tmp_path)
    known = predictions.load("2.6.0", tmp_path)
    assert predictions.current(of, known) == prediction(of, 5)
    changed = row(arguments="gpt2 SGD 2")
    assert predictions.current(changed, known) is None
    assert predictions.left_over([changed], known) == ["a"]
    assert predictions.versions(tmp_path) == ["2.6.0"]
    assert predictions.load("2.7.0", tmp_path) == {}

"""Errors, ranges, and what counts as a miss."""

from __future__ import annotations

import doctest

import pytest
from benchmarks.accuracy import arithmetic, misses
from benchmarks.accuracy.arithmetic import median, peer_errors, percentile

from .made import compared, row


def test_the_examples_of_the_docstrings() -> None:
    for module in (arithmetic, misses):
        assert doctest.testmod(module).failed == 0


def test_median_and_p90() -> None:
    assert median([0.4, 0.1, 0.2]) == 0.2
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert percentile([float(n) for n in range(11)], 0.9) == 9.0
    assert percentile([7.0], 0.9) == 7.0
    with pytest.raises(ValueError, match="no percentile of no values"):
        percentile([], 0.9)


def test_an_error_is_a_share_of_what_was_measured() -> None:
    assert compared(row(), 1100).error == pytest.approx(0.1)
    assert compared(row(), 900).error == pytest.approx(-0.1)


def test_the_range_is_as_much_wider_as_repeats_of_the_measurement_were_apart() -> None:
    assert not compared(row(), 1010).is_inside
    assert compared(row(within_bytes=10), 1010).is_inside
    assert compared(row(), 1010, low_bytes=1000).is_inside
    assert not compared(row(within_bytes=9), 1020, low_bytes=1010).is_inside


def test_a_miss_is_far_off_and_outside_the_range() -> None:
    assert not compared(row(), 1050).is_miss
    assert compared(row(), 1051).is_miss
    assert not compared(row(), 1051, low_bytes=1000).is_miss


@pytest.mark.parametrize(
    ("metric", "verdict", "fit"),
    [
        ("reserved", "fits", "right"),
        ("reserved", "does not fit", "wrong"),
        ("reserved", "unknown", "undecided"),
        ("fits", "fits", "right"),
        ("does_not_fit", "fits", "wrong"),
        ("does_not_fit", "does not fit", "right"),
    ],
)
def test_the_verdict_against_what_happened(metric: str, verdict: str, fit: str) -> None:
    measured_bytes = 1000 if metric == "reserved" else 0
    each = compared(row(metric=metric, measured_bytes=measured_bytes), 1000, verdict=verdict)
    assert each.fit == fit
    assert each.is_miss == (fit == "wrong")


def test_peers_are_judged_on_the_rows_that_they_have() -> None:
    found = [compared(row(peers={"xMem": 1100}), 1000), compared(row(), 1000)]
    assert peer_errors(found, "xMem") == pytest.approx([0.1])


def test_explanations_that_are_lacking_or_left_over() -> None:
    found = [compared(row(id="one"), 2000), compared(row(id="two"), 1000)]
    assert misses.without_explanation(found, {}) == ["one"]
    assert misses.without_explanation(found, {"o*": "Because."}) == []
    assert misses.without_miss(found, {"o*": "Because.", "t*": "It was so once."}) == ["t*"]

"""The line through what was rehearsed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.plain import from_plain, to_plain
from dryfit.search.law import Law, crossing, law_of, line_of, line_through
from dryfit.search.trial import FITS, TOO_BIG, Trial

MIB, GIB = 1 << 20, 1 << 30


def trial(value: int, total: int, reserved: int = 0, allocated: int = 0, kind: str = FITS) -> Trial:
    return Trial(
        value=value,
        kind=kind,
        sentence="",
        peak_total_bytes=total,
        peak_reserved_bytes=reserved or total,
        peak_allocated_bytes=allocated or total,
    )


@given(
    fixed=st.integers(-(1 << 40), 1 << 40),
    each=st.integers(1, 1 << 34),
    values=st.lists(st.integers(1, 5000), min_size=2, max_size=9, unique=True),
)
def test_a_line_is_found_again_to_the_byte(fixed: int, each: int, values: list[int]) -> None:
    line = line_through([(value, fixed + each * value) for value in values])
    assert (line.fixed_bytes, line.per_sample_bytes, line.largest_error_bytes) == (fixed, each, 0)
    assert (line.first, line.last, line.points) == (min(values), max(values), len(values))
    assert line.at(17) == fixed + 17 * each


@given(points=st.dictionaries(st.integers(1, 500), st.integers(0, 1 << 40), min_size=2, max_size=8))
def test_no_other_line_is_nearer_in_squares(points: dict[int, int]) -> None:
    """Moved a little in any direction, the line is not nearer: least squares, up to the rounding to whole bytes."""
    line = line_through(list(points.items()))

    def squares(fixed: Fraction | int, each: Fraction | int) -> Fraction:
        return sum((Fraction(peak) - fixed - each * value) ** 2 for value, peak in points.items()) or Fraction(0)

    here = squares(line.fixed_bytes, line.per_sample_bytes)
    for more_fixed, more_each in ((600, 0), (-600, 0), (0, 2), (0, -2)):
        assert squares(line.fixed_bytes + more_fixed, line.per_sample_bytes + more_each) >= here


def test_the_line_begins_where_the_optimizer_step_is_no_longer_the_peak() -> None:
    points = [(1, 5 * GIB), (2, 5 * GIB), *((n, GIB + n * GIB) for n in (5, 9, 20, 21))]
    line = line_of(points)
    assert line is not None
    assert (line.fixed_bytes, line.per_sample_bytes) == (GIB, GIB)
    assert (line.first, line.last, line.points) == (5, 21, 4)
    assert line.outside == ((1, 3 * GIB), (2, 2 * GIB))


def test_the_line_ends_where_the_card_is_so_full_that_cached_memory_is_given_back() -> None:
    line = line_of([*((n, n * GIB) for n in (1, 4, 16, 22)), (23, 21 * GIB)])
    assert line is not None
    assert (line.last, line.outside) == (22, ((23, -2 * GIB),))


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, GIB)],
        [(1, GIB), (2, 2 * GIB)],  # through two points there is always a line
        [(1, GIB), (2, GIB), (4, GIB)],  # the same whatever the batch is no law of the batch
        [(1, 1 * GIB), (2, 9 * GIB), (4, 2 * GIB), (8, 9 * GIB), (16, 3 * GIB)],
        [*((n, n * GIB) for n in (1, 2, 3)), (4, 9 * GIB), (5, GIB), (6, 7 * GIB), (7, GIB)],  # three of seven
    ],
)
def test_where_there_is_no_line_none_is_given(points: list[tuple[int, int]]) -> None:
    assert line_of(points) is None


def test_each_kind_of_memory_has_its_own_line() -> None:
    reserved = {1: 3, 4: 5, 11: 20, 21: 23, 22: 40}  # it jumps
    law = law_of([trial(n, reserved[n] * GIB, reserved[n] * GIB, GIB + n * GIB) for n in reserved])
    assert law is not None
    assert law.total is None
    assert law.reserved is None
    assert law.allocated is not None
    assert (law.allocated.fixed_bytes, law.allocated.per_sample_bytes) == (GIB, GIB)


def test_only_what_fits_is_in_the_law() -> None:
    trials = [trial(n, n * GIB) for n in (1, 2, 4)] + [trial(8, GIB, kind=TOO_BIG)]
    law = law_of(trials)
    assert law is not None
    assert law.total is not None
    assert law.total.points == 3
    assert law_of(trials[2:]) is None


def test_a_law_is_read_back() -> None:
    law = law_of([trial(1, 7 * GIB), *(trial(n, n * GIB) for n in (2, 4, 8))])
    assert law is not None
    assert law.total is not None
    assert law.total.outside == ((1, 6 * GIB),)
    assert from_plain(Law, to_plain(law)) == law
    assert from_plain(Law, to_plain(Law(total=None, reserved=law.reserved, allocated=None))).total is None


@given(
    first=st.tuples(st.integers(1, 100), st.integers(0, 1 << 40)),
    run=st.integers(1, 100),
    rise=st.integers(1, 1 << 40),
    limit=st.integers(0, 1 << 42),
)
def test_the_crossing_is_the_last_value_under_the_line(first: tuple[int, int], run: int, rise: int, limit: int) -> None:
    value = crossing(first, (first[0] + run, first[1] + rise), limit)
    assert value is not None

    def at(x: int) -> Fraction:
        return first[1] + Fraction(rise, run) * (x - first[0])

    assert at(value) <= limit < at(value + 1)


def test_rehearsals_that_scatter_about_one_line_have_that_line_with_its_error() -> None:
    scatter = {1: 7, 4: -60, 16: 90, 32: -30, 64: 10}
    line = line_of([(value, (600 + 180 * value + off) * MIB) for value, off in scatter.items()])
    assert line is not None
    assert (line.first, line.last, line.points, line.outside) == (1, 64, 5, ())
    assert 80 * MIB < line.largest_error_bytes < 100 * MIB
    assert all(
        abs(line.at(v) - (600 + 180 * v + off) * MIB) <= line.largest_error_bytes + v for v, off in scatter.items()
    )

"""The search itself, on simulated programs whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.search.largest import Found, conclusion, next_values
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG, Trial

ROOM = 24 << 30
Program = Callable[[int], Trial]


def needs(peak_bytes: Callable[[int], int], room_bytes: int = ROOM) -> Program:
    """A program that takes so much, and fits where that is not above the room."""

    def rehearse(value: int) -> Trial:
        peak = peak_bytes(value)
        kind = FITS if peak <= room_bytes else TOO_BIG
        return Trial(value=value, kind=kind, sentence="", peak_total_bytes=min(peak, room_bytes))

    return rehearse


def fails_unless(works: Callable[[int], bool], program: Program) -> Program:
    def rehearse(value: int) -> Trial:
        return program(value) if works(value) else Trial(value=value, kind=FAILED, sentence="", error="ValueError: no")

    return rehearse


def search(
    values: Sequence[int], program: Program, width: int = 2, like: Sequence[tuple[int, int]] = ()
) -> tuple[Found, dict[int, Trial]]:
    """Run the search to its end, holding it to what it promises on the way."""
    known: dict[int, Trial] = {}
    while wanted := next_values(values, known, room_bytes=ROOM, width=width, like=like):
        assert len(wanted) <= width
        assert len(set(wanted)) == len(wanted)
        assert not known.keys() & wanted, "rehearsed twice"
        assert all(value in values for value in wanted)
        known |= {value: program(value) for value in wanted}
    return conclusion(values, known), known


def linear(fixed_bytes: int, each_bytes: int) -> Callable[[int], int]:
    return lambda value: fixed_bytes + each_bytes * value


MIB = 1 << 20


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("largest", [1, 2, 3, 4, 5, 22, 23, 64, 65, 100, 1000, 4095, 4096])
def test_a_line_is_followed_to_its_end_in_a_few_rehearsals(largest: int, width: int) -> None:
    each = (ROOM - 2000 * MIB) // largest
    found, known = search(range(1, 4097), needs(linear(2000 * MIB, each)), width)
    assert found == Found(largest=largest, beyond=largest + 1 if largest < 4096 else None)
    assert len(known) <= (8 if width < 4 else 6 * width)


def test_the_first_rehearsals_are_small_and_the_next_are_the_two_that_decide() -> None:
    program = needs(linear(1 << 30, 1 << 30))
    known = {value: program(value) for value in next_values(range(1, 4097), {}, room_bytes=ROOM, width=2)}
    assert sorted(known) == [1, 4]
    assert next_values(range(1, 4097), known, room_bytes=ROOM, width=2) == [23, 24]


def test_what_another_card_showed_says_where_to_begin() -> None:
    like = [(1, 2 << 30), (4, 5 << 30), (14, 15 << 30)]
    assert next_values(range(1, 4097), {}, room_bytes=ROOM, width=2, like=like) == [23, 24]
    assert search(range(1, 4097), needs(linear(1 << 30, 1 << 30)), like=like)[1].keys() == {23, 24}


@given(
    largest=st.integers(0, 5000),
    highest=st.integers(1, 4096),
    fixed=st.integers(0, ROOM // 2),
    flat=st.integers(0, ROOM // 2),
    width=st.integers(1, 8),
    like=st.lists(st.tuples(st.integers(1, 5000), st.integers(0, ROOM)), max_size=4, unique_by=lambda point: point[0]),
)
def test_a_rising_peak_is_always_found_and_quickly(
    largest: int, highest: int, fixed: int, flat: int, width: int, like: list[tuple[int, int]]
) -> None:
    """A line that begins flat, as where the optimizer step is the peak at first; `like` may be of another program."""
    each = (ROOM - fixed) // (largest or 1) if largest else ROOM
    program = needs(lambda value: max(fixed + each * value, flat))
    found, known = search(range(1, highest + 1), program, width, like)
    expected = max((value for value in range(1, highest + 1) if program(value).kind == FITS), default=None)
    assert found.largest == expected
    assert found.beyond == (expected + 1 if expected is not None and expected < highest else None if expected else 1)
    assert found.out_of_order == ()
    assert len(known) <= 10 + 2 * 12 * width


@given(
    edge=st.integers(1, 3000),
    bends=st.lists(st.integers(0, 40 << 20), min_size=1, max_size=6),
    width=st.integers(1, 4),
    lowest=st.integers(1, 9),
    step=st.integers(1, 9),
)
def test_no_shape_of_a_rising_peak_misleads_it(edge: int, bends: list[int], width: int, lowest: int, step: int) -> None:
    """The peak bends as it likes below the room, so every prediction is wrong; what fits still ends at `edge`."""
    values = range(lowest, 4097, step)
    program = needs(
        lambda value: (
            sum(bend * max(0, value - 300 * i) for i, bend in enumerate(bends)) % ROOM if value <= edge else ROOM + 1
        )
    )
    found, _ = search(values, program, width)
    fitting = [value for value in values if value <= edge]
    assert found.largest == (fitting[-1] if fitting else None)


@given(kinds=st.lists(st.sampled_from([FITS, TOO_BIG, FAILED, STOPPED]), min_size=1, max_size=60), data=st.data())
@settings(max_examples=300)
def test_whatever_a_program_does_the_search_ends_and_what_it_says_was_rehearsed(
    kinds: list[str], data: st.DataObject
) -> None:
    values = range(1, len(kinds) + 1)
    peaks = data.draw(st.lists(st.integers(0, ROOM), min_size=len(kinds), max_size=len(kinds)))

    def program(value: int) -> Trial:
        return Trial(value=value, kind=kinds[value - 1], sentence="", peak_total_bytes=peaks[value - 1])

    found, known = search(values, program, data.draw(st.integers(1, 4)))
    if found.largest is None:
        assert all(trial.kind != FITS for trial in known.values())
        return
    assert known[found.largest].kind == FITS
    if found.multiple_of == 1 and found.largest < len(kinds):
        assert found.largest + 1 in known
        assert known[found.largest + 1].kind != FITS
    assert list(found.out_of_order) == [v for v in sorted(known) if v < found.largest and known[v].kind == TOO_BIG]


def test_a_larger_value_that_fits_counts_and_the_smaller_one_that_does_not_is_named() -> None:
    """As when the allocator finds a free block for one size and not for another."""
    program = needs(lambda value: ROOM + 1 if value in (22, 23, 30) or value > 32 else (1 << 30) + value * 700 * MIB)
    found, known = search(range(1, 65), program)
    assert found.largest == 32
    assert found.beyond == 33
    assert set(found.out_of_order) == {value for value in (22, 23, 30) if value in known}


@pytest.mark.parametrize("divisor", [2, 3, 4, 5, 6, 8, 12, 16, 32])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_program_that_wants_multiples_of_a_number(divisor: int, width: int) -> None:
    program = fails_unless(lambda value: value % divisor == 0, needs(linear(1 << 30, 50 * MIB)))
    found, known = search(range(1, 4097), program, width)
    largest = (ROOM - (1 << 30)) // (50 * MIB) // divisor * divisor
    assert found.largest == largest
    assert known[largest + divisor].kind == TOO_BIG
    assert known[largest + 1].kind == FAILED
    assert found.multiple_of == divisor
    assert len(known) <= 32


def test_a_program_that_fails_for_the_smallest_alone() -> None:
    """Batch normalisation refuses a single sample."""
    found, _ = search(range(1, 4097), fails_unless(lambda value: value > 1, needs(linear(1 << 30, 1 << 30))))
    assert found == Found(largest=23, beyond=24)


def test_a_program_that_fails_above_a_number_for_another_reason() -> None:
    """A data set of 100 samples, all of which would fit."""
    found, known = search(range(1, 4097), fails_unless(lambda value: value <= 100, needs(linear(1 << 30, 10 * MIB))))
    assert found == Found(largest=100, beyond=101)
    assert {known[value].kind for value in (101, 102, 103)} == {FAILED}


def test_a_program_that_fails_for_some_values_in_between() -> None:
    holes = {20, 21, 41}
    found, _ = search(range(1, 4097), fails_unless(lambda value: value not in holes, needs(linear(0, 600 * MIB))))
    assert found.largest == 40
    found, _ = search(range(1, 4097), fails_unless(lambda value: value not in {40}, needs(linear(0, 600 * MIB))))
    assert found.largest == 39


def test_a_program_that_always_fails_is_given_up_after_a_few_numbers() -> None:
    found, known = search(range(1, 4097), fails_unless(lambda value: False, needs(linear(0, 1))))
    assert found.largest is None
    assert sorted(known) == [1, 4, 8, 60, 64, 96]


def test_a_failure_that_no_value_takes_away_is_not_tried_again() -> None:
    def program(value: int) -> Trial:
        return Trial(value=value, kind=FAILED, sentence="", error="SyntaxError: invalid syntax", for_good=True)

    assert sorted(search(range(1, 4097), program)[1]) == [1, 4]


def test_nothing_fits() -> None:
    found, known = search(range(1, 4097), needs(lambda value: ROOM + value))
    assert found.largest is None
    assert found.beyond == 1
    assert sorted(known) == [1, 4]


def test_a_limit_of_ours_ends_the_search_where_it_was_met() -> None:
    def program(value: int) -> Trial:
        kind = FITS if value < 50 else STOPPED
        return Trial(value=value, kind=kind, sentence="", peak_total_bytes=value << 20)

    found, known = search(range(1, 4097), program)
    assert found == Found(largest=49, beyond=50)
    assert known[50].kind == STOPPED


def test_a_list_of_values_is_searched_and_nothing_between_them() -> None:
    found, known = search([8, 16, 24, 100, 1000], needs(linear(0, 1 << 30)))
    assert found == Found(largest=24, beyond=100)
    assert set(known) <= {8, 16, 24, 100, 1000}

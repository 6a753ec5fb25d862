from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dryfit.rehearse.inside.stopping import LEAST_STEPS, MOST_STEPS, WATCHED_STEPS, seen_enough

peaks = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=40)


def test_the_optimisers_first_step_does_not_count_as_steady() -> None:
    assert seen_enough([(5, 8), (7, 8), (7, 8)], None) is None
    assert seen_enough([(5, 8), (7, 8), (7, 8), (7, 8)], None) == "steady"


def test_reserved_memory_has_to_be_steady_too() -> None:
    assert seen_enough([(7, 8), (7, 8), (7, 9)], None) is None


def test_a_peak_that_falls_is_steady() -> None:
    assert seen_enough([(9, 9), (7, 8), (6, 8)], None) == "steady"


@given(peaks)
def test_never_before_the_least_and_never_after_the_most_steps(seen: list[tuple[int, int]]) -> None:
    why = seen_enough(seen, None)
    if len(seen) < LEAST_STEPS:
        assert why is None
    if len(seen) >= MOST_STEPS:
        assert why in ("steady", "most steps")


@given(peaks, st.integers(1, 40))
def test_a_number_of_steps_is_followed(seen: list[tuple[int, int]], steps: int) -> None:
    assert seen_enough(seen, steps) == ("steps" if len(seen) >= steps else None)


@given(peaks)
def test_all_steps_never_ends(seen: list[tuple[int, int]]) -> None:
    assert seen_enough(seen, 0) is None


def test_steps_that_differ_are_not_steady_although_the_highest_is_old() -> None:
    moving = [(50 << 20, 80 << 20), (30 << 20, 80 << 20), (46 << 20, 80 << 20), (20 << 20, 80 << 20)]
    assert seen_enough(moving, None) is None
    assert seen_enough([*moving, (20 << 20, 80 << 20)], None) == "steady"


def test_steps_of_two_kinds_that_take_turns_are_steady() -> None:
    """As where every second step evaluates, and that takes more than training, or less."""
    first, trains, evaluates = (20 << 20, 80 << 20), (30 << 20, 80 << 20), (50 << 20, 80 << 20)
    seen = [first, evaluates, trains, evaluates, trains, evaluates]
    assert [seen_enough(seen[:count], None) for count in range(3, 7)] == [None, None, None, "steady"]
    seen = [first, trains, evaluates, trains, evaluates, trains, evaluates]
    assert [seen_enough(seen[:count], None) for count in range(3, 8)] == [None, None, None, None, "steady"]
    keeps = [(each + (number << 22), reserved) for number, (each, reserved) in enumerate(seen)]
    assert seen_enough(keeps, None) is None
    grows = [(each, reserved + (number << 20)) for number, (each, reserved) in enumerate(seen)]
    assert seen_enough(grows, None) is None


def test_a_steady_run_goes_on_while_more_is_to_be_seen_but_not_for_ever() -> None:
    steady = [(5, 8)] * 4
    assert seen_enough(steady, None, wants_more=lambda: True) is None
    assert seen_enough(steady, None, wants_more=lambda: False) == "steady"
    assert seen_enough([(5, 8)] * MOST_STEPS, None, wants_more=lambda: True) == "steady"
    assert seen_enough(steady, 4, wants_more=lambda: True) == "steps"


def test_a_watched_run_takes_more_steps() -> None:
    for count in range(LEAST_STEPS, WATCHED_STEPS):
        assert seen_enough([(5, 8)] * count, None, least_steps=WATCHED_STEPS) is None
    assert seen_enough([(5, 8)] * WATCHED_STEPS, None, least_steps=WATCHED_STEPS) == "steady"


def test_steps_without_the_card_do_not_count() -> None:
    warm_up = [(0, 0)] * 5
    assert seen_enough(warm_up, None) is None
    assert seen_enough([*warm_up, (5, 8), (5, 8)], None) is None
    assert seen_enough([*warm_up, (5, 8), (5, 8), (5, 8)], None) == "steady"
    assert seen_enough([(0, 0)] * MOST_STEPS, None) == "most steps"


def test_an_optimiser_that_has_not_stepped_is_waited_for() -> None:
    steady = [(5, 8)] * 6
    assert seen_enough(steady, None, all_have_stepped_twice=False) is None
    assert seen_enough([(5, 8)] * MOST_STEPS, None, all_have_stepped_twice=False) == "most steps"

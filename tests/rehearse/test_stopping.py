from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dryfit.rehearse.inside.stopping import LEAST_STEPS, MOST_STEPS, seen_enough

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

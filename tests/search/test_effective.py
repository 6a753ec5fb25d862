"""Micro-batch x accumulation steps x GPUs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dryfit.search.effective import even_splits, uneven_split


@given(effective=st.integers(1, 3000), gpus=st.integers(1, 9), largest=st.integers(1, 600))
def test_even_splits_are_all_there_are_and_come_to_the_batch(effective: int, gpus: int, largest: int) -> None:
    splits = list(even_splits(effective, gpus, range(1, 4097), largest))
    assert [split.micro for split in splits] == [
        micro for micro in range(largest, 0, -1) if effective % gpus == 0 and effective // gpus % micro == 0
    ]
    for split in splits:
        assert split.micro * split.accumulation * split.gpus == effective
        assert split.remainder == 0


@given(effective=st.integers(1, 3000), gpus=st.integers(1, 9), largest=st.integers(1, 600))
def test_what_is_left_over_is_less_than_one_round_more(effective: int, gpus: int, largest: int) -> None:
    if effective < gpus:
        return
    split = uneven_split(effective, gpus, largest)
    assert 1 <= split.micro <= largest
    assert split.accumulation >= 1
    assert 0 <= split.remainder < split.micro * gpus
    assert split.to_dict()["remainder"] == split.remainder


def test_only_values_that_were_searched_count() -> None:
    assert [split.micro for split in even_splits(96, 1, range(8, 513, 8), 40)] == [32, 24, 16, 8]
    assert list(even_splits(97, 1, range(2, 64), 40)) == []

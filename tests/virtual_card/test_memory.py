"""Allocation: the card's end is where torch finds it, and the numbers in its words are true."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import torch_release

MIB, GIB = 1 << 20, 1 << 30
OUTSIDE = 400 * MIB
EXPANDABLE = (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)


@pytest.fixture(scope="module")
def allocation(said: Any) -> dict[str, Any]:
    return said("allocation.py", outside_bytes=OUTSIDE)


@pytest.fixture(scope="module")
def expandable(said: Any) -> dict[str, Any]:
    return said("expandable.py", variables=EXPANDABLE)


def test_what_the_context_takes_is_gone_from_the_start(allocation: dict[str, Any]) -> None:
    assert allocation["at_start"] == [8 * GIB - OUTSIDE, 8 * GIB]


def test_memory_goes_in_pages_of_two_mebibytes(allocation: dict[str, Any]) -> None:
    free, _ = allocation["at_start"]
    assert allocation["after_a_small_tensor"][0] == free - 2 * MIB
    assert allocation["driver_used"] == 2 * MIB
    # torch asks for 22 MiB + 512 bytes rounded up to its own 2 MiB; the driver's pages hold just that
    assert allocation["after_an_odd_tensor"][0] == free - allocation["reserved"]
    assert allocation["reserved"] == 2 * MIB + 22 * MIB


def test_emptying_the_cache_gives_the_memory_back(allocation: dict[str, Any]) -> None:
    assert allocation["after_empty_cache"] == allocation["at_start"]
    assert (allocation["driver_peak"], allocation["driver_peak_after_reset"]) == (24 * MIB, 0)


def test_running_out_of_memory_is_pytorchs_error_with_true_numbers(allocation: dict[str, Any]) -> None:
    assert allocation["full_after"] == 7
    assert allocation["free_when_full"] == GIB - OUTSIDE
    message = allocation["message"]
    assert (
        "Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 624.00 MiB is free" in message
    )
    assert "Including non-PyTorch memory, this process has 7.39 GiB memory in use" in message
    assert "7.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated" in message


def test_what_was_freed_can_be_had_again(allocation: dict[str, Any]) -> None:
    assert allocation["fits_again"] == 4 * GIB


def test_a_memory_fraction_is_kept(allocation: dict[str, Any]) -> None:
    assert "Tried to allocate 3.00 GiB" in allocation["fraction_message"]
    if torch_release() > (2, 4):  # which does not say so
        assert "2.00 GiB allowed" in allocation["fraction_message"]
    assert allocation["ooms"] == 2


def test_expandable_segments_map_what_they_use_and_no_more(expandable: dict[str, Any]) -> None:
    segments, used, free = expandable["grown"]
    assert segments == used == 140 * MIB  # 12 + 120, in steps of 20
    assert free == 8 * GIB - used
    assert expandable["segments"] == [[True, 0]]
    assert expandable["value"] == [11, 22, 33]
    assert expandable["device_of_mapped"] == 0


def test_expandable_segments_unmap(expandable: dict[str, Any]) -> None:
    segments, used, free = expandable["shrunk"]
    assert segments == used < 30 * MIB
    assert free == 8 * GIB - used


def test_expandable_segments_run_out_of_memory(expandable: dict[str, Any]) -> None:
    assert "Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 8.00 GiB" in expandable["message"]
    assert expandable["fits"] == 7 * GIB


@pytest.fixture(scope="module")
def copies(said: Any) -> dict[str, Any]:
    return said("copies.py", memory_bytes=16 * GIB)


def test_small_copies_are_real(copies: dict[str, Any]) -> None:
    assert copies["mebibyte_is_real"]
    assert copies["one_number"] == 1234.5
    assert copies["on_the_card"] == [1, 2, 3]
    assert copies["pinned"] == MIB // 4 - 1
    assert copies["filled"] == [9, 5]


def test_larger_ones_read_as_zeros_and_touch_no_host_memory(copies: dict[str, Any]) -> None:
    assert copies["more_is_zeros"] == 0
    assert copies["host_mib_for_huge"] < 64


def test_pinned_memory_is_known_as_such(copies: dict[str, Any]) -> None:
    assert copies["is_pinned"] == [True, False]
    assert copies["is_device"] == [True, False]


def test_an_answer_is_read_once(copies: dict[str, Any]) -> None:
    assert copies["answered"] == [7, 1]
    assert copies["forgotten"] != [9, 1]

"""`peak_memory`: the peak of a block, whatever lies within it and around it."""

from __future__ import annotations

import torch
from tests.train.on_card import MIB, found_on_card

from dryfit.train.peaks import _RUNNING, peak_memory


def test_blocks_within_blocks_each_have_their_own_peak() -> None:
    found = found_on_card()["peaks"]
    held = found["held"]
    assert held == 8 * MIB
    assert found["inner"][0] == held + 32 * MIB
    assert found["middle"][0] == found["so far"] == held + 64 * MIB
    assert found["outer"][0] == held + 256 * MIB  # before the inner ones began
    assert found["since"] == held + 512 * MIB  # after all of them


def test_reserved_peaks_outlast_what_is_given_back() -> None:
    found = found_on_card()["peaks"]
    segments = 20 * MIB + 256 * MIB  # as the allocator rounds: 8 MiB in a segment of 20
    assert found["inner"][1] == found["middle"][1] == found["outer"][1] == segments
    assert found["first"] == [8 * MIB, 20 * MIB]


def test_it_is_one_line_in_binary_units() -> None:
    found = found_on_card()["peaks"]
    assert found["text"] == ("peak on cuda:0: 264.00 MiB allocated (256.00 MiB more than before), 276.00 MiB reserved")


def test_without_a_device_it_says_so_and_initialises_none() -> None:
    with peak_memory() as peak:
        torch.zeros(1000)
    assert (peak.devices, peak.allocated_bytes, peak.reserved_bytes) == ({}, 0, 0)
    assert str(peak) == "no peak: no CUDA or XPU device is in use, and PyTorch does not count memory of the host"
    assert not torch.cuda.is_initialized()
    assert found_on_card()["peaks"]["before"] == str(peak)  # with a card that nothing has used yet


def test_a_block_that_is_let_go_without_an_end_is_forgotten() -> None:
    block = peak_memory()
    block.__enter__()
    assert block in _RUNNING
    del block
    assert not _RUNNING

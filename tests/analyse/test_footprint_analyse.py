"""`analyse`: which card is shown, and that it goes all the way from a recording to a footprint."""

from __future__ import annotations

import dataclasses

import pytest

from dryfit.analyse import analyse
from dryfit.errors import UsageError
from dryfit.recording.model import Recording
from dryfit.recording.stacks import Stacks

from .build import MIB, Script
from .test_footprint_peaks import training


def two_cards() -> Recording:
    """A card that holds 2 MiB, and another that holds 3."""
    one, other = Script(), Script()
    one.alloc(2 * MIB)
    other.alloc(3 * MIB)
    traces = (one.recording().devices[0], dataclasses.replace(other.recording().devices[0], device=4))
    return dataclasses.replace(one.recording(), devices=traces)


def test_the_card_whose_memory_went_highest() -> None:
    found = analyse(two_cards()).footprint
    assert (found.device, found.peak.allocated_bytes) == (4, 3 * MIB)
    assert found.notes[0] == "This is device 4; the recording has device 0 too."


def test_the_card_that_was_asked_for() -> None:
    found = analyse(two_cards(), device=0)
    assert (found.trace.device, found.footprint.device, found.footprint.peak.allocated_bytes) == (0, 0, 2 * MIB)


def test_no_such_card() -> None:
    with pytest.raises(UsageError, match=r"^The recording has no device 1; it has 0, 4\.$"):
        analyse(two_cards(), device=1)


def test_no_card() -> None:
    with pytest.raises(UsageError, match="The recording has no card: PyTorch's CUDA allocator was not used"):
        analyse(Recording(source="snapshot", devices=(), stacks=Stacks()))


def test_a_training_run() -> None:
    found = analyse(training(steps=3).recording())
    peak = found.footprint.peak
    assert (peak.step, peak.phase, peak.allocated_bytes) == (2, "backward", 19 * MIB)
    assert sum(each.size_bytes for each in peak.owners) == 19 * MIB
    assert len(found.attribution.owner) == len(found.replay.lifetimes)

"""Peaks, steps, phases and their owners, every figure checked by hand."""

from __future__ import annotations

import pytest

from dryfit.analyse.footprint import OwnerBytes, OwnerChange, Peak
from dryfit.recording import model
from dryfit.recording.model import BACKWARD, FORWARD, OPTIMIZER_STEP, SETUP

from .build import MIB, Script, at, module
from .by_label import footprint


def owner(name: str, size_bytes: int, blocks: int = 1) -> OwnerBytes:
    return OwnerBytes(owner=name, size_bytes=size_bytes, blocks=blocks)


def training(steps: int = 2) -> Script:
    """A weight of 3 MiB and its gradient, two states from the first step on, a batch of 1 MiB, an activation."""
    script = Script()
    script.phase(SETUP, step=0)
    script.alloc(
        3 * MIB, at("train.py", 1), owner=model.PARAMETER, name="fc.weight", dtype="float32", shape=(768, 1024)
    )
    states = []
    for step in range(1, steps + 1):
        script.phase(FORWARD, step=step)
        batch = script.alloc(MIB, at("train.py", 5), owner=model.INPUT)
        activation = script.alloc(4 * MIB, module("fc"), at("net.py", 9), owner=model.ACTIVATION)
        logits = script.alloc(2 * MIB, at("train.py", 6), owner=model.TEMPORARY, name="logits")
        script.phase(BACKWARD)
        gradient = script.alloc(3 * MIB, module("fc"), at("net.py", 9), owner=model.GRADIENT)
        script.free(activation, logits)
        script.phase(OPTIMIZER_STEP)
        if not states:
            states = [script.alloc(3 * MIB, at("train.py", 8), owner=model.OPTIMIZER_STATE) for _ in range(2)]
        root = script.alloc(3 * MIB, at("train.py", 8), owner=model.TEMPORARY)
        script.free(root)
        script.phase(model.AFTER_STEP)
        script.free(gradient, batch)
    return script


def test_the_peak_is_the_first_of_the_highest_moments() -> None:
    found = footprint(training(steps=4).recording())
    # Step 1: 3 + 1 + 3 + 2 x 3 + 3 at its optimizer step; from step 2 on 3 + 6 + 1 + 4 + 2 + 3 in backward.
    assert [step.peak.allocated_bytes // MIB for step in found.steps] == [3, 16, 19, 19, 19]
    assert (found.peak.step, found.peak.phase, found.peak.allocated_bytes) == (2, BACKWARD, 19 * MIB)
    assert found.peak.owners == (
        owner(model.PARAMETER, 3 * MIB),
        owner(model.GRADIENT, 3 * MIB),
        owner(model.OPTIMIZER_STATE, 6 * MIB, 2),
        owner(model.INPUT, MIB),
        owner(model.ACTIVATION, 4 * MIB),
        owner(model.TEMPORARY, 2 * MIB),
    )


def test_what_grows_with_the_batch() -> None:
    found = footprint(training().recording())
    assert found.peak.grows_with_batch_bytes == (1 + 4 + 2) * MIB
    assert found.peak.fixed_bytes == (3 + 3 + 6) * MIB
    assert found.peak.logits_and_loss_bytes == 2 * MIB
    # At the first step's peak there is the optimizer's own temporary: it is of the model's size, not of the batch's.
    assert found.steps[1].peak.phase == OPTIMIZER_STEP
    assert found.steps[1].peak.grows_with_batch_bytes == MIB


def test_phases_come_in_order_and_count_what_is_held_when_they_begin() -> None:
    of_step = footprint(training().recording()).steps[2]
    assert [(each.phase, each.peak_allocated_bytes // MIB) for each in of_step.phases] == [
        (FORWARD, 9 + 7),
        (BACKWARD, 19),
        (OPTIMIZER_STEP, 16),
        (model.AFTER_STEP, 13),  # the weight, the states, the gradient and the batch, until these are freed
    ]
    assert of_step.phases[3].owners == (
        owner(model.PARAMETER, 3 * MIB),
        owner(model.GRADIENT, 3 * MIB),
        owner(model.OPTIMIZER_STATE, 6 * MIB, 2),
        owner(model.INPUT, MIB),
    )
    assert of_step.end_allocated_bytes == 9 * MIB


def test_a_phase_that_comes_again_is_one_phase() -> None:
    script = Script()
    for size in (2, 5, 3):
        script.phase(FORWARD, step=1)
        block = script.alloc(size * MIB, owner=model.ACTIVATION)
        script.phase(BACKWARD)
        script.free(block)
    found = footprint(script.recording())
    assert [(each.phase, each.peak_allocated_bytes // MIB) for each in found.steps[0].phases] == [
        (FORWARD, 5),
        (BACKWARD, 5),
    ]
    assert (found.peak.phase, found.peak.event) == (FORWARD, found.steps[0].peak.event)


def test_a_step_without_events_has_what_was_held_when_it_began() -> None:
    script = Script()
    script.phase(SETUP, step=0)
    script.alloc(2 * MIB, owner=model.PARAMETER)
    script.phase(FORWARD, step=1)
    found = footprint(script.recording())
    assert [(each.step, each.peak.phase, each.peak.allocated_bytes) for each in found.steps] == [
        (0, SETUP, 2 * MIB),
        (1, FORWARD, 2 * MIB),
    ]


def test_a_remainder_is_counted_by_itself() -> None:
    script = Script()
    script.alloc(11 * MIB - 100, at("train.py", 1), module("fc"), owner=model.PARAMETER)  # 12 MiB from the card
    script.alloc(100, at("train.py", 2), owner=model.BUFFER)
    found = footprint(script.recording())
    assert found.peak.owners == (
        owner(model.PARAMETER, 11 * MIB),
        owner(model.BUFFER, 512),
        owner(model.REMAINDER, MIB),
    )
    assert found.peak.allocated_bytes == 12 * MIB + 512
    assert found.peak.requested_bytes == 11 * MIB
    assert found.modules.size_bytes == found.peak.allocated_bytes
    assert [(line.line, line.size_bytes, line.blocks) for line in found.lines] == [(1, 12 * MIB, 1), (2, 512, 1)]


def test_a_remainder_grows_with_what_it_is_left_over_from() -> None:
    script = Script()
    script.phase(FORWARD, step=1)
    script.alloc(11 * MIB, owner=model.ACTIVATION)
    found = footprint(script.recording())
    assert (found.peak.grows_with_batch_bytes, found.peak.fixed_bytes) == (12 * MIB, 0)


@pytest.mark.parametrize(("freed_in", "grows_bytes"), [("its step", 4 * MIB), ("the next step", 0), ("no step", 0)])
def test_a_workspace_that_outlives_its_step_is_fixed(freed_in: str, grows_bytes: int) -> None:
    script = Script()
    script.phase(FORWARD, step=1)
    workspace = script.alloc(4 * MIB, owner=model.WORKSPACE)
    if freed_in == "the next step":
        script.phase(FORWARD, step=2)
    if freed_in != "no step":
        script.free(workspace)
    assert footprint(script.recording()).peak.grows_with_batch_bytes == grows_bytes


def test_first_step_against_the_steady_one() -> None:
    script = training(steps=3)
    script.phase(FORWARD, step=4)  # a step that did not get far is not compared
    assert footprint(script.recording()).first_against_steady == (
        OwnerChange(owner=model.PARAMETER, before_bytes=3 * MIB, after_bytes=3 * MIB),
        OwnerChange(owner=model.GRADIENT, before_bytes=3 * MIB, after_bytes=3 * MIB),
        OwnerChange(owner=model.OPTIMIZER_STATE, before_bytes=6 * MIB, after_bytes=6 * MIB),
        OwnerChange(owner=model.INPUT, before_bytes=MIB, after_bytes=MIB),
        OwnerChange(owner=model.ACTIVATION, before_bytes=0, after_bytes=4 * MIB),
        OwnerChange(owner=model.TEMPORARY, before_bytes=3 * MIB, after_bytes=2 * MIB),
    )


def test_a_step_without_an_allocation_of_its_optimizer_is_whole() -> None:
    script = Script()
    for step in (1, 2):
        script.phase(FORWARD, step=step)
        script.alloc(step * MIB, owner=model.ACTIVATION)
        script.phase(BACKWARD)
    script.phase(model.AFTER_STEP)
    changed = (OwnerChange(owner=model.ACTIVATION, before_bytes=MIB, after_bytes=3 * MIB),)
    assert footprint(script.recording()).first_against_steady == changed


def test_one_step_is_compared_with_nothing() -> None:
    assert footprint(training(steps=1).recording()).first_against_steady == ()


def test_nothing_allocated() -> None:
    found = footprint(Script().recording())
    assert found.peak == Peak(
        event=-1,
        step=0,
        phase="",
        allocated_bytes=0,
        active_bytes=0,
        requested_bytes=0,
        reserved_bytes=0,
        owners=(),
        fixed_bytes=0,
        grows_with_batch_bytes=0,
        logits_and_loss_bytes=0,
    )
    assert (found.steps, found.lines, found.tensors, found.growth, found.out_of_memory) == ((), (), (), None, None)
    assert found.notes == ("Nothing was allocated: the recording has no events and no memory of PyTorch's allocator.",)

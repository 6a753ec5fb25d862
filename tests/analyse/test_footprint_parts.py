"""Modules, lines and tensors at the peak; growth from step to step; what the notes say."""

from __future__ import annotations

import dataclasses

import pytest

from dryfit.analyse.footprint import LineBytes, ModuleBytes, OwnerBytes, OwnerChange
from dryfit.analyse.growth import with_keeper
from dryfit.recording import model
from dryfit.recording.model import ALLOC, FREE_COMPLETED, FREE_REQUESTED, SEGMENT_ALLOC, Block, ModuleOutput, Segment

from .build import MIB, Script, at, module
from .by_event import recording
from .by_label import footprint

A = 1 << 40


def sizes(tree: ModuleBytes) -> dict[str, tuple[int, int]]:
    """By path: all bytes and own bytes, in MiB."""
    found = {tree.path: (tree.size_bytes // MIB, tree.own_bytes // MIB)}
    for child in tree.children:
        found |= sizes(child)
    return found


def test_the_module_tree_sums_up_from_its_leaves() -> None:
    script = Script()
    script.modules = [ModuleOutput("", "Net"), ModuleOutput("module.blocks.0.fc", "Linear")]
    script.alloc(2 * MIB, owner=model.INPUT)
    script.alloc(3 * MIB, module("module.blocks.0.fc"), owner=model.PARAMETER)
    script.alloc(4 * MIB, module("module.blocks.0.fc"), owner=model.ACTIVATION)
    script.alloc(5 * MIB, module("module.blocks.0"), owner=model.ACTIVATION)
    script.alloc(6 * MIB, module("_orig_mod.head"), owner=model.PARAMETER)
    tree = footprint(script.recording()).modules
    assert sizes(tree) == {
        "": (20, 2),
        "module": (12, 0),
        "module.blocks": (12, 0),
        "module.blocks.0": (12, 5),
        "module.blocks.0.fc": (7, 7),
        "_orig_mod": (6, 0),
        "_orig_mod.head": (6, 6),
    }
    assert [child.path for child in tree.children] == ["module", "_orig_mod"]
    block = tree.children[0].children[0].children[0]
    assert (tree.kind, block.kind, block.children[0].kind) == ("Net", "", "Linear")
    assert block.owners == (
        OwnerBytes(owner=model.PARAMETER, size_bytes=3 * MIB, blocks=1),
        OwnerBytes(owner=model.ACTIVATION, size_bytes=9 * MIB, blocks=2),
    )


def test_a_path_without_end_is_cut() -> None:
    script = Script()
    script.alloc(3 * MIB, module("x." * 50_000 + "x"), owner=model.PARAMETER)
    found = footprint(script.recording())
    assert sum(of_all for of_all, _ in sizes(found.modules).values()) == 3 * len(sizes(found.modules))
    assert found.to_dict()["modules"]["size_bytes"] == 3 * MIB


def test_lines_heaviest_first() -> None:
    script = Script()
    for size, line in ((2, 10), (5, 20), (4, 10)):
        script.alloc(size * MIB, at("train.py", line, "step"), owner=model.ACTIVATION)
    script.alloc(MIB, owner=model.TEMPORARY)
    lines = footprint(script.recording()).lines
    assert [(each.file, each.line, each.function, each.size_bytes // MIB, each.blocks) for each in lines] == [
        ("train.py", 10, "step", 6, 2),
        ("train.py", 20, "step", 5, 1),
        ("", 0, "", 1, 1),
    ]  # fmt: skip


def test_tensors_say_when_they_were_made_and_freed() -> None:
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(3 * MIB, at("a.py", 1), owner=model.PARAMETER, name="fc.weight", dtype="float32", shape=(768, 1024))
    script.phase(model.FORWARD, step=1)
    activation = script.alloc(18 * MIB - 1, module("fc"), at("a.py", 7), owner=model.ACTIVATION)
    script.phase(model.BACKWARD)
    script.free(activation)
    first, second = footprint(script.recording()).tensors
    assert (first.owner, first.size_bytes, first.requested_bytes) == (model.ACTIVATION, 18 * MIB, 18 * MIB - 1)
    assert (first.module, first.file, first.line, first.begin, first.end) == (
        "fc", "a.py", 7, "step 1, forward", "step 1, backward",
    )  # fmt: skip
    assert (second.name, second.dtype, second.shape) == ("fc.weight", "float32", (768, 1024))
    assert (second.begin, second.end) == ("setup", "")


def test_only_the_fifty_heaviest_tensors() -> None:
    script = Script()
    for number in range(60):
        script.alloc(number * 512 + 512, owner=model.PARAMETER)
    tensors = footprint(script.recording()).tensors
    assert [each.size_bytes for each in tensors] == [number * 512 for number in range(60, 10, -1)]


def leaking(sizes_of_steps: list[int], kept_by: str = model.ACTIVATION) -> Script:
    """Steps that each keep so much, after a setup of 3 MiB and an optimizer's state in step 1."""
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(3 * MIB, owner=model.PARAMETER)
    for step, size in enumerate(sizes_of_steps, start=1):
        script.phase(model.FORWARD, step=step)
        if size:
            script.alloc(size, at("train.py", 41), owner=kept_by)
        passing = script.alloc(7 * MIB, at("train.py", 42), owner=model.ACTIVATION)
        script.phase(model.OPTIMIZER_STEP)
        script.free(passing)
        if step == 1:
            script.alloc(6 * MIB, at("train.py", 50), owner=model.OPTIMIZER_STATE)
    return script


def test_growth_is_the_same_amount_in_each_step() -> None:
    growth = footprint(leaking([4 * MIB] * 5).recording()).growth
    assert growth is not None
    assert (growth.first_step, growth.last_step, growth.bytes_per_step) == (1, 4, 4 * MIB)
    assert growth.owners == (OwnerChange(owner=model.ACTIVATION, before_bytes=4 * MIB, after_bytes=16 * MIB),)
    assert growth.lines == (
        LineBytes(
            file="train.py",
            line=41,
            function="main",
            size_bytes=12 * MIB,
            blocks=3,
            owners=(OwnerBytes(owner=model.ACTIVATION, size_bytes=12 * MIB, blocks=3),),
        ),
    )
    assert growth.sentence == (
        "From the end of step 1 to that of step 4, each step leaves 4.00 MiB more allocated than the one before, all "
        "of it saved activation, from train.py:41. Something is kept from step to step, such as a loss with its graph, "
        "or outputs in a list."
    )
    assert with_keeper(growth, "outputs (train.py:41, DF102)").sentence.endswith(
        "from train.py:41. It is kept by outputs (train.py:41, DF102)."
    )


def test_growth_counts_from_where_it_is_steady() -> None:
    growth = footprint(leaking([0, 64 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB]).recording()).growth
    assert growth is not None
    assert (growth.first_step, growth.last_step, growth.bytes_per_step) == (2, 5, 4 * MIB)


def test_small_growth_is_told_by_the_thousand_steps() -> None:
    growth = footprint(leaking([4] * 5, kept_by=model.TEMPORARY).recording()).growth
    assert growth is not None
    assert growth.bytes_per_step == 512
    assert growth.sentence == (
        "From the end of step 1 to that of step 4, each step leaves 512 B more allocated than the one before, all of "
        "it temporary, from train.py:41. That is 500.00 KiB in 1,000 steps. A list that collects losses as tensors "
        "does that; .item() keeps the number alone."
    )
    assert with_keeper(growth, "losses (train.py:41, DF101)").sentence.endswith(
        "That is 500.00 KiB in 1,000 steps. It is kept by losses (train.py:41, DF101)."
    )


@pytest.mark.parametrize(
    "kept",
    [
        [0] * 6,  # the optimizer's states of the first step are none
        [4 * MIB] * 3,  # the last step's end is not known, and two are too few
        [4 * MIB, 8 * MIB, 12 * MIB, 16 * MIB, 24 * MIB],  # not the same amount
        [4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 0, 0],  # it came to rest
    ],
)
def test_no_growth(kept: list[int]) -> None:
    assert footprint(leaking(kept).recording()).growth is None


BLOCKS = (Block(A, 4 * MIB, 4 * MIB - 7, "active_allocated"), Block(A + 4 * MIB, 16 * MIB, 0, "inactive"))
STATE = (Segment(A, 20 * MIB, 0, False, False, 0, BLOCKS),)


def test_a_state_without_events_is_its_own_peak() -> None:
    found = footprint(recording(segments=STATE, starts_empty=False))
    assert (found.peak.event, found.peak.allocated_bytes, found.peak.reserved_bytes) == (-1, 4 * MIB, 20 * MIB)
    assert found.peak.requested_bytes == 4 * MIB - 7
    assert (found.cached.split_bytes, found.cached.largest_hole_bytes) == (16 * MIB, 16 * MIB)
    assert found.tensors[0].begin == "before the recording"
    assert found.notes == (
        "The recording has no events, only one state: its peak is that state, not that of the run.",
        "100% of the peak (4.00 MiB) could not be attributed to an owner.",
    )


def test_a_trace_that_starts_in_the_middle() -> None:
    rows = ((FREE_REQUESTED, A, 4 * MIB - 7), (FREE_COMPLETED, A, 4 * MIB - 7), (ALLOC, A, 2 * MIB))
    final = (STATE[0]._replace(blocks=(Block(A, 2 * MIB, 2 * MIB, "active_allocated"),)),)
    found = footprint(recording(*rows, segments=final, starts_empty=False))
    assert (found.peak.event, found.peak.allocated_bytes) == (-1, 4 * MIB)
    assert found.notes[0] == (
        "The recording began in the middle of the run, with 4.00 MiB allocated, such as the "
        "model's parameters, of which only what its events and its "
        "end show is known, and the run's peak may lie before; call torch.cuda.memory._record_memory_history() before "
        "the model is made to know all."
    )
    assert found.notes[-1] == ("The recording does not say where steps and phases begin, so they are not told apart.")


def test_what_little_was_there_before_is_not_worth_a_word() -> None:
    rows = ((SEGMENT_ALLOC, A + 100 * MIB, 500 * MIB), (ALLOC, A + 100 * MIB, 500 * MIB))
    segment = Segment(
        A + 100 * MIB, 500 * MIB, 0, False, False, 0, (Block(A + 100 * MIB, 500 * MIB, 500 * MIB, "active_allocated"),)
    )
    found = footprint(recording(*rows, segments=(STATE[0], segment), starts_empty=False))
    assert (found.peak.allocated_bytes, found.notes) == (
        504 * MIB,
        (
            "100% of the peak (504.00 MiB) could not be attributed to an owner.",
            "The recording does not say where steps and phases begin, so they are not told apart.",
        ),
    )


def test_dropped_events_are_told() -> None:
    rows = ((SEGMENT_ALLOC, A, 20 * MIB), (ALLOC, A, 2 * MIB))
    found = footprint(recording(*rows, starts_empty=False, dropped_events=12_345))
    assert found.notes[0] == (
        "12,345 events were dropped before the first that is left, as the record was full: the peak may lie before; "
        "record with a larger max_entries."
    )


def test_nobody_is_told_to_record_a_rehearsal_otherwise() -> None:
    rows = ((SEGMENT_ALLOC, A, 20 * MIB), (ALLOC, A, 2 * MIB))
    dropped = dataclasses.replace(recording(*rows, starts_empty=False, dropped_events=12_345), source="rehearsal")
    assert footprint(dropped).notes[0] == (
        "12,345 events were dropped before the first that is left, as the record was full: the peak may lie before."
    )
    rows = ((FREE_REQUESTED, A, 4 * MIB), (FREE_COMPLETED, A, 4 * MIB), (ALLOC, A, 2 * MIB))
    late = dataclasses.replace(recording(*rows, starts_empty=False), source="rehearsal")
    assert footprint(late).notes[0] == (
        "The recording began in the middle of the run, with 4.00 MiB allocated, such as the model's parameters, of "
        "which only what its events and its end show is known."
    )


def test_events_that_do_not_reach_the_final_state_are_told() -> None:
    rows = ((SEGMENT_ALLOC, A, 20 * MIB), (ALLOC, A, 2 * MIB))
    found = footprint(recording(*rows, segments=STATE))
    assert (
        "The events end with 2.00 MiB less allocated than the recorded final state has: some events are missing, and "
        "the figures are off by up to as much."
    ) in found.notes


def test_two_in_a_hundred_may_stay_unknown() -> None:
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(98 * MIB, owner=model.PARAMETER)
    script.alloc(2 * MIB)
    assert footprint(script.recording()).notes == ()
    script.alloc(MIB)
    assert footprint(script.recording()).notes == ("3% of the peak (3.00 MiB) could not be attributed to an owner.",)


def test_marks_beyond_the_events_do_no_harm() -> None:
    script = Script()
    script.alloc(MIB, owner=model.PARAMETER)
    script.phase(model.FORWARD, step=1)
    of = script.recording()
    trace = dataclasses.replace(of.devices[0], marks=(model.Mark(0, 0, "setup"), model.Mark(99, 1, "forward")))
    assert [step.peak.allocated_bytes for step in footprint(of, trace).steps] == [MIB, MIB]

"""Stacks as a tree: each common part once, and back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dryfit.recording.stacks import EMPTY, MODULE_FILE, Frame, Stacks

FRAME = st.builds(Frame, st.sampled_from(["a.py", "b.py"]), st.sampled_from(["f", "g"]), st.integers(0, 2))


@given(st.lists(st.lists(FRAME, max_size=5)))
def test_stacks_come_back_and_equal_ones_have_one_number(all_frames: list[list[Frame]]) -> None:
    stacks = Stacks()
    numbers = [stacks.add(frames) for frames in all_frames]
    assert [stacks.frames(number) for number in numbers] == all_frames
    assert len(set(numbers)) == len(set(map(tuple, all_frames)))
    assert len(set(stacks.all_frames)) == len(stacks.all_frames)
    assert all(caller < stack for stack, caller in enumerate(stacks.caller_of) if stack)


def test_common_callers_are_kept_once() -> None:
    stacks = Stacks()
    main = Frame("train.py", "main", 7)
    stacks.add([Frame("model.py", "forward", 3), main])
    stacks.add([Frame("model.py", "forward", 4), main])
    assert len(stacks) == 4  # the empty one, that of main, and two that it called
    assert len(stacks.all_frames) == 3


def test_a_call_adds_one_frame() -> None:
    stacks = Stacks()
    outer = stacks.call(EMPTY, Frame(MODULE_FILE, "blocks.0", 0))
    assert stacks.call(outer, Frame("model.py", "forward", 3)) == stacks.add(
        [Frame("model.py", "forward", 3), Frame(MODULE_FILE, "blocks.0", 0)]
    )
    assert stacks.frames(outer)[0].is_module
    assert not Frame("model.py", "forward", 3).is_module

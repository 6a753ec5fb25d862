"""Python stacks, each frame and each common part kept once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

# The file of a frame that stands for the call of a module; its name is the module's path, "blocks.0.qkv".
MODULE_FILE = "<module>"
EMPTY = 0
"""The stack without frames: what an allocation in autograd's own threads has."""


class Frame(NamedTuple):
    """One line of a stack. A module's call is a frame too: its file is `MODULE_FILE`, its name the module's path."""

    file: str
    name: str
    line: int

    @property
    def is_module(self) -> bool:
        return self.file == MODULE_FILE


class Stacks:
    """A tree of stacks: each is its innermost frame and the stack that called it, so common callers are kept once.

    >>> stacks = Stacks()
    >>> main = Frame("train.py", "main", 7)
    >>> number = stacks.add([Frame("model.py", "forward", 3), main])
    >>> [frame.line for frame in stacks.frames(number)], stacks.frames(EMPTY)
    ([3, 7], [])

    Stacks are numbers from 0, the empty one; frames come innermost first, as torch has them.
    """

    def __init__(self) -> None:
        self.all_frames: list[Frame] = []
        self.frame_of = array("I", [0])
        """By stack: the number of its innermost frame; meaningless for the empty stack."""
        self.caller_of = array("I", [0])
        """By stack: the stack without its innermost frame; always a smaller number, but for the empty stack."""
        self._frame_numbers: dict[Frame, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.frame_of)

    def add(self, frames: Sequence[Frame]) -> int:
        """The number of a stack, its frames innermost first."""
        stack = EMPTY
        for frame in reversed(frames):
            stack = self.call(stack, frame)
        return stack

    def call(self, caller: int, frame: Frame) -> int:
        """The number of the stack that `frame` on top of `caller` makes."""
        number = self._frame_numbers.setdefault(frame, len(self.all_frames))
        if number == len(self.all_frames):
            self.all_frames.append(frame)
        stack = self._numbers.setdefault((caller, number), len(self.frame_of))
        if stack == len(self.frame_of):
            self.frame_of.append(number)
            self.caller_of.append(caller)
        return stack

    def frames(self, stack: int) -> list[Frame]:
        """The frames of a stack, innermost first."""
        frames = []
        while stack != EMPTY:
            frames.append(self.all_frames[self.frame_of[stack]])
            stack = self.caller_of[stack]
        return frames

"""The frames of a memory snapshot, as numbers of stacks."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from dryfit.recording.expected import Unexpected, printable, shown
from dryfit.recording.stacks import EMPTY, Frame, Stacks

FrameOf = Callable[[str, str, int], Frame | None]
"""Filename, name and line of a frame to the Frame that is kept; None leaves it out."""

# What no program reaches. A file can name one frame many times, in two bytes each.
MAX_FRAMES = 1 << 16
MAX_STACKS = 8_000_000


def stack_interner(stacks: Stacks, frame_of: FrameOf) -> Callable[[Any], int]:
    """From a list of frames as PyTorch has it to the number of its stack.

    PyTorch makes one dictionary for each frame and one list for each stack, and a pickle keeps that; so frames and
    lists are known by identity, which spares comparing fifty frames for each of a million events. The snapshot is
    alive as long as this is used, so an identity is never that of another object.
    """
    frames_by_id: dict[int, Frame | None] = {}
    numbers_by_id: dict[int, int] = {}
    numbers: dict[bytes, int] = {}

    def frame(entry: Any) -> Frame | None:
        if not isinstance(entry, dict):
            raise Unexpected(f"{shown(entry)} in a list of frames", "a dictionary with filename, name and line")
        file, name, line = entry.get("filename"), entry.get("name"), entry.get("line", 0)
        if not isinstance(file, str) or not isinstance(name, str) or not isinstance(line, int):
            raise Unexpected(f"a frame {shown([file, name, line])}", "one with a filename, a name and a line")
        return frame_of(printable(file), printable(name), line if 0 <= line < 1 << 31 else 0)

    def stack_of(entries: Any) -> int:
        known = numbers_by_id.get(id(entries))
        if known is not None:
            return known
        if not entries:  # no frames, or none recorded
            return EMPTY
        if not isinstance(entries, list):
            raise Unexpected(f"{shown(entries)} as frames", "a list")
        if len(entries) > MAX_FRAMES or len(stacks) > MAX_STACKS:
            raise Unexpected("more frames than a program can have", f"a stack of at most {MAX_FRAMES:,} frames")
        key = array("Q", map(id, entries)).tobytes()
        number = numbers.get(key)
        if number is None:
            number = EMPTY
            for entry in reversed(entries):
                identity = id(entry)
                if identity not in frames_by_id:
                    frames_by_id[identity] = frame(entry)
                kept = frames_by_id[identity]
                if kept is not None:
                    number = stacks.call(number, kept)
            numbers[key] = number
        numbers_by_id[id(entries)] = number
        return number

    return stack_of

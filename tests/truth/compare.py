"""Finds where two memory snapshots part: the first allocation or release that is in one and not in the other.

    python -m tests.truth.compare RECORDED.pickle.xz OURS.pickle

Prints the peaks of both, then the first difference in the sequence of sizes with the frames of both. Addresses are
not compared, and OURS may go on after the recording ends. Exit code 0 when the sequences are the same, else 1.
`--segments` compares the calls to the driver too, which depend on the order in which it hands out addresses.
OURS is what `torch.cuda.memory._dump_snapshot` writes; start its history where the recording starts.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

from dryfit.recording.model import ALLOC, FREE_REQUESTED, KINDS, SEGMENT_ALLOC, SEGMENT_FREE, Recording
from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay

SHOWN_FRAMES = 8
SHOWN_BEFORE = 3


class Told(NamedTuple):
    """An event that the program decided, and the stack it came from."""

    kind: int
    size: int
    stack: int


def story(recording: Recording, segments: bool) -> list[Told]:
    """The events that the program decides: what was asked for and what was given back.

    Releases with nothing between them are put in order of size: what is free afterwards does not depend on their
    order, and autocast drops its copies of the weights in the order of a hash of their addresses. (The sort keeps the
    order of what compares as equal, so other events stay as they are.)
    """
    wanted = {ALLOC, FREE_REQUESTED, *((SEGMENT_ALLOC, SEGMENT_FREE) if segments else ())}
    events = recording.devices[0].events
    everything = map(Told, events.kind, events.size, events.stack)
    told: list[Told] = []
    for is_release, run in itertools.groupby(
        (event for event in everything if event.kind in wanted), key=lambda event: event.kind == FREE_REQUESTED
    ):
        told.extend(sorted(run, key=lambda event: event.size if is_release else 0))
    return told


def described(event: Told | None, recording: Recording) -> str:
    if event is None:
        return "nothing: its events end before"
    frames = [frame for frame in recording.stacks.frames(event.stack) if frame.file.endswith(".py")][:SHOWN_FRAMES]
    where = " < ".join(f"{frame.name} {Path(frame.file).name}:{frame.line}" for frame in frames)
    return f"{KINDS[event.kind]} {event.size} bytes  {where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument("--segments", action="store_true", help="compare the calls to the driver too")
    arguments = parser.parse_args()

    recorded, made = (open_recording(path) for path in (arguments.recorded, arguments.ours))
    for path, recording in ((arguments.recorded, recorded), (arguments.ours, made)):
        found = replay(recording.devices[0], recording.about.get("allocator_settings"))
        peaks = f"peak allocated {max(found.allocated_bytes)}, reserved {max(found.reserved_bytes)} bytes"
        print(f"{path.name}: {peaks}")
    theirs, ours = story(recorded, arguments.segments), story(made, arguments.segments)
    for index, left in enumerate(theirs):
        right = ours[index] if index < len(ours) else None
        if right and (left.kind, left.size) == (right.kind, right.size):
            continue
        for before in theirs[max(0, index - SHOWN_BEFORE) : index]:
            print(f"  both      {described(before, recorded)}")
        print(f"first difference, event {index} of {len(theirs)} and {len(ours)}:")
        print(f"  recorded  {described(left, recorded)}\n  ours      {described(right, made)}")
        return 1
    print(f"the same {len(theirs)} events, and {len(ours) - len(theirs)} of ours after them")
    return 0


if __name__ == "__main__":
    sys.exit(main())

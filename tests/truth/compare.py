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

from . import recording

SHOWN_FRAMES = 8
SHOWN_BEFORE = 3


def story(events: list[recording.Event], segments: bool) -> list[recording.Event]:
    """The events that the program decides: what was asked for and what was given back.

    Releases with nothing between them are put in order of size: what is free afterwards does not depend on their
    order, and autocast drops its copies of the weights in the order of a hash of their addresses. (The sort keeps the
    order of what compares as equal, so other events stay as they are.)
    """
    wanted = {"alloc", "free_requested", *(("segment_alloc", "segment_free") if segments else ())}
    told: list[recording.Event] = []
    chosen = (event for event in events if event["action"] in wanted)
    for is_release, run in itertools.groupby(chosen, key=lambda event: event["action"] == "free_requested"):
        told.extend(sorted(run, key=lambda event: event["size"] if is_release else 0))
    return told


def described(event: recording.Event | None) -> str:
    if event is None:
        return "nothing: its events end before"
    frames = [frame for frame in event.get("frames", []) if frame["filename"].endswith(".py")][:SHOWN_FRAMES]
    where = " < ".join(f"{frame['name']} {Path(frame['filename']).name}:{frame['line']}" for frame in frames)
    return f"{event['action']} {event['size']} bytes  {where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument("--segments", action="store_true", help="compare the calls to the driver too")
    arguments = parser.parse_args()

    sides = []
    for path in (arguments.recorded, arguments.ours):
        events, segments = recording.load(path)
        found = recording.peaks(events, segments)
        print(f"{path.name}: peak allocated {found.allocated_bytes}, reserved {found.reserved_bytes} bytes")
        sides.append(story(events, arguments.segments))
    theirs, ours = sides
    for index, left in enumerate(theirs):
        right = ours[index] if index < len(ours) else None
        if right and (left["action"], left["size"]) == (right["action"], right["size"]):
            continue
        for before in theirs[max(0, index - SHOWN_BEFORE) : index]:
            print(f"  both      {described(before)}")
        print(f"first difference, event {index} of {len(theirs)} and {len(ours)}:")
        print(f"  recorded  {described(left)}\n  ours      {described(right)}")
        return 1
    print(f"the same {len(theirs)} events, and {len(ours) - len(theirs)} of ours after them")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How large a recording is, and how long writing, opening and replaying it take: `python benchmarks/recording.py`.

The recording is made up: a transformer's steps on one card, event for event as PyTorch's allocator would report them,
with times that vary. Each line is measured in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from dryfit.recording import model
from dryfit.recording.file import load, save
from dryfit.recording.model import DeviceTrace, Events, Label, Mark, Recording
from dryfit.recording.replay import replay
from dryfit.recording.stacks import Frame, Stacks

MIB = 1 << 20
LAYERS, TENSORS = 80, 16
"""Of the made-up model, whose layers each make so many tensors in a forward pass."""


def made_up(event_count: int) -> Recording:
    """A recording of about `event_count` events: parameters, then steps of forward and backward passes."""
    chance = random.Random(7)
    events, stacks, marks, labels = Events(), Stacks(), list[Mark](), list[Label]()
    main = stacks.call(0, Frame("train.py", "main", 10))
    free: dict[int, list[int]] = {}
    top, now = 0x7F0000000000, 0

    def event(kind: int, address: int, size: int, stack: int) -> None:
        nonlocal now
        now += chance.randrange(1, 90)
        for column, value in (
            (events.kind, kind), (events.address, address), (events.size, size), (events.stream, 0), (events.pool, 0),
            (events.stack, stack), (events.time_us, now),
        ):  # fmt: skip
            column.append(value)

    def alloc(size: int, stack: int) -> int:
        nonlocal top
        segment = -(-size // (2 * MIB)) * 2 * MIB
        if not free.setdefault(segment, []):
            event(model.SEGMENT_ALLOC, top, segment, stack)
            free[segment].append(top)
            top += segment
        address = free[segment].pop()
        event(model.ALLOC, address, size, stack)
        return address

    def release(address: int, size: int, stack: int) -> None:
        event(model.FREE_REQUESTED, address, size, stack)
        event(model.FREE_COMPLETED, address, size, stack)
        free[-(-size // (2 * MIB)) * 2 * MIB].append(address)

    layers = []
    for layer in range(LAYERS):
        stack = stacks.call(main, Frame("<module>", f"layers.{layer}", 0))
        layers.append([stacks.call(stack, Frame("model.py", "forward", line)) for line in range(TENSORS)])
        for line, stack in enumerate(layers[-1]):
            labels.append(Label(len(events) + 1, model.PARAMETER, f"layers.{layer}.{line}", "bfloat16", (8192, 8192)))
            alloc((11 + line) * MIB, stack)
    step = 0
    while len(events) < event_count:
        step += 1
        kept = []
        marks.append(Mark(len(events), step, model.FORWARD))
        for stacks_of_layer in layers:
            for line, stack in enumerate(stacks_of_layer):
                size = (1 + 3 * line) * MIB + 512 * chance.randrange(9)
                address = alloc(size, stack)
                if line % 3:
                    kept.append((address, size))
                else:
                    release(address, size, stack)
        marks.append(Mark(len(events), step, model.BACKWARD))
        for address, size in reversed(kept):
            release(address, size, 0)
    trace = DeviceTrace(device=0, events=events, marks=tuple(marks), labels=tuple(labels), starts_empty=True)
    return Recording(source="rehearsal", devices=(trace,), stacks=stacks)


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(what: str, path: Path, event_count: int) -> None:
    if what == "save":
        recording = made_up(event_count)
        began = time.perf_counter()
        save(recording, path)
        seconds = time.perf_counter() - began
        count = len(recording.devices[0].events)
        print(f"save    {seconds:6.2f} s, {count:,} events, {path.stat().st_size / MIB:.1f} MiB")
        return
    began = time.perf_counter()
    recording = load(path)
    if what == "open":
        print(f"open    {time.perf_counter() - began:6.3f} s, {resident_mib():.0f} MiB resident")
        return
    events = recording.devices[0].events
    length = sum(len(getattr(events, name)) for name in Events.__slots__) + len(recording.stacks.all_frames)
    assert length > len(events)
    if what == "load":
        print(f"load    {time.perf_counter() - began:6.2f} s, all columns, {resident_mib():.0f} MiB resident")
        return
    began = time.perf_counter()
    done = replay(recording.devices[0])
    assert isinstance(done.allocated_bytes, array)
    print(f"replay  {time.perf_counter() - began:6.2f} s, {resident_mib():.0f} MiB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("save", "open", "load", "replay"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        measure(options.only, options.file, options.events)
        return
    with tempfile.TemporaryDirectory() as folder:
        for what in ("save", "open", "load", "replay"):
            words = ("--only", what, "--file", str(Path(folder) / "made_up.dryfit"), "--events", str(options.events))
            subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    main()

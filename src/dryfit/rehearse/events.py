"""The lines a rehearsed process writes and its parent reads: one JSON object a line, one file a process.

A file of lines survives whatever ends the process, a segmentation fault included; what was written last is what
was known last. Events, in the order they come:

    python      a Python process of the program has started         pid, parent, argv
    torch       it has imported torch, hooks are in place            versions
    rank        it has become one of several real ranks              rank, ranks
    joined      it has made itself a rank of a world, and is alone   rank, ranks, asked: the two that were asked for
    step        all optimisers have stepped                          step, peaks by phase, seconds
    communication  what the step that is over has passed to others  step, passed: calls, payload and sent bytes by kind
    oom         the allocator gave up                                step, phase, requested_bytes, ... see `inside.oom`
    measure     a measure could not be switched on                   name, why, trace
    note        a sentence for the result's notes                    text, is_on_world: that is not the one asked for
    modules     what it has imported, where that is asked for        names, after_card, environment, before_torch
    fault       our hooks failed                                     trace
    end         the process is about to end, or was told to          how, error, files, peaks by step, calls, inventions
                (also findings, and not_observed: why there are no more; devices and communicators, see `calls`)
    unrecorded  what came after `end`, the recording, is not whole   trace

Of one step there may be several events; the last counts. Memory figures are bytes as PyTorch's allocator counts them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dryfit.plain import from_plain, to_plain
from dryfit.rehearse.world import World

Event = dict[str, Any]

# How a process that the rehearsal stopped says why; `inside.stopping` decides it.
ENOUGH = ("steady", "steps", "most steps")

# ... and where a measure could not be switched on.
NOT_SWITCHED_ON = "not switched on"

# How the parent tells the processes of a rehearsal what to do; a JSON object, see `Orders`.
ORDERS_VARIABLE = "DRYFIT_REHEARSAL"

# The recording of a process lies beside its events, named after its number too.
RECORDING_SUFFIX = ".recording"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a rehearsed process needs to know, handed down through one environment variable.

    >>> Orders.from_text(Orders(folder="/tmp/x", steps=3).to_text()).steps
    3

    `steps` is the number of optimiser steps to stop after; 0 stands for «all», None for «until the peak is steady».
    Without a `folder` the hooks are placed and nothing is written: the process is a fork server, which gives its forks
    orders of their own. `modules` asks for what a fork server can import; without `recording` the figures are
    all there is. `measures` are to be switched on, by name and option; `facts` asks what the program is like, and for
    counted FLOPs, which takes longer and may take more memory. `observe` asks for findings, `watch` for more steps to
    have them from; `longest` has the longest batch given, as `inside.longest.asked` reads it, unless it is empty;
    `assume` is what values that are not known are, as `assumptions.parse` reads it. `world` is the rank that this
    process plays alone. With `real_card` the card is asked what is used of it, and no virtual one has to be there.
    """

    folder: str
    steps: int | None = None
    values: bool = True
    skip_weights: bool = False
    exact_weights: bool = False
    recording: bool = True
    modules: bool = False
    measures: tuple[str, ...] = ()
    facts: bool = False
    observe: bool = False
    watch: bool = False
    longest: str = ""
    assume: tuple[str, ...] = ()
    real_card: bool = False
    world: World | None = None

    def to_text(self) -> str:
        return json.dumps(to_plain(self))

    @classmethod
    def from_text(cls, text: str) -> Orders:
        return from_plain(cls, json.loads(text))


class EventWriter:
    """Appends events to this process's file; each is one `write`, so a crash cannot leave half a line before it."""

    def __init__(self, folder: str) -> None:
        self._descriptor = -1
        self.reopen(folder)

    def reopen(self, folder: str) -> None:
        """Go on in a file of this process's own, after a fork; without a folder nothing is written."""
        if not folder:
            return
        path = f"{folder}/{os.getpid()}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        if self._descriptor >= 0:
            os.write(self._descriptor, (json.dumps({"event": event, **fields}, default=str) + "\n").encode())


class EventFolder:
    """The events of all processes, read as they grow: each look reads only what has been written since the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events: dict[Path, list[Event]] = {}
        self._read_bytes: dict[Path, int] = {}
        self._newest_at = time.monotonic()

    def read(self) -> list[list[Event]]:
        """Every process's events so far; a last line that is not finished is left out."""
        for path in sorted(self._folder.glob("*.jsonl")):
            events = self._events.setdefault(path, [])
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._newest_at = time.monotonic()
                self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
                events += [json.loads(line) for line in whole.splitlines()]
        return list(self._events.values())

    def one_saw_enough(self) -> bool:
        """Whether a process has stopped itself because it had seen enough."""
        return any(event.get("how") in ENOUGH for events in self.read() for event in events[-2:])

    def have_ended(self, pids: Collection[int]) -> bool:
        """Whether one of these processes has written its last event, and may be writing its recording."""
        return any(events[0].get("pid") in pids and events[-1]["event"] == "end" for events in self.read() if events)

    def seconds_silent(self) -> float:
        """How long no process had written anything at the last look."""
        return time.monotonic() - self._newest_at

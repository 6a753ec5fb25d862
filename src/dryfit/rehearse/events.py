"""The lines a rehearsed process writes and its parent reads: one JSON object a line, one file a process.

A file of lines survives whatever ends the process, a segmentation fault included; what was written last is what
was known last. Events, in the order they come:

    python      a Python process of the program has started         pid, parent, argv
    torch       it has imported torch, hooks are in place            versions
    step        an optimiser step has ended                          step, peaks by phase, seconds
    oom         the allocator gave up                                step, phase, requested_bytes, ... see `inside.oom`
    end         the process is about to end, or was told to          how, error, peaks by step, calls, inventions

Memory figures are bytes as PyTorch's allocator counts them. `seconds` counts from the import of torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]

# How the parent tells the processes of a rehearsal what to do; a JSON object, see `Orders`.
ORDERS_VARIABLE = "DRYFIT_REHEARSAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a rehearsed process needs to know, handed down through one environment variable.

    >>> Orders.from_text(Orders(folder="/tmp/x", steps=3).to_text()).steps
    3

    `steps` is the number of optimiser steps to stop after; 0 stands for «all», None for «until the peak is steady».
    """

    folder: str
    steps: int | None = None
    values: bool = True
    skip_weights: bool = False

    def to_text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_text(cls, text: str) -> Orders:
        return cls(**json.loads(text))


class EventWriter:
    """Appends events to this process's file; each is one `write`, so a crash cannot leave half a line before it."""

    def __init__(self, folder: str) -> None:
        path = f"{folder}/{os.getpid()}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        os.write(self._descriptor, (json.dumps({"event": event, **fields}, default=str) + "\n").encode())


def read_events(path: Path) -> Iterator[Event]:
    """Read one process's events; a last line cut short by a crash is left out."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.endswith("\n"):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

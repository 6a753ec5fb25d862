"""Snapshots made in tests: by programs/allocations.py on a virtual card of 4 GiB, and by hand."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dryfit.recording.model import Recording
from dryfit.recording.opening import open_recording
from dryfit.virtual_card import CardSettings, environment

PROGRAM = Path(__file__).parent / "programs" / "allocations.py"
MIB, GIB = 1 << 20, 1 << 30
CARD = CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=4 * GIB)


@dataclass(frozen=True)
class Recorded:
    """A program's snapshot, and the peaks that its allocator counted."""

    content: bytes
    recording: Recording
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    retries: int


SETTINGS = ("", "expandable_segments:True", "roundup_power2_divisions:4", "max_split_size_mb:32")
FROM_EMPTY = ("fragments", "too_big", "limited", "retried", "emptied", "streams", "pools", "caught")
AFTER_START = ("emptied-after-start", "streams-after-start", "fragments-after-start")


def recorded(case: str, settings: str = "") -> Recorded:
    """What a case of the program recorded."""
    return _all_recorded()[f"{case},{settings}"]


@functools.cache
def _all_recorded() -> dict[str, Recorded]:
    """Run all cases, in one process for all tests."""
    cases = [f"{case},{settings}" for case in FROM_EMPTY for settings in SETTINGS]
    cases += [f"{case}," for case in (*AFTER_START, "idle")]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), folder, *cases],
            env=os.environ | environment(CARD),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = {}
        for number, (case, line) in enumerate(zip(cases, done.stdout.splitlines(), strict=True)):
            path = Path(folder) / f"{number}.pickle"
            found[case] = Recorded(content=path.read_bytes(), recording=open_recording(path), **json.loads(line))
        return found


def line_of(text: str) -> int:
    """The number of the program's line that has this text."""
    lines = PROGRAM.read_text().splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if text in line)
    return found

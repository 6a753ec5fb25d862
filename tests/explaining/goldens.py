"""The committed figures: what snapshots of real cards come to in PyTorch's own allocator, by its version.

`expected/torch-VERSION.toml` says for each snapshot and card what was recorded and what that version's allocator made
of it. `python -m tests.explaining.goldens` writes the file of the installed torch anew.
"""

from __future__ import annotations

import csv
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dryfit.recording.model import Recording
from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay
from dryfit.rehearse.allocator_settings import recorded_settings
from dryfit.rehearse.retrace import AllocatorProcess, Retraces, allocator_process

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SNAPSHOTS = HERE.parents[2] / "shared" / "truth" / "snapshots"
"""Recordings of real cards, where they lie beside the checkout; their licences keep them out of it."""
TORCH = importlib.metadata.version("torch").partition("+")[0]
LEFT_OUT = ("mosaic_test_trace_only",)
"""Its events and its segments are not of one run."""

_HEADER = """\
# What snapshots of real cards come to in the allocator of torch {version}, played with the recorded settings and as
# much memory as their events tell of. [allocated, reserved] at the peak, in bytes; card 0 is "name/0".
# Written by `python -m tests.explaining.goldens`; read a change before you commit it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    recorded_by: str
    """The torch that recorded it; "" where that is not known."""
    starts_empty: bool
    recorded: tuple[int, int]
    retraced: tuple[int, int]


def expected(version: str) -> dict[str, Figures]:
    """The figures of a version of torch; none where it was not measured."""
    path = HERE / "expected" / f"torch-{version}.toml"
    if not path.exists():
        return {}
    return {
        name: Figures(
            recorded_by=row["recorded_by"],
            starts_empty=row["starts_empty"],
            recorded=tuple(row["recorded"]),
            retraced=tuple(row["retraced"]),
        )
        for name, row in tomllib.loads(path.read_text()).items()
    }


def versions() -> list[str]:
    found = (path.stem.removeprefix("torch-") for path in (HERE / "expected").glob("torch-*.toml"))
    return sorted(found, key=numbers_of)


def numbers_of(version: str) -> tuple[int, ...]:
    """What versions are sorted by."""
    return tuple(map(int, re.findall(r"\d+", version)))


def snapshot_names() -> list[str]:
    found = (path.name.partition(".")[0] for path in SNAPSHOTS.glob("*.pickle.xz"))
    return sorted(name for name in found if name not in LEFT_OUT)


def opened(name: str) -> Recording:
    return open_recording(SNAPSHOTS / f"{name}.pickle.xz")


def measured(name: str, process: AllocatorProcess) -> Iterator[tuple[str, Figures]]:
    """The figures of each card of a snapshot."""
    recording = opened(name)
    settings = recording.about.get("allocator_settings")
    recorded_by = _torch_of(name)
    for trace in recording.devices:
        replayed = replay(trace, settings)
        retrace = Retraces(trace, recorded_settings(settings), process)
        found = retrace(memory_bytes=retrace.capacity_bytes)
        yield (
            f"{name}/{trace.device}",
            Figures(
                recorded_by=recorded_by,
                starts_empty=trace.starts_empty,
                recorded=(
                    max([replayed.before_allocated_bytes, *replayed.allocated_bytes]),
                    max([replayed.before_reserved_bytes, *replayed.reserved_bytes]),
                ),
                retraced=(found.peak_allocated_bytes, found.peak_reserved_bytes),
            ),
        )


def _torch_of(name: str) -> str:
    with (SNAPSHOTS / "index.csv").open(newline="") as file:
        rows = (row["torch"] for row in csv.DictReader(file) if row["file"].startswith(f"{name}."))
        found = re.match(r"[\d./]+", next(rows, ""))
    return found[0] if found else ""


def main() -> None:
    lines = [_HEADER.format(version=TORCH)]
    with allocator_process() as process:
        for name in snapshot_names():
            for card, figures in measured(name, process):
                lines += [
                    f'["{card}"]',
                    f'recorded_by = "{figures.recorded_by}"',
                    f"starts_empty = {str(figures.starts_empty).lower()}",
                ]
                lines += [f"{key} = {_row(getattr(figures, key))}" for key in ("recorded", "retraced")]
                lines.append("")
    path = HERE / "expected" / f"torch-{TORCH}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n")


def _row(figures: tuple[int, int]) -> str:
    return f"[{figures[0]:_}, {figures[1]:_}]"


if __name__ == "__main__":
    main()

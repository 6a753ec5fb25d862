"""Opens whatever a person has of a run's memory: a recording of dryfit, or a snapshot of PyTorch in any form."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.places import as_seen_from_here
from dryfit.recording.containers import snapshot_pickle
from dryfit.recording.file import is_recording, load
from dryfit.recording.model import Recording
from dryfit.recording.other_files import what_it_is
from dryfit.recording.snapshot import from_snapshot
from dryfit.recording.unpickle import plain_values


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file: dryfit's own, or what torch 2.1 to 2.14 wrote of a real card's memory.

        recording = open_recording("snapshot.pickle")

    A snapshot may be the pickle of `torch.cuda.memory._dump_snapshot()`, that compressed with gzip or xz, or an HTML
    page of PyTorch's viewer. The content decides, not the name. A pickle is read without importing or running anything.

    Raises:
        UsageError: there is no such file, it is neither of these, or it is damaged; one sentence says which.
    """
    path = Path(path)
    name = as_seen_from_here(str(path))
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{name} is a folder, and one file is expected: name the recording or snapshot in it.")
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{name} is no regular file, and one is expected: copy what it gives into a file first.")
        if not found.st_size:
            raise UsageError(f"{name} {what_it_is(b'', 0)}")
        if is_recording(path):
            return load(path)
        return from_snapshot(plain_values(snapshot_pickle(path, name), name), name=name)
    except FileNotFoundError:
        raise UsageError(f"There is no file {name}; check the path{_from_where(path)}.") from None
    except (OSError, ValueError) as error:  # a path with a zero in it is a ValueError
        reason = ((isinstance(error, OSError) and error.strerror) or str(error)).lower()
        raise UsageError(f"{name} cannot be read: {reason}; check its permissions and path.") from None


def _from_where(path: Path) -> str:
    if path.is_absolute():
        return ""
    try:
        return f", it is taken from {Path.cwd()}"
    except OSError:
        return ", for the current folder has been deleted"

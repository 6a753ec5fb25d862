"""The files that a verb writes: their places are checked before any work is done, and stderr says what was written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.units import format_bytes


def check_places(places: Mapping[str, str | None], read: Iterable[str] = ()) -> None:
    """See that files can be written where options ask for them, and write over nothing that the command reads.

        check_places({"-o": "result.json", "--report": None}, read=["train.py"])

    Raises:
        UsageError: a place is a folder, its folder is missing, it may not be written, two options name the same, or it
            is one of the files that are `read`.
    """
    asked = {option: Path(place) for option, place in places.items() if place is not None}
    taken: dict[str, str] = {}
    for option, path in asked.items():
        if path.is_dir():
            raise UsageError(f"{option} cannot write to {path}, which is a folder; name a file.")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UsageError(f"There is no folder to save {path} in; make it first, or name another.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise UsageError(f"{option} may not write to {path}: it or its folder is read-only; name another place.")
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{other} and {option} both name {path}; each needs a file of its own.")
        for file in read:
            if path.exists() and Path(file).exists() and path.samefile(file):
                raise UsageError(f"{option} would write over {path}, which this command reads; name another file.")


def write(place: str, write_to: Callable[[Path], object]) -> None:
    """Have a file written, and say so on stderr.

    Raises:
        UsageError: it cannot be written.
    """
    path = Path(place)
    try:
        write_to(path)
    except OSError as error:
        raise UsageError(f"{place} could not be written: {error.strerror}; name another place.") from error
    if sys.stderr is not None:  # print would take stdout instead
        print(f"Wrote {place} ({format_bytes(path.stat().st_size)})", file=sys.stderr)

"""The files that a verb writes: their places are checked before any work is done, and stderr says what was written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.units import format_bytes
from dryfit.whole_files import whole_file


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
        # A file is replaced by a new one, which its folder has to allow; a device or a pipe is written to as it is.
        is_stream = path.exists() and not path.is_file()
        changed = [*([path] if path.exists() else []), *([] if is_stream else [folder])]
        if not all(os.access(each, os.W_OK) for each in changed):
            raise UsageError(f"{option} may not write to {path}: it or its folder is read-only; name another place.")
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{other} and {option} both name {path}; each needs a file of its own.")
        for file in read:
            is_there = os.path.exists(file)  # noqa: PTH110 - false for a word that no path can be
            if is_there and path.exists() and path.samefile(file):
                raise UsageError(f"{option} would write over {path}, which this command reads; name another file.")


def write(place: str, write_to: Callable[[Path], object]) -> None:
    """Have a file written, and say so on stderr.

    `write_to` raises what there is to say where it cannot be written.
    """
    path = Path(place)
    write_to(path)
    if sys.stderr is not None:  # print would take stdout instead
        print(f"Wrote {place} ({format_bytes(path.stat().st_size)})", file=sys.stderr)


def write_text(place: str, text: str, what: str) -> None:
    """Write some text whole, and say so on stderr; `what` names it where it cannot be written, as in "report"."""

    def save(path: Path) -> None:
        with whole_file(path, what) as file:
            file.write(text.encode("utf-8"))

    write(place, save)

"""A line for each finished cell, appended as it finishes: what a sweep that was stopped goes on from."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from dryfit.errors import UsageError
from dryfit.plain import from_plain, to_plain
from dryfit.sweeping.row import Outcome

_SCHEMA = 1


class Store:
    """The file of finished cells, held by one sweep at a time; `open_store` makes it."""

    def __init__(self, file: IO[bytes], content_of: Callable[[str], str | None]) -> None:
        self._file, self._content_of = file, content_of

    def outcomes(self, keys: Iterable[str]) -> dict[str, Outcome]:
        """The outcomes kept under these keys whose program's source files are as they were; the last of each counts."""
        wanted, found = set(keys), dict[str, Outcome]()
        self._file.seek(0)
        for line in self._file:
            with contextlib.suppress(
                ValueError, KeyError, TypeError, AttributeError
            ):  # cut short, or another version's
                entry: dict[str, Any] = json.loads(line)
                if entry["schema"] != _SCHEMA or entry["key"] not in wanted:
                    continue
                if all(self._content_of(file) == content for file, content in entry["files"].items()):
                    found[entry["key"]] = from_plain(Outcome, entry["outcome"])
        return found

    def keep(self, key: str, cell: str, outcome: Outcome, files: Iterable[str]) -> None:
        """Append an outcome; `cell` is for a person who reads the file.

        Raises:
            UsageError: there is no room.
        """
        entry = {
            "schema": _SCHEMA,
            "key": key,
            "cell": cell,
            "outcome": to_plain(outcome),
            "files": {file: self._content_of(file) for file in files},
        }
        try:
            size_bytes = self._file.seek(0, os.SEEK_END)
            if size_bytes:
                self._file.seek(size_bytes - 1)
                if self._file.read(1) != b"\n":  # the last sweep was killed in the middle of a line
                    self._file.write(b"\n")
            self._file.write(f"{json.dumps(entry)}\n".encode())
            self._file.flush()
        except OSError as error:
            raise UsageError(
                f"The row of {cell} could not be written to {self._file.name}: {error.strerror}. The rows before it "
                "are there; make room, and start the same command again to go on."
            ) from error


@contextlib.contextmanager
def open_store(path: Path, content_of: Callable[[str], str | None]) -> Iterator[Store]:
    """Open the file of finished cells, or begin one; `content_of` says what is in a source file.

    Raises:
        UsageError: it cannot be written, or another sweep has it.
    """
    try:
        file = path.open("a+b")
    except OSError as error:
        raise UsageError(
            f"The finished cells cannot be kept in {path}: {error.strerror}; name another file with --rows."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another sweep is running that keeps its rows in {path}; wait for it, or name another file "
                "with --rows."
            ) from None
        yield Store(file, content_of)

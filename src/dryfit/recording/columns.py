"""The container of a recording file: a zip of one JSON header and of columns of integers, each read when it is needed.

The header comes first and bears a name of its own, so that the file's first bytes say what it is. A column is a member
of little-endian integers; the header says its type, its length and whether differences are stored instead of values.
The file may come from anywhere: whatever it declares is checked against what is there before memory is taken for it.
"""

from __future__ import annotations

import io
import itertools
import json
import operator
import os
import stat
import struct
import sys
import weakref
import zipfile
import zlib
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dryfit.errors import UsageError

VERSION = 1
HEADER = "dryfit-recording.json"
FIRST_BYTES = 64
"""How many bytes of a file tell whether it is a recording."""

MOST_ROWS = 1 << 26
_MOST_FILE_BYTES = 1 << 30
_MOST_HEADER_BYTES = 1 << 24
_MOST_DIRECTORY_BYTES = 1 << 22
_MOST_DEFLATED = 1032  # deflate makes no more than this of a byte
_TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
_TYPE_OF = {code: name for name, code in _TYPES.items()}
_DIFFERENCES = "q"
_BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, LookupError, OverflowError,
    RuntimeError,  # NotImplementedError and RecursionError are such
)  # fmt: skip
"""What reading a damaged zip or its JSON ends in."""


def is_recording(file: Path | str | bytes) -> bool:
    """Say whether a file, or the `FIRST_BYTES` of one, are a recording's; a file that cannot be read is none.

    >>> is_recording(b"PK but another zip")
    False
    """
    if not isinstance(file, bytes):
        try:
            with Path(file).open("rb") as opened:
                file = opened.read(FIRST_BYTES)
        except OSError:
            return False
    return file.startswith(b"PK\x03\x04") and file[30:].startswith(HEADER.encode())


def write(file: IO[bytes], header: Mapping[str, Any], columns: Mapping[str, array[int]]) -> None:
    """Write a header and columns by name; equal content makes equal bytes.

    Raises:
        UsageError: a column is longer than `MOST_ROWS`.
    """
    declared, members = {}, {}
    for name, column in columns.items():
        if len(column) > MOST_ROWS:
            raise UsageError(
                f"A recording holds at most {MOST_ROWS:,} numbers in a column, and {name} has {len(column):,} here; "
                "record fewer steps."
            )
        stored = _differences(column) if name.endswith("/time_us") else None
        declared[name] = {"type": _TYPE_OF[column.typecode], "count": len(column), "differences": stored is not None}
        members[name] = _little_endian(column if stored is None else stored)
    described = {"format": "dryfit recording", "version": VERSION, **header, "columns": declared}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ((HEADER, json.dumps(described, sort_keys=True, indent=1).encode()), *members.items()):
            # Not the time of writing.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


class Columns:
    """A recording file, open: its header, and its columns by name.

    Raises:
        UsageError: the file cannot be read, is no recording, is damaged, or was written by a newer dryfit.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        try:
            file = io.BufferedReader(io.FileIO(path, opener=_open_without_waiting))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"The recording {path} cannot be opened: {reason}.") from error
        self._close = weakref.finalize(self, file.close)
        try:
            self._check_size(file)
            self._archive = zipfile.ZipFile(file)
            self._members = {member.filename: member for member in self._archive.infolist()}
            self.header = self._read_header()
        except UsageError:
            self._close()
            raise
        except _BROKEN as error:
            self._close()
            raise self.damaged(str(error)) from error

    def damaged(self, what: str) -> UsageError:
        """The error that says what is wrong with the file."""
        reason = " ".join(what.split())[:200]
        return UsageError(
            f"The recording {self.path} is damaged ({reason}); record it again, or take another copy of it."
        )

    def count(self, name: str) -> int:
        """How long a column says it is."""
        return self._declared(name)[1]

    def column(self, name: str, typecode: str) -> array[int]:
        """Read a column, which has to be of this type of `array`.

        Raises:
            UsageError: it is missing, of another type, or damaged.
        """
        type_name, count, has_differences = self._declared(name)
        if type_name != _TYPE_OF[typecode]:
            raise self.damaged(f"{name} is of type {type_name} instead of {_TYPE_OF[typecode]}")
        stored = array(_DIFFERENCES if has_differences else typecode)
        try:
            stored.frombytes(self._content(name, count * stored.itemsize))
            if sys.byteorder == "big":
                stored.byteswap()
            return array(typecode, itertools.accumulate(stored)) if has_differences else stored
        except _BROKEN as error:
            raise self.damaged(f"{name}: {error}") from error

    def _declared(self, name: str) -> tuple[str, int, bool]:
        declared = self.header["columns"].get(name)
        if not isinstance(declared, dict):
            raise self.damaged(f"{name} is missing")
        type_name, count, has_differences = (declared.get(key) for key in ("type", "count", "differences"))
        if not isinstance(type_name, str) or type_name not in _TYPES or type(count) is not int or count < 0:
            raise self.damaged(f"{name} is declared as {count!r} numbers of type {type_name!r}")
        if count > MOST_ROWS:
            raise self.damaged(f"{name} is declared as {count} numbers, a recording has at most {MOST_ROWS}")
        return type_name, count, has_differences is True

    def _content(self, name: str, size: int) -> bytes:
        """A member's bytes, which are as many as this."""
        member = self._members.get(name)
        if member is None:
            raise ValueError("it is missing")
        if member.file_size != size:
            raise ValueError(f"{member.file_size} bytes instead of {size}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("it is not deflated")
        if size > (member.compress_size + 1) * _MOST_DEFLATED:
            raise ValueError(f"{size} bytes cannot come of {member.compress_size}")
        with self._archive.open(member) as opened:
            content = opened.read(size) + opened.read(1)  # at its end the checksum is compared
        if len(content) != size:
            raise ValueError(f"{len(content)} bytes instead of {size}")
        return content

    def _read_header(self) -> dict[str, Any]:
        size = self._members[HEADER].file_size if HEADER in self._members else 0
        if size > _MOST_HEADER_BYTES:
            raise ValueError(f"its header has {size} bytes")
        header = json.loads(self._content(HEADER, size))
        if not isinstance(header, dict) or header.get("format") != "dryfit recording":
            raise ValueError("its header is not a recording's")
        version = header.get("version")
        if type(version) is not int or version < 1:
            raise ValueError(f"its version is {version!r}")
        if version > VERSION:
            raise UsageError(
                f"The recording {self.path} was written by a newer dryfit: its format is {version}, this dryfit reads "
                f"up to {VERSION}. Install a newer dryfit to open it."
            )
        if not isinstance(header.get("columns"), dict):
            raise ValueError("its header names no columns")
        return header

    def _check_size(self, file: io.BufferedReader[io.FileIO]) -> None:
        """Refuse what is no recording, and a directory that would take more memory than it describes."""
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not is_recording(file.read(FIRST_BYTES)):
            raise UsageError(f"{self.path} is not a recording of dryfit's; `dryfit run --record FILE` makes one.")
        if status.st_size > _MOST_FILE_BYTES:
            raise ValueError(f"{status.st_size} bytes are more than any recording has")
        # The end of a zip file without a comment: signature, disk numbers, entries, the directory's size and place.
        file.seek(max(0, status.st_size - 42))
        tail = file.read()
        signature, directory_bytes = struct.unpack("<4s8xL6x", tail[-22:])
        if signature != b"PK\x05\x06":
            raise ValueError("its end is missing")
        if directory_bytes > _MOST_DIRECTORY_BYTES or tail.startswith(b"PK\x06\x07"):
            raise ValueError("its directory is larger than any recording's")


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # for a named pipe, open would wait


def _differences(column: array[int]) -> array[int] | None:
    """A column's first value and the differences between neighbours; None where these need more than 63 bits."""
    try:
        return array(_DIFFERENCES, itertools.chain(column[:1], map(operator.sub, column[1:], column)))
    except OverflowError:
        return None


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        return column.tobytes()
    swapped = column[:]
    swapped.byteswap()
    return swapped.tobytes()

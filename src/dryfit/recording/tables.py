"""Rows of values as columns of integers, and back; every text is kept once, and a column has its number."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dryfit.errors import UsageError
from dryfit.recording.columns import Columns

# The tables but that of the events, which stays in columns: the kinds of their columns, in the order of a row.
TABLES = {
    "frames": {"file": "text", "name": "text", "line": "i64"},
    "modules": {"path": "text", "kind": "text", "dtype": "text", "shape": "shape"},
    "workspaces": {"address": "u64", "size": "u64"},
    "pools": {"first": "u64", "second": "u64"},
    "marks": {"event": "u64", "step": "i64", "phase": "text", "autocast": "flag"},
    "labels": {"event": "u64", "owner": "text", "name": "text", "dtype": "text", "shape": "shape"},
    "segments": {
        "address": "u64", "total_size": "u64", "stream": "u64", "is_small": "flag", "is_expandable": "flag",
        "pool": "u16", "blocks": "u32",
    },
    "blocks": {"address": "u64", "size": "u64", "requested_size": "u64", "state": "text", "stack": "u32"},
}  # fmt: skip
_TYPECODES = {"flag": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "text": "I", "shape": "I"}

MOST_ROWS = 1 << 22
"""Of a table here; its rows become objects when the file is opened."""
_UNKNOWN_SHAPE = "unknown"


class TableWriter:
    """Collects tables as columns by name."""

    def __init__(self) -> None:
        self._columns: dict[str, array[int]] = {}
        self._numbers: dict[str, int] = {}

    def add(self, table: str, rows: Sequence[Sequence[Any]], prefix: str = "") -> None:
        """Add a table under `prefix`; a row has a value for each of its columns.

        Raises:
            UsageError: there are more than `MOST_ROWS`.
            OverflowError: a number does not fit its column.
        """
        if len(rows) > MOST_ROWS:
            raise UsageError(
                f"A recording holds at most {MOST_ROWS:,} {table}, and this one has {len(rows):,}; record fewer steps."
            )
        values = zip(*rows, strict=True) if rows else itertools.repeat(())
        for (name, kind), column in zip(TABLES[table].items(), values, strict=False):
            self.add_column(f"{prefix}{table}/{name}", array(_TYPECODES[kind], self._encoded(kind, column)))

    def add_column(self, name: str, column: array[int]) -> None:
        self._columns[name] = column

    def columns(self) -> dict[str, array[int]]:
        """All that was added, and the texts."""
        texts = [text.encode("utf-8", "surrogatepass") for text in self._numbers]
        self.add_column("texts/bytes", array("B", b"".join(texts)))
        self.add_column("texts/length", array("I", map(len, texts)))
        return self._columns

    def _encoded(self, kind: str, values: Iterable[Any]) -> Iterable[int]:
        numbers = self._numbers
        if kind == "shape":
            values = (_UNKNOWN_SHAPE if shape is None else ",".join(map(str, shape)) for shape in values)
        if kind in ("shape", "text"):
            return [numbers.setdefault(text, len(numbers)) for text in values]
        return values


class TableReader:
    """Reads tables of an open file, checking that every number in them names something.

    Raises, in every method:
        UsageError: the file is damaged.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        lengths, content = self._short("texts/length", "I"), columns.column("texts/bytes", "B").tobytes()
        if sum(lengths) != len(content):
            raise columns.damaged("texts/length and texts/bytes do not agree")
        try:
            self._texts = [
                str(content[stop - length : stop], "utf-8", "surrogatepass")
                for length, stop in zip(lengths, itertools.accumulate(lengths), strict=True)
            ]
        except UnicodeDecodeError as error:
            raise columns.damaged(f"texts/bytes: {error}") from error

    def rows(self, table: str, prefix: str = "", below: Mapping[str, int] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a table; `below` is by column the number that all values have to be below."""
        limits = below or {}
        columns = []
        for name, kind in TABLES[table].items():
            full_name = f"{prefix}{table}/{name}"
            limit = len(self._texts) if kind in ("text", "shape") else limits.get(name)
            column = self.checked(full_name, self._short(full_name, _TYPECODES[kind]), limit)
            columns.append(self._decoded(full_name, kind, column))
        if len({len(column) for column in columns}) > 1:
            raise self.columns.damaged(f"{prefix}{table} has columns of different lengths")
        return list(zip(*columns, strict=True))

    def checked(self, name: str, column: array[int], below: int | None) -> array[int]:
        """The column, if all its values are below a limit."""
        if below is not None and max(column, default=-1) >= below:
            raise self.columns.damaged(f"{name} has {max(column)}, but there are {below}")
        return column

    def _short(self, name: str, typecode: str) -> array[int]:
        if self.columns.count(name) > MOST_ROWS:
            raise self.columns.damaged(f"{name} has more than {MOST_ROWS} rows")
        return self.columns.column(name, typecode)

    def _decoded(self, name: str, kind: str, column: array[int]) -> Sequence[Any]:
        if kind == "flag":
            return [bool(value) for value in column]
        if kind == "text":
            return [self._texts[number] for number in column]
        if kind == "shape":
            try:
                shapes = {number: _shape(self._texts[number]) for number in set(column)}
            except ValueError as error:
                raise self.columns.damaged(f"{name}: {error}") from error
            return [shapes[number] for number in column]
        return column


def _shape(text: str) -> tuple[int, ...] | None:
    if text == _UNKNOWN_SHAPE:
        return None
    return tuple(map(int, text.split(","))) if text else ()

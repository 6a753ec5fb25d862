"""A table of rows as a file: CSV, JSON lines, JSON or Parquet, by the end of its name."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dryfit.errors import UsageError
from dryfit.whole_files import whole_file

Table = Sequence[Mapping[str, Any]]


def check_table(path: Path) -> None:
    """See that a table can be written as the end of its name says.

    Raises:
        UsageError: there is no such kind of table, or what writes it is not installed.
    """
    if path.suffix not in _KINDS:
        raise UsageError(f"{path} does not end in one of {', '.join(_KINDS)}, which say how a table is to be written.")
    if path.suffix == ".parquet":
        _pyarrow()


def write_table(table: Table, path: Path) -> None:
    """Write rows that all have the same columns; a value that is not there is empty in CSV, null in the others.

    Raises:
        UsageError: as `check_table`, or the file cannot be written.
    """
    check_table(path)
    content = _KINDS[path.suffix](table)
    with whole_file(path, "table") as file:
        file.write(content)


def _csv(table: Table) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue().encode()


def _json_lines(table: Table) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in table).encode()


def _json(table: Table) -> bytes:
    return f"{json.dumps(list(table), indent=2)}\n".encode()


def _parquet(table: Table) -> bytes:
    pyarrow = _pyarrow()
    names = list(table[0]) if table else []
    columns = {name: _of_one_type([row[name] for row in table]) for name in names}
    out = io.BytesIO()
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), out)
    return out.getvalue()


def _of_one_type(column: list[Any]) -> list[Any]:
    """A column as Parquet can have it: numbers, or text; a column of both is text."""
    kinds = {type(value) for value in column if value is not None}
    if kinds == {int, float}:
        return [value if value is None else float(value) for value in column]
    return column if len(kinds) < 2 else [value if value is None else str(value) for value in column]


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise UsageError(
            "A table ends in .parquet, and pyarrow, which writes it, is not installed: pip install 'dryfit[sweep]', or "
            "write a .csv."
        ) from None


_KINDS: dict[str, Callable[[Table], bytes]] = {
    ".csv": _csv, ".jsonl": _json_lines, ".json": _json, ".parquet": _parquet,
}  # fmt: skip

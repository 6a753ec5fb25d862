"""The answer of a sweep: rows that can be saved as a table, and printed."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dryfit.rehearse.endings import EXIT_FITS, EXIT_LIMIT
from dryfit.sweeping.row import Row
from dryfit.sweeping.table import write_table

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One row for each cell of a grid, in the grid's order. All sizes are bytes.

    `rehearsed` cells were run for it, and `kept` were done by an earlier sweep that `rows_file` remembers.
    """

    rows: tuple[Row, ...]
    rehearsed: int
    kept: int
    rows_file: str | None
    backend: str
    wall_seconds: float
    versions: dict[str, str | None] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def failed(self) -> int:
        """How many rows have an error in place of an answer."""
        return sum(bool(row.outcome.error) for row in self.rows)

    @property
    def exit_code(self) -> int:
        """0 if every cell has an answer, whatever it is; 3 if one has an error."""
        return EXIT_LIMIT if self.failed else EXIT_FITS

    @property
    def settings(self) -> tuple[str, ...]:
        """The placeholders of all programs, each a column of the table."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.settings))

    def table(self) -> list[dict[str, Any]]:
        """The rows, all with the same columns: program, placeholders, gpu, world, with, and the result's."""
        return [row.to_dict(self.settings) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain values, in the order that docs/sweep.md documents."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"schema_version": self.schema_version} | values | {"rows": self.table()}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def save(self, path: str | Path) -> None:
        """Write the table, as the end of the name says: .csv, .jsonl, .json or .parquet.

            found.save("table.parquet")

        Raises:
            UsageError: there is no such kind of table, pyarrow is missing for Parquet, the file cannot be written.
        """
        write_table(self.table(), Path(path))

    def _repr_html_(self) -> str:
        """The sweep in a notebook, as the terminal shows it."""
        shown: str = importlib.import_module("dryfit.report.sweep").html(self)  # the one step back, as in a Fit
        return shown

"""What is kept of one comparison: a line of JSON, read back here, and a row of a Markdown table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.plain import from_plain, to_plain
from dryfit.units import MIB
from dryfit.verifying.comparison import RAN, Pair, Side, peaks
from dryfit.verifying.real_card import RealCard

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One program on one card, for real and rehearsed; docs/verify.md has every field. Sizes are bytes.

    `twin` is the catalogue's key of the card that was rehearsed on, or "by hand". `versions` are those of dryfit,
    Python, torch, the CUDA it was built for, cuDNN, and of installed packages by their names. `virtual_total_range` is
    between which sizes the rehearsal expects the total, `low` and `high`. `source_sha256` is of the program's files.
    """

    card: RealCard
    twin: str
    versions: dict[str, str]
    allocator_settings: dict[str, str]
    program: list[str]
    source_sha256: str
    real: Side
    virtual: Side
    virtual_total_range: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """The row in one line."""
        return json.dumps({"schema_version": self.schema_version, **to_plain(self)})


def append_row(row: Row, path: str | Path) -> None:
    """Add a row to a file of rows, which need not exist.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{row.to_json()}\n")
    except OSError as error:
        raise UsageError(f"The row could not be added to {path}: {error.strerror}; choose another file.") from error


def read_rows(path: str | Path) -> list[Row]:
    """Read a file of rows, as people send them.

        [row.card.name for row in read_rows("rows.jsonl")]

    Raises:
        UsageError: the file cannot be read; a line is no row, or of a newer schema than this dryfit knows.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    return [_row(line, f"Line {number} of {path}") for number, line in enumerate(lines, start=1) if line.strip()]


def _row(line: str, where: str) -> Row:
    try:
        values = json.loads(line)
        version = values["schema_version"]
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{where} has schema version {version}, and this dryfit knows up to {SCHEMA_VERSION}; read it with the "
                "dryfit that wrote it, or a newer one."
            )
        return from_plain(Row, values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{where} is not a row of `dryfit verify`: {error}.") from error


_HEAD = (
    ("card", "---"),
    ("driver", "---"),
    ("torch", "---"),
    ("program", "---"),
    ("steps", "---:"),
    ("outcome: card", "---"),
    ("dryfit", "---"),
    *(
        (name, "---:")
        for figure in ("allocated", "reserved", "total")
        for name in (f"{figure}, MiB: card", "dryfit", "off")
    ),
)


def markdown_table(rows: Iterable[Row]) -> str:
    """Rows as a Markdown table, with its head; off is (dryfit - card) / card, and 0 is equality to the byte."""
    head = [_line(name for name, _ in _HEAD), _line(rule for _, rule in _HEAD)]
    return "\n".join([*head, *(markdown_row(row) for row in rows)])


def markdown_row(row: Row) -> str:
    """One row of the table."""
    line = peaks(row.real, row.virtual)
    name = f"{row.card.name} (virtual)" if row.card.is_virtual else row.card.name
    cells = [
        name,
        row.card.driver or "?",
        row.versions.get("torch", "?"),
        f"`{' '.join(row.program).replace(chr(96), chr(39))}`",
        str(row.real.steps),
        _outcome(row.real),
        _outcome(row.virtual),
    ]
    for pair in (line.allocated, line.reserved, line.total):
        cells += [_mib(pair.real_bytes), _mib(pair.virtual_bytes), off_in_words(pair)]
    return _line(cell.replace("|", "\\|") for cell in cells)


def off_in_words(pair: Pair) -> str:
    """How far off the virtual figure is, to be read at a glance.

    >>> off_in_words(Pair(real_bytes=1000, virtual_bytes=1001)), off_in_words(Pair(real_bytes=5, virtual_bytes=5))
    ('+0.1000%', '0')
    """
    if pair.off_bytes == 0:
        return "0"
    return "?" if pair.off_share is None else f"{pair.off_share:+.4%}"


def _outcome(side: Side) -> str:
    return side.outcome if side.outcome == RAN or not side.error_type else f"{side.outcome} ({side.error_type})"


def _mib(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / MIB:.3f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"

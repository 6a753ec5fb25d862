"""Rows of text under each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Pad the cells of each column to one width, those of the columns in `right` from the left; no line ends in blanks.

    >>> aligned([("step", "reserved"), ("1", "12.5 MiB")], right={0})
    ['step  reserved', '   1  12.5 MiB']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

"""The table of docs/explain.md, from the committed figures: `python -m tests.explaining.table` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

from dryfit.units import format_bytes

from .goldens import expected, numbers_of, versions

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
_PLACE = re.compile(r"(<!-- retraced: tests/explaining/table\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def table() -> str:
    """A row for each card of a snapshot that begins with an empty card, and one for all others."""
    figures = {version: expected(version) for version in versions()}
    every = next(iter(figures.values()))
    head = ["recording of a real card", "recorded by torch", "reserved there", *(f"by {each}" for each in figures)]
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for name, recorded in every.items():
        if recorded.starts_empty:
            off = [found[name].retraced[1] - recorded.recorded[1] for found in figures.values()]
            rows.append([name, recorded.recorded_by or "not told", format_bytes(recorded.recorded[1]), *map(_off, off)])
    others = [name for name, each in every.items() if not each.starts_empty]
    most = [
        max((abs(found[name].retraced[1] - found[name].recorded[1]) for name in others), default=0)
        for found in figures.values()
    ]
    by = ", ".join(sorted({every[name].recorded_by for name in others} - {""}, key=numbers_of))
    rows.append([f"{len(others)} others, which begin later", by, "", *map(_off, most)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(page: str) -> str:
    """The page, with the table of the committed figures in its place."""
    written, count = _PLACE.subn(lambda found: f"{found[1]}{table()}{found[2]}", page)
    assert count == 1
    return written


def _off(size_bytes: int) -> str:
    if not size_bytes:
        return "the same"
    return f"{format_bytes(abs(size_bytes))} {'more' if size_bytes > 0 else 'less'}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Writes the tables of docs/accuracy.md anew from the committed figures: `python -m tests.truth.table`.

`--print` prints them instead.
"""

from __future__ import annotations

import re
import sys

from . import goldens
from .goldens import HERE, Workload

DOCUMENT = HERE.parents[1] / "docs" / "accuracy.md"
MIB = 1 << 20
AGAINST_THE_CARD = """\
| program | torch | addresses | allocated, MiB: card | virtual | off | reserved, MiB: card | virtual | off |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def against_the_card() -> str:
    return AGAINST_THE_CARD + "".join(row for workload in goldens.workloads() for row in _rows(workload))


def by_version() -> str:
    """Allocated and reserved of each workload under every version of torch that was measured, in the default order."""
    versions = goldens.measured_versions()
    figures = {version: goldens.expected(version) for version in versions}
    lines = [f"| program | {' | '.join(versions)} |\n", f"| --- |{' ---: |' * len(versions)}\n"]
    for workload in goldens.workloads():
        cells = []
        for version in versions:
            peak = figures[version].get(workload.name, {}).get("linux")
            cells.append(f"{peak.allocated_bytes / MIB:.3f} / {peak.reserved_bytes // MIB}" if peak else "")
        lines.append(f"| {_command(workload)} | {' | '.join(cells)} |\n")
    return "".join(lines)


def with_tables(text: str) -> str:
    """The document with what lies between its markers replaced."""
    for name, table in (("against the card", against_the_card()), ("by version", by_version())):
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        text, count = re.subn(re.escape(start) + r".*?" + end, start + table + end, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{DOCUMENT.name} has {count} places marked `{start.strip()}`, and should have one.")
    return text


def _rows(workload: Workload) -> list[str]:
    figures = goldens.expected(workload.torch)[workload.name]
    return [
        f"| {_command(workload)} | {workload.torch} | {order} "
        f"| {_compared(figures[order].allocated_bytes, workload.recorded.allocated_bytes)} "
        f"| {_compared(figures[order].reserved_bytes, workload.recorded.reserved_bytes)} |\n"
        for order in workload.within
    ]


def _command(workload: Workload) -> str:
    return f"`{workload.program} {' '.join(workload.arguments)}`"


def _compared(ours_bytes: int, theirs_bytes: int) -> str:
    off = f"{(ours_bytes - theirs_bytes) / theirs_bytes:+.4%}" if ours_bytes != theirs_bytes else "0"
    return f"{theirs_bytes / MIB:.3f} | {ours_bytes / MIB:.3f} | {off}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(against_the_card(), by_version(), sep="\n", end="")
    else:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))

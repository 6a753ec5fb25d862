"""Prints the table of docs/accuracy.md from the committed figures: `python -m tests.truth.table`."""

from __future__ import annotations

from . import goldens
from .goldens import Workload

MIB = 1 << 20
HEADER = """\
| workload | card | torch | order | allocated, MiB: card | virtual | off | reserved, MiB: card | virtual | off |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


def compared(ours_bytes: int, theirs_bytes: int) -> str:
    """The card's figure, ours, and the difference."""
    off = f"{(ours_bytes - theirs_bytes) / theirs_bytes:+.4%}" if ours_bytes != theirs_bytes else "**0**"
    return f"{theirs_bytes / MIB:.3f} | {ours_bytes / MIB:.3f} | {off}"


def rows(workload: Workload) -> list[str]:
    figures = goldens.expected(workload.torch)[workload.name]
    return [
        f"| `{workload.program} {' '.join(workload.arguments)}` | `{workload.card}` | {workload.torch} | {order} "
        f"| {compared(figures[order].allocated_bytes, workload.recorded.allocated_bytes)} "
        f"| {compared(figures[order].reserved_bytes, workload.recorded.reserved_bytes)} |"
        for order in workload.within
    ]


if __name__ == "__main__":
    print(HEADER)
    for workload in goldens.workloads():
        print(*rows(workload), sep="\n")

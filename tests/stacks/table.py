"""The README's table of stacks, from the committed figures.

python -m tests.stacks.table              writes the table into README.md
python -m tests.stacks.table --measure    runs every workload first and writes the figures (about 3 minutes)
"""

from __future__ import annotations

import sys

from dryfit.units import format_bytes

from . import goldens

BEGIN, END = "<!-- stacks: written by python -m tests.stacks.table -->\n", "<!-- end of stacks -->\n"


def table(torch: str) -> str:
    """The table for one version of torch, in Markdown."""
    figures = goldens.expected(torch)
    rows = []
    for workload in goldens.workloads():
        if (one := figures.get(workload.name)) is not None:
            sizes = (format_bytes(one.peak_allocated_bytes), format_bytes(one.peak_reserved_bytes))
            rows.append(f"| {workload.title} | {' | '.join(sizes)} | {one.peak_phase} |")
    head = ["| program | allocated | reserved | peak in |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def in_readme() -> str:
    """The table as it stands in the README."""
    text = (goldens.ROOT / "README.md").read_text()
    return text.split(BEGIN)[1].split(END)[0]


def main() -> None:
    if "--measure" in sys.argv[1:]:
        figures = {}
        for workload in goldens.workloads():
            figures[workload.name] = goldens.figures_of(workload, goldens.rehearsed(workload))
            print(workload.name, figures[workload.name], file=sys.stderr)
        goldens.write(goldens.TORCH, figures)
    readme = goldens.ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(before + BEGIN + table("2.14.1") + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()

"""Rehearse a grid of programs, settings, cards, worlds and measures, and make one table of it.

The grid is a TOML file: the program's words with {batch} and others where values stand, and values for each. The same
command runs on this machine or on a Ray or Dask cluster. Finished cells are kept beside the grid, so that a sweep that
was stopped goes on; a cell that fails is a row with its error.
"""

from __future__ import annotations

import argparse
import sys

from dryfit.cli.files import check_places
from dryfit.cli.program import check_machine

NAME = "sweep"
HELP = "rehearse a grid of settings, cards, worlds and measures into one table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("grid", metavar="grid.toml", help="programs, values and options, as docs/sweep.md has them")
    add = parser.add_argument_group("where").add_argument
    add(
        "--backend",
        choices=("loky", "ray", "dask"),
        default="loky",
        help="processes of this machine (loky, default), or the workers of a Ray or Dask cluster",
    )
    add(
        "--address",
        metavar="ADDRESS",
        help="the cluster's; default: RAY_ADDRESS or DASK_SCHEDULER_ADDRESS, the Ray cluster that runs here, or a new "
        "one on this machine",
    )
    add("--jobs", metavar="N", type=int, help="cells at a time (default: the number of CPUs)")
    add = parser.add_argument_group("what was done before").add_argument
    add("--rows", metavar="FILE", help="where finished cells are kept (default: grid.rows.jsonl, beside grid.toml)")
    add("--again", action="store_true", help="rehearse all cells again")
    add("--retry", action="store_true", help="rehearse those again that ended with an error")
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print the sweep as JSON")
    add("-o", "--output", metavar="FILE", help="save the table: .csv, .jsonl, .json or .parquet")


def run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from dryfit.cli.searches import give
    from dryfit.sweeping.running import LOKY
    from dryfit.sweeping.sweep import rows_file, sweep  # what it imports is there on Linux only
    from dryfit.sweeping.table import check_table

    if arguments.backend == LOKY:
        check_machine()
    if arguments.output:
        check_table(Path(arguments.output))
    rows = arguments.rows or str(rows_file(arguments.grid))
    check_places({"-o": arguments.output}, read=[arguments.grid, rows])
    found = sweep(
        arguments.grid,
        backend=arguments.backend,
        address=arguments.address,
        jobs=arguments.jobs,
        rows=arguments.rows,
        again=arguments.again,
        retry=arguments.retry,
        progress=sys.stderr,
    )
    from dryfit.report.sweep import print_sweep

    return give(found, arguments, print_sweep)

"""`dryfit.sweep`: every cell of a grid rehearsed, by the workers of this machine or of a cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import dryfit
from dryfit.errors import UsageError
from dryfit.rehearse.command import current_folder
from dryfit.search.cache import content_of
from dryfit.search.starting import check_jobs
from dryfit.sweeping.cell import MANY_CELLS, Cell, cells_of, dealing_order, keys_of
from dryfit.sweeping.found import Sweep
from dryfit.sweeping.grid import grid_of, read_grid
from dryfit.sweeping.host import Job
from dryfit.sweeping.progress import SweepProgress
from dryfit.sweeping.row import Outcome, Row
from dryfit.sweeping.running import LOKY, check_backend, finished_cells
from dryfit.sweeping.store import open_store
from dryfit.sweeping.worker import deciding_variables
from dryfit.virtual_card import installed_torch


def sweep(
    grid: str | Path | Mapping[str, Any],
    *,
    backend: str = LOKY,
    address: str | None = None,
    jobs: int | None = None,
    rows: str | Path | None = None,
    again: bool = False,
    retry: bool = False,
    progress: TextIO | None = None,
) -> Sweep:
    """Rehearse every cell of a grid: programs x cards x worlds x measures x settings.

        found = dryfit.sweep("grid.toml")
        found = dryfit.sweep({"program": ["train.py", "{batch}"], "grid": {"batch": [1, 2], "gpu": ["l4", "t4"]}})
        found.rows[0].outcome.peak_reserved_bytes, found.save("table.csv")

    `grid` is a TOML file (docs/sweep.md), or its values. `backend` is "loky", processes of this machine; "ray" or
    "dask", the workers of the cluster at `address`, or of the one that this process has joined. `jobs` cells run at a
    time, as many as there are CPUs there unless given. Each finished cell is kept in the file `rows`, by default
    beside a grid's file (`grid.rows.jsonl`), and is not rehearsed again while nothing known to decide it has changed;
    `again` rehearses all, `retry` those that ended with an error. Without a file for it nothing is kept.
    `progress` is where to say how far it is.

    Raises:
        UsageError: the grid asks for something that cannot be done, a backend is missing or lost its workers, rows
            cannot be kept.
    """
    began = time.monotonic()
    check_backend(backend, address)
    check_jobs(jobs)
    asked = grid_of(grid) if isinstance(grid, Mapping) else read_grid(Path(grid))
    cells = cells_of(asked)
    if len(cells) > MANY_CELLS and progress is not None:
        print(f"dryfit: the grid makes {len(cells)} cells; fewer values would make fewer.", file=progress, flush=True)
    content = _contents()
    torch = _torch(backend)
    keys = keys_of(cells, asked.options, torch, content)
    place = rows_file(grid) if rows is None else Path(rows)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(place, content)) if place is not None else None
        found = store.outcomes(keys) if store is not None and not again else {}
        found = {key: outcome for key, outcome in found.items() if not (retry and outcome.error)}
        key_of = dict(zip(cells, keys, strict=True))
        left = dealing_order([cell for cell, key in zip(cells, keys, strict=True) if key not in found])
        kept = len(cells) - len(left)
        failed = sum(bool(outcome.error) for outcome in found.values())
        line = SweepProgress(progress, cells=len(cells), kept=kept, failed=failed)
        try:
            if left:
                for number, finished in finished_cells(
                    left, _job(backend, asked.options, jobs), backend=backend, address=address, jobs=jobs
                ):
                    cell = left[number]
                    found[key_of[cell]] = finished.outcome
                    if store is not None:
                        store.keep(key_of[cell], str(cell), finished.outcome, finished.files)
                    line.ended(str(cell), finished.outcome)
        except KeyboardInterrupt:
            line.clear()
            if progress is not None and place is not None:
                print(
                    f"dryfit: {len(found)} of {len(cells)} cells are done and kept in {place}; the same command goes "
                    "on from there.",
                    file=progress,
                )
            raise
        finally:
            line.clear()
    return Sweep(
        rows=tuple(_row(cell, found[key]) for cell, key in zip(cells, keys, strict=True)),
        rehearsed=len(left),
        kept=kept,
        rows_file=None if place is None else str(place),
        backend=backend,
        wall_seconds=round(time.monotonic() - began, 3),
        versions={"dryfit": dryfit.__version__, "torch": torch[0] if torch else None},
    )


def rows_file(grid: str | Path | Mapping[str, Any]) -> Path | None:
    """Where a grid's finished cells are kept unless something else is said: beside its file.

    >>> rows_file("sweeps/grid.toml")
    PosixPath('sweeps/grid.rows.jsonl')
    """
    return None if isinstance(grid, Mapping) else Path(grid).with_suffix(".rows.jsonl")


def _job(backend: str, options: Mapping[str, Any], jobs: int | None) -> Job:
    return Job(
        folder=str(current_folder()),
        options=dict(options),
        variables=deciding_variables(),
        jobs=jobs or 1 << 20,
        dryfit=dryfit.__version__,
        asker=os.getpid() if backend == LOKY else None,
    )


def _torch(backend: str) -> list[str] | None:
    """The torch that is here, which is in every cell's key; a cluster may have one where there is none here.

    Raises:
        UsageError: there is none, and cells would be rehearsed here.
    """
    try:
        torch = installed_torch()
    except UsageError:
        if backend == LOKY:
            raise
        return None
    return [torch.version, str(torch.folder)]


def _contents() -> Any:
    """What is in a file, as `search.cache` says it, read again only when the file has changed."""
    read = functools.lru_cache(maxsize=None)(lambda file, changed, size: content_of(Path(file)))

    def content(file: str) -> str | None:
        try:
            status = Path(file).stat()
        except OSError:
            return None
        text: str | None = read(file, status.st_mtime_ns, status.st_size)
        return text

    return content


def _row(cell: Cell, outcome: Outcome) -> Row:
    return Row(
        program=cell.program,
        settings=cell.settings,
        gpu=cell.gpu,
        world=cell.world,
        measures=cell.measures,
        outcome=outcome,
    )

"""Cells of a grid: one program, with one value of each axis; and the key by which a cell's row is found again."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.measures.catalogue import measures_of
from dryfit.plain import to_plain
from dryfit.rehearse.command import command_line
from dryfit.rehearse.world import ranks_of, world_of
from dryfit.search.cache import files_in, key_of
from dryfit.search.words import with_values
from dryfit.sweeping.grid import GPU, RESERVED, WITH, WORLD, Grid, SweptProgram

MANY_CELLS = 1000
_MOST_CELLS = 100_000
# Variables that a batch system, or a cluster's own worker, gives each job anew: they decide nothing of a program.
_OF_A_JOB = re.compile(r"(?:SLURM|SRUN|PBS|LSB|SGE|OAR|FLUX|RAY|DASK|LOKY|JOBLIB)_?.*|JOB_ID|TASK_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One rehearsal: the words of a program, and where it is rehearsed; `settings` are what made the words."""

    program: str
    words: tuple[str, ...]
    settings: dict[str, Any] = field(hash=False)
    gpu: str | None = None
    world: int | None = None
    measures: str = ""

    @property
    def measure_names(self) -> list[str]:
        return [name for name in (each.strip() for each in self.measures.split(",")) if name]

    def __str__(self) -> str:
        said = [f"{name} {value}" for name, value in self.settings.items()]
        said += [f"world {self.world}"] if self.world is not None else []
        said += [f"with {self.measures}"] if self.measures else []
        return f"{self.program} {', '.join(said)}{f' on {self.gpu}' if self.gpu else ''}".replace("  ", " ")


def cells_of(grid: Grid) -> tuple[Cell, ...]:
    """All cells, in the order of the table: by program, then by the axes, the last of which varies fastest.

    Raises:
        UsageError: they are too many, or one of them is of no known card, measure or world, or has no program.
    """
    count = sum(prod(len(values) for values in program.axes.values()) for program in grid.programs)
    if count > _MOST_CELLS:
        raise UsageError(
            f"The grid makes {count} cells, and {_MOST_CELLS} are the most; give fewer values, or several grids."
        )
    for program in grid.programs:
        _check(program, grid.options)
    default_gpu = os.environ.get("DRYFIT_GPU") or None
    return tuple(
        _cell(program, dict(zip(program.axes, values, strict=True)), default_gpu)
        for program in grid.programs
        for values in itertools.product(*program.axes.values())
    )


def dealing_order(cells: Sequence[Cell]) -> list[Cell]:
    """Cells as they are dealt to workers: a program's together, and of these what shares a warm process.

    That is imports, and where these look at the card, the card, its number and the measures.
    """
    at = {name: number for number, name in enumerate(dict.fromkeys(cell.program for cell in cells))}
    return sorted(cells, key=lambda cell: (at[cell.program], cell.gpu or "", cell.measures, cell.world or 0))


def keys_of(
    cells: Sequence[Cell], options: Mapping[str, Any], torch: Any, content_of: Callable[[str], str | None]
) -> list[str]:
    """The keys of cells: each holds all that is known to decide its row, but for modules that the program imports.

    What it holds is what an entry of the search's cache is found by; `content_of` says what is in a file.
    """
    environment = {name: value for name, value in os.environ.items() if not _OF_A_JOB.fullmatch(name)}
    shared = key_of([], {"options": dict(options), "torch": torch}, environment)
    keys = []
    for cell in cells:
        files = {file: content_of(file) for file in files_in(cell.words)}
        material = json.dumps([shared, to_plain(cell), files], sort_keys=True)
        keys.append(hashlib.sha256(material.encode()).hexdigest())
    return keys


def _check(program: SweptProgram, options: Mapping[str, Any]) -> None:
    for gpu in program.axes.get(GPU, ()):
        find_card(str(gpu), memory_bytes=options.get("memory_bytes"))
    for measures in program.axes.get(WITH, ()):
        measures_of([name.strip() for name in str(measures).split(",") if name.strip()])
    for size in program.axes.get(WORLD, ()):
        ranks_of(options.get("ranks", "0"), world_of(int(size), options.get("nodes")))


def _cell(program: SweptProgram, values: Mapping[str, Any], default_gpu: str | None) -> Cell:
    words = tuple(with_values(program.words, {name: str(value) for name, value in values.items()}))
    command_line(list(words))
    return Cell(
        program=program.name,
        words=words,
        settings={name: value for name, value in values.items() if name not in RESERVED},
        gpu=values.get(GPU, default_gpu),
        world=values.get(WORLD),
        measures=values.get(WITH, ""),
    )

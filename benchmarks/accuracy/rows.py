"""What others measured: one row for a program on a card, read from `measured/*.csv`."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEASURED, WORKLOADS = HERE / "measured", HERE / "workloads"

ALLOCATED, RESERVED, TOTAL, GROWTH = "allocated", "reserved", "total", "reserved_growth"
LAST_STEP = "allocated_in_last_step"
FITS, DOES_NOT_FIT = "fits", "does_not_fit"
OF_BYTES, BRACKETS = (ALLOCATED, RESERVED, TOTAL, GROWTH, LAST_STEP), (FITS, DOES_NOT_FIT)

_COLUMNS = ("id", "family", "program", "arguments", "card", "torch", "metric", "measured_bytes", "source", "note")
_OPTIONAL = ("before", "or_sooner", "within_bytes", "skip", "world", "ranks")
_PEER = "peer:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement, and the words that rehearse it.

    `program` is a file of `workloads/`, `arguments` its words as a shell would read them, `card` what `--gpu` takes.
    `torch` is the version that the card ran, "" if nobody said. `metric` is what was measured: the peak of `allocated`
    or `reserved`, the `total` that nvidia-smi shows, `allocated_in_last_step` where the peak was set back before that
    step, or `reserved_growth`: what was reserved more than at a first reading, which was taken when the program had
    come to where it ends with the arguments `before`, or, if `or_sooner`, at any time until then. The metrics `fits`
    and `does_not_fit` have no bytes. `within_bytes` is how far apart repeats of the measurement were.
    `skip` says why a row is listed and not counted, "" if it is counted; `peers` are the figures that other programs
    gave, in bytes. `world` is how many ranks there were, 0 for a program that was alone, and `ranks` are those that are
    rehearsed, as `dryfit run --ranks` takes them: the ones that were measured, or the worst of which was.
    """

    id: str
    family: str
    program: str
    arguments: str
    card: str
    torch: str
    metric: str
    measured_bytes: int
    source: str
    note: str = ""
    before: str = ""
    or_sooner: bool = False
    within_bytes: int = 0
    skip: str = ""
    world: int = 0
    ranks: str = ""
    peers: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def words(self) -> list[str]:
        """The program and its arguments, as `dryfit.run` takes them."""
        return [str(WORKLOADS / self.program), *shlex.split(self.arguments)]

    @property
    def words_before(self) -> list[str]:
        return [str(WORKLOADS / self.program), *shlex.split(self.before)]

    @property
    def said(self) -> str:
        """What is rehearsed, in one line: a prediction is of a row only while this is the same."""
        before = f" after {self.before}{' or sooner' if self.or_sooner else ''}" if self.metric == GROWTH else ""
        played = f" as {self.played}" if self.world else ""
        return f"{self.program} {self.arguments}{before}{played} on {self.card}"

    @property
    def played(self) -> str:
        """The ranks that are rehearsed, in words; "" for a program that was alone."""
        return f"rank {self.ranks} of {self.world}" if self.world else ""

    @property
    def world_options(self) -> dict[str, Any]:
        """What `dryfit.run` has to be told of the world; nothing for a program that was alone."""
        return {"world": self.world, "ranks": self.ranks} if self.world else {}


def rows(folder: Path = MEASURED) -> list[Row]:
    """All rows, file by file.

    Raises:
        ValueError: a row cannot be read, or two have the same id; the message names file and line.
    """
    found: dict[str, Row] = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            reader = csv.DictReader(lines)
            _check_columns(path, reader.fieldnames or ())
            for values in reader:
                where = f"{path.name}, line {reader.line_num}"
                row = row_of(values, where)
                if row.id in found:
                    raise ValueError(f"{where}: a row with the id {row.id!r} was there before; each needs its own.")
                found[row.id] = row
    return list(found.values())


def row_of(values: Mapping[str, str | None], where: str) -> Row:
    """Read one line of a table.

    Raises:
        ValueError: an unknown metric, bytes that are no number or do not suit the metric, no such program.
    """
    texts = {name: (values.get(name) or "").strip() for name in (*_COLUMNS, *_OPTIONAL)}
    metric, number, within = (texts.pop(name) for name in ("metric", "measured_bytes", "within_bytes"))
    or_sooner, world = texts.pop("or_sooner"), texts.pop("world")
    if or_sooner not in ("", "yes"):
        raise ValueError(f"{where}: or_sooner is {or_sooner!r}; it is yes, or empty.")
    if metric not in (*OF_BYTES, *BRACKETS):
        known = ", ".join((*OF_BYTES, *BRACKETS))
        raise ValueError(f"{where}: {metric!r} is no metric; there are {known}.")
    for name, text in (("measured_bytes", number), ("within_bytes", within or "0")):
        if not text.isdecimal():
            raise ValueError(f"{where}: {name} is {text!r}, and should be a whole number of bytes.")
    if world and not world.isdecimal():
        raise ValueError(f"{where}: world is {world!r}, and should be the number of ranks, or empty.")
    if bool(world) != bool(texts["ranks"]):
        raise ValueError(f"{where}: world is {world!r} and ranks {texts['ranks']!r}; a row has both, or none.")
    if (metric in BRACKETS) != (int(number) == 0):
        raise ValueError(f"{where}: measured_bytes is {number}; it is 0 for {' and '.join(BRACKETS)}, and only there.")
    if metric == GROWTH and not texts["before"]:
        raise ValueError(f"{where}: {GROWTH} needs the arguments of the program that `before` is to have.")
    if not (WORKLOADS / texts["program"]).is_file():
        raise ValueError(f"{where}: there is no program {texts['program']!r} in {WORKLOADS.name}/.")
    peers = {
        name.removeprefix(_PEER): int(text)
        for name, text in values.items()
        if isinstance(name, str) and name.startswith(_PEER) and text
    }
    return Row(
        **texts,
        metric=metric,
        measured_bytes=int(number),
        or_sooner=bool(or_sooner),
        within_bytes=int(within or "0"),
        world=int(world or "0"),
        peers=peers,
    )


def _check_columns(path: Path, names: Iterable[str]) -> None:
    given = set(names)
    lacking = [name for name in _COLUMNS if name not in given]
    unknown = [name for name in given if name not in (*_COLUMNS, *_OPTIONAL) and not name.startswith(_PEER)]
    if lacking or unknown:
        raise ValueError(
            f"{path.name}: lacks the columns {lacking or 'none'}, and has {sorted(unknown) or 'none'} that nobody "
            f"reads; a table has {', '.join(_COLUMNS)}, and may have {', '.join(_OPTIONAL)} and {_PEER}NAME."
        )

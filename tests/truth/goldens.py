"""The committed figures: what each workload reached on a real card, and what it reaches on the virtual one.

`workloads.toml` says what is run and what was recorded; `expected/torch-VERSION.toml` what the virtual card answers
with that version of torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SNAPSHOTS = HERE.parents[2] / "shared" / "truth" / "snapshots"
"""The recordings, where they lie beside the checkout; their licences keep them out of it."""

_HEADER = """\
# What the virtual card answers with torch {version}, by workload and order of addresses.
# Written by `pytest tests/truth --rewrite-goldens`; read a change before you commit it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """The largest allowed difference from the recording, as a share of the recorded figure."""

    allocated: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    program: str
    arguments: tuple[str, ...]
    card: str
    torch: str
    recording: str
    recorded: Peak
    within: Mapping[str, Closeness]


Expected = dict[str, dict[str, Peak]]
"""By name of the workload, then by order of addresses."""


def workloads() -> list[Workload]:
    return [_workload(name, table) for name, table in _read(HERE / "workloads.toml").items()]


def expected(version: str) -> Expected:
    """The figures for a version of torch, or none where that version was not measured."""
    path = _golden(version)
    if not path.exists():
        return {}
    return {
        name: {order: Peak(**figures) for order, figures in by_order.items()} for name, by_order in _read(path).items()
    }


def measured_versions() -> list[str]:
    found = [path.stem.removeprefix("torch-") for path in (HERE / "expected").glob("torch-*.toml")]
    return sorted(found, key=numbers)


def numbers(version: str) -> list[int]:
    """What versions are ordered by: 2.9 comes before 2.14."""
    return [int(part) for part in re.findall(r"\d+", version)]


def record(version: str, name: str, order: str, peak: Peak) -> None:
    """Put one measured figure into the golden file of a version."""
    figures = expected(version)
    figures.setdefault(name, {})[order] = peak
    lines = [_HEADER.format(version=version)]
    for workload in workloads():
        by_order = figures.get(workload.name)
        if by_order:
            lines.append(f"[{workload.name}]")
            lines += [_line(order, by_order[order]) for order in workload.within if order in by_order]
            lines.append("")
    _golden(version).write_text("\n".join(lines).rstrip() + "\n")


def _line(order: str, peak: Peak) -> str:
    return f"{order} = {{ allocated_bytes = {peak.allocated_bytes:_}, reserved_bytes = {peak.reserved_bytes:_} }}"


def _golden(version: str) -> Path:
    return HERE / "expected" / f"torch-{version}.toml"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text())
    return found


def _workload(name: str, table: dict[str, Any]) -> Workload:
    return Workload(
        name=name,
        program=table["program"],
        arguments=tuple(table["arguments"]),
        card=table["card"],
        torch=table["torch"],
        recording=table["recording"],
        recorded=Peak(**table["recorded"]),
        within={order: Closeness(**shares) for order, shares in table["within"].items()},
    )

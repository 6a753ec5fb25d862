"""The committed figures of the stacks: `expected/torch-VERSION.toml`, with the versions of packages they hold for."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CARD = "a100-80gb"
TORCH = importlib.metadata.version("torch").partition("+")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    title: str
    run: tuple[str, ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_phase: str
    packages: dict[str, str]


def workloads() -> list[Workload]:
    table = tomllib.loads((HERE / "workloads.toml").read_text())["workload"]
    return [Workload(**{**row, "run": tuple(row["run"]), "needs": tuple(row.get("needs", ()))}) for row in table]


def installed(workload: Workload) -> dict[str, str]:
    """The versions of the packages a workload's figures hold for."""
    return {name: importlib.metadata.version(name) for name in workload.needs}


def rehearsed(workload: Workload) -> dict[str, Any]:
    """The result of `dryfit run` on it."""
    command = [sys.executable, "-m", "dryfit", "run", "--json", "--gpu", CARD, *workload.run]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def path_of(torch: str) -> Path:
    return HERE / "expected" / f"torch-{torch}.toml"


def expected(torch: str) -> dict[str, Figures]:
    path = path_of(torch)
    if not path.exists():
        return {}
    return {name: Figures(**values) for name, values in tomllib.loads(path.read_text()).items()}


def figures_of(workload: Workload, result: dict[str, Any]) -> Figures:
    return Figures(
        peak_allocated_bytes=result["peak_allocated_bytes"],
        peak_reserved_bytes=result["peak_reserved_bytes"],
        peak_phase=result["peak_phase"],
        packages=installed(workload),
    )


def write(torch: str, figures: dict[str, Figures]) -> None:
    """Write all figures of one version of torch, in the order of the workloads."""
    lines = [
        f"# The peaks of the stacks on the virtual card ({CARD}) with torch {torch}.",
        "# Written by `python -m tests.stacks.table --measure`; read a change before you commit it.",
    ]
    for workload in workloads():
        if workload.name in figures:
            one = figures[workload.name]
            packages = ", ".join(f'{name} = "{version}"' for name, version in one.packages.items())
            lines += [
                "",
                f"[{workload.name}]",
                f"peak_allocated_bytes = {one.peak_allocated_bytes}",
                f"peak_reserved_bytes = {one.peak_reserved_bytes}",
                f'peak_phase = "{one.peak_phase}"',
                f"packages = {{ {packages} }}" if packages else "packages = {}",
            ]
    path_of(torch).parent.mkdir(exist_ok=True)
    path_of(torch).write_text("\n".join(lines) + "\n")

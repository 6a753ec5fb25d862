"""Rehearsals as a user starts them: `python -m dryfit run` in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# A card large enough for every small program here, whose cuBLAS workspace and outside memory are an A100's.
CARD = "sm=80,sms=108,memory=40GiB"


@dataclass(frozen=True)
class Rehearsed:
    """One finished `dryfit run`: its exit code, its saved result ({} if there is none) and what it printed."""

    code: int
    result: dict[str, Any]
    stdout: str
    stderr: str


Rehearse = Callable[..., Rehearsed]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty folder for a program and its files."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def rehearse(project: Path) -> Rehearse:
    """Run `dryfit run -o FILE OPTIONS PROGRAM ARGS` in the project and read its result; stdout has the report.

    `program` is the text of a script, the path of one, or a list of words that is passed on as it is.
    """

    def run(
        program: str | Path | list[str],
        *arguments: str,
        options: tuple[str, ...] = (),
        gpu: str | None = CARD,
        environment: dict[str, str] | None = None,
    ) -> Rehearsed:
        if isinstance(program, str):
            (project / "train.py").write_text(textwrap.dedent(program))
            words = ["train.py", *arguments]
        else:
            words = [*program, *arguments] if isinstance(program, list) else [str(program), *arguments]
        saved = project.with_suffix(".json")
        command = [sys.executable, "-m", "dryfit", "run", "-o", str(saved), *(("--gpu", gpu) if gpu else ())]
        command += [*options, *words]
        variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=project, env=variables | (environment or {}), timeout=280
        )
        result = json.loads(saved.read_text()) if saved.exists() else {}
        saved.unlink(missing_ok=True)
        return Rehearsed(done.returncode, result, done.stdout, done.stderr)

    return run


@pytest.fixture
def examples() -> Path:
    """The folder of the examples that the README runs."""
    return Path(__file__).parents[2] / "examples"

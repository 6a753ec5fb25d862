"""Programs of programs/ in child processes with a virtual card in front of a real torch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dryfit.virtual_card import CardSettings, environment, installed_torch

PROGRAMS = Path(__file__).parent / "programs"
MIB = 1 << 20
GIB = 1 << 30


def torch_release() -> tuple[int, ...]:
    """The installed torch's version: (2, 14)."""
    return tuple(int(part) for part in installed_torch().version.split(".")[:2])


@dataclass(frozen=True)
class Finished:
    """A child process that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> Any:
        """What the program printed as its last line, as JSON."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


class Card:
    """Starts programs with a virtual card; what differs from an A100 with 8 GiB is given by name."""

    def run(
        self, program: str, *arguments: str, variables: dict[str, str] | None = None, launcher: tuple[str, ...] = (),
        timeout: float = 120, **settings: Any,
    ) -> Finished:  # fmt: skip
        defaults: dict[str, Any] = {"name": "NVIDIA A100", "sm": 80, "sms": 108, "memory_bytes": 8 * GIB}
        card = CardSettings(**(defaults | settings))
        done = subprocess.run(
            [sys.executable, *launcher, str(PROGRAMS / program), *arguments],
            env=os.environ | environment(card) | (variables or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Finished(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="session")
def card() -> Card:
    """Starts programs on a virtual card."""
    return Card()


@pytest.fixture(scope="session")
def said(card: Card) -> Any:
    """What a program says, run once for all tests that look at it."""

    @functools.cache
    def run(program: str, variables: tuple[tuple[str, str], ...] = (), **settings: Any) -> Any:
        return card.run(program, variables=dict(variables), **settings).said

    return run

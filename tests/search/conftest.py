"""Searches of simulated programs, with a cache of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dryfit.search import fit as fit_module
from dryfit.search import starting
from dryfit.search.found import Fit

from .simulated import Simulated

Search = Callable[..., Fit]


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is empty at first, and not the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DRYFIT_GPU", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Search:
    """`dryfit.fit`, with a simulated program in place of a real one; run in a folder with a script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('simulated')\n")

    def run(simulated: Simulated, words: str = "train.py --batch {batch}", **options: Any) -> Fit:
        monkeypatch.setattr(starting, "warm_rehearsals", simulated)
        return fit_module.fit(words.split(), **{"jobs": 2, "gpu": "rtx-3090", **options})

    return run

"""Several real processes for a test, forked from one that has imported what they need."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing

_ROOT = Path(__file__).parents[2]
_IMPORTED_ONCE = [
    "tests.train.checkpointing_ranks",
    "tests.train.micro_batching_ranks",
    "tests.train.ranks",
    "tests.train.two_pass_ranks",
]


def run_on_ranks(world: int, start: Callable[..., None], *arguments: Any) -> None:
    """Call `start(rank, *arguments)` in as many processes; an error in one is raised here."""
    multiprocessing.set_forkserver_preload(_IMPORTED_ONCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_ROOT)  # the processes import `tests.train` by its name
        torch.multiprocessing.start_processes(start, arguments, nprocs=world, start_method="forkserver")

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

# In older versions, among them 2.6, FSDP2 asks streams of the host for what they lack, and with that put right fails in
# the backward pass, without anything of ours.
FSDP2_RUNS_ON_THE_HOST = hasattr(torch.cpu.Stream, "record_event")
needs_fsdp2_on_the_host = pytest.mark.skipif(
    not FSDP2_RUNS_ON_THE_HOST, reason="FSDP2 of this PyTorch trains on cards alone"
)


def run_on_ranks(world: int, start: Callable[..., None], *arguments: Any) -> None:
    """Call `start(rank, *arguments)` in as many processes; an error in one is raised here."""
    multiprocessing.set_forkserver_preload(_IMPORTED_ONCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_ROOT)  # the processes import `tests.train` by its name
        torch.multiprocessing.start_processes(start, arguments, nprocs=world, start_method="forkserver")

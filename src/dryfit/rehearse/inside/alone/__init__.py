"""One process plays one rank of many; here is what answers for the others.

The store has what this rank wrote (`store`). NCCL's calls are answered by the virtual card, as if every rank had
brought the same. What would go over gloo goes nowhere, and sums are multiplied (`sums`). Distributed checkpoints have
this rank's part (`checkpoint`). A launcher starts one process, which is then the rank that is
asked for (`launchers`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import checkpoint, deepspeed_private, launchers, sums, torch_private
from dryfit.rehearse.inside.alone.store import alone_store
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.world import World


def place(world: World, note: Callable[[str], None]) -> None:
    """Have torch.distributed, once it is imported, meet nobody; `note` takes a sentence where another is meant."""
    after_import("torch.distributed.distributed_c10d", lambda module: _alone(module, world, note))
    launchers.place(world, note)
    checkpoint.place()
    after_import("deepspeed.runtime.zero.utils", deepspeed_private.agree_with_rank_0)


def end() -> None:
    """End the process groups: their threads ask a store that is Python's, which is taken apart next."""
    torch_private.end_groups()


def _alone(c10d: ModuleType, world: World, note: Callable[[str], None]) -> None:
    store = alone_store()

    def rendezvous(_url: str, rank: int = -1, world_size: int = -1, **_: Any) -> Any:
        yield store, rank if rank >= 0 else world.rank, world_size if world_size > 0 else world.size

    def joined(size: int, rank: int) -> None:
        if (size, rank) != (world.size, world.rank):
            note(
                f"The program made itself rank {rank} of {size}, and the figures are of that, where rank {world.rank} "
                f"of {world.size} was asked for."
            )

    torch_private.meet_nobody(c10d, rendezvous, store, joined)
    sums.multiply(c10d, (c10d, import_module("torch.distributed")))

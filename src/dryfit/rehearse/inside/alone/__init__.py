"""One process plays one rank of many; here is what answers for the others.

The store has what this rank wrote (`store`). NCCL's calls are answered by the virtual card, as if every rank had
brought the same, and so are gloo's (`gloo_private`). Distributed checkpoints have this rank's part (`checkpoint`). A
launcher starts one process, which is then the rank that is asked for (`launchers`).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import (
    checkpoint,
    deepspeed_private,
    last_words,
    launchers,
    meshes,
    torch_private,
)
from dryfit.rehearse.inside.alone.store import alone_store
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.world import World


def place(world: World, note: Callable[[str], None], joins: Callable[[int, int], None]) -> None:
    """Have torch.distributed, once it is imported, meet nobody.

    `note` takes a sentence where another world is meant, `joins` the rank that a process makes itself, and of how many.
    """
    after_import("torch.distributed.distributed_c10d", lambda module: _alone(module, world, joins))
    launchers.place(world, note)
    meshes.place(world, note)
    checkpoint.place()
    after_import("deepspeed.runtime.zero.utils", deepspeed_private.agree_with_rank_0)


def is_stopped(world: World, frame: FrameType | None, note: Callable[[str], None]) -> None:
    """The process is stopped in this frame by a limit; `note` takes a sentence of what it may have waited for."""
    if not _is_the_rank():
        return
    said = last_words.where_it_was(frame, _store.asked_for if _store is not None else {}, world)
    if said is not None:
        note(said)


def has_ended(world: World, note: Callable[[str], None], *, used_card: bool) -> None:
    """The process has done all it does; `note` takes a sentence if it used the card and had no peers."""
    if used_card and _joined_in is None and world.size > 1:
        note(last_words.without_a_group(world))


def has_failed(world: World, error: BaseException, *, has_received: bool) -> str:
    """An exception ends the process: what there is to say after it, or ""."""
    return last_words.after(
        error,
        _store.read if _store is not None else (),
        world,
        has_objects=torch_private.has_objects_of_others(),
        has_received=has_received,
    )


def end() -> None:
    """End the process groups: their threads ask a store that is Python's, which is taken apart next.

    A fork has no such threads, and would wait for them.
    """
    if _joined_in == os.getpid():
        torch_private.end_groups()


_store: Any = None
_joined_in: int | None = None  # the process that made the group of all ranks


def _is_the_rank() -> bool:
    """Whether this is the process that plays the rank, and no launcher of it or worker of a data loader."""
    if _joined_in is not None:
        return _joined_in == os.getpid()
    is_launching = torch_private.is_launching() or bool(multiprocessing.active_children())
    return not is_launching and multiprocessing.parent_process() is None


def _alone(c10d: ModuleType, world: World, joins: Callable[[int, int], None]) -> None:
    global _store
    store = _store = alone_store()

    def rendezvous(_url: str, rank: int = -1, world_size: int = -1, **_: Any) -> Any:
        yield store, rank if rank >= 0 else world.rank, world_size if world_size > 0 else world.size

    def joined(size: int, rank: int) -> None:
        global _joined_in
        _joined_in = os.getpid()
        joins(rank, size)

    torch_private.meet_nobody(c10d, rendezvous, store, joined)

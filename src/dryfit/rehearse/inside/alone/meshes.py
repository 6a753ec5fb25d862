"""Meshes of devices that leave ranks of the world out, or want more than there are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.world import World


def place(world: World, note: Callable[[str], None]) -> None:
    """Have `init_device_mesh`, once it is imported, say where its mesh is of another size than the world."""

    def watch(module: ModuleType) -> None:
        real = module.init_device_mesh

        @functools.wraps(real)
        def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
            if math.prod(mesh_shape) != world.size and not _is_in_another(world):
                note(another_size(tuple(mesh_shape), world))
            return real(device_type, mesh_shape, *args, **kwargs)

        module.init_device_mesh = init_device_mesh  # type: ignore[attr-defined]

    after_import("torch.distributed.device_mesh", watch)


def _is_in_another(world: World) -> bool:
    """Whether the program made a world of another size, which has been said."""
    import torch.distributed as dist

    return dist.is_initialized() and dist.get_world_size() != world.size


def another_size(shape: tuple[int, ...], world: World) -> str:
    """What there is to say of a mesh of this shape.

    >>> another_size((3, 2), World(size=8)).partition(":")[0]
    'init_device_mesh was asked for 3 x 2 ranks, and --world says 8'
    """
    ranks = math.prod(shape)
    asked = f"init_device_mesh was asked for {' x '.join(map(str, shape))} ranks, and --world says {world.size}"
    if ranks > world.size:
        return f"{asked}: there are too few for it. Rehearse with --world {ranks}, or give it another shape."
    first, last = ranks, world.size - 1
    several = f"ranks {first} {'and' if last == first + 1 else 'to'} {last} are"
    left_out = f"rank {last} is" if first == last else several
    return (
        f"{asked}: {left_out} in no part of the mesh. If the mesh is to be all of the world, write --world {ranks}, or "
        "give it another shape."
    )

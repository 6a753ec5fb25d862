"""What a rank that plays alone has to say at its end: that nobody comes where it waits, or that it had no peers."""

from __future__ import annotations

import linecache
import multiprocessing
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from types import FrameType

from dryfit.places import as_seen_from_here, is_of_the_program
from dryfit.rehearse.world import World

# A program that asks the store for a key once or twice does not wait for it.
_TIMES_OF_A_WAIT = 3


def where_it_was(frame: FrameType | None, asked_for: Mapping[str, int], world: World) -> str | None:
    """A sentence about the line that a process was stopped at; None where no line of the program's runs.

    `asked_for` is how often each key of the store was asked for that nobody had written.
    """
    while frame is not None and not is_of_the_program(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(file, line).strip()
    said = f"It was at {as_seen_from_here(file)}:{line} then{f' ({source})' if source else ''}"
    key = max(asked_for, key=lambda each: asked_for[each], default="")
    if asked_for.get(key, 0) >= _TIMES_OF_A_WAIT:
        said += f", and had asked the store {asked_for[key]} times for {key!r}, which this rank has not written"
    return (
        f"{said}. It plays rank {world.rank} of {world.size} alone: what another rank would write or send never comes. "
        f"If it waits for that, rehearse real processes: {real_processes(world.size)}"
    )


def without_a_group(world: World) -> str:
    """A sentence for a program that has used the card and met no other rank."""
    return (
        "The program never made a process group (torch.distributed.init_process_group), so nothing is shared out among "
        f"the {world.size} ranks of --world: the figures are those of one process by itself."
    )


def after(error: BaseException, keys: Iterable[str], world: World, *, has_objects: bool, has_received: bool) -> str:
    """What there is to say after an error that ends the program, or "".

    `keys` are what it has read of the store that nobody had written. It `has_objects` that other ranks would have
    sent, or `has_received` tensors that they would have.

    >>> after(ValueError(), ["0", "1:2"], World(size=8), has_objects=False, has_received=False)  # NCCL's are numbers
    ''
    """
    name = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
    for prefix, variables in _OF_BATCH_SYSTEMS.items():
        if name.startswith(prefix):
            return _of_a_batch_system(name, variables, world)
    read = [repr(key) for key in keys if not re.fullmatch(r"[\d:]+", key)]
    found = [f"what it read from the store for {', '.join(read)} was zeros"] if read else []
    found += ["objects that are gathered, broadcast or scattered are its own"] if has_objects else []
    found += ["what it receives is a stand-in"] if has_received else []
    found += ["nobody listens where it connects"] if isinstance(error, ConnectionError) else []
    command = real_processes(world.size)
    if not found or world.size == 1 or command in str(error):
        return ""
    return (
        f"It plays rank {world.rank} of {world.size} alone: {', and '.join(found)}. If it failed because of that, "
        f"rehearse real processes: {command}"
    )


def real_processes(ranks: int) -> str:
    """The command that rehearses the program of this process as so many processes; it may start them itself."""
    if multiprocessing.parent_process() is not None:
        return f"dryfit run --cards {ranks} {_program()}"
    return f"dryfit run torchrun --nproc-per-node {ranks} {_program()}"


def _program() -> str:
    return "train.py" if sys.argv[0] in ("", "-c") else shlex.join(sys.argv)


# What batch systems and MPI call the rank, the number of ranks, and the rank on its machine.
_OF_BATCH_SYSTEMS = {
    "SLURM_": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    "OMPI_COMM_WORLD_": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "PMI_": ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"),
}


def _of_a_batch_system(name: str, variables: tuple[str, str, str], world: World) -> str:
    numbers = dict(zip(variables, map(str, (world.rank, world.size, world.local_rank)), strict=True))
    words = " ".join(f"{each}={number}" for each, number in ({name: "..."} | numbers).items())
    return (
        f"--world sets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK), and none of a batch system's. Give them "
        f"yourself, for one rank at a time: {words} dryfit run --world {world.size} --ranks {world.rank} {_program()}"
    )

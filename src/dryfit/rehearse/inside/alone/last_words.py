"""What a rank that plays alone has to say at its end: that nobody comes where it waits, or that it had no peers."""

from __future__ import annotations

import linecache
import re
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
        "If it waits for that, rehearse real processes: dryfit run torchrun --nproc-per-node N train.py"
    )


def without_a_group(world: World) -> str:
    """A sentence for a program that has used the card and met no other rank."""
    return (
        "The program never made a process group (torch.distributed.init_process_group), so nothing is shared out among "
        f"the {world.size} ranks of --world: the figures are those of one process by itself."
    )


def read_in_vain(keys: Iterable[str], world: World) -> str | None:
    """A sentence for a program that has failed after it read keys of the store that nobody had written.

    >>> read_in_vain(["0", "1:2"], World(size=8)) is None  # NCCL's own are numbers
    True
    """
    found = [repr(key) for key in keys if not re.fullmatch(r"[\d:]+", key)]
    if not found:
        return None
    return (
        f"It had read zeros from the store for {', '.join(found)}: it plays rank {world.rank} of {world.size} alone, "
        "and another rank would have written that. Rehearse real processes: dryfit run torchrun --nproc-per-node N "
        "train.py"
    )

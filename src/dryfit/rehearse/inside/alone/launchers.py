"""Launchers: each starts one process, which is the rank that is asked for, and what it was told is compared with that."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import torch_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.world import World


def place(world: World, note: Callable[[str], None]) -> None:
    """Have launchers, once they are imported, start this rank alone; `note` takes a sentence where they disagree."""

    def agent_asked(processes: int, fewest_nodes: int, most_nodes: int) -> None:
        if processes != world.cards_of_a_node or not fewest_nodes <= world.nodes <= most_nodes:
            note(_asked(processes * most_nodes, most_nodes, world))

    def spawn_asked(processes: int) -> None:
        if processes != world.cards_of_a_node:
            note(_asked(processes, None, world))

    def in_place_of(simple_launcher: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(simple_launcher)
        def launch(args: Any) -> Any:
            if world.size > 1:
                note(_asked(1, 1, world))
            return simple_launcher(args)

        return launch

    def accelerate(module: ModuleType) -> None:  # its launcher of one process; checked on 1.15.0
        module.simple_launcher = in_place_of(module.simple_launcher)  # type: ignore[attr-defined]

    as_rank = functools.partial(os.environ.update, world.variables())
    after_import(
        "torch.distributed.launcher.api", lambda api: torch_private.start_one_worker(api, as_rank, agent_asked)
    )
    after_import(
        "torch.multiprocessing.spawn",
        lambda module: torch_private.start_one_process(module, world.local_rank, spawn_asked),
    )
    after_import("accelerate.commands.launch", accelerate)


def _asked(processes: int, nodes: int | None, world: World) -> str:
    """What a launcher was to start, against what is rehearsed, and how to rehearse the other.

    >>> _asked(4, 1, World(size=8)).partition(" was")[2]
    ' to start 4 processes on 1 machine, and what is rehearsed is a rank of 8 on 1 machine, as --world says. ...
    """
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c") else "The program"
    machines = f" on {_counted(nodes, 'machine')}" if nodes is not None else ""
    option = f" --nodes {nodes}" if nodes is not None and nodes != 1 else ""
    return (
        f"{name} was to start {_counted(processes, 'process')}{machines}, and what is rehearsed is a rank of "
        f"{world.size} on {_counted(world.nodes, 'machine')}, as --world says. For what {name} was to start, write "
        f"--world {processes}{option}."
    )


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 'es' if word.endswith('s') else 's'}"

"""Launchers: each starts one process, the rank that is asked for, and says if it was to start other ones."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import deepspeed_private, torch_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.world import World


def place(world: World, note: Callable[[str], None]) -> None:
    """Have launchers, once they are imported, start this rank alone; `note` takes a sentence where they disagree."""

    def agent_asked(processes: int, fewest_nodes: int, most_nodes: int) -> None:
        if processes != world.cards_of_a_node or not fewest_nodes <= world.nodes <= most_nodes:
            note(_asked(processes * most_nodes, most_nodes, world))

    def in_place_of(simple_launcher: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(simple_launcher)
        def launch(args: Any) -> Any:
            torch_private.launches()
            if world.size > 1:
                note(_asked(1, 1, world))
            return simple_launcher(args)

        return launch

    def accelerate(module: ModuleType) -> None:  # its launcher of one process; checked on 1.15.0
        module.simple_launcher = in_place_of(module.simple_launcher)  # type: ignore[attr-defined]

    as_rank = functools.partial(_take, world.variables())
    after_import(
        "torch.distributed.launcher.api", lambda api: torch_private.start_one_worker(api, as_rank, agent_asked)
    )
    after_import(
        "torch.multiprocessing.spawn", lambda module: torch_private.start_one_process(module, world.local_rank)
    )
    after_import("accelerate.commands.launch", accelerate)
    after_import(
        "deepspeed.launcher.runner", lambda runner: deepspeed_private.start_one_worker(runner, world, agent_asked)
    )


def _take(variables: dict[str, str]) -> None:
    """Have variables in the environment; the method of `os.environ` could not be sent to another process."""
    os.environ.update(variables)


def _asked(processes: int, nodes: int, world: World) -> str:
    """What a launcher was to start, against what is rehearsed, and how to rehearse the other."""
    name = Path(sys.argv[0]).name if sys.argv[0] not in ("", "-c") else "The program"
    return (
        f"{name} was to start {_ranks(processes, nodes)}, and what is rehearsed is one of "
        f"{_ranks(world.size, world.nodes)}, as --world says. For what {name} was to start, write --world {processes}"
        f"{f' --nodes {nodes}' if nodes > 1 else ''}."
    )


def _ranks(size: int, nodes: int) -> str:
    """
    >>> _ranks(16, 2)
    '16 ranks on 2 machines'
    """
    return f"{size} rank{'s' if size > 1 else ''} on {nodes} machine{'s' if nodes > 1 else ''}"

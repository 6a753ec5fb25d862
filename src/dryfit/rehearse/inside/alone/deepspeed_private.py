"""Private names of DeepSpeed, for a rank whose peers are not there; each with the versions checked."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dryfit.rehearse.inside.alone import torch_private
from dryfit.rehearse.world import World

# Checked on 0.19.8. ZeRO-3 broadcasts rank 0's list of modules, and every rank compares it with its own.
_BROUGHT_BY_RANK_0 = ("assert_lst_len_same_as_other_ranks", "get_lst_from_rank0")


def agree_with_rank_0(zero_utils: ModuleType) -> None:
    """Have this rank bring what rank 0 does to DeepSpeed's checks that all ranks go through the same modules.

    `zero_utils` is `deepspeed.runtime.zero.utils`. A rank that only receives puts -1 where rank 0's number will come,
    and rank 0, which runs the same program, has the number that this rank compares it with.
    """
    for name in _BROUGHT_BY_RANK_0:
        if hasattr(zero_utils, name):
            setattr(zero_utils, name, _as_rank_0(zero_utils, getattr(zero_utils, name)))


def _as_rank_0(zero_utils: ModuleType, real: Callable[..., Any]) -> Callable[..., Any]:
    own = zero_utils.dist

    class OfRank0(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(own, name)

        def get_rank(self, group: Any = None) -> int:
            return 0

    of_rank_0 = OfRank0(own.__name__)

    @functools.wraps(real)
    def check(*args: Any, **kwargs: Any) -> Any:
        zero_utils.dist = of_rank_0  # type: ignore[attr-defined]
        try:
            return real(*args, **kwargs)
        finally:
            zero_utils.dist = own  # type: ignore[attr-defined]

    return check


# --- the launcher: checked on 0.19.8 -------------------------------------------------------------


def start_one_worker(runner: ModuleType, world: World, asked: Callable[[int, int, int], None]) -> None:
    """Have the command `deepspeed` start this rank alone, as its own launcher would start it, and meet no other node.

    `runner` is `deepspeed.launcher.runner`. `asked` is told of how many processes on how few and how many nodes the
    command speaks, if it speaks of processes.
    """

    @functools.wraps(runner.main)
    def main(args: Any = None) -> None:
        torch_private.launches()
        said = runner.parse_args(args)
        if said.num_gpus > 0:
            fewest, most = (said.num_nodes, said.num_nodes) if said.num_nodes > 0 else (world.nodes, world.nodes)
            asked(said.num_gpus, fewest, most)
        command = [] if said.no_python else [sys.executable, "-u"]
        command += ["-m"] if said.module else []
        command += [said.user_script, *([] if said.no_local_rank else [f"--local_rank={world.local_rank}"])]
        ended = subprocess.run([*command, *said.user_args], env=os.environ | world.variables() | _variables(world))
        if ended.returncode:
            sys.exit(ended.returncode)

    runner.main = main  # type: ignore[attr-defined]


def _variables(world: World) -> dict[str, str]:
    """What DeepSpeed's launcher gives to a rank beside what torchrun does."""
    numbers = {
        "CROSS_RANK": world.rank // world.cards_of_a_node,
        "CROSS_SIZE": world.nodes,
        "LOCAL_SIZE": world.cards_of_a_node,
    }
    return {name: str(number) for name, number in numbers.items()}

"""The command that rehearses a program once, to be shown for a person to run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dryfit.rehearse.world import World, world_of

_NO_OPTIONS: Mapping[str, Any] = {}


def run_command(
    gpu: str,
    words: Sequence[str],
    measures: Sequence[str] = (),
    *,
    world: World | None = None,
    rank: int | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> str:
    """The command line, or the line of Python where the program is a function.

    >>> run_command("l4", ["train.py", "--batch", "8"], ["fused-optimizer"])
    'dryfit run --gpu l4 --with fused-optimizer train.py --batch 8'
    >>> run_command("l4", ["train.py"], world=World(size=8), rank=7, options={"steps": 5, "longest": "p99"})
    'dryfit run --gpu l4 --world 8 --ranks 7 --steps 5 --longest=p99 train.py'
    >>> run_command("l4", ["step(batch=8)"], ["fused-optimizer"])
    "dryfit.run(lambda: step(batch=8), gpu='l4', measures=['fused-optimizer'])"

    `rank` is the one of the `world` to rehearse, and `options` are further ones of `dryfit.run`, by name.
    """
    asked = {**_of_world(world, rank), **options}
    if len(words) == 1 and words[0].endswith(")"):  # as `rehearse.callables.as_called` shows a function
        asked = {"gpu": gpu, **({"measures": list(measures)} if measures else {}), **asked}
        return f"dryfit.run(lambda: {words[0]}, {', '.join(f'{name}={value!r}' for name, value in asked.items())})"
    asked = {"gpu": gpu, **({"with": ",".join(measures)} if measures else {}), **asked}
    return " ".join(["dryfit run", *(_option(name, value) for name, value in asked.items()), shlex.join(words)])


def _of_world(world: World | None, rank: int | None) -> dict[str, Any]:
    if world is None:
        return {}
    nodes = {"nodes": world.nodes} if world.nodes != world_of(world.size).nodes else {}
    return {"world": world.size, **nodes, **({"ranks": str(rank)} if rank else {})}


def _option(name: str, value: Any) -> str:
    word = f"--{name.replace('_', '-')}"
    if value is True or (name == "longest" and value == "max"):
        return word
    if name == "longest":
        return f"{word}={value}"  # which takes its value in the same word
    return f"{word} {shlex.quote(','.join(value) if isinstance(value, list) else str(value))}"

"""What every search begins with: warm rehearsals of its program, a runner for them, and checks of what is asked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from dryfit.cards import Card
from dryfit.errors import UsageError
from dryfit.rehearse.limits import limits_of
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.rehearse.world import World, world_of
from dryfit.search.cache import cache_folder
from dryfit.search.progress import SearchProgress
from dryfit.search.rehearsing import Runner
from dryfit.units import format_bytes
from dryfit.virtual_card import TorchBuild

_Runner = TypeVar("_Runner", bound=Runner)


@contextlib.contextmanager
def started(
    kind: Callable[..., _Runner],
    words: Sequence[str],
    *,
    options: Mapping[str, Any],
    torch: TorchBuild,
    seconds: float,
    host_memory_bytes: int | None,
    jobs: int | None,
    cache: bool,
    progress: TextIO | None,
    **fields: Any,
) -> Iterator[_Runner]:
    """A runner of this kind, with `fields` of its own, whose rehearsals are warm; `words` are those of one of them.

    `options` are of `dryfit.run`, and decide what a rehearsal finds. The rehearsals share `host_memory_bytes`.
    """
    jobs = jobs or os.cpu_count() or 1
    with (
        warm_rehearsals(
            words,
            seconds=seconds,
            host_memory_bytes=limits_of(seconds, host_memory_bytes).host_memory_bytes // jobs,
            quiet=True,
            figures_only=True,
            **options,
        ) as rehearse_one,
        kind(
            rehearse=rehearse_one,
            about={**options, "torch": [torch.version, str(torch.folder)]},
            jobs=jobs,
            folder=cache_folder() if cache else None,
            progress=SearchProgress(progress),
            **fields,
        ) as runner,
    ):
        yield runner


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of `dryfit.run` that a person gave: what is to stand in a command that rehearses the same.

    >>> given({"steps": 5, "longest": "", "assume": [], "skip_weights": False})
    {'steps': 5}
    """
    return {name: value for name, value in options.items() if value}


def one_world(size: int | None, nodes: int | None) -> World | None:
    """The world that a program is rehearsed in; None where it is no rank that plays alone.

    Raises:
        UsageError: there is no such world, or machines without one.
    """
    if size is None:
        if nodes is not None:
            raise UsageError("--nodes says how many machines share a world: give its number of ranks, as in --world 8.")
        return None
    return world_of(size, nodes)


def check_reserve(card: Card, reserve_bytes: int) -> None:
    """See that a reserve leaves something of a card.

    Raises:
        UsageError: it does not.
    """
    if not 0 <= reserve_bytes < card.usable_bytes:
        raise UsageError(
            f"--reserve {format_bytes(reserve_bytes)} leaves nothing of {card.name}, which has "
            f"{format_bytes(card.usable_bytes)} for a program; reserve less."
        )


def check_jobs(jobs: int | None) -> None:
    """See that there is at least one rehearsal at a time.

    Raises:
        UsageError: there is not.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} would rehearse nothing; it has to be 1 or more.")

"""`dryfit.fit`: the largest value of a placeholder that fits, on each card and for each row of other values."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from typing import Any, TextIO

import dryfit
from dryfit.cards import Card, find_card
from dryfit.errors import UsageError
from dryfit.rehearse.assumptions import Assume, parse
from dryfit.rehearse.callables import Program, as_called, as_words
from dryfit.rehearse.inside.longest.asked import checked
from dryfit.rehearse.limits import DEFAULT_SECONDS
from dryfit.rehearse.world import World, check_cards, world_of
from dryfit.search.answering import answers_of_row
from dryfit.search.found import Fit
from dryfit.search.rehearsing import Rehearsals, all_at_once
from dryfit.search.starting import check_jobs, check_reserve, given, one_world, started
from dryfit.search.words import Vary, sweep_of
from dryfit.virtual_card import installed_torch


def fit(
    program: Program,
    *,
    gpu: str | Sequence[str] | None = None,
    vary: Vary | None = None,
    reserve_bytes: int = 0,
    effective: int | None = None,
    gpus: int = 1,
    world: int | Sequence[int] = (),
    nodes: int | None = None,
    steps: int | str | None = None,
    seconds: float = DEFAULT_SECONDS,
    host_memory_bytes: int | None = None,
    allow_network: bool = False,
    skip_weights: bool = False,
    exact_weights: bool = False,
    cards: int | None = None,
    longest: bool | str = False,
    assume: Assume = (),
    jobs: int | None = None,
    cache: bool = True,
    progress: TextIO | None = None,
) -> Fit:
    """Find the largest value of a placeholder with which a program fits on a card, by rehearsing it.

        found = dryfit.fit(["train.py", "--batch-size", "{batch}"], gpu="l4", vary={"batch": "1..512"})
        found.largest, found.answers[0].law.total.per_sample_bytes

        dryfit.fit(step, gpu="l4", vary={"batch": "1..512"})    # calls step(batch=8) and others

    `program` is as in `dryfit.run`, with `{batch}` where the number stands. A function gets what `vary` names, or
    `batch` without it: numbers as `int`, words as `str`. `gpu` is a card or several; without one DRYFIT_GPU counts.
    `vary` gives placeholders their values, as a range ("1..512"), a list, or words; the one without is searched in
    1..4096, or else the first named, and the others make rows. `reserve_bytes` of the card stay free. `effective` is a
    global batch to split over `gpus`. `jobs` rehearsals run at a time, as many as there are CPUs unless given. What was
    rehearsed before, of the same files, is not run again unless `cache` is False; of functions nothing is kept.

    With `world`, one or several numbers of ranks, each is a search of its own, in which the program plays rank 0 of so
    many alone, and with the largest value that fits the last rank too; `effective` is then split over each of them.
    `nodes` machines share each. `cards` is as in `dryfit.run`.

    Raises:
        UsageError: nothing to search, a placeholder without values, no such card or world, a setting out of range.
    """
    began = time.monotonic()
    values = vary or {}
    with as_words(program, values) as words:
        sweep = sweep_of(words, values)
        searched = _cards(gpu, reserve_bytes)
        _check(effective, gpus, jobs)
        sizes = [world] if isinstance(world, int) else world
        check_cards(cards, sizes)
        worlds = _worlds(sizes, nodes, effective, gpus)
        options: dict[str, Any] = {
            "steps": steps,
            "allow_network": allow_network,
            "skip_weights": skip_weights,
            "exact_weights": exact_weights,
            "cards": cards,
            "longest": checked(longest),
            "assume": list(map(str, parse(assume))),
        }
        torch = installed_torch()
        with started(
            Rehearsals,
            sweep.command(sweep.rows[0], sweep.values[0]),
            options=options,
            torch=torch,
            seconds=seconds,
            host_memory_bytes=host_memory_bytes,
            jobs=jobs,
            cache=cache and not callable(program),
            progress=progress,
            sweep=sweep,
        ) as rehearsals:
            searches = [
                functools.partial(answers_of_row, rehearsals, row, searched, reserve_bytes, effective, gpus, each)
                for row in sweep.rows
                for each in worlds
            ]
            found = all_at_once(searches, rehearsals)
    rows = [found[first : first + len(worlds)] for first in range(0, len(found), len(worlds))]
    return Fit(
        program=as_called(sweep.words),
        searched=sweep.searched,
        lowest=sweep.values[0],
        highest=sweep.values[-1],
        reserve_bytes=reserve_bytes,
        nodes=nodes,
        options=given(options),
        answers=tuple(answer for row in rows for of_card in zip(*row, strict=True) for answer in of_card),
        rehearsals=rehearsals.run,
        from_cache=rehearsals.from_cache,
        wall_seconds=round(time.monotonic() - began, 3),
        versions={"dryfit": dryfit.__version__, "torch": torch.version},
    )


def _cards(gpu: str | Sequence[str] | None, reserve_bytes: int) -> list[tuple[str, Card]]:
    """The cards asked for, each with the name it was asked for by; two names of one card are one."""
    asked = gpu if gpu is not None else os.environ.get("DRYFIT_GPU")
    if not asked:
        raise UsageError("A search needs a card to fit on: name one or several with --gpu, as in --gpu l4,rtx-3090")
    names = [asked] if isinstance(asked, str) else list(asked)
    cards = {card.key if "=" not in name else name: (name, card) for name in names for card in (find_card(name),)}
    for _, card in cards.values():
        if card.key == "unlimited":
            raise UsageError("On the unlimited card everything fits; name the card to be filled: --gpu l4")
        check_reserve(card, reserve_bytes)
    return list(cards.values())


def _worlds(asked: Sequence[int], nodes: int | None, effective: int | None, gpus: int) -> list[World | None]:
    """The worlds to search in, smallest first; one None where the program is no rank that plays alone."""
    if not asked:
        return [one_world(None, nodes)]
    if gpus != 1:
        raise UsageError(f"--gpus {gpus} and --world both say how many cards share the batch; leave out --gpus.")
    worlds = [world_of(size, nodes) for size in sorted(set(asked))]
    for world in worlds:
        if effective is not None and effective < world.size:
            raise UsageError(
                f"--effective {effective} cannot be split over --world {world.size}: each rank needs at least 1."
            )
    return list(worlds)


def _check(effective: int | None, gpus: int, jobs: int | None) -> None:
    if gpus < 1:
        raise UsageError(f"--gpus {gpus} is no number of cards; it has to be 1 or more.")
    if effective is None and gpus != 1:
        raise UsageError(f"--gpus {gpus} says over how many cards to split the batch of --effective; give that too.")
    if effective is not None and effective < gpus:
        raise UsageError(
            f"--effective {effective} cannot be split over {gpus} card{'s' if gpus > 1 else ''}: each needs at least 1."
        )
    check_jobs(jobs)

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
from dryfit.rehearse.limits import DEFAULT_SECONDS, limits_of
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.search.answering import answers_of_row
from dryfit.search.cache import cache_folder
from dryfit.search.found import Fit
from dryfit.search.progress import SearchProgress
from dryfit.search.rehearsing import Rehearsals, all_at_once
from dryfit.search.words import Vary, sweep_of
from dryfit.units import format_bytes
from dryfit.virtual_card import installed_torch


def fit(
    program: Sequence[str | os.PathLike[str]],
    *,
    gpu: str | Sequence[str] | None = None,
    vary: Vary | None = None,
    reserve_bytes: int = 0,
    effective: int | None = None,
    gpus: int = 1,
    steps: int | str | None = None,
    seconds: float = DEFAULT_SECONDS,
    host_memory_bytes: int | None = None,
    allow_network: bool = False,
    skip_weights: bool = False,
    exact_weights: bool = False,
    jobs: int | None = None,
    cache: bool = True,
    progress: TextIO | None = None,
) -> Fit:
    """Find the largest value of a placeholder with which a program fits on a card, by rehearsing it.

        found = dryfit.fit(["train.py", "--batch-size", "{batch}"], gpu="l4", vary={"batch": "1..512"})
        found.largest, found.answers[0].law.total.per_sample_bytes

    `program` is as in `dryfit.run`, with `{batch}` where the number stands. `gpu` is a card or several; without one
    DRYFIT_GPU counts. `vary` gives placeholders their values, as a range ("1..512"), a list, or words; the one without
    is searched in 1..4096, or else the first named, and the others make rows. `reserve_bytes` of the card stay free.
    `effective` is a global batch to split over `gpus`. `jobs` rehearsals run at a time, as many as there are CPUs
    unless given. What was rehearsed before, of the same files, is not run again unless `cache` is False.

    Raises:
        UsageError: nothing to search, a placeholder without values, no such card, a setting out of range.
    """
    began = time.monotonic()
    sweep = sweep_of(_words(program), vary or {})
    cards = _cards(gpu, reserve_bytes)
    _check(effective, gpus, jobs)
    jobs = jobs or os.cpu_count() or 1
    options: dict[str, Any] = {
        "steps": steps,
        "allow_network": allow_network,
        "skip_weights": skip_weights,
        "exact_weights": exact_weights,
    }
    host_memory_bytes = limits_of(seconds, host_memory_bytes).host_memory_bytes // jobs
    torch = installed_torch()
    with (
        warm_rehearsals(
            sweep.command(sweep.rows[0], sweep.values[0]),
            seconds=seconds,
            host_memory_bytes=host_memory_bytes,
            quiet=True,
            figures_only=True,
            **options,
        ) as rehearse_one,
        Rehearsals(
            sweep=sweep,
            rehearse=rehearse_one,
            about=options | {"torch": [torch.version, str(torch.folder)]},
            jobs=jobs,
            folder=cache_folder() if cache else None,
            progress=SearchProgress(progress),
        ) as rehearsals,
    ):
        split = None if effective is None else (effective, gpus)
        searches = [
            functools.partial(answers_of_row, rehearsals, row, cards, reserve_bytes, split) for row in sweep.rows
        ]
        rows = all_at_once(searches, rehearsals)
    return Fit(
        program=list(sweep.words),
        searched=sweep.searched,
        lowest=sweep.values[0],
        highest=sweep.values[-1],
        reserve_bytes=reserve_bytes,
        answers=tuple(answer for row in rows for answer in row),
        rehearsals=rehearsals.run,
        from_cache=rehearsals.from_cache,
        wall_seconds=round(time.monotonic() - began, 3),
        versions={"dryfit": dryfit.__version__, "torch": torch.version},
    )


def _words(program: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(program, (str, os.PathLike)):
        raise UsageError(f"The program is given as a list of words: [{os.fspath(program)!r}], and not as one word.")
    return [os.fspath(word) for word in program]


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
        if not 0 <= reserve_bytes < card.usable_bytes:
            raise UsageError(
                f"--reserve {format_bytes(reserve_bytes)} leaves nothing of {card.name}, which has "
                f"{format_bytes(card.usable_bytes)} for a program; reserve less."
            )
    return list(cards.values())


def _check(effective: int | None, gpus: int, jobs: int | None) -> None:
    if gpus < 1:
        raise UsageError(f"--gpus {gpus} is no number of cards; it has to be 1 or more.")
    if effective is None and gpus != 1:
        raise UsageError(f"--gpus {gpus} says over how many cards to split the batch of --effective; give that too.")
    if effective is not None and effective < gpus:
        raise UsageError(
            f"--effective {effective} cannot be split over {gpus} card{'s' if gpus > 1 else ''}: each needs at least 1."
        )
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} would rehearse nothing; it has to be 1 or more.")

"""`dryfit.run`: checks what is asked for, runs the program, and judges what was seen."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from dryfit.cards import Card, find_card, unlimited_card, with_eager_loading
from dryfit.cards.eager import loads_eagerly
from dryfit.errors import UsageError
from dryfit.measures.catalogue import measures_of
from dryfit.rehearse import settle
from dryfit.rehearse.address_orders import allocator_on_standby, with_address_orders
from dryfit.rehearse.assemble import Observed, assemble
from dryfit.rehearse.assumptions import Assume, parse
from dryfit.rehearse.callables import Program, as_called, as_words
from dryfit.rehearse.child import Request, run_once
from dryfit.rehearse.command import command_line, devices_of
from dryfit.rehearse.deciding_rank import worst_of
from dryfit.rehearse.endings import EXIT_INTERRUPTED
from dryfit.rehearse.findings_of_ranks import with_findings_of_ranks
from dryfit.rehearse.footprints import with_footprint
from dryfit.rehearse.inside.longest.asked import checked
from dryfit.rehearse.limits import DEFAULT_SECONDS, limits_of
from dryfit.rehearse.result import Result
from dryfit.rehearse.world import World, check_cards, ranks_of, world_of
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.settings import CardSettings, settings_of


def rehearse(
    program: Program,
    *,
    gpu: str | None = None,
    memory_bytes: int | None = None,
    address_order: str = "linux",
    steps: int | str | None = None,
    seconds: float = DEFAULT_SECONDS,
    host_memory_bytes: int | None = None,
    allow_writes: bool = False,
    allow_network: bool = False,
    skip_weights: bool = False,
    exact_weights: bool = False,
    values: bool = True,
    quiet: bool = False,
    progress: TextIO | None = None,
    reserve_bytes: int = 0,
    figures_only: bool = False,
    measures: Sequence[str] = (),
    facts: bool = False,
    observe: bool | None = None,
    watch: bool = False,
    world: int | None = None,
    nodes: int | None = None,
    ranks: str = "0",
    cards: int | None = None,
    longest: bool | str = False,
    assume: Assume = (),
    stop: threading.Event | None = None,
    run: Callable[[Request, CardSettings], Observed] = run_once,
) -> Result:
    """Run a program on a virtual card, in a process of its own, and say what it took.

        result = dryfit.run(["train.py", "--lr", "3e-4"], gpu="rtx-4090")
        result.verdict, result.peak_reserved_bytes

    `program` is a script and its arguments, `-m` and a module, or a command that starts Python; or it is a function
    without arguments, which is sent to that process by cloudpickle. `gpu` is a card's name; without one DRYFIT_GPU
    counts, and without that the card is unlimited and the result names the cards that fit. `steps` is a number, "all",
    or None: until the peak has been steady for two steps. The program's own output goes to stderr; `quiet` hides it.
    `progress` is a terminal to draw a progress line on.

    `reserve_bytes` of the card are taken before the program starts. A search wants `figures_only`: a close call is then
    left unsettled, and nobody asks who owned the memory, or looks at other orders of addresses. Setting `stop`
    does what Ctrl-C does, from another thread.
    `measures` are switched on, as in ["fused-optimizer", "micro-batch:4"]; `facts` are asked for, which leaves the
    figures those of a run that is watched closely. `observe` is whether to look for what keeps memory from step to
    step, by default where neither `figures_only` nor `facts` are asked for; with `watch` the program runs twelve steps
    or more for it. With `longest` the longest batch that the program's loaders can give is rehearsed, and shorter ones
    around it; "p99" or "max:500" name another, see docs/longest.md.
    `assume` says what values are that the virtual card cannot know, as in "nonzero=0.5,train.py:41=0.25", see
    docs/values.md.
    With a `world` the program plays one rank of so many, on `nodes` machines, alone; of several `ranks` ("0,last",
    "all") each is rehearsed, and the result is that of the one that decides.
    `cards` is how many the machine has, for a program that starts a process for each by itself; a launcher's own words
    say it otherwise.
    `run` is how the program is run once: in a new process, or a warm one of `warm.warm_rehearsals`.

    Raises:
        UsageError: no such program, no such card, a torch without CUDA, a setting out of range.
    """
    measures_of(measures)
    card, named = _card(gpu, memory_bytes)
    worlds = _worlds(world, nodes, ranks)
    check_cards(cards, [world] if world is not None else [])
    with as_words(program) as words:
        request = Request(
            program=words,
            command=command_line(words),
            torch=installed_torch(),
            limits=limits_of(seconds, host_memory_bytes),
            steps=_steps(steps),
            values=values,
            skip_weights=skip_weights,
            exact_weights=exact_weights,
            allow_writes=allow_writes,
            allow_network=allow_network,
            quiet=quiet,
            progress=progress,
            stop=stop,
            recording=not figures_only,
            measures=tuple(measures),
            facts=facts,
            observe=watch or (not (figures_only or facts) if observe is None else observe),
            watch=watch,
            longest=checked(longest),
            assume=tuple(map(str, parse(assume))),
            shown=tuple(as_called(words)),
        )
        of_machine = devices_of(words) if cards is None else cards
        results = []
        for each in worlds:
            count = each.cards_of_a_node if each is not None else of_machine
            settings = settings_of(card, address_order=address_order, count=count, alone=each is not None)
            settings = dataclasses.replace(settings, outside_bytes=settings.outside_bytes + reserve_bytes)
            of_rank = dataclasses.replace(request, world=each)
            judged = functools.partial(assemble, card=card, card_was_named=named)
            result = (
                _settled(of_rank, settings, card, run, judged) if not figures_only else judged(run(of_rank, settings))
            )
            results.append(with_findings_of_ranks(dataclasses.replace(result, world=each or result.world)))
            if result.exit_code == EXIT_INTERRUPTED:
                break
        return worst_of(results)


def _settled(
    request: Request,
    settings: CardSettings,
    card: Card,
    run: Callable[[Request, CardSettings], Observed],
    judged: Callable[[Observed], Result],
) -> Result:
    """Run the program, and once more where the first run leaves a close call; say what other addresses change."""
    with allocator_on_standby(request.torch) as process:
        observed = run(request, settings)
        result = with_footprint(judged(observed), observed)

        def run_again(**changes: Any) -> Result:
            if request.progress is not None:
                print("dryfit: a close call; running once more to settle it.", file=request.progress)
            return judged(run(request, dataclasses.replace(settings, **changes)))

        other_outside_bytes = settle.needs(result, card)
        if other_outside_bytes is not None:
            reserve_bytes = settings.outside_bytes - card.outside_bytes
            result = settle.by(result, run_again(outside_bytes=other_outside_bytes + reserve_bytes))
        return with_address_orders(result, observed, card, settings, process, lambda order: run_again(order=order))


def _worlds(size: int | None, nodes: int | None, ranks: str) -> list[World | None]:
    """The ranks to rehearse, each with its world; one None where the program is no rank that plays alone."""
    if size is None:
        if nodes is not None or ranks != "0":
            raise UsageError("--ranks and --nodes say something of a world: give its number of ranks, as in --world 8.")
        return [None]
    world = world_of(size, nodes)
    return [world.with_rank(rank) for rank in ranks_of(ranks, world)]


def _card(gpu: str | None, memory_bytes: int | None) -> tuple[Card, bool]:
    """The card asked for, and whether one was: the unlimited card stands in for none.

    A size alone is a card too, of the kind that the unlimited one is of: an A100.
    """
    name = gpu or os.environ.get("DRYFIT_GPU")
    if name is None and memory_bytes is not None:
        name = "sm=80,sms=108"
    if name is None:
        return unlimited_card(), False
    card = find_card(name, memory_bytes=memory_bytes)
    return with_eager_loading(card) if loads_eagerly(os.environ) else card, True


def _steps(steps: int | str | None) -> int | None:
    """As `Orders.steps` has it: a number, 0 for all, None for until steady."""
    if steps is None:
        return None
    if steps == "all":
        return 0
    try:
        number = int(steps)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"--steps {steps} is neither a number of optimiser steps, 1 or more, nor `all`.")
    return number

"""`dryfit.plan`: what makes a program fit on a card, in the order of its price."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TextIO

import dryfit
from dryfit.cards import Card, find_card
from dryfit.errors import UsageError
from dryfit.rehearse.assumptions import Assume, parse
from dryfit.rehearse.callables import Program, as_called, as_words
from dryfit.rehearse.inside.longest.asked import checked
from dryfit.rehearse.limits import DEFAULT_SECONDS
from dryfit.rehearse.world import check_cards
from dryfit.search.choosing import Wishes, to_write
from dryfit.search.planned import Extent, Plan, Tried
from dryfit.search.planning import Findings, find_out
from dryfit.search.question import Question, tried_of
from dryfit.search.rehearsing import Runner
from dryfit.search.starting import check_jobs, check_reserve, given, one_world, started
from dryfit.search.trial import FITS
from dryfit.search.words import USUAL, Sweep, placeholders_of
from dryfit.virtual_card import installed_torch

# Combinations to rehearse, unless told otherwise: a minute or so, where one takes a few seconds.
MOST_COMBINATIONS = 24


def plan(
    program: Program,
    *,
    gpu: str | None = None,
    batch: int | None = None,
    keep: str = "accuracy",
    only: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    reserve_bytes: int = 0,
    most: int = MOST_COMBINATIONS,
    world: int | None = None,
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
) -> Plan:
    """Find the cheapest set of measures with which a program fits on a card, by rehearsing it with them.

        found = dryfit.plan(["train.py"], gpu="rtx-3090")
        found.cheapest, found.of(found.cheapest).price.extra_percent
        print(found.to_write[0].snippet)

    `program` is as in `dryfit.run`, a function too; with `{batch}` in its words, `batch` is the number that stands
    there, and micro-batches of it are tried. Without `gpu` DRYFIT_GPU counts. `keep` is "accuracy": only measures after
    which the results are the same; "method": numbers of fewer bits too; or "nothing". `only` and `without` name
    measures, `also` such as are left out because they take long to rehearse. `reserve_bytes` of the card stay free. At
    most `most` combinations are rehearsed. The rest is as in `dryfit.fit`.

    With a `world` the program plays ranks of so many, on `nodes` machines, each alone: the first, and the last where it
    may hold another share; every peak is that of the one that takes more.

    Raises:
        UsageError: no such card, measure or world, a placeholder without a number, options that contradict each other.
    """
    began = time.monotonic()
    with as_words(program, None if batch is None else {USUAL: batch}) as words:
        sweep = _sweep(words, batch)
        name, card = _card(gpu, reserve_bytes)
        wishes = Wishes(keep=keep, only=_names(only), also=_names(also), without=_names(without), batch=batch)
        wishes.check()
        _check(most, jobs)
        check_cards(cards, [world] if world is not None else [])
        ranks = one_world(world, nodes)
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
            Runner,
            sweep.command({}, sweep.values[0]) if sweep is not None else words,
            options=options,
            torch=torch,
            seconds=seconds,
            host_memory_bytes=host_memory_bytes,
            jobs=jobs,
            cache=cache and not callable(program),
            progress=progress,
        ) as runner:
            question = Question(
                runner=runner,
                words=tuple(words),
                sweep=sweep,
                gpu=name,
                card=card,
                reserve_bytes=reserve_bytes,
                world=ranks,
            )
            found = find_out(question, wishes, most)
    return _answer(question, wishes, found, most, given(options), time.monotonic() - began, torch.version)


def _answer(
    question: Question,
    wishes: Wishes,
    found: Findings,
    most: int,
    options: dict[str, Any],
    wall_seconds: float,
    torch_version: str,
) -> Plan:
    tried = [tried_of(question, each, found.prices.get(each.measures)) for each in found.outcomes.values()]
    tried[1:] = sorted(tried[1:], key=partial(_place, found))
    written = found.surely or found.cheapest or found.nearest or ()
    return Plan(
        program=as_called(question.words),
        gpu=question.gpu,
        card=question.card.to_dict(),
        keep=wishes.keep,
        batch=wishes.batch,
        reserve_bytes=question.reserve_bytes,
        world=question.world,
        options=options,
        way=found.facts.way if found.facts is not None else "",
        as_it_is=tried[0],
        cheapest=found.cheapest,
        surely=found.surely,
        nearest=found.nearest,
        tried=tuple(tried[1:]),
        to_write=to_write(written, found.facts),
        rejected=tuple(found.rejected),
        not_tried=tuple(found.not_tried),
        cards=found.cards,
        searched=tuple(_extents(found, most)),
        notes=tuple(found.notes),
        rehearsals=question.runner.run,
        from_cache=question.runner.from_cache,
        wall_seconds=round(wall_seconds, 3),
        versions={"dryfit": dryfit.__version__, "torch": torch_version},
    )


def _place(found: Findings, each: Tried) -> tuple[Any, ...]:
    """Where it stands in the table: the answer first, and of equal prices the weaker options before the others."""
    strengths = {rung.word: rung.place for rung in found.space.rungs} if found.space is not None else {}
    rank, price, peak_bytes = each.order
    strength = sum(strengths.get(word, 0) for word in each.measures) if each.kind == FITS else 0
    return each.measures != found.cheapest, rank, price, strength, peak_bytes


def _extents(found: Findings, most: int) -> Iterator[Extent]:
    for is_strict, seen in ((False, found.searched), (True, found.searched_surely)):
        if seen is not None and (space := found.space) is not None:
            yield Extent(
                is_strict=is_strict,
                measures=len({rung.measure for rung in space.rungs}),
                combinations=seen.combinations,
                rehearsed=seen.rehearsed,
                unanswered=seen.unanswered,
                cheaper=seen.cheaper,
                ruled_out=seen.ruled_out,
                left=seen.left,
                largest=0 if space.is_whole else space.largest,
                most=most,
            )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _sweep(words: Sequence[str], batch: int | None) -> Sweep | None:
    """The words with the place of the batch in them; None where they hold none."""
    held = list(dict.fromkeys(name for word in words for name in placeholders_of(word)))
    others = [name for name in held if name != USUAL]
    if others:
        raise UsageError(
            f"{{{others[0]}}} stands for nothing: a plan varies {{batch}} alone. Write the value itself in its place, "
            f"or {{{{{others[0]}}}}} if the program is to get {{{others[0]}}} as it is."
        )
    if held and batch is None:
        raise UsageError("The program's words hold {batch}, and --batch does not say what stands there: --batch 64")
    if batch is not None and not held:
        raise UsageError(
            f"--batch {batch} has no place to go: no word of the program holds {{batch}}. Write that where the number "
            f"stands: dryfit plan --gpu rtx-3090 --batch {batch} train.py --batch-size {{batch}}"
        )
    if batch is not None and batch < 1:
        raise UsageError(f"--batch {batch} is no batch; it has to be 1 or more.")
    return None if batch is None else Sweep(words=tuple(words), searched=USUAL, values=[batch], rows=({},))


def _card(gpu: str | None, reserve_bytes: int) -> tuple[str, Card]:
    """The card asked for, with the name it was asked for by."""
    name = gpu or os.environ.get("DRYFIT_GPU")
    if not name:
        raise UsageError("A plan needs a card for the program to fit on: name one with --gpu, as in --gpu rtx-3090")
    card = find_card(name)
    if card.key == "unlimited":
        raise UsageError("On the unlimited card everything fits; name the card that the program is to fit on: --gpu l4")
    check_reserve(card, reserve_bytes)
    return (name if "=" in name else card.key), card


def _check(most: int, jobs: int | None) -> None:
    if most < 0:
        raise UsageError(f"--most {most} is no number of combinations; it has to be 0 or more.")
    check_jobs(jobs)

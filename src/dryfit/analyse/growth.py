"""Whether each step of a loop leaves more allocated than the one before, and who holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import Growth, LineBytes, OwnerBytes, OwnerChange, StepFootprint
from dryfit.analyse.heaviest import all_lines
from dryfit.analyse.holdings import Holdings, Ledger, alive_at, changes
from dryfit.analyse.peaks import StepMoments
from dryfit.places import as_seen_from_here
from dryfit.recording.replay import Lifetimes
from dryfit.units import MIB, format_bytes

_FEWEST_STEPS = 3
_TOLERANCE_BYTES, _TOLERANCE = MIB, 0.005
_MANY_STEPS = 1000
_LINES = 10
_GUESS = " Something is kept from step to step, such as a loss with its graph, or outputs in a list."
_GUESS_IF_SMALL = " A list that collects losses as tensors does that; .item() keeps the number alone."


def steady_growth(
    steps: Sequence[StepFootprint],
    moments: Sequence[StepMoments],
    holdings: dict[int, Holdings],
    lifetimes: Lifetimes,
    attribution: Attribution,
    ledger: Ledger,
) -> Growth | None:
    """The growth of the last steps, if it is the same from each to the next; None if it is not, or they are too few.

    Equal are amounts within 1 MiB or 0.5 % of each other. A step is over where the next begins, so of the last step
    the end is not known. A first step's states of the optimizer are no growth: the steps after it do not grow.
    """
    ends = [(step.step, step.end_allocated_bytes, at.end) for step, at in zip(steps, moments, strict=True) if step.step]
    ends.pop() if ends else None
    run = _run_at_the_end([size for _, size, _ in ends])
    if run < _FEWEST_STEPS:
        return None
    (first_step, first_bytes, first_end), (last_step, last_bytes, last_end) = ends[-run], ends[-1]
    bytes_per_step = round((last_bytes - first_bytes) / (run - 1))
    owners = tuple(
        each
        for each in changes(holdings[first_end].owners, holdings[last_end].owners)
        if each.after_bytes > each.before_bytes
    )
    lines = _lines_that_grew(
        all_lines(alive_at(first_end, lifetimes), attribution, ledger),
        all_lines(alive_at(last_end, lifetimes), attribution, ledger),
    )
    return Growth(
        first_step=first_step,
        last_step=last_step,
        bytes_per_step=bytes_per_step,
        owners=owners,
        sentence=_sentence(first_step, last_step, bytes_per_step, owners, lines),
        lines=lines,
    )


def with_keeper(growth: Growth, keeper: str) -> Growth:
    """The growth, with who keeps it, such as "outputs (train.py:31)", in place of the guess at that."""
    said = growth.sentence.removesuffix(_GUESS).removesuffix(_GUESS_IF_SMALL)
    return dataclasses.replace(growth, sentence=f"{said} It is kept by {keeper}.")


def _run_at_the_end(sizes: Sequence[int]) -> int:
    """How many of the last sizes rise by the same amount; 1 if none do."""
    run = 1
    rises: list[int] = []
    for before, after in pairwise(reversed(sizes)):
        rises.append(before - after)
        spread = max(rises) - min(rises)
        if min(rises) <= 0 or spread > max(_TOLERANCE_BYTES, _TOLERANCE * max(rises)):
            break
        run += 1
    return run


def _lines_that_grew(before: Sequence[LineBytes], after: Sequence[LineBytes]) -> tuple[LineBytes, ...]:
    """What each line holds more than before."""
    known = {(line.file, line.line): line for line in before}
    grown = []
    for line in after:
        first = known.get((line.file, line.line))
        if first is None:
            grown.append(line)
        elif line.size_bytes > first.size_bytes:
            grown.append(
                LineBytes(
                    file=line.file,
                    line=line.line,
                    function=line.function,
                    size_bytes=line.size_bytes - first.size_bytes,
                    blocks=max(0, line.blocks - first.blocks),
                    owners=_more(first.owners, line.owners),
                )
            )
    return tuple(sorted(grown, key=lambda line: (-line.size_bytes, line.file, line.line))[:_LINES])


def _more(before: Sequence[OwnerBytes], after: Sequence[OwnerBytes]) -> tuple[OwnerBytes, ...]:
    first = {each.owner: each for each in before}
    return tuple(
        OwnerBytes(
            owner=each.owner,
            size_bytes=each.size_bytes - (first[each.owner].size_bytes if each.owner in first else 0),
            blocks=max(0, each.blocks - (first[each.owner].blocks if each.owner in first else 0)),
        )
        for each in after
        if each.owner not in first or each.size_bytes > first[each.owner].size_bytes
    )


def _sentence(
    first_step: int, last_step: int, bytes_per_step: int, owners: Sequence[OwnerChange], lines: Sequence[LineBytes]
) -> str:
    what = (
        f"From the end of step {first_step} to that of step {last_step}, each step leaves "
        f"{format_bytes(bytes_per_step)} more allocated than the one before"
    )
    if owners:
        most = max(owners, key=lambda each: each.after_bytes - each.before_bytes)
        what += f", {'all' if len(owners) == 1 else 'most'} of it {most.owner}"
    if lines and lines[0].file:
        what += f", from {as_seen_from_here(lines[0].file)}:{lines[0].line}"
    if bytes_per_step < MIB:
        in_many = f"That is {format_bytes(_MANY_STEPS * bytes_per_step)} in {_MANY_STEPS:,} steps."
        return f"{what}. {in_many}{_GUESS_IF_SMALL}"
    return f"{what}.{_GUESS}"

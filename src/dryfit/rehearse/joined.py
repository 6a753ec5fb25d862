"""A program that makes itself another rank, or several, than the one it is to play alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dryfit.rehearse.endings import names_of_ranks
from dryfit.rehearse.events import Event


def notes(processes: Sequence[Sequence[Event]], main_pid: int | None, program: Sequence[str]) -> list[str]:
    """Say which ranks the processes made themselves, by their events, where that is not the rank asked for.

    `main_pid` is the process that the figures are of.
    """
    joins = [(events[0].get("pid"), event) for events in processes for event in events if event["event"] == "joined"]
    others = [event for _, event in joins if (event["rank"], event["ranks"]) != tuple(event["asked"])]
    if not others:
        return []
    rank, ranks = others[0]["asked"]
    asked = f"where rank {rank} of {ranks} was asked for"
    if len({pid for pid, _ in joins}) == 1:
        made = dict.fromkeys((event["rank"], event["ranks"]) for event in others)
        return [
            f"The program made itself rank {own} of {size}, and the figures are of that, {asked}." for own, size in made
        ]
    of_size: dict[int, set[int]] = {}
    for _, event in joins:
        of_size.setdefault(event["ranks"], set()).add(event["rank"])
    made_of = " and ".join(f"{names_of_ranks(sorted(own)).lower()} of {size}" for size, own in of_size.items())
    own = next((f"rank {event['rank']} of {event['ranks']}" for pid, event in joins if pid == main_pid), "the one")
    cards = max(of_size)
    return [
        f"The program's processes made themselves {made_of}, {asked}: each was alone, and the figures are those of "
        f"{own}, which took most. To rehearse them together, with real messages: dryfit run --cards {cards} "
        f"{shlex.join(program)}"
    ]

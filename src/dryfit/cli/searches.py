"""What the verbs that search share: options of their rehearsals, and how an answer is saved and printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dryfit.cli.longest import add_longest
from dryfit.cli.program import add_assume, add_cards


class Answer(Protocol):
    """A `Fit` or a `Plan`."""

    @property
    def exit_code(self) -> int: ...
    def save(self, path: str | Path) -> None: ...
    def to_json(self) -> str: ...


_Answer = TypeVar("_Answer", bound=Answer)


def add_options(parser: argparse.ArgumentParser, *, answer: str) -> None:
    """Take how far to rehearse, how the program is treated, and where the answer goes."""
    add = parser.add_argument_group("how far").add_argument
    add(
        "--steps", metavar="N|all", help="optimiser steps of each rehearsal; default: until the peak is steady, 3 to 20"
    )
    add_longest(add)
    add("--seconds", metavar="S", type=float, default=600.0, help="time limit of each rehearsal (default: 600)")
    add("--host-memory", metavar="SIZE", help="limit on this machine's memory (default: 90%% of what is free)")
    add("--jobs", metavar="N", type=int, help="rehearsals at a time (default: the number of CPUs)")
    add("--no-cache", action="store_true", help="rehearse again what was rehearsed before")
    add = parser.add_argument_group("the program").add_argument
    add("--allow-network", action="store_true", help="let the program reach the network")
    add("--skip-weights", action="store_true", help="from_pretrained builds from the config and reads no weights")
    add("--exact-weights", action="store_true", help="draw big initial weights on the host, which are zeros otherwise")
    add_assume(add)
    add_cards(add)
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help=f"print the {answer} as JSON")
    add("-o", "--output", metavar="FILE", help=f"save the {answer} as JSON")


def add_nodes(add: Any) -> None:
    """Take `--nodes`; `add` is `add_argument` of a group."""
    add("--nodes", metavar="K", type=int, help="machines that share the world (default: of 8 cards each)")


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `dryfit.fit` and `dryfit.plan` take of these options, and of --reserve.

    Raises:
        UsageError: a size cannot be read.
    """
    from dryfit.units import parse_bytes

    return {
        "reserve_bytes": parse_bytes(arguments.reserve) if arguments.reserve else 0,
        "steps": arguments.steps,
        "longest": arguments.longest,
        "assume": arguments.assume,
        "seconds": arguments.seconds,
        "host_memory_bytes": parse_bytes(arguments.host_memory) if arguments.host_memory else None,
        "allow_network": arguments.allow_network,
        "skip_weights": arguments.skip_weights,
        "exact_weights": arguments.exact_weights,
        "cards": arguments.cards,
        "jobs": arguments.jobs,
        "cache": not arguments.no_cache,
        "progress": sys.stderr,
    }


def cards_of(given: list[str] | None) -> list[str] | None:
    """The cards named, with commas between or an option for each; a card by hand has commas itself, and an option.

    >>> cards_of(["l4,t4", "sm=90,sms=132,memory=141GB"])
    ['l4', 't4', 'sm=90,sms=132,memory=141GB']
    """
    if given is None:
        return None
    each = [[text] if "=" in text else text.split(",") for text in given]
    return [name.strip() for names in each for name in names if name.strip()]


def give(found: _Answer, arguments: argparse.Namespace, print_text: Callable[[_Answer], None]) -> int:
    """Save and print an answer; its exit code. What was found is printed even where it could not be saved.

    Raises:
        UsageError: it could not be saved.
    """
    from dryfit.errors import UsageError

    problem = None
    try:
        if arguments.output:
            found.save(arguments.output)
    except UsageError as error:
        problem = error
    if arguments.json:
        print(found.to_json())
    else:
        print_text(found)
    if problem is not None:
        raise problem
    return found.exit_code

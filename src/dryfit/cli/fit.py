"""Find the largest batch, or other number, with which a program fits on a card.

Write {batch} where the number stands: dryfit fit --gpu l4 train.py --batch-size {batch}. It is found by rehearsals of
the program, a few at a time, and ends when the largest that fits and the next one, which does not, have both been
rehearsed. --vary gives values to this and other placeholders; several cards may be named.
"""

from __future__ import annotations

import argparse
import sys

from dryfit.cli.files import check_places
from dryfit.cli.program import add_program, check_machine, program_of

NAME = "fit"
HELP = "find the largest batch with which a program fits on a card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit fit [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS, {batch} AMONG THEM ...]"
    add = parser.add_argument_group("the card").add_argument
    add("--gpu", metavar="CARD[,CARD ...]", help="names from `dryfit cards`; default: DRYFIT_GPU")
    add("--reserve", metavar="SIZE", help="memory of the card to leave free: 1GiB")
    add = parser.add_argument_group("what is searched").add_argument
    add(
        "--vary",
        metavar="NAME=VALUES",
        action="append",
        default=[],
        help="values for {NAME}: a range (batch=1..512, batch=8..512..8) or a list (seq=512,1024); {batch} without any "
        "is searched in 1..4096; with values for all, the first named is searched, and the others make rows",
    )
    add("--effective", metavar="N", type=int, help="a global batch to make of micro-batches that fit")
    add("--gpus", metavar="N", type=int, default=1, help="the GPUs that share it (default: 1)")
    add = parser.add_argument_group("how far").add_argument
    add(
        "--steps", metavar="N|all", help="optimiser steps of each rehearsal; default: until the peak is steady, 3 to 20"
    )
    add("--seconds", metavar="S", type=float, default=600.0, help="time limit of each rehearsal (default: 600)")
    add("--host-memory", metavar="SIZE", help="limit on this machine's memory (default: 90%% of what is free)")
    add("--jobs", metavar="N", type=int, help="rehearsals at a time (default: the number of CPUs)")
    add("--no-cache", action="store_true", help="rehearse again what was rehearsed before")
    add = parser.add_argument_group("the program").add_argument
    add("--allow-network", action="store_true", help="let the program reach the network")
    add("--skip-weights", action="store_true", help="from_pretrained builds from the config and reads no weights")
    add("--exact-weights", action="store_true", help="draw big initial weights on the host, which are zeros otherwise")
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print the answer as JSON")
    add("-o", "--output", metavar="FILE", help="save the answer as JSON")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    from dryfit.errors import UsageError
    from dryfit.units import parse_bytes

    check_machine()
    from dryfit.search.fit import fit  # what it imports is there on Linux only

    words = program_of(arguments)
    check_places({"-o": arguments.output}, read=words)
    found = fit(
        words,
        gpu=_cards(arguments.gpu),
        vary=_values(arguments.vary),
        reserve_bytes=parse_bytes(arguments.reserve) if arguments.reserve else 0,
        effective=arguments.effective,
        gpus=arguments.gpus,
        steps=arguments.steps,
        seconds=arguments.seconds,
        host_memory_bytes=parse_bytes(arguments.host_memory) if arguments.host_memory else None,
        allow_network=arguments.allow_network,
        skip_weights=arguments.skip_weights,
        exact_weights=arguments.exact_weights,
        jobs=arguments.jobs,
        cache=not arguments.no_cache,
        progress=sys.stderr,
    )
    problem = None
    try:
        if arguments.output:
            found.save(arguments.output)
    except UsageError as error:
        problem = error  # what was found is printed all the same
    if arguments.json:
        print(found.to_json())
    else:
        from dryfit.report.fit import print_fit

        print_fit(found)
    if problem is not None:
        raise problem
    return found.exit_code


def _cards(text: str | None) -> list[str] | None:
    """The cards named with commas between; a card by hand has commas itself, and stands alone."""
    if text is None or "=" in text:
        return None if text is None else [text]
    return [name for name in (each.strip() for each in text.split(",")) if name]


def _values(given: list[str]) -> dict[str, str]:
    """NAME=VALUES by name.

    Raises:
        UsageError: one of them is not so written, or a name comes twice.
    """
    from dryfit.errors import UsageError

    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().strip("{}")
        if not equals or not name.isidentifier() or not value:
            raise UsageError(f"--vary {text} cannot be read; write a placeholder's name and its values: batch=1..512")
        if name in values:
            raise UsageError(
                f"--vary {name} is given twice, as {values[name]} and as {value}; give all its values at once, with "
                f"commas between: --vary {name}={values[name]},{value}"
            )
        values[name] = value
    return values

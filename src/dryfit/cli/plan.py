"""Find what makes a program fit on a card, in the order of its price.

The program is rehearsed as it is, then with each measure that applies to it, then with combinations of those that help,
the cheapest first. With {batch} among its words, --batch says what stands there, and smaller micro-batches of the same
effective batch are tried: dryfit plan --gpu rtx-3090 --batch 64 train.py --batch-size {batch}
"""

from __future__ import annotations

import argparse
import sys

from dryfit.cli.files import check_places
from dryfit.cli.program import add_program, check_machine, program_of

NAME = "plan"
HELP = "find the cheapest measures with which a program fits on a card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit plan [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS OF THE PROGRAM ...]"
    add = parser.add_argument_group("the card").add_argument
    add("--gpu", metavar="CARD", help="a name from `dryfit cards`; default: DRYFIT_GPU")
    add("--reserve", metavar="SIZE", help="memory of the card to leave free: 1GiB")
    add = parser.add_argument_group("what is searched").add_argument
    add(
        "--keep",
        choices=("accuracy", "method", "nothing"),
        default="accuracy",
        help="accuracy: only measures after which results are the same up to rounding (default); method: numbers of "
        "fewer bits too; nothing: all measures",
    )
    add("--batch", metavar="N", type=int, help="what stands in place of {batch}: the effective batch, which is kept")
    add("--only", metavar="MEASURE[,MEASURE ...]", default="", help="try these measures alone")
    add("--without", metavar="MEASURE[,MEASURE ...]", default="", help="leave these measures out")
    add("--most", metavar="N", type=int, help="combinations to rehearse (default: 24)")
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
    add("--json", action="store_true", help="print the plan as JSON")
    add("-o", "--output", metavar="FILE", help="save the plan as JSON")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    from dryfit.errors import UsageError
    from dryfit.units import parse_bytes

    check_machine()
    from dryfit.search.plan import MOST_COMBINATIONS, plan  # what it imports is there on Linux only

    words = program_of(arguments)
    check_places({"-o": arguments.output}, read=words)
    found = plan(
        words,
        gpu=arguments.gpu,
        batch=arguments.batch,
        keep=arguments.keep,
        only=_names(arguments.only),
        without=_names(arguments.without),
        reserve_bytes=parse_bytes(arguments.reserve) if arguments.reserve else 0,
        most=MOST_COMBINATIONS if arguments.most is None else arguments.most,
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
        from dryfit.report.plan import print_plan

        print_plan(found)
    if problem is not None:
        raise problem
    return found.exit_code


def _names(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]

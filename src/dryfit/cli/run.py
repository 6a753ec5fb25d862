"""Run a program on a virtual card and say how much memory it takes.

The program may be a script, a module (-m NAME) or a command that starts Python itself (torchrun, accelerate launch).
It runs unchanged, with its own arguments; what it prints goes to stderr, the result to stdout. What it would write
to files goes to a throw-away layer, and it reaches no network. It is stopped once its peak has been steady for two
optimiser steps.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dryfit.cli.files import check_places, write
from dryfit.cli.longest import add_longest
from dryfit.cli.program import add_assume, add_cards, add_program, check_machine, program_of
from dryfit.errors import DryfitError

if TYPE_CHECKING:
    from dryfit.rehearse.result import Result

NAME = "run"
HELP = "run a program on a virtual card and say how much memory it takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit run [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS OF THE PROGRAM ...]"
    add = parser.add_argument_group("the card").add_argument
    add(
        "--gpu",
        metavar="CARD",
        help="a name from `dryfit cards` (rtx-4090, a100-80gb, h100), or a card by hand: sm=90,sms=132,memory=141GB; "
        "default: DRYFIT_GPU, else an unlimited card, and the answer names the cards that fit",
    )
    add("--memory", metavar="SIZE", help="the card's total memory instead of the catalogue's: 24GiB, 2000GB")
    add(
        "--address-order",
        choices=("linux", "up", "down"),
        default="linux",
        help="where new segments go: as Linux drivers place them (default), upwards or downwards; up to torch 2.11 "
        "this decides ties in the allocator",
    )
    add_cards(add)
    add = parser.add_argument_group("one rank of many").add_argument
    add(
        "--world",
        metavar="N",
        type=int,
        help="play one rank of N, alone: what torchrun or another launcher would start N processes for",
    )
    add(
        "--ranks",
        "--rank",
        metavar="R[,R ...]|all",
        default="0",
        help="which: 0 (default), 0,last, 2-4, all; the one that takes most decides",
    )
    add("--nodes", metavar="K", type=int, help="machines that share the world (default: of 8 cards each)")
    add = parser.add_argument_group("how far").add_argument
    add("--steps", metavar="N|all", help="optimiser steps to run; default: until the peak is steady, 3 to 20")
    add(
        "--watch",
        action="store_true",
        help="run 12 steps or more, so that slow growth shows; what is kept from step to step is named without it, too",
    )
    add_longest(add)
    add("--seconds", metavar="S", type=float, default=600.0, help="time limit (default: 600)")
    add("--host-memory", metavar="SIZE", help="limit on this machine's memory (default: 90%% of what is free)")
    add = parser.add_argument_group("what the program may do").add_argument
    add("--allow-writes", action="store_true", help="let the program change files; its weights are garbage")
    add("--allow-network", action="store_true", help="let the program reach the network")
    add = parser.add_argument_group("the program").add_argument
    add("--skip-weights", action="store_true", help="from_pretrained builds from the config and reads no weights")
    add("--exact-weights", action="store_true", help="draw big initial weights on the host, which are zeros otherwise")
    add_assume(add)
    add("--no-values", action="store_true", help="do not compute small operators; for comparison only")
    add(
        "--with",
        dest="measures",
        metavar="MEASURE[,MEASURE ...]",
        default="",
        help="switch measures on, as `dryfit plan` names them: checkpoint-blocks,micro-batch:4",
    )
    add("--quiet", action="store_true", help="hide what the program prints")
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print the result as JSON")
    add("-o", "--output", metavar="FILE", help="save the result as JSON")
    add("--report", metavar="FILE", help="write who owned the memory, and when, as one HTML page")
    add("--record", metavar="FILE", help="save the recording, for `dryfit report` and other tools")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    from dryfit.units import parse_bytes

    check_machine()
    words = program_of(arguments)
    places = {"-o": arguments.output, "--report": arguments.report, "--record": arguments.record}
    check_places(places, read=words)
    from dryfit.rehearse.launch import rehearse  # what it imports is there on Linux only

    result = rehearse(
        words,
        gpu=arguments.gpu,
        memory_bytes=parse_bytes(arguments.memory) if arguments.memory else None,
        address_order=arguments.address_order,
        steps=arguments.steps,
        seconds=arguments.seconds,
        host_memory_bytes=parse_bytes(arguments.host_memory) if arguments.host_memory else None,
        allow_writes=arguments.allow_writes,
        allow_network=arguments.allow_network,
        skip_weights=arguments.skip_weights,
        exact_weights=arguments.exact_weights,
        values=not arguments.no_values,
        quiet=arguments.quiet,
        watch=arguments.watch,
        world=arguments.world,
        nodes=arguments.nodes,
        ranks=arguments.ranks,
        cards=arguments.cards,
        longest=arguments.longest,
        assume=arguments.assume,
        measures=[name for name in (each.strip() for each in arguments.measures.split(",")) if name],
        progress=sys.stderr,
    )
    problems = _save(result, arguments)
    if arguments.json:
        print(result.to_json())
    else:
        from dryfit.report import text

        text.print_result(result)
    if problems:
        worst = max(problems, key=lambda problem: problem.exit_code)
        raise type(worst)(" ".join(map(str, problems)))
    return result.exit_code


def _save(result: Result, arguments: argparse.Namespace) -> list[DryfitError]:
    """Write the files that were asked for, and say which could not be: the others, and what is printed, still count.

    It is done before anything is printed, so that a closed pipe loses nothing.
    """
    problems: list[DryfitError] = []
    for place, write_to in (
        (arguments.output, result.save),
        (arguments.record, result.save_recording),
        (arguments.report, result.save_report),
    ):
        if place is not None:
            try:
                write(place, write_to)
            except DryfitError as error:
                problems.append(error)
    return problems

"""Run a program for real on this machine's card, and rehearse it on the card's virtual twin: how far apart are they?

The program is rehearsed first, and then runs on the card for as many optimiser steps, unchanged. What it would write
to files goes to a throw-away layer both times (--allow-writes lifts that for the real run), and it reaches no network.
Allocated and reserved memory, and what nvidia-smi would show, are compared by step and phase. The row that comes of it
names card, driver, versions and figures, and nothing private; docs/verify.md says where to send it.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dryfit.cli.files import check_places
from dryfit.cli.program import add_program, check_machine, program_of
from dryfit.errors import UsageError

if TYPE_CHECKING:
    from dryfit.verifying.real_card import RealCard
    from dryfit.verifying.sides import HowToRun

NAME = "verify"
HELP = "run a program on this machine's real card and virtually, and compare the memory"

_ROWS = "dryfit-verify.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit verify [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS OF THE PROGRAM ...]"
    add = parser.add_argument_group("how far").add_argument
    add(
        "--steps",
        metavar="N|all",
        help="optimiser steps of both runs; default: as many as the rehearsal takes to be steady, 3 to 20",
    )
    add("--seconds", metavar="S", type=float, default=600.0, help="time limit of each of the two runs (default: 600)")
    add("--host-memory", metavar="SIZE", help="limit on this machine's memory (default: 90%% of what is free)")
    add = parser.add_argument_group("the program").add_argument
    add("-y", "--yes", action="store_true", help="do not ask before the program runs on the card")
    add("--allow-writes", action="store_true", help="let the real run change files, as without dryfit")
    add("--allow-network", action="store_true", help="let the program reach the network")
    add("--skip-weights", action="store_true", help="from_pretrained builds from the config and reads no weights")
    add("--quiet", action="store_true", help="hide what the program prints")
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print the row as JSON, and nothing else")
    add("-o", "--output", metavar="FILE", default=_ROWS, help=f"the file of rows to add this one to (default: {_ROWS})")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    from dryfit.units import parse_bytes

    check_machine()
    words = program_of(arguments)
    check_places({"-o": arguments.output}, read=words)
    from dryfit.rehearse.command import command_line  # what these import is there on Linux only
    from dryfit.verifying import verify
    from dryfit.verifying.row import append_row
    from dryfit.verifying.sides import HowToRun

    command_line(words)
    real, twin = verify.look()
    how = HowToRun(
        seconds=arguments.seconds,
        host_memory_bytes=parse_bytes(arguments.host_memory) if arguments.host_memory else None,
        allow_writes=arguments.allow_writes,
        allow_network=arguments.allow_network,
        skip_weights=arguments.skip_weights,
        quiet=arguments.quiet,
        progress=sys.stderr,
    )
    if not _is_agreed(real, words, how, is_asked=not arguments.yes):
        print("dryfit: nothing was run.", file=sys.stderr)
        return UsageError.exit_code
    verified = verify.verify(words, real, twin, steps=arguments.steps, how=how)
    append_row(verified.row, arguments.output)
    print(f"Added a row to {arguments.output}; docs/verify.md says where to send it.", file=sys.stderr)
    if arguments.json:
        print(verified.row.to_json())
    else:
        from dryfit.report.verify import print_verified

        print_verified(verified)
    return verified.exit_code


def _is_agreed(real: RealCard, words: list[str], how: HowToRun, *, is_asked: bool) -> bool:
    """Say what is about to happen, and ask.

    Raises:
        UsageError: nobody is there to answer.
    """
    from dryfit.verifying.real_card import described

    network = "It may use the network." if how.allow_network else "It reaches no network."
    writes = "What it writes outside temporary folders is thrown away."
    if how.allow_writes:
        writes = "The real run writes its files as it would without dryfit, but is stopped before its end."
    print(
        f"dryfit: {' '.join(words)} is rehearsed, and then trains for real on {described(real)}, for as many optimiser "
        f"steps and at most {how.seconds:g} seconds. {writes} {network} "
        "It takes memory of the card that other programs there may miss.",
        file=sys.stderr,
    )
    if not is_asked:
        return True
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError("Nobody is there to be asked whether the program may run on the card; say so with --yes.")
    print("dryfit: start? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

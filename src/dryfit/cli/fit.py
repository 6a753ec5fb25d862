"""Find the largest batch, or other number, with which a program fits on a card.

Write {batch} where the number stands: dryfit fit --gpu l4 train.py --batch-size {batch}. It is found by rehearsals of
the program, a few at a time, and ends when the largest that fits and the next one, which does not, have both been
rehearsed. --vary gives values to this and other placeholders; several cards may be named.
"""

from __future__ import annotations

import argparse

from dryfit.cli import searches
from dryfit.cli.files import check_places
from dryfit.cli.program import add_program, check_machine, program_of

NAME = "fit"
HELP = "find the largest batch with which a program fits on a card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit fit [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS, {batch} AMONG THEM ...]"
    add = parser.add_argument_group("the card").add_argument
    add(
        "--gpu",
        metavar="CARD[,CARD ...]",
        action="append",
        help="names from `dryfit cards`, or a card by hand; may be given several times; default: DRYFIT_GPU",
    )
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
    add("--world", metavar="N[,N ...]", help="search as rank 0 of so many, and see that the last rank fits too")
    searches.add_nodes(add)
    searches.add_options(parser, answer="answer")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    check_machine()
    from dryfit.report.fit import print_fit
    from dryfit.search.fit import fit  # what it imports is there on Linux only

    words = program_of(arguments)
    check_places({"-o": arguments.output}, read=words)
    found = fit(
        words,
        gpu=searches.cards_of(arguments.gpu),
        vary=_values(arguments.vary),
        effective=arguments.effective,
        gpus=arguments.gpus,
        world=_worlds(arguments.world),
        nodes=arguments.nodes,
        **searches.settings_of(arguments),
    )
    return searches.give(found, arguments, print_fit)


def _worlds(text: str | None) -> list[int]:
    from dryfit.errors import UsageError

    words = [word.strip() for word in text.split(",")] if text is not None else []
    for word in words:
        if not word.isdecimal():
            raise UsageError(
                f"--world {text}: {word!r} is no number of ranks; write numbers with commas between: 1,2,8"
            )
    return [int(word) for word in words]


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

"""Find what makes a program fit on a card, in the order of its price.

The program is rehearsed as it is, then with each measure that applies to it, then with combinations of those that help,
the cheapest first. With {batch} among its words, --batch says what stands there, and smaller micro-batches of the same
effective batch are tried: dryfit plan --gpu rtx-3090 --batch 64 train.py --batch-size {batch}
"""

from __future__ import annotations

import argparse

from dryfit.cli import searches
from dryfit.cli.files import check_places
from dryfit.cli.program import add_program, check_machine, program_of

NAME = "plan"
HELP = "find the cheapest measures with which a program fits on a card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit plan [OPTIONS] (train.py | -m MODULE | COMMAND) [ARGUMENTS OF THE PROGRAM ...]"
    add = parser.add_argument_group("the card").add_argument
    add("--gpu", metavar="CARD", action="append", help="a name from `dryfit cards`; default: DRYFIT_GPU")
    add("--reserve", metavar="SIZE", help="memory of the card to leave free: 1GiB")
    add = parser.add_argument_group("training on many cards").add_argument
    add(
        "--world",
        metavar="N",
        type=int,
        help="rehearse as ranks of N, each alone: the first, and the last where it may hold another share",
    )
    searches.add_nodes(add)
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
    add("--also", metavar="MEASURE[,MEASURE ...]", default="", help="try these too, which take long to rehearse")
    add("--without", metavar="MEASURE[,MEASURE ...]", default="", help="leave these measures out")
    add("--most", metavar="N", type=int, help="combinations to rehearse (default: 24)")
    searches.add_options(parser, answer="plan")
    add_program(parser)


def run(arguments: argparse.Namespace) -> int:
    check_machine()
    from dryfit.report.plan import print_plan
    from dryfit.search.plan import MOST_COMBINATIONS, plan  # what it imports is there on Linux only

    words = program_of(arguments)
    check_places({"-o": arguments.output}, read=words)
    found = plan(
        words,
        gpu=_card(arguments.gpu),
        batch=arguments.batch,
        keep=arguments.keep,
        only=_names(arguments.only),
        also=_names(arguments.also),
        without=_names(arguments.without),
        world=arguments.world,
        nodes=arguments.nodes,
        most=MOST_COMBINATIONS if arguments.most is None else arguments.most,
        **searches.settings_of(arguments),
    )
    return searches.give(found, arguments, print_plan)


def _card(given: list[str] | None) -> str | None:
    """The one card that was named.

    Raises:
        UsageError: several were.
    """
    from dryfit.errors import UsageError

    names = searches.cards_of(given) or []
    if len(names) > 1:
        raise UsageError(f"A plan is for one card, and --gpu names {len(names)}: {', '.join(names)}. Name one of them.")
    return names[0] if names else None


def _names(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]

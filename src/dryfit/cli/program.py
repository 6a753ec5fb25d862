"""What the verbs that rehearse a program share: its words on the command line, and a machine that can rehearse it."""

from __future__ import annotations

import argparse
from typing import Any


def add_program(parser: argparse.ArgumentParser) -> None:
    """Take everything after the options as the program: a script or a command, or a module after -m."""
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def add_assume(add: Any) -> None:
    """Take `--assume`; `add` is `add_argument` of a group."""
    add(
        "--assume",
        metavar="NAME=VALUE[,...]",
        action="append",
        default=[],
        help="what values are that are computed on the card: nonzero=0.5, unique=0.1 and nms=0.1 are shares kept, "
        "routing=worst sends all tokens to the same experts, item=0 is what .item() gives, repeats=2, turns=256; "
        "train.py:41=0.25 is for what line 41 asks alone",
    )


def add_cards(add: Any) -> None:
    """Take `--cards`; `add` is `add_argument` of a group."""
    add(
        "--cards",
        metavar="N",
        type=int,
        help="how many the machine has, for a program that starts a process for each by itself "
        "(torch.multiprocessing.spawn); default: as many as torchrun or another launcher is told to start processes",
    )


def program_of(arguments: argparse.Namespace) -> list[str]:
    """The words of the program, without the `--` that may stand before it."""
    words: list[str] = ["-m", *arguments.module] if arguments.module is not None else arguments.program
    return words[1:] if words[:1] == ["--"] else words


def check_machine() -> None:
    """See that a program can be rehearsed here.

    Raises:
        UsageError: it cannot; the sentence says what is missing.
    """
    from dryfit.errors import UsageError
    from dryfit.rehearse.checkup import NO, look_at_machine

    machine = look_at_machine()
    if machine.mark == NO:
        raise UsageError(machine.sentence)

"""What the verbs that rehearse a program share: its words on the command line, and a machine that can rehearse it."""

from __future__ import annotations

import argparse


def add_program(parser: argparse.ArgumentParser) -> None:
    """Take everything after the options as the program: a script or a command, or a module after -m."""
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


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

"""The `dryfit` command: one file per verb, each parses, calls one function of the library and prints.

A verb is a module with NAME, HELP, `add_arguments(parser)` and `run(arguments) -> exit code`. Results go to stdout,
everything else to stderr. Verb modules import what is heavy only when they run.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from dryfit import __version__
from dryfit.cli import cards, doctor, run
from dryfit.errors import DryfitError

EXIT_BROKEN_PIPE = 141  # as the shell has it for a program that SIGPIPE ended

_VERBS = (run, cards, doctor)

_DESCRIPTION = """Runs your unchanged PyTorch training program on a virtual NVIDIA card, on this machine, GPU or not,
and says how much memory it takes and what fits."""

_EXIT_CODES = """exit codes: 0 fits (or done), 1 does not fit, 2 wrong usage or the program failed by itself,
3 a limit of dryfit's own decided the answer, 70 our fault, 130 Ctrl-C"""


def parser() -> argparse.ArgumentParser:
    """The whole command line, as argparse knows it."""
    top = argparse.ArgumentParser(prog="dryfit", description=_DESCRIPTION, epilog=_EXIT_CODES)
    top.add_argument("--version", action="version", version=f"dryfit {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in _VERBS:
        one = verbs.add_parser(verb.NAME, help=verb.HELP, description=verb.__doc__, epilog=_EXIT_CODES)
        verb.add_arguments(one)
        one.set_defaults(verb=verb)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors meant for a person go to stderr as they are."""
    arguments = parser().parse_args(words)
    try:
        code: int = arguments.verb.run(arguments)
        return code
    except DryfitError as error:
        print(f"dryfit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("dryfit: stopped by Ctrl-C.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output, such as `head`, has had enough; what is still buffered must not be an error at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return EXIT_BROKEN_PIPE
    except Exception:
        traceback.print_exc()
        print("dryfit: this is our fault; please report the lines above with the command.", file=sys.stderr)
        return 70

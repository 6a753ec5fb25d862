"""The `dryfit` command: one file per verb, each parses, calls one function of the library and prints.

A verb is a module with NAME, HELP, `add_arguments(parser)` and `run(arguments) -> exit code`. Results go to stdout,
everything else to stderr. Verb modules import what is heavy only when they run.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence

from dryfit import __version__
from dryfit.cli import cards, doctor, estimate, explain, fit, lint, longest, plan, report, run, sweep, verify
from dryfit.errors import DryfitError

EXIT_BROKEN_PIPE = 141  # as the shell has it for a program that SIGPIPE ended

_VERBS = (run, fit, plan, sweep, estimate, report, explain, lint, verify, cards, doctor)

_DESCRIPTION = """Runs your unchanged PyTorch training program on a virtual NVIDIA card, on this machine, GPU or not,
and says how much memory it takes and what fits."""

_EXIT_CODES = """exit codes: 0 fits (or done), 1 does not fit, 2 wrong usage or the program failed by itself,
3 a limit of dryfit's own decided the answer, 70 our fault, 130 Ctrl-C"""


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The whole command line, as argparse knows it; `words` are those that it is to read."""
    top = argparse.ArgumentParser(prog="dryfit", description=_DESCRIPTION, epilog=_EXIT_CODES)
    top.add_argument("--version", action="version", version=f"dryfit {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in _VERBS:
        one = verbs.add_parser(verb.NAME, help=verb.HELP, description=verb.__doc__, epilog=_EXIT_CODES)
        verb.add_arguments(one)
        longest.add_values(one, words)
        one.set_defaults(verb=verb)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors meant for a person go to stderr as they are."""
    arguments = parser(sys.argv[1:] if words is None else words).parse_args(words)
    try:
        code: int = arguments.verb.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except DryfitError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("stopped by Ctrl-C.", 130)
    except BrokenPipeError:
        _discard_output()  # its reader, such as `head`, has had enough
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _discard_output()
            return _say("the output could not be written: no space left on the device.", 2)
        traceback.print_exc()
        return _say("this is our fault; please report the lines above with the command.", DryfitError.exit_code)


def _discard_output() -> None:
    """Let what is still buffered for stdout go nowhere, so that it is no error at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _say(sentence: str, code: int) -> int:
    print(f"dryfit: {sentence}", file=sys.stderr)
    return code

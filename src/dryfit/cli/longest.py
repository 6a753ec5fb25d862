"""`--longest` and `--longest=WHICH`: an option whose value, if it has one, is in the same word.

A value of argparse's own would take the next word, which is the program's. So each word `--longest=WHICH` of the
command line is an option by itself; those after the program's name are never looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

_OPTION = "--longest"


def add_longest(add: Any) -> None:
    """Take `--longest`; `add` is `add_argument` of a parser or of a group."""
    add(
        _OPTION,
        action="store_const",
        const="max",
        default="",
        help="have the longest batch that the loaders can give rehearsed, and shorter ones around it; --longest=p99 is "
        "the one at that percentile of 100 batches, --longest=max:500 the longest of 500",
    )


def add_values(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Take the words `--longest=WHICH` of this command line, if the parser takes `--longest`."""
    written = sorted({word for word in words if word.startswith(f"{_OPTION}=")})
    if written and parser.get_default("longest") is not None:
        parser.add_argument(*written, action=_Written, nargs=0, dest="longest", help=argparse.SUPPRESS, default="")


class _Written(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, (option_string or "").partition("=")[2])

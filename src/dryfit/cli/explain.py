"""Say why memory ran out, or who holds it: from an error's text, a log, a snapshot of a real card, or a recording.

FILE is a log or the text of an error, what torch.cuda.memory._dump_snapshot or `dryfit run --record` wrote, or - for
stdin. What was recorded is played through PyTorch's own allocator under other settings, on a virtual card.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dryfit.cli.files import check_places, write_text
from dryfit.errors import UsageError

if TYPE_CHECKING:
    from dryfit.explaining.explanation import Explanation

NAME = "explain"
HELP = "say why memory ran out: from an error's text, a log, a snapshot or a recording"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit explain [OPTIONS] FILE|-"
    parser.add_argument("file", metavar="FILE", help="a log, a snapshot, a recording; - for stdin; or the error itself")
    add = parser.add_argument
    add("--gpu", metavar="CARD", help="the card it was recorded on, or is to fit on; `dryfit cards` lists them")
    add(
        "--settings",
        metavar="CONF",
        action="append",
        help="play a recording under these, as PYTORCH_CUDA_ALLOC_CONF has them; may be given again; "
        "default: those worth trying",
    )
    add("--no-retrace", action="store_true", help="do not play it under other settings")
    add("--json", action="store_true", help="print JSON; sizes are in bytes")
    add("-o", "--output", metavar="OUT", help="write the explanation as JSON")


def run(arguments: argparse.Namespace) -> int:
    check_places({"-o": arguments.output}, read=[arguments.file])
    if arguments.settings and arguments.no_retrace:
        raise UsageError("--settings asks what other settings would have done, and --no-retrace not to; leave one out.")
    explanation = _explain(arguments)
    if arguments.output is not None:
        write_text(arguments.output, f"{explanation.to_json()}\n", "explanation")
    if arguments.json:
        print(explanation.to_json())
    elif arguments.output is None:
        from dryfit.report.explanation import print_explanation

        print_explanation(explanation)
    return 0


def _explain(arguments: argparse.Namespace) -> Explanation:
    from dryfit.explaining.explaining import explain, refuse_for_text
    from dryfit.explaining.told import explain_stdin

    if arguments.file == "-":
        refuse_for_text(gpu=arguments.gpu, settings=arguments.settings)
        return explain_stdin(sys.stdin.buffer.read())
    return explain(arguments.file, retrace=not arguments.no_retrace, gpu=arguments.gpu, settings=arguments.settings)

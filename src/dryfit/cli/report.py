"""Say who owns the memory of a run: from a recording of dryfit, or a memory snapshot of a real card.

FILE is what `dryfit run --record FILE` or torch.cuda.memory._dump_snapshot(FILE) wrote. With two files, say what grew
from the first to the second. The report goes to stdout; where files are asked for, only these are written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dryfit.cli.files import check_places, write, write_text
from dryfit.errors import UsageError

if TYPE_CHECKING:
    from dryfit.analyse.analysis import Analysis

NAME = "report"
HELP = "say who owns the memory of a recorded run, or of a snapshot of a real card; compare two"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "dryfit report [OPTIONS] FILE [FILE]"
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a recording or a snapshot (.pickle, also .gz, .xz, and .html); two to compare",
    )
    add = parser.add_argument_group("on stdout").add_mutually_exclusive_group().add_argument
    add("--text", action="store_true", help="print the report; the default, unless files are asked for")
    add("--json", action="store_true", help="print the report as JSON; sizes are in bytes")
    add = parser.add_argument_group("files to write").add_argument
    add("-o", "--output", metavar="OUT", help="the report as JSON")
    add("--html", metavar="OUT", help="one page for a browser, which needs nothing else")
    add("--snapshot", metavar="OUT", help="a memory snapshot, as PyTorch's own viewer reads it")
    add("--perfetto", metavar="OUT", help="a trace for ui.perfetto.dev and chrome://tracing")
    parser.add_argument("--device", metavar="N", type=int, help="which card; default: the one with the highest peak")


def run(arguments: argparse.Namespace) -> int:
    files = arguments.files
    if len(files) > 2:
        raise UsageError(f"{len(files)} files were given; name one to report on, or two to compare.")
    of_one = {"--html": arguments.html, "--snapshot": arguments.snapshot, "--perfetto": arguments.perfetto}
    for option, place in of_one.items():
        if place is not None and len(files) == 2:
            raise UsageError(f"{option} shows one run, and two files were given; leave one out.")
    places = {"-o": arguments.output, **of_one}
    check_places(places, read=files)
    # Files come before what is printed: a reader such as `head` that has had enough ends the command.
    as_text = arguments.text or not (arguments.json or any(place is not None for place in places.values()))
    if len(files) == 2:
        _compare(arguments, as_text)
    else:
        _report(arguments, as_text)
    return 0


def _report(arguments: argparse.Namespace, as_text: bool) -> None:
    analysis = _analysis(arguments.files[0], arguments.device)
    if arguments.html is not None:
        from dryfit.report.page import write_page

        write(arguments.html, lambda path: write_page(analysis, path))
    if arguments.snapshot is not None:
        from dryfit.recording.to_torch import save_snapshot

        write(arguments.snapshot, lambda path: save_snapshot(analysis.recording, path))
    if arguments.perfetto is not None:
        from dryfit.report.perfetto import to_perfetto

        trace = json.dumps(to_perfetto(analysis), separators=(",", ":"))
        write_text(arguments.perfetto, trace, "trace")
    _give_json(analysis.footprint.to_dict(), arguments)
    if as_text:
        from dryfit.report.footprint import print_footprint

        print_footprint(analysis.footprint)


def _compare(arguments: argparse.Namespace, as_text: bool) -> None:
    from dryfit.analyse.compare import compare

    before, after = (_analysis(file, arguments.device).footprint for file in arguments.files)
    comparison = compare(before, after)
    _give_json(comparison.to_dict(), arguments)
    if as_text:
        from dryfit.report.compare import print_comparison

        print_comparison(comparison)


def _analysis(file: str, device: int | None) -> Analysis:
    from dryfit.analyse import analyse
    from dryfit.recording.opening import open_recording

    return analyse(open_recording(Path(file)), device=device)


def _give_json(values: dict[str, object], arguments: argparse.Namespace) -> None:
    if not arguments.json and arguments.output is None:
        return
    text = json.dumps(values, indent=2)
    if arguments.output is not None:
        write_text(arguments.output, f"{text}\n", "report")
    if arguments.json:
        print(text)

"""The process beside a worker that rehearses the cells of one program, warm, in the program's folder.

It is a process of its own so that a cluster's worker keeps its own folder, environment and signals. What it is asked
and what it answers are lines of JSON; when its worker is gone, so is the line, and it stops what it is doing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import sys
import threading
from typing import Any, TextIO

import dryfit
from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.plain import to_plain
from dryfit.rehearse import settle
from dryfit.rehearse.endings import EXIT_INTERRUPTED
from dryfit.rehearse.limits import DEFAULT_SECONDS, limits_of
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals
from dryfit.sweeping.row import Outcome, outcome_of, outcome_of_error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all cells of a sweep share: the program's folder, `dryfit.run`'s options, variables of the environment.

    `jobs` is how many cells run at a time; those on one machine share its memory. `dryfit` is the version that asks.
    `asker` is its process, where workers are to end with it: loky's would wait on for minutes if it were killed.
    """

    folder: str
    options: dict[str, Any]
    variables: dict[str, str]
    jobs: int
    dryfit: str
    asker: int | None = None


def serve(job: Job, asked: TextIO, answers: TextIO) -> None:
    """Rehearse the cells that are asked for, a line each, until there are no more lines.

    A line asks `{"words": [...], "gpu": ..., "world": ..., "measures": [...]}`; a line answers with the `Outcome` and
    the program's source `files`.
    """
    stop = threading.Event()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked, lines, stop), daemon=True).start()
    first = lines.get()
    if not first:
        return
    options = {"seconds": DEFAULT_SECONDS, **job.options}
    if "host_memory_bytes" not in options:
        sharing = min(job.jobs, os.cpu_count() or 1)
        options["host_memory_bytes"] = limits_of(options["seconds"], None).host_memory_bytes // sharing
    with warm_rehearsals(json.loads(first)["words"], quiet=True, stop=stop, **options) as rehearse_one:
        line = first
        while line and not stop.is_set():
            outcome, files = _rehearsed(rehearse_one, json.loads(line), job)
            if outcome is None:
                return
            print(json.dumps({"outcome": to_plain(outcome), "files": files}), file=answers, flush=True)
            line = lines.get()


def _rehearsed(rehearse_one: WarmRehearsals, asked: dict[str, Any], job: Job) -> tuple[Outcome | None, list[str]]:
    """The outcome of a cell, and the program's files; None if it was stopped, which says nothing of the cell.

    The figures are all that is asked for, unless the call is close: then it is settled, as `dryfit run` does.
    """
    words = asked.pop("words")
    try:
        if job.dryfit != dryfit.__version__:
            raise UsageError(
                f"The worker {os.uname().nodename} has dryfit {dryfit.__version__}, and dryfit {job.dryfit} asks for "
                "the sweep; install the same version on both."
            )
        asked |= {"nodes": None, "ranks": "0"} if asked["world"] is None else {"cards": None}  # are of other cells
        result = rehearse_one(words, figures_only=True, **asked)
        if result.exit_code != EXIT_INTERRUPTED and result.card is not None and asked["gpu"] is not None:
            card = find_card(asked["gpu"], memory_bytes=job.options.get("memory_bytes"))
            if settle.needs(result, card) is not None:
                result = rehearse_one(words, figures_only=False, observe=False, **asked)
    except Exception as error:  # whatever it is, it is this cell's, and the others go on
        return outcome_of_error(error), []
    return (None if result.exit_code == EXIT_INTERRUPTED else outcome_of(result)), result.files


def _read(asked: TextIO, lines: queue.SimpleQueue[str], stop: threading.Event) -> None:
    """Pass lines on; at the end of them, stop what is running."""
    for line in asked:
        lines.put(line)
    stop.set()
    lines.put("")


def main() -> None:
    """Serve on the standard streams; the job is the first line. What else is printed here goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Job(**json.loads(sys.stdin.readline())), sys.stdin, answers)

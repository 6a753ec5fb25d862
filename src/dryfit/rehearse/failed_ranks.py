"""Which of several real ranks failed by itself, and how, in one sentence.

The others fail because they wait for it, or are ended by what started them.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from dryfit.places import is_of_the_program
from dryfit.rehearse.endings import SAYS_MORE, crashed, first_line, in_brackets, in_steps
from dryfit.rehearse.result import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dryfit.rehearse.assemble import Observed
    from dryfit.rehearse.events import Event
    from dryfit.rehearse.processes import Process

# What the virtual card says of a wait in vain, see c/ranks.c.
_WAITED = re.compile(r"rank (\d+) waits for rank (\d+), whose process has ended")


def ending_of_ranks(observed: Observed, ranks: Sequence[Process]) -> Ending | None:
    """How the rank ended that failed first; None where nobody knows which did."""
    launcher = _error_of_launcher(observed, ranks)
    first, waiting = _first_to_fail(ranks, launcher)
    if first is None:
        return None
    who, when = f"Rank {first.rank}", _when(first)
    error = _error_of(first) or _error_in_traceback(launcher)
    code = _exit_codes(launcher).get(first.pid)
    if code is not None and code < 0:
        return crashed(-code, who, f" {when}", observed.crash_place)
    if error is not None:
        what = f"{error['type']}: {first_line(error['message'])}{in_brackets(error['file'], error['line'])}"
        return Ending(
            how="raised",
            sentence=f"{who} failed {when}: {what}. {SAYS_MORE}",
            exit_status=observed.status,
            error_type=error["type"],
            error_message=error["message"],
            file=error["file"],
            line=error["line"],
        )
    if code:
        sentence = f"{who} ended with status {code}, {when}. {SAYS_MORE}"
    elif waiting is not None:
        of_wait = _error_of(waiting) or {}
        place = in_brackets(of_wait.get("file"), of_wait.get("line"))
        sentence = f"{who} ended {when}, and rank {waiting.rank} waited for it{place}."
    else:
        sentence = f"{who} ended {when}. {SAYS_MORE}"
    return Ending(how="raised", sentence=sentence, exit_status=observed.status)


def _when(process: Process) -> str:
    return f"after {in_steps(process.steps)}" if process.steps else "before its first optimiser step"


def _error_of(process: Process) -> Event | None:
    error: Event | None = (process.end or {}).get("error")
    return error


def _error_of_launcher(observed: Observed, ranks: Sequence[Process]) -> Event | None:
    """The error of the process that started the ranks: it tells which of them failed."""
    of_ranks = {process.pid for process in ranks}
    errors = [
        event["error"]
        for events in observed.processes
        for event in events
        if event["event"] == "end" and events[0].get("pid") not in of_ranks
    ]
    return next((error for error in errors if error and error.get("children")), None)


def _exit_codes(launcher: Event | None) -> dict[int, int]:
    return {child["pid"]: child["exit_code"] for child in (launcher or {}).get("children", [])}


def _error_in_traceback(launcher: Event | None) -> Event | None:
    """A child's error as torch.multiprocessing tells it, which has it as text alone."""
    if launcher is None or launcher["type"] != "ProcessRaisedException":
        return None
    text = launcher["message"].strip()
    kind, _, message = text.rpartition("\n")[2].partition(": ")
    places = [place for place in re.findall(r'File "([^"]+)", line (\d+)', text) if is_of_the_program(place[0])]
    file, line = places[-1] if places else (None, None)
    return {"type": kind, "message": message, "file": file, "line": int(line) if line else None}


def _first_to_fail(ranks: Sequence[Process], launcher: Event | None) -> tuple[Process | None, Process | None]:
    """The rank that failed by itself, and the one that waited for it, if one did."""
    failed = [process for process in ranks if _error_of(process)]
    if failed:
        return _end_of_the_chain(min(failed, key=lambda process: (process.end or {})["at"]), ranks)
    codes = _exit_codes(launcher)
    gone = [process for process in ranks if process.pid in codes]
    gone.sort(key=lambda process: codes[process.pid] == -signal.SIGTERM)  # which torchrun sends to those that are left
    return (gone[0] if gone else None), None


def _end_of_the_chain(process: Process, ranks: Sequence[Process]) -> tuple[Process, Process | None]:
    """Follow who waited for whom, where a rank's error says that it waited in vain."""
    met = [process]
    while waited := _WAITED.search((_error_of(met[-1]) or {}).get("message", "")):
        awaited = next((each for each in ranks if each.rank == int(waited[2])), None)
        if awaited is None or awaited in met:
            break
        met.append(awaited)
    return met[-1], met[-2] if len(met) > 1 else None

"""How a rehearsal ended, in one sentence, and the exit code that goes with it."""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dryfit.places import as_seen_from_here
from dryfit.rehearse.events import ENOUGH, NOT_SWITCHED_ON, Event
from dryfit.rehearse.limits import HOST_MEMORY, INTERRUPTED, TIME
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, Ending

if TYPE_CHECKING:
    from dryfit.rehearse.assemble import Observed
    from dryfit.rehearse.processes import Process

_WHY_STOPPED = {
    "steady": "with the peak unchanged for the last two",
    "steps": "as asked",
    "most steps": "the most it runs unless --steps says otherwise",
}
_HOW_TO_USE_THE_CARD = (
    "check that it trains on device 'cuda' when torch.cuda.is_available(), and that CUDA_VISIBLE_DEVICES hides no card."
)
SAYS_MORE = "Its own output above says more."

_FAULTS = (signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE, signals.SIGABRT)

OUT_OF_MEMORY = "out of memory"
# Endings after which the peak is the program's own, not that of a part of it.
WHOLE = (*ENOUGH, "finished")

EXIT_FITS, EXIT_DOES_NOT_FIT, EXIT_USAGE, EXIT_LIMIT, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


def ending_of(observed: Observed, main: Process | None, ranks: Sequence[Process] = ()) -> Ending:
    """Say how it ended, from what the parent saw and what the process with most of the card wrote last.

    Of several real `ranks` that process is one.
    """
    program = " ".join(observed.program[:2]) if observed.program[:1] == ["-m"] else observed.program[0]
    end = _last_word(observed, main) or {}
    error = end.get("error")
    if observed.stopped_by is not None:
        return _stopped(observed, program, main, ranks)
    if (refused := _not_switched_on(observed)) is not None:
        sentence = f"{refused['name']} cannot be switched on in {program}: {refused['why']}"
        return Ending(how=NOT_SWITCHED_ON, sentence=sentence, error_message=refused["trace"] or None)
    if end.get("how") in _WHY_STOPPED:
        done = in_steps(main.steps if main else 0)
        sentence = f"Stopped after {done}, {_WHY_STOPPED[end['how']]}."
        if main is not None and not main.used_peak_bytes:
            sentence = f"{program} put nothing on the card in {done}; {_HOW_TO_USE_THE_CARD}"
        return Ending(how=end["how"], sentence=sentence, exit_status=0)
    who = f"Rank {main.rank}" if main is not None and ranks else program
    if error and error["is_out_of_memory"]:
        sentence = f"{who} ran out of memory{in_brackets(error['file'], error['line'])}."
        return _by_error(OUT_OF_MEMORY, sentence, error, observed.status)
    if observed.status and main is not None and main.last_oom is not None:
        where = f"step {main.last_oom['step']}" if main.last_oom["step"] else "the setup"
        sentence = f"{who} ended with status {observed.status} after an out-of-memory error in {where}."
        return Ending(how=OUT_OF_MEMORY, sentence=sentence, exit_status=observed.status)
    if end.get("how") == "told to stop" or (observed.status is None and observed.signal is None):
        sentence = f"{program} was stopped: one of its processes had seen enough, and the others had fallen silent."
        return Ending(how="fell silent", sentence=sentence)
    if observed.signal is not None:
        when = f" after {in_steps(main.steps)}" if main and main.steps else ""
        return crashed(observed.signal, program, when, observed.crash_place)
    if not observed.status:
        return Ending(how="finished", sentence=_finished(program, main), exit_status=0)
    if error:
        when = f"after {in_steps(main.steps)}" if main and main.steps else "before its first optimiser step"
        what = f"{error['type']}: {first_line(error['message'])}{in_brackets(error['file'], error['line'])}"
        sentence = " ".join(filter(None, (f"{program} failed {when}: {what}.", SAYS_MORE, error.get("advice"))))
        return _by_error("raised", sentence, error, observed.status)
    sentence = f"{program} ended with status {observed.status}. {SAYS_MORE}"
    return Ending(how="raised", sentence=sentence, exit_status=observed.status)


def exit_code(ending: Ending, verdict: str, *, measured: bool, card_was_named: bool) -> int:
    """The exit code of DESIGN: 0 fits, 1 does not, 2 wrong usage or a failed program, 3 a limit decided, 130 Ctrl-C."""
    if ending.how == INTERRUPTED:
        return EXIT_INTERRUPTED
    if verdict == DOES_NOT_FIT:
        return EXIT_DOES_NOT_FIT
    if ending.how in (TIME, HOST_MEMORY, "fell silent", OUT_OF_MEMORY):
        return EXIT_LIMIT
    if ending.how in ("raised", "crashed", NOT_SWITCHED_ON) or not measured:
        return EXIT_USAGE
    return EXIT_FITS if verdict == FITS or not card_was_named else EXIT_LIMIT


def _by_error(how: str, sentence: str, error: Event, status: int | None) -> Ending:
    return Ending(
        how=how,
        sentence=sentence,
        exit_status=status,
        error_type=error["type"],
        error_message=error["message"],
        file=error["file"],
        line=error["line"],
    )


def _last_word(observed: Observed, main: Process | None) -> Event | None:
    if main is not None:
        return main.end
    ends = [event for events in observed.processes for event in events if event["event"] == "end"]
    return next((end for end in reversed(ends) if end["error"]), ends[0] if ends else None)


def _not_switched_on(observed: Observed) -> Event | None:
    events = (event for events in observed.processes for event in events)
    return next((event for event in events if event["event"] == "measure"), None)


def _stopped(observed: Observed, program: str, main: Process | None, ranks: Sequence[Process]) -> Ending:
    done = f"after {in_steps(main.steps)}" if main and main.steps else "before its first optimiser step"
    how = observed.stopped_by or ""
    sentence = {
        TIME: f"{program} was stopped {done}, at the limit of {observed.limit}; --seconds sets another.",
        HOST_MEMORY: f"{program} was stopped {done}: it held more than {observed.limit} of this machine's memory; "
        "--host-memory sets another limit.",
        INTERRUPTED: f"{program} was stopped {done}, by Ctrl-C.",
    }[how]
    return Ending(how=how, sentence=sentence + _who_was_behind(ranks))


def _who_was_behind(ranks: Sequence[Process]) -> str:
    """ " Rank 1 was behind, ..." where not all ranks had come equally far, or some did not even hear of the end."""
    least = min((rank.steps for rank in ranks), default=0)
    behind = [rank for rank in ranks if rank.steps == least]
    waiting, others = [rank for rank in ranks if rank.end is None], [rank for rank in ranks if rank.end is not None]
    if len(behind) < len(ranks):
        return f" {_names(behind)} {_was(behind)} behind, after {in_steps(least)}."
    if waiting and others:
        return f" {_names(waiting)} {_was(waiting)} waiting in a call, {_names(others).lower()} {_was(others)} not."
    return ""


def names_of_ranks(ranks: Sequence[int | None]) -> str:
    """Ranks at the beginning of a sentence.

    >>> names_of_ranks([2]), names_of_ranks([0, 1, 3])
    ('Rank 2', 'Ranks 0, 1 and 3')
    """
    *numbers, last = map(str, ranks)
    return f"Ranks {', '.join(numbers)} and {last}" if numbers else f"Rank {last}"


def _names(ranks: Sequence[Process]) -> str:
    return names_of_ranks([rank.rank for rank in ranks])


def _was(ranks: Sequence[Process]) -> str:
    return "was" if len(ranks) == 1 else "were"


def crashed(number: int, who: str, when: str, place: tuple[str, int] | None) -> Ending:
    """The ending of a program, or a rank, that a signal of this number ended; `when` is for the sentence, or ""."""
    file, line = place or (None, None)
    if number in _FAULTS:
        sentence = (
            f"{who} crashed{when} with {signal_name(number)}{in_brackets(file, line)}. If it runs on a real card, "
            "the virtual one is at fault: please report it with the program."
        )
    elif number == signals.SIGKILL:
        sentence = f"{who} was killed{when} with SIGKILL; the kernel does that when this machine's memory is used up."
    else:
        sentence = f"{who} was ended{when} by {signal_name(number)}."
    return Ending(how="crashed", sentence=sentence, signal=number, file=file, line=line)


def _finished(program: str, main: Process | None) -> str:
    if main is None:
        return f"{program} ended without importing torch, so there is nothing to measure."
    if not main.used_peak_bytes:
        return f"{program} ended without putting anything on the card; {_HOW_TO_USE_THE_CARD}"
    if not main.steps:
        return f"{program} ran to its end without an optimiser step."
    return f"{program} ran to its end in {in_steps(main.steps)}."


def in_steps(count: int) -> str:
    """ "3 optimiser steps"."""
    return f"{count} optimiser step{'' if count == 1 else 's'}"


def in_brackets(file: str | None, line: int | None) -> str:
    """ " (train.py:12)", or nothing where there is no such place."""
    return f" ({as_seen_from_here(file)}:{line})" if file else ""


def first_line(message: str) -> str:
    """An error's message for a sentence of ours."""
    return message.strip().splitlines()[0].rstrip(".") if message.strip() else "no message"


def signal_name(number: int) -> str:
    """SIGSEGV for 11; the bare number where it has no name.

    >>> signal_name(11)
    'SIGSEGV'
    """
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"

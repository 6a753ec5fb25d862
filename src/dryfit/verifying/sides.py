"""Runs the program on the virtual twin, and for real; what was seen becomes a `Side`."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from dryfit.errors import UsageError
from dryfit.rehearse import sandbox
from dryfit.rehearse.assemble import Observed, processes_of
from dryfit.rehearse.child import Request, run_once
from dryfit.rehearse.command import command_line, current_folder
from dryfit.rehearse.endings import OUT_OF_MEMORY as RAN_OUT
from dryfit.rehearse.endings import WHOLE, ending_of, signal_name
from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.limits import limits_of
from dryfit.rehearse.processes import Process
from dryfit.rehearse.result import Ending, Result
from dryfit.verifying.comparison import FAILED, OUT_OF_MEMORY, RAN, STOPPED, Figures, Side
from dryfit.verifying.real_card import ASK, SECONDS_TO_ANSWER, RealCard, Twin, asking
from dryfit.virtual_card import CardSettings, environment, installed_torch

# A row is to be read, and sent: of more steps it has the last, and those in which something was highest.
MOST_STEPS_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToRun:
    """What both runs share; as the options of `dryfit run`."""

    seconds: float
    host_memory_bytes: int | None = None
    allow_network: bool = False
    allow_writes: bool = False  # in the real run: a rehearsal has garbage to write
    skip_weights: bool = False
    quiet: bool = False
    progress: TextIO | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """The real side, and what else was learnt: how it ended in words, torch's and cuDNN's versions, warnings."""

    side: Side
    ending: Ending
    versions: dict[str, str]
    notes: tuple[str, ...]


def run_virtually(
    words: Sequence[str], twin: Twin, real: RealCard, *, steps: int | str | None, how: HowToRun
) -> tuple[Side, Result]:
    """Rehearse the program on as many twins as there are cards, of which as much is taken as others hold for real."""
    seen: list[Observed] = []

    def run(request: Request, card: CardSettings) -> Observed:
        seen.append(run_once(request, dataclasses.replace(card, count=real.count)))
        return seen[-1]

    result = rehearse(
        list(words),
        gpu=twin.gpu,
        memory_bytes=twin.memory_bytes,
        steps=steps,
        reserve_bytes=real.used_before_bytes or 0,
        figures_only=True,
        run=run,
        seconds=how.seconds,
        host_memory_bytes=how.host_memory_bytes,
        allow_network=how.allow_network,
        skip_weights=how.skip_weights,
        quiet=how.quiet,
        progress=how.progress,
    )
    assert result.card is not None
    outside_bytes: int = result.card["outside_bytes"]
    processes = processes_of(seen[0])
    return _side(seen[0], processes, result.ending, card=real, more_bytes=outside_bytes), result


def check_reach(how: HowToRun, stand_in: CardSettings | None = None) -> None:
    """See that the driver can be reached from within the sandbox that the program will run in.

    Raises:
        UsageError: it cannot; the sentence says what the driver answered there.
    """
    variables = {**os.environ, **(environment(stand_in) if stand_in is not None else {})}
    with tempfile.TemporaryFile() as answer:
        keeper = sandbox.start(
            ASK,
            cwd=str(current_folder()),
            env=asking(variables),
            allow_writes=how.allow_writes,
            allow_network=how.allow_network,
            stdout=answer,
            stderr=subprocess.DEVNULL,
        )
        with keeper:
            keeper.wait(SECONDS_TO_ANSWER)
        answer.seek(0)
        text = answer.read()
    found = json.loads(text) if text.strip() else {"problem": "no answer", "reason": ""}
    if "problem" in found:
        reason = f" ({found['reason']})" if found["reason"] else ""
        way_out = "please report it with what `dryfit doctor` prints"
        if not how.allow_writes:
            way_out += "; with --allow-writes the program may reach it, and its files are real"
        raise UsageError(
            f"The driver answers here, and not from within the sandbox that the program runs in: {found['problem']}"
            f"{reason}. Nothing was run; {way_out}."
        )


def run_for_real(
    words: Sequence[str], real: RealCard, *, steps: int | None, how: HowToRun, stand_in: CardSettings | None = None
) -> RealRun:
    """Run the program on this machine's card, with the hooks and in the sandbox of a rehearsal.

    `steps` is as in `events.Orders`. `stand_in` is a virtual card in place of the real one, for tests: the program and
    the hooks then do all that they do on a real one.

    Raises:
        DryfitError: the program could not be started.
    """
    request = Request(
        program=list(words),
        command=command_line(list(words)),
        torch=installed_torch(),
        limits=limits_of(how.seconds, how.host_memory_bytes),
        steps=steps,
        values=False,
        skip_weights=how.skip_weights,
        exact_weights=True,
        allow_writes=how.allow_writes,
        allow_network=how.allow_network,
        quiet=how.quiet,
        progress=how.progress,
        recording=False,
        real_card=True,
    )
    observed = run_once(request, stand_in)
    processes = processes_of(observed)
    main = processes[0] if processes else None
    ending = ending_of(observed, main)
    if ending.signal is not None:  # the usual sentence asks whether it runs on a real card
        ending = dataclasses.replace(ending, sentence=f"{words[0]} was ended by {signal_name(ending.signal)}.")
    used_before_bytes = real.used_before_bytes
    more_bytes = None if used_before_bytes is None else -used_before_bytes
    seen = main.end.get("card", {}) if main and main.end else {}
    versions = {**(main.versions if main else {}), "cudnn": seen.get("cudnn") and str(seen["cudnn"])}
    return RealRun(
        side=_side(observed, processes, ending, card=real, more_bytes=more_bytes),
        ending=ending,
        versions={name: version for name, version in versions.items() if version},
        notes=tuple(observed.notes),
    )


def _side(
    observed: Observed, processes: Sequence[Process], ending: Ending, *, card: RealCard, more_bytes: int | None
) -> Side:
    """`more_bytes` is to be added to what was used of the card, to have the program's total; None if nobody knows."""
    used = [process for process in processes if process.used_peak_bytes]
    main = processes[0] if processes else None
    if len(used) > 1 and card.count == 1:
        more_bytes = None  # a card says what all of them use together
    return Side(
        outcome=_outcome(ending),
        error_type=ending.error_type,
        steps=main.steps if main else 0,
        processes=len(used),
        seconds=round(observed.wall_seconds, 3),
        figures=tuple(_figures(main, more_bytes)) if main else (),
    )


def _figures(main: Process, more_bytes: int | None) -> list[Figures]:
    found = []
    kept = _steps_kept(main)
    for step, phases in main.phases_of_steps:
        if step not in kept:
            continue
        for phase, (allocated_bytes, reserved_bytes, used_bytes) in phases.items():
            has_total = more_bytes is not None and used_bytes > 0
            found.append(
                Figures(
                    step=step,
                    phase=phase,
                    allocated_bytes=allocated_bytes,
                    reserved_bytes=reserved_bytes,
                    total_bytes=max(0, used_bytes + (more_bytes or 0)) if has_total else None,
                )
            )
    return found


def _steps_kept(main: Process) -> set[int]:
    """The first steps, the last, and those with the peak of each figure."""
    steps = main.phases_of_steps
    highest = [
        max(steps, key=lambda each: max((sizes[figure] for sizes in each[1].values()), default=0))[0]
        for figure in range(3 if steps else 0)
    ]
    return {*(step for step, _ in steps if step <= MOST_STEPS_KEPT), *(step for step, _ in steps[-1:]), *highest}


def _outcome(ending: Ending) -> str:
    if ending.how in WHOLE:
        return RAN
    if ending.how == RAN_OUT:
        return OUT_OF_MEMORY
    return FAILED if ending.how in ("raised", "crashed") else STOPPED

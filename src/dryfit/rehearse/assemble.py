"""Events of all processes + how it ended -> the Result. No process, no torch: values in, a value out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import dryfit
from dryfit.cards import Card
from dryfit.measures.facts import Facts
from dryfit.plain import from_plain
from dryfit.recording.model import Recording
from dryfit.rehearse import (
    assumptions,
    endings,
    first_buckets,
    growth,
    guessed,
    joined,
    longest,
    outside,
    real_ranks,
    total,
    unknowns,
    workspaces,
)
from dryfit.rehearse.cards_by_parts import cards_by_parts
from dryfit.rehearse.events import ENOUGH, Event
from dryfit.rehearse.failed_ranks import ending_of_ranks
from dryfit.rehearse.findings_of_all import findings_of, keeper_of_growth, why_not_looked
from dryfit.rehearse.processes import Process, read_process
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, Ending, OutOfMemory, Result, sent_bytes_of
from dryfit.rehearse.total import Part
from dryfit.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the parent saw from outside: the program, its processes' events, and how the first process ended."""

    program: Sequence[str]
    processes: Sequence[Sequence[Event]]
    status: int | None
    signal: int | None
    stopped_by: str | None  # "time limit", "host memory", "interrupted"
    limit: str  # the limit in words, where one stopped it
    crash_place: tuple[str, int] | None
    wall_seconds: float
    devices: int  # cards that the program saw
    total_bytes: int  # of one of them
    notes: Sequence[str]
    recordings: Mapping[int, Recording]  # by process
    plans_doubt: str = ""  # what there is to say of cuDNN's answers, if there was anything to ask


def assemble(observed: Observed, card: Card, *, card_was_named: bool) -> Result:
    """Turn what a rehearsal left into its result.

    The figures are those of the process that took most of the card; all processes are listed. Processes that share one
    card are added up for what nvidia-smi would show.
    """
    with_torch = _with_torch(observed)
    processes = _those_to_judge_by(observed, with_torch)
    parts_of = {process.pid: _parts(process, processes, observed, card, named=card_was_named) for process in processes}
    processes.sort(key=lambda each: _weight(each, parts_of[each.pid], observed), reverse=True)
    main = processes[0] if processes else None
    all_ranks = real_ranks.ranks_among(with_torch)
    ranks = real_ranks.ranks_among(processes)
    ending = endings.ending_of(observed, main, all_ranks)
    if all_ranks and observed.status and ending.how != endings.OUT_OF_MEMORY:
        ending = ending_of_ranks(observed, all_ranks) or ending
    parts = parts_of[main.pid] if main else []
    used_bytes = next((part.expected_bytes for part in parts if part.what == total.TAKEN), 0)
    of_plans = workspaces.of(main.end if main else None)
    total_range = total.range_of(parts)
    growth_bytes = _growth(main) if main else 0
    findings = findings_of(processes)
    measured = used_bytes > 0
    verdicts = {
        each.pid: _verdict(each, main, ending, parts_of[each.pid], card, named=card_was_named) for each in processes
    }
    verdict = verdicts[main.pid] if main else UNKNOWN
    peak = main.peak_step if main else None
    made_itself = joined.notes(observed.processes, main.pid if main else None, observed.program)
    return Result(
        verdict=verdict,
        card=card.to_dict() if card_was_named else None,
        program=list(observed.program),
        peak_allocated_bytes=main.allocated_bytes if main else 0,
        peak_reserved_bytes=main.reserved_bytes if main else 0,
        peak_total_bytes=total_range["expected"],
        peak_total_range_bytes=total_range,
        total_parts=parts,
        usable_bytes=card.usable_bytes if card_was_named else None,
        peak_step=peak.step if peak else None,
        peak_phase=peak.peak_phase if peak else None,
        steps=main.steps if main else 0,
        step_peaks=main.step_peaks if main else [],
        out_of_memory=_out_of_memory(main, ending),
        **(cards_by_parts(parts) if measured and not card_was_named else {}),
        unknowns=unknowns.of(main.end if main else None),
        findings=findings,
        notes=[
            *observed.notes,
            *made_itself,
            *_told(observed),
            *growth.notes(growth_bytes, total_range, card, keeper=keeper_of_growth(findings)),
            *longest.notes(main),
            *assumptions.notes([process.end.get("assumptions", {}) for process in processes if process.end]),
            *_notes(observed, processes, ranks, ending),
            *real_ranks.notes_on_idle(all_ranks),
            *first_buckets.notes(main),
            *outside.notes(main.end if main else None, parts, card),
            *why_not_looked(processes),
        ],
        ending=ending,
        wall_seconds=round(observed.wall_seconds, 3),
        versions={"dryfit": dryfit.__version__, **(main.versions if main else {})},
        allocator_settings=main.end.get("allocator_settings", {}) if main and main.end else {},
        processes=[
            {
                "pid": process.pid,
                "rank": process.rank,
                "steps": process.steps,
                "peak_allocated_bytes": process.allocated_bytes,
                "peak_reserved_bytes": process.reserved_bytes,
                "peak_used_bytes": process.used_peak_bytes,
            }
            for process in processes
        ],
        files=_files(observed),
        phase_peaks=main.phase_peaks if main else {},
        communication=main.communication if main else {},
        world=real_ranks.world_of_ranks(main, ranks),
        world_notes=[*made_itself, *_told(observed, only_on_world=True)],
        ranks=real_ranks.peaks_of_ranks(ranks, parts_of, verdicts),
        batches=longest.batches_of(main),
        measures=_measures(observed),
        workspaces=asdict(of_plans),
        facts=_facts(main),
        exit_code=endings.exit_code(ending, verdict, measured=measured, card_was_named=card_was_named),
    )


def _facts(main: Process | None) -> Facts | None:
    """What was found out of the program, where that was asked for, with what its steps send."""
    if main is None or main.end is None or not main.end.get("program"):
        return None
    facts = from_plain(Facts, main.end["program"])
    return replace(facts, sent_bytes=sent_bytes_of(main.communication))


def processes_of(observed: Observed) -> list[Process]:
    """The processes that used the card, or tried to; all with torch if none did. First the one to judge by.

    That is, after a failure, one that ran out of memory; otherwise the one that took most. A launcher and the workers
    of a data loader import torch too, and do not count.
    """
    return _those_to_judge_by(observed, _with_torch(observed))


def _with_torch(observed: Observed) -> list[Process]:
    return [process for process in map(read_process, observed.processes) if process is not None]


def _those_to_judge_by(observed: Observed, with_torch: Sequence[Process]) -> list[Process]:
    found = [process for process in with_torch if process.used_peak_bytes or process.ooms] or list(with_torch)
    failed = bool(observed.status)
    found.sort(key=lambda p: (failed and p.last_oom is not None, p.used_peak_bytes, p.steps), reverse=True)
    return found


def _weight(process: Process, parts: Sequence[Part], observed: Observed) -> tuple[bool, bool, int, int, int]:
    """By which the process is chosen that decides: one that ran out, one that grows, one whose card holds most.

    Of ranks that are alike it is the first.
    """
    ran_out = bool(observed.status) and process.last_oom is not None
    holds_bytes = total.has_to_fit_bytes(parts)
    return ran_out, _growth(process) > 0, holds_bytes, process.allocated_bytes, -(process.rank or 0)


def _parts(
    process: Process, processes: Sequence[Process], observed: Observed, card: Card, *, named: bool
) -> list[Part]:
    """What nvidia-smi would show of the card that a process took most of, with all that share it."""
    others = [other for other in processes if other is not process]
    sharing = outside.sharing([process, *others], devices=observed.devices)
    used_bytes = sum(each.used_bytes for each in sharing)
    if not used_bytes:
        return []
    return [
        Part(what=total.TAKEN, low_bytes=used_bytes, expected_bytes=used_bytes, high_bytes=used_bytes),
        *outside.parts(sharing, card, card_was_named=named),
        *workspaces.parts(workspaces.of(process.end), process.reserved_bytes - process.allocated_bytes),
        *guessed.parts(process.end),
        *first_buckets.parts(process),
    ]


def _growth(process: Process) -> int:
    """What each of the last steps took more, where the rehearsal ended with that."""
    how = (process.end or {}).get("how")
    return growth.per_step(process.step_peaks) if how == "most steps" else 0


def _measures(observed: Observed) -> dict[str, bool]:
    """The measures that were on, each with whether it found something to do in any of the processes."""
    ends = [event for events in observed.processes for event in events if event["event"] == "end"]
    found: dict[str, bool] = {}
    for end in ends:
        for name, has_acted in end.get("measures", {}).items():
            found[name] = has_acted or found.get(name, False)
    return found


def _told(observed: Observed, *, only_on_world: bool = False) -> list[str]:
    """What the processes themselves had to say, each once; all of it, or of a world that is not the one asked for."""
    notes = [event for events in observed.processes for event in events if event["event"] == "note"]
    return list(dict.fromkeys(note["text"] for note in notes if note.get("is_on_world") or not only_on_world))


def _files(observed: Observed) -> list[str]:
    """The program's own source files that any of its processes imported."""
    ends = [event for events in observed.processes for event in events if event["event"] == "end"]
    return sorted({file for end in ends for file in end.get("files", [])})


def _out_of_memory(main: Process | None, ending: Ending) -> OutOfMemory | None:
    if main is None or not main.ooms:
        return None
    last = main.ooms[-1]
    names = (
        "step", "phase", "requested_bytes", "free_bytes", "allowed_bytes", "allocated_bytes", "reserved_bytes",
    )  # fmt: skip
    uncaught = ending.how == endings.OUT_OF_MEMORY
    return OutOfMemory(
        **{name: last[name] for name in names},
        caught=not uncaught,
        count=len(main.ooms),
        message=ending.error_message if uncaught else None,
        file=last["file"] or (ending.file if uncaught else None),
        line=last["line"] or (ending.line if uncaught else None),
    )


def _verdict(
    process: Process, main: Process | None, ending: Ending, parts: Sequence[Part], card: Card, *, named: bool
) -> str:
    """Whether a process fits; where one ran out of memory, what the others would have taken is not known."""
    if ending.how == endings.OUT_OF_MEMORY:
        ran_out = process is main or process.last_oom is not None
        return DOES_NOT_FIT if ran_out and not process.used_up_addresses else UNKNOWN
    if not parts or not named or _growth(process) > 0 or ending.how not in endings.WHOLE:
        return UNKNOWN
    return FITS if total.has_to_fit_bytes(parts) <= card.total_bytes else UNKNOWN


def _notes(observed: Observed, processes: Sequence[Process], ranks: Sequence[Process], ending: Ending) -> list[str]:
    main = processes[0] if processes else None
    notes = []
    if ending.how in ENOUGH:
        notes.append("What the program does after these steps (evaluation, saving) was not run; --steps all runs it.")
    if ending.how == "most steps":
        notes.append("The steps' peaks did not settle, as with batches of different shapes: --steps N looks further.")
    if main is not None and main.ooms and ending.how != endings.OUT_OF_MEMORY:
        last, errors, them = main.ooms[-1], *(("errors", "them") if len(main.ooms) > 1 else ("error", "it"))
        where = f"the last asked for {format_bytes(last['requested_bytes'])} in step {last['step']}"
        notes.append(f"The program met {len(main.ooms)} out-of-memory {errors} and caught {them} ({where}).")
    if len(processes) > 1 and processes[0].used_peak_bytes:
        sharing = len(outside.sharing(processes, devices=observed.devices))
        notes.append(_of_several(processes, ranks, sharing=sharing))
    if main is not None and main.used_peak_bytes and not main.reserved_bytes:
        notes.append(
            "PyTorch's allocator was switched off (PYTORCH_NO_CUDA_MEMORY_CACHING), so nothing is known of allocated "
            "and reserved memory; what nvidia-smi would show is."
        )
    if main is not None and ending.how == endings.OUT_OF_MEMORY and main.ooms:
        allowed_bytes = main.ooms[-1]["allowed_bytes"]
        if allowed_bytes < observed.total_bytes:
            notes.append(
                f"The program's own limit decided: it allows itself {format_bytes(allowed_bytes)} "
                "(torch.cuda.set_per_process_memory_fraction)."
            )
    if main is not None and main.used_up_addresses:
        notes.append(
            "The process ran out of addresses, not the card of memory: look for a limit on virtual memory (ulimit -v), "
            "and lift it."
        )
    for name, has_acted in _measures(observed).items():
        if not has_acted:
            notes.append(f"The measure {name} found nothing to do in this program.")
    if main is not None:
        notes += workspaces.notes(main.end, observed.plans_doubt)
        notes += guessed.notes(main.end)
    if main is not None and main.end is None:
        notes.append("The process left no last word, so the figures end with the last finished step.")
    return notes


def _of_several(processes: Sequence[Process], ranks: Sequence[Process], *, sharing: int) -> str:
    """Whose figures they are; `sharing` is how many processes are on that card."""
    shared = " They share one card: what nvidia-smi would show is the sum, if all peak at once."
    if len(ranks) == len(processes):
        where = "each on a card of its own" if sharing == 1 else f"{sharing} of them on one card"
        said = f"{len(ranks)} ranks ran together, {where}; the figures are those of rank {processes[0].rank}."
    else:
        said = f"{len(processes)} processes used a card; the figures are those of the one that took most."
    return said + (shared if sharing > 1 else "")

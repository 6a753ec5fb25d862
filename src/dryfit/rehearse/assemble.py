"""Events of all processes + how it ended -> the Result. No process, no torch: values in, a value out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dryfit
from dryfit.cards import Card, all_cards, cards_that_fit
from dryfit.rehearse import endings, unknowns
from dryfit.rehearse.events import Event
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, Ending, OutOfMemory, Result, StepPeak
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
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One Python process that imported torch, read from its events."""

    pid: int
    versions: dict[str, str | None]
    step_peaks: list[StepPeak]
    used_peak_bytes: int
    steps: int
    ooms: list[Event]
    end: Event | None

    @property
    def allocated_bytes(self) -> int:
        return max((peak.peak_allocated_bytes for peak in self.step_peaks), default=0)

    @property
    def reserved_bytes(self) -> int:
        return max((peak.peak_reserved_bytes for peak in self.step_peaks), default=0)


def assemble(observed: Observed, card: Card, *, card_was_named: bool) -> Result:
    """Turn what a rehearsal left into its result.

    The figures are those of the process that took most of the card; all processes are listed.
    """
    with_torch = [p for p in map(read_process, observed.processes) if p is not None]
    # A launcher imports torch too; unless nobody used the card, only those that did matter.
    processes = [p for p in with_torch if p.used_peak_bytes] or with_torch
    processes.sort(key=lambda p: (p.used_peak_bytes, p.steps), reverse=True)
    main = processes[0] if processes else None
    ending = endings.ending_of(observed, main)
    oom = _out_of_memory(main, ending) if main else None
    used_bytes = main.used_peak_bytes if main else 0
    total_range = _total_range(used_bytes, card, card_was_named=card_was_named)
    verdict = _verdict(ending, total_range, card, measured=used_bytes > 0, card_was_named=card_was_named)
    by_fit = cards_that_fit(used_bytes, all_cards() if used_bytes and not card_was_named else ())
    peak = _peak_step(main)
    return Result(
        verdict=verdict,
        card=card.to_dict() if card_was_named else None,
        program=list(observed.program),
        peak_allocated_bytes=main.allocated_bytes if main else 0,
        peak_reserved_bytes=main.reserved_bytes if main else 0,
        peak_total_bytes=total_range["expected"],
        peak_total_range_bytes=total_range,
        usable_bytes=card.usable_bytes if card_was_named else None,
        peak_step=peak.step if peak else None,
        peak_phase=peak.peak_phase if peak else None,
        steps=main.steps if main else 0,
        step_peaks=main.step_peaks if main else [],
        out_of_memory=oom,
        fits_on=[c.key for c in by_fit.fits],
        close_on=[c.key for c in by_fit.tight],
        does_not_fit_on=[c.key for c in by_fit.too_small],
        unknowns=unknowns.of(main.end) if main else [],
        notes=[*observed.notes, *_notes(main, processes, ending, oom)],
        ending=ending,
        wall_seconds=round(observed.wall_seconds, 3),
        versions={"dryfit": dryfit.__version__, **(main.versions if main else {})},
        allocator_settings=(main.end or {}).get("allocator_settings", {}) if main else {},
        processes=[
            {
                "pid": p.pid,
                "steps": p.steps,
                "peak_allocated_bytes": p.allocated_bytes,
                "peak_reserved_bytes": p.reserved_bytes,
                "peak_used_bytes": p.used_peak_bytes,
            }
            for p in processes
        ],
        exit_code=endings.exit_code(ending, verdict, measured=used_bytes > 0, card_was_named=card_was_named),
    )


def read_process(events: Sequence[Event]) -> Process | None:
    """Read one process's events; None if it never imported torch.

    The last event knows the peaks of every step, the one that was not finished too; without it (a crash) the steps
    that were finished still count.
    """
    torch = next((e for e in events if e["event"] == "torch"), None)
    if torch is None:
        return None
    end = next((e for e in reversed(events) if e["event"] == "end"), None)
    finished = [e for e in events if e["event"] == "step"]
    seconds = {e["step"]: e["seconds"] for e in finished}
    steps = end["steps"] if end and "steps" in end else finished
    return Process(
        pid=events[0]["pid"],
        versions=torch["versions"],
        step_peaks=[_step_peak(e, seconds.get(e["step"])) for e in steps],
        used_peak_bytes=max((used for e in steps for _, _, used in e["phases"].values()), default=0),
        steps=len(finished),
        ooms=[e for e in events if e["event"] == "oom"],
        end=end,
    )


def _step_peak(event: Event, seconds: float | None) -> StepPeak:
    phases: dict[str, list[int]] = event["phases"]
    return StepPeak(
        step=event["step"],
        peak_allocated_bytes=max((allocated for allocated, _, _ in phases.values()), default=0),
        peak_reserved_bytes=max((reserved for _, reserved, _ in phases.values()), default=0),
        peak_phase=max(phases, key=lambda name: phases[name][0], default=""),
        seconds=seconds,
    )


def _peak_step(main: Process | None) -> StepPeak | None:
    """The first step that reached the peak of allocated memory."""
    if main is None or not main.allocated_bytes:
        return None
    return max(main.step_peaks, key=lambda peak: (peak.peak_allocated_bytes, -peak.step))


def _out_of_memory(main: Process, ending: Ending) -> OutOfMemory | None:
    if not main.ooms:
        return None
    last = main.ooms[-1]
    names = ("step", "phase", "requested_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "file", "line")
    return OutOfMemory(
        **{name: last[name] for name in names},
        caught=ending.how != "out of memory",
        count=len(main.ooms),
        message=ending.error_message if ending.how == "out of memory" else None,
    )


def _verdict(ending: Ending, total_range: dict[str, int], card: Card, *, measured: bool, card_was_named: bool) -> str:
    if ending.how == "out of memory":
        return DOES_NOT_FIT
    if not measured or not card_was_named:
        return UNKNOWN
    if ending.how not in endings.WHOLE:
        return UNKNOWN
    return FITS if total_range["high"] <= card.total_bytes else UNKNOWN


def _total_range(used_bytes: int, card: Card, *, card_was_named: bool) -> dict[str, int]:
    """What nvidia-smi would show: what was taken from the card, and what a process holds outside the allocator.

    Without a named card the outside part is that of some card of the catalogue.
    """
    if not used_bytes:
        return {"low": 0, "expected": 0, "high": 0}
    if card_was_named:
        low, expected, high = (card.outside_bytes + sign * card.outside_margin_bytes for sign in (-1, 0, 1))
    else:
        outside = sorted(each.outside_bytes for each in all_cards())
        low, expected, high = outside[0], outside[len(outside) // 2], outside[-1]
    return {"low": used_bytes + max(low, 0), "expected": used_bytes + expected, "high": used_bytes + high}


def _notes(main: Process | None, processes: Sequence[Process], ending: Ending, oom: OutOfMemory | None) -> list[str]:
    notes = []
    if ending.how in ("steady", "steps", "most steps"):
        notes.append("What the program does after these steps (evaluation, saving) was not run; --steps all runs it.")
    if ending.how == "most steps":
        notes.append(
            "The peak was still moving after the last of these steps, as with batches of different shapes: "
            "--steps N looks further."
        )
    if oom is not None and oom.caught:
        errors, them = ("errors", "them") if oom.count > 1 else ("error", "it")
        last = f"the last asked for {format_bytes(oom.requested_bytes)} in step {oom.step}"
        notes.append(f"The program met {oom.count} out-of-memory {errors} and caught {them} ({last}).")
    if len(processes) > 1:
        notes.append(
            f"{len(processes)} processes used the card; the figures are those of the one that took most of it."
        )
    if main is not None and main.end is None:
        notes.append("The process left no last word, so the figures end with the last finished step.")
    return notes

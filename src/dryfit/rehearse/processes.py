"""What one rehearsed Python process did, read from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.rehearse.events import Event
from dryfit.rehearse.result import Communication, StepPeak
from dryfit.rehearse.unknowns import NO_ADDRESSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One Python process that imported torch. `used_peak_bytes` is what it took of the card, PyTorch's or not.

    `rank` is its number among `ranks` real ranks; None where it is none of several.
    """

    pid: int
    rank: int | None = None
    ranks: int = 1
    versions: dict[str, str | None]
    step_peaks: list[StepPeak]
    used_peak_bytes: int
    phase_peaks: dict[str, int]
    steps: int
    ooms: list[Event]
    end: Event | None
    communication: dict[str, Communication]  # of the last step that was seen to its end
    phases_of_steps: list[tuple[int, dict[str, list[int]]]]  # bytes allocated, reserved and used of the card

    @property
    def allocated_bytes(self) -> int:
        return max((peak.peak_allocated_bytes for peak in self.step_peaks), default=0)

    @property
    def reserved_bytes(self) -> int:
        return max((peak.peak_reserved_bytes for peak in self.step_peaks), default=0)

    @property
    def peak_step(self) -> StepPeak | None:
        """The first step that reached the peak of allocated memory."""
        if not self.allocated_bytes:
            return None
        return max(self.step_peaks, key=lambda peak: (peak.peak_allocated_bytes, -peak.step))

    @property
    def used_up_addresses(self) -> bool:
        """Whether it was this machine's address space that ended, and not the card's memory."""
        return NO_ADDRESSES in (self.end or {}).get("unfaithful_calls", {})

    @property
    def last_oom(self) -> Event | None:
        """The last out-of-memory error, if no step was finished after it."""
        return self.ooms[-1] if self.ooms and self.ooms[-1]["steps_done"] == self.steps else None


def read_process(events: Sequence[Event]) -> Process | None:
    """Read one process's events; None if it never imported torch.

    The last event knows the peaks of every step, the one that was not finished too; without it (a crash) the steps
    that were finished still count.
    """
    torch = next((e for e in events if e["event"] == "torch"), None)
    if torch is None:
        return None
    end = next((e for e in reversed(events) if e["event"] == "end"), None)
    rank = next((e for e in reversed(events) if e["event"] == "rank"), None)
    finished = {e["step"]: e for e in events if e["event"] == "step"}  # the last that was said of a step counts
    steps = end["steps"] if end and "steps" in end else list(finished.values())
    return Process(
        pid=events[0]["pid"],
        rank=rank["rank"] if rank is not None else None,
        ranks=rank["ranks"] if rank is not None else 1,
        versions=torch["versions"],
        step_peaks=[_step_peak(e, finished.get(e["step"], {}).get("seconds")) for e in steps],
        used_peak_bytes=max((used for e in steps for _, _, used in e["phases"].values()), default=0),
        phase_peaks=_phase_peaks(steps),
        steps=len(finished),
        ooms=[e for e in events if e["event"] == "oom"],
        end=end,
        communication=_communication(events, end),
        phases_of_steps=[(event["step"], event["phases"]) for event in steps],
    )


def _communication(events: Sequence[Event], end: Event | None) -> dict[str, Communication]:
    """What the last whole step passed, by kind; where no step was seen to its end, what the unfinished one has."""
    of_steps = [event["passed"] for event in events if event["event"] == "communication"]
    passed = of_steps[-1] if of_steps else (end or {}).get("communication", {})
    return {
        kind: Communication(calls=calls, payload_bytes=payload_bytes, sent_bytes=sent_bytes)
        for kind, (calls, payload_bytes, sent_bytes) in passed.items()
    }


def _phase_peaks(steps: Sequence[Event]) -> dict[str, int]:
    """The most that was allocated in each phase of any step."""
    peaks: dict[str, int] = {}
    for event in steps:
        for phase, (allocated, _, _) in event["phases"].items():
            peaks[phase] = max(allocated, peaks.get(phase, 0))
    return peaks


def _step_peak(event: Event, seconds: float | None) -> StepPeak:
    phases: dict[str, list[int]] = event["phases"]
    return StepPeak(
        step=event["step"],
        peak_allocated_bytes=max((allocated for allocated, _, _ in phases.values()), default=0),
        peak_reserved_bytes=max((reserved for _, reserved, _ in phases.values()), default=0),
        peak_phase=max(phases, key=lambda name: phases[name][0], default=""),
        seconds=seconds,
    )

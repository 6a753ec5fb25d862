"""Whether the steps take more and more memory, as when a program keeps what it should let go."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.cards import Card
from dryfit.rehearse.result import Result, StepPeak
from dryfit.units import format_bytes
from dryfit.watching.rising import STEPS_IN_A_ROW, is_rising


def per_step(peaks: Sequence[StepPeak]) -> int:
    """The growth of allocated memory by step, if it grew in each of the last ten steps; 0 otherwise.

    >>> sizes = [n << 30 for n in range(12)]
    >>> peaks = [StepPeak(step=1, peak_allocated_bytes=n, peak_reserved_bytes=n, peak_phase="") for n in sizes]
    >>> per_step(peaks)
    1073741824
    """
    sizes = [peak.peak_allocated_bytes for peak in peaks if peak.seconds is not None or peak.step]
    return (sizes[-1] - sizes[-STEPS_IN_A_ROW]) // (STEPS_IN_A_ROW - 1) if is_rising(sizes) else 0


def of_result(result: Result) -> int:
    """What each of the last steps of a rehearsal took more, where it ended with that."""
    return per_step(result.step_peaks) if result.ending.how == "most steps" else 0


def notes(growth_bytes: int, total_range: dict[str, int], card: Card, *, keeper: str = "") -> list[str]:
    """Say how it grows, and when the card would be full; `keeper` is who keeps it, where that is known."""
    if not growth_bytes:
        return []
    grows = f"Each of the last steps took about {format_bytes(growth_bytes)} more than the one before"
    why = "something is kept from step to step (a loss with its graph, outputs in a list)."
    if keeper:
        why = f"it is kept by {keeper}."
    if card.key == "unlimited":
        return [f"{grows}: {why}"]
    steps_left = max(0, card.total_bytes - total_range["expected"]) // growth_bytes
    return [f"{grows}: the card would be full after about {steps_left} more steps; {why}"]

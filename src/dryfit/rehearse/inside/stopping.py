"""When a rehearsal has seen enough. Pure arithmetic on the peaks of the steps so far."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_STEPS = 3
MOST_STEPS = 20
STEADY_STEPS = 2


def seen_enough(peaks: Sequence[tuple[int, int]], steps: int | None) -> str | None:
    """Say why to stop after these steps: "steps", "steady" or "most steps"; None to go on.

    >>> seen_enough([(5, 8), (7, 8), (7, 8)], None), seen_enough([(5, 8), (7, 8), (7, 8), (7, 8)], None)
    (None, 'steady')

    `peaks` has (allocated, reserved) bytes of each step, the first step first. `steps` is what was asked for: a
    number, 0 for all, None for «until steady»: the highest peak so far is at least two steps old. Three steps are
    the least that can tell (the first makes the optimiser's states, the second holds them); twenty the most, so that
    a program whose batches differ in shape ends too.
    """
    if steps is not None:
        return "steps" if steps and len(peaks) >= steps else None
    if len(peaks) < LEAST_STEPS:
        return None
    early, late = peaks[:-STEADY_STEPS], peaks[-STEADY_STEPS:]
    if all(max(p[i] for p in late) <= max(p[i] for p in early) for i in (0, 1)):
        return "steady"
    return "most steps" if len(peaks) >= MOST_STEPS else None

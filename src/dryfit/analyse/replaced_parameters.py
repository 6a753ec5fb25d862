"""Parameters that an optimizer written by hand replaces instead of changing: `p.data = p.data - lr * g`."""

from __future__ import annotations

from array import array

from dryfit.analyse.owners import PARAMETER, STATE, Evidence
from dryfit.recording.model import OPTIMIZER_STEP


def follow_replacements(owners: array[int], made_at: array[int], freed_at: array[int], evidence: Evidence) -> None:
    """Make what took a parameter's place a parameter too: of its size, made in the step, last before it was freed."""
    lifetimes = evidence.lifetimes
    for stretch in evidence.stretches.all:
        if stretch.phase != OPTIMIZER_STEP:
            continue
        made: dict[int, list[int]] = {}
        for event in range(stretch.begin, stretch.end):
            index = made_at[event]
            if index >= 0:
                if owners[index] == STATE and lifetimes.begin[index] not in evidence.labels:
                    made.setdefault(lifetimes.requested_bytes[index], []).append(index)
                continue
            index = freed_at[event]
            if index < 0 or owners[index] != PARAMETER:
                continue
            candidates = made.get(lifetimes.requested_bytes[index], [])
            if candidates and lifetimes.end[candidates[-1]] > event:
                owners[candidates.pop()] = PARAMETER

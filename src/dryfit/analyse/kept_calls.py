"""What a loop keeps of each call of its model: lists of outputs, sums of losses with their graphs."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.attribution import Attribution
from dryfit.analyse.holdings import Ledger
from dryfit.analyse.stretches import Stretches, stretches_of
from dryfit.places import as_seen_from_here
from dryfit.recording.model import ACTIVATION, INPUT, OWNERS, TEMPORARY, UNKNOWN, DeviceTrace
from dryfit.recording.replay import Lifetimes
from dryfit.units import format_bytes

_KEPT = {OWNERS.index(owner) for owner in (INPUT, ACTIVATION, TEMPORARY, UNKNOWN)}
_FEWEST_CALLS = 3
_LITTLE = 0.05


def kept_of_calls(
    trace: DeviceTrace,
    bits_of: array[int],
    alive: Sequence[int],
    lifetimes: Lifetimes,
    attribution: Attribution,
    ledger: Ledger,
) -> str:
    """A sentence on what one line made in at least three calls of a model in one pass, all of it there; "" if little.

    `bits_of` are each stack's facts, `alive` the allocations at the peak. Steps that each leave something behind are
    `growth`, this is within a step.
    """
    stretches = stretches_of(trace.events, trace.marks)
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in alive:
        if attribution.owner[index] in _KEPT and lifetimes.begin[index] >= 0:
            alike[stretches.of_event[lifetimes.begin[index]], lifetimes.stack[index]].append(index)
    candidates = {key: found for key, found in alike.items() if len(found) >= _FEWEST_CALLS}
    if not candidates:
        return ""
    call_of = _calls(trace, bits_of, stretches, {place for place, _ in candidates})
    kept_bytes = most_calls = 0
    by_line: dict[int, int] = defaultdict(int)
    for indexes in candidates.values():
        begins = [lifetimes.begin[index] for index in indexes]
        calls = len({(stretches.part_of_event[begin], call_of[begin]) for begin in begins})
        if calls >= _FEWEST_CALLS:
            size_bytes = sum(ledger.owned_bytes[index] for index in indexes)
            kept_bytes += size_bytes
            by_line[attribution.line[indexes[0]]] += size_bytes
            most_calls = max(most_calls, calls)
    if kept_bytes < _LITTLE * sum(lifetimes.block_bytes[index] for index in alive) or not kept_bytes:
        return ""
    file, line, _ = attribution.lines[max(by_line, key=by_line.__getitem__)]
    where = f", most of it from {as_seen_from_here(file)}:{line}" if file else ""
    return (
        f"{format_bytes(kept_bytes)} of the peak were made by {most_calls} calls of the model and kept from one to the "
        f"next{where}: outputs in a list, or losses summed up with their graphs, grow with the number of calls."
    )


def _calls(trace: DeviceTrace, bits_of: array[int], stretches: Stretches, places: set[int]) -> dict[int, int]:
    """By event of these stretches: the number of calls of a model from outside any, so far."""
    numbers = {}
    calls, is_inside = 0, False
    wanted = [stretch for place, stretch in enumerate(stretches.all) if place in places]
    for stretch in wanted:
        for event in range(stretch.begin, stretch.end):
            bits = bits_of[trace.events.stack[event]]
            if bits & facts.HAS_PYTHON:
                begins = bool(bits & facts.IN_MODULE)
                calls += begins and not is_inside
                is_inside = begins
            numbers[event] = calls
    return numbers

"""The source lines and single tensors that hold most at one moment."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import BEFORE_THE_RECORDING, LineBytes, TensorBytes
from dryfit.analyse.holdings import Ledger
from dryfit.analyse.module_tree import owner_bytes, totals_by
from dryfit.analyse.timeline import BEFORE_EVENTS, Timeline
from dryfit.recording.model import OWNERS, REMAINDER
from dryfit.recording.replay import Lifetimes

# A person reads the first of them; a recording of a large model has many.
_LINES, _TENSORS = 200, 50


def heaviest_lines(alive: Sequence[int], attribution: Attribution, ledger: Ledger) -> tuple[LineBytes, ...]:
    """The lines that hold most, heaviest first."""
    return tuple(all_lines(alive, attribution, ledger)[:_LINES])


def all_lines(alive: Sequence[int], attribution: Attribution, ledger: Ledger) -> list[LineBytes]:
    """Every line that holds something, heaviest first; they sum to all that is alive."""
    lines = []
    for number, totals in totals_by(attribution.line, alive, attribution, ledger).items():
        file, line, function = attribution.lines[number]
        owners = owner_bytes(totals)
        size_bytes = sum(each.size_bytes for each in owners)
        blocks = sum(blocks for owner, (_, blocks) in totals.items() if owner != REMAINDER)
        lines.append(
            LineBytes(file=file, line=line, function=function, size_bytes=size_bytes, blocks=blocks, owners=owners)
        )
    return sorted(lines, key=lambda line: (-line.size_bytes, line.file, line.line))


def heaviest_tensors(
    alive: Sequence[int], lifetimes: Lifetimes, attribution: Attribution, timeline: Timeline
) -> tuple[TensorBytes, ...]:
    """The single allocations that hold most, heaviest first; of equal ones the older first."""
    return tuple(
        _tensor(index, lifetimes, attribution, timeline)
        for index in heapq.nsmallest(_TENSORS, alive, key=lambda index: (-lifetimes.block_bytes[index], index))
    )


def _tensor(index: int, lifetimes: Lifetimes, attribution: Attribution, timeline: Timeline) -> TensorBytes:
    label = attribution.tensor.get(index)
    file, line, _ = attribution.lines[attribution.line[index]]
    begin, end = lifetimes.begin[index], lifetimes.end[index]
    return TensorBytes(
        index=index,
        owner=OWNERS[attribution.owner[index]],
        size_bytes=lifetimes.block_bytes[index],
        requested_bytes=lifetimes.requested_bytes[index],
        name=label.name if label else "",
        dtype=label.dtype if label else "",
        shape=label.shape if label else None,
        module=attribution.modules[attribution.module[index]],
        file=file,
        line=line,
        begin=BEFORE_THE_RECORDING if begin == BEFORE_EVENTS else timeline.words(begin),
        end=timeline.words(end) if end < timeline.event_count else "",
    )

"""A run as a trace for ui.perfetto.dev and chrome://tracing: memory by owner, steps and phases, the peak, errors."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.holdings import holdings_at, ledger_of
from dryfit.analyse.timeline import Span, Timeline
from dryfit.recording.model import OOM, OWNERS
from dryfit.units import format_bytes

MOST_MOMENTS = 40_000
"""A trace has no more moments than this; each is a point of every counter."""

_STEPS, _PHASES = 1, 2  # rows of slices, as threads of one process


def to_perfetto(analysis: Analysis, *, most_moments: int = MOST_MOMENTS) -> dict[str, Any]:
    """The run as Chrome's trace format, for `json.dump`: counters of allocated, reserved and each owner's bytes.

        json.dump(to_perfetto(analysis), open("trace.json", "w"))

    Times are microseconds from the first event; of a recording that has no times, the events' numbers. Of a long run
    the highest moments of allocated and of reserved memory in each stretch are kept, and so the peaks are.
    Format: "Trace Event Format", Google, 2016.
    """
    trace, replay = analysis.trace, analysis.replay
    timeline = Timeline(trace.marks, len(trace.events))
    times = _times(trace.events.time_us)
    moments = _moments(replay.allocated_bytes, replay.reserved_bytes, most_moments)
    device = trace.device
    events = [
        _named("process_name", f"cuda:{device}", device),
        _named("thread_name", "steps", device, _STEPS),
        _named("thread_name", "phases", device, _PHASES),
        *_slices(timeline.spans(), times, device),
        *_counters(analysis, timeline, moments, times),
        *_instants(analysis, timeline, times),
    ]
    thinned = f"{len(moments)} of {len(trace.events)} events" if len(moments) < len(trace.events) else "every event"
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "unit of the counters": "bytes",
            "time": "microseconds" if any(trace.events.time_us) else "number of the event",
            "moments": thinned,
        },
    }


def _times(time_us: array[int]) -> array[int]:
    """Times that never go back, as the format has them; the events' numbers if there are none."""
    if not any(time_us):
        return array("Q", range(len(time_us)))
    rising, latest = array("Q"), 0
    for time in time_us:
        latest = max(latest, time)
        rising.append(latest)
    return rising


def _moments(allocated: array[int], reserved: array[int], most: int) -> list[int]:
    """Numbers of the events to show: all, or of equal stretches the highest ones and the last."""
    count = len(allocated)
    if count <= most:
        return list(range(count))
    length = -(-count * 3 // most)
    kept = set()
    for first in range(0, count, length):
        last = min(first + length, count)
        for column in (allocated, reserved):
            part = column[first:last]
            kept.add(first + part.index(max(part)))
        kept.add(last - 1)
    return sorted(kept)


def _named(what: str, name: str, device: int, row: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": device, "tid": row, "args": {"name": name}}


def _slices(spans: Iterable[Span], times: array[int], device: int) -> Iterator[dict[str, Any]]:
    if not times:
        return
    step_began: dict[int, tuple[int, int]] = {}
    for span in spans:
        begin = times[min(span.first + 1, len(times) - 1)]
        end = times[min(span.last + 1, len(times) - 1)]
        step_began[span.step] = (step_began.get(span.step, (begin, end))[0], end)
        yield _slice(span.phase or "unknown", begin, end, device, _PHASES)
    for step, (begin, end) in step_began.items():
        yield _slice(f"step {step}" if step else "setup", begin, end, device, _STEPS)


def _slice(name: str, begin_us: int, end_us: int, device: int, row: int) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": device, "tid": row, "ts": begin_us, "dur": end_us - begin_us}


def _counters(
    analysis: Analysis, timeline: Timeline, moments: list[int], times: array[int]
) -> Iterator[dict[str, Any]]:
    replay, device = analysis.replay, analysis.trace.device
    ledger = ledger_of(replay.lifetimes, analysis.attribution, timeline)
    holdings = holdings_at(moments, replay.lifetimes, ledger)
    seen = {each.owner for one in holdings.values() for each in one.owners}
    owners = [owner for owner in OWNERS if owner in seen]
    for moment in moments:
        common = {"ph": "C", "pid": device, "ts": times[moment]}
        figures = {"allocated": replay.allocated_bytes[moment], "reserved": replay.reserved_bytes[moment]}
        yield {**common, "name": "memory", "args": figures}
        held = dict.fromkeys(owners, 0)
        held.update((each.owner, each.size_bytes) for each in holdings[moment].owners)
        yield {**common, "name": "owners", "args": held}


def _instants(analysis: Analysis, timeline: Timeline, times: array[int]) -> Iterator[dict[str, Any]]:
    events, peak, device = analysis.trace.events, analysis.footprint.peak, analysis.trace.device
    if 0 <= peak.event < len(times):
        what = {"allocated": peak.allocated_bytes, "where": timeline.words(peak.event)}
        yield _instant(f"peak: {format_bytes(peak.allocated_bytes)} allocated", times[peak.event], device, what)
    for number, kind in enumerate(events.kind):
        if kind == OOM:
            what = {"requested": events.size[number], "free": events.address[number], "where": timeline.words(number)}
            name = f"out of memory: {format_bytes(events.size[number])} asked for"
            yield _instant(name, times[number], device, what)


def _instant(name: str, time_us: int, device: int, what: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "p", "name": name, "pid": device, "tid": _PHASES, "ts": time_us, "args": what}

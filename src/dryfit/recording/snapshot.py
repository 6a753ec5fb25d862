"""Turns a memory snapshot as `torch.cuda.memory._snapshot()` returns it into a Recording.

A snapshot may come from a stranger's file, so nothing in it is believed: each value is checked before it is kept, and
the sums that a replay makes cannot overflow.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from dryfit.errors import UsageError
from dryfit.recording.expected import (
    ADDRESSES_END,
    MAX_SUM_BYTES,
    Unexpected,
    check_count,
    list_of,
    pool_id,
    printable,
    shown,
)
from dryfit.recording.model import (
    FREE_COMPLETED,
    FREE_REQUESTED,
    KINDS,
    OOM,
    OTHER,
    DeviceTrace,
    Events,
    Recording,
    Segment,
)
from dryfit.recording.snapshot_segments import began_empty, segments_by_device, with_places
from dryfit.recording.snapshot_stacks import FrameOf, stack_interner
from dryfit.recording.stacks import Frame, Stacks

MAX_EVENTS = 16_000_000
"""What no real snapshot reaches. A file can name one event many times, in two bytes each."""
MAX_DEVICES = 1024

_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
_ADVICE = "record it anew with torch.cuda.memory._dump_snapshot(), and give that file"


def from_snapshot(
    snapshot: Mapping[str, Any] | list[Any],
    *,
    about: Mapping[str, Any] | None = None,
    frame_of: FrameOf | None = None,
    name: str = "The snapshot",
) -> Recording:
    """The recording of what a snapshot tells, of every device that has events or segments.

    >>> taken = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    >>> recording = from_snapshot({"segments": [], "device_traces": [[taken]]})
    >>> recording.devices[0].events.size
    array('Q', [512])

    Takes what torch 2.1 to 2.14 write; keys that only some of them have may be missing. `about` is kept with the
    recording, and PyTorch's own "allocator_settings" are added to it. `name` is what an error calls the snapshot.
    An event "free" stands for both of its halves.

    Raises:
        UsageError: a value is not what PyTorch writes there; the sentence says which, and what was expected.
    """
    if isinstance(snapshot, list):  # torch.cuda.memory_snapshot(): segments only
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, Mapping) or not ("segments" in snapshot or "device_traces" in snapshot):
        found = f"the keys {shown(list(snapshot)[:8])}" if isinstance(snapshot, Mapping) else shown(snapshot)
        raise UsageError(
            f"{name} is no memory snapshot: it holds {found}, and a dictionary with segments and device_traces is "
            f"expected; {_ADVICE}."
        )
    try:
        stacks = Stacks()
        stack_of = stack_interner(stacks, frame_of or Frame)
        traces = list_of(snapshot.get("device_traces", []), "device_traces")
        segments = segments_by_device(snapshot, stack_of)
        check_count("events", sum(len(list_of(trace, "a device's trace")) for trace in traces), MAX_EVENTS)
        devices = []
        for device in sorted({*range(len(traces)), *(segments or ())}):
            if device >= MAX_DEVICES:
                raise Unexpected(f"a device number {device}", f"one below {MAX_DEVICES}")
            trace = traces[device] if device < len(traces) else []
            held = None if segments is None else tuple(segments.get(device, ()))
            if trace or held:
                devices.append(_device_trace(device, trace, held, stack_of))
        settings = _plain(snapshot.get("allocator_settings"))
    except Unexpected as unexpected:
        raise UsageError(
            f"{name} is not a memory snapshot as PyTorch writes it: it has {unexpected.found} where "
            f"{unexpected.expected} is expected; {_ADVICE}."
        ) from None
    known = dict(about or {})
    if settings and isinstance(settings, dict):
        known.setdefault("allocator_settings", settings)
    return Recording(source="snapshot", devices=tuple(devices), stacks=stacks, about=known)


def _device_trace(
    device: int, trace: list[Any], segments: tuple[Segment, ...] | None, stack_of: Callable[[Any], int]
) -> DeviceTrace:
    where = f"device_traces[{device}]"
    events = Events()
    actions = _column(trace, "action", None, where)
    if "free" in actions:
        trace = [half for event in trace for half in _halves(event)]
        actions = _column(trace, "action", None, where)
    for action in actions:
        if not isinstance(action, str):
            raise Unexpected(f"{shown(action)} as the action of an event in {where}", "a word")
    events.kind = array("B", [_KIND_NUMBERS.get(action, OTHER) for action in actions])
    events.size = _numbers("Q", _column(trace, "size", 0, where), f"the size of an event in {where}")
    events.address = _numbers("Q", _addresses(trace, events.kind, where), f"the address of an event in {where}")
    events.stream = _numbers("Q", _column(trace, "stream", 0, where), f"the stream of an event in {where}")
    events.time_us = _times(_column(trace, "time_us", 0, where), where)
    events.stack = array("I", map(stack_of, _column(trace, "frames", None, where)))
    pools, events.pool = _pools(trace, segments, where)
    _check_sums(events, where)
    return DeviceTrace(
        device=device,
        events=events,
        segments=with_places(segments, pools),
        pools=pools,
        starts_empty=segments is not None and len(events) > 0 and began_empty(events, segments),
    )


def _halves(event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    if event.get("action") != "free":
        return (event,)
    return ({**event, "action": KINDS[FREE_REQUESTED]}, {**event, "action": KINDS[FREE_COMPLETED]})


def _column(trace: list[Any], key: str, default: Any, where: str) -> list[Any]:
    """The values of one key in all events; itemgetter in C, because a trace has a million of them."""
    try:
        return list(map(itemgetter(key), trace))
    except KeyError:
        if all(isinstance(event, dict) for event in trace):
            return [event.get(key, default) for event in trace]
    except (TypeError, IndexError):
        pass
    found = next((event for event in trace if not isinstance(event, dict)), None)
    raise Unexpected(f"{shown(found)} in {where}", "an event, a dictionary with an action,")


def _addresses(trace: list[Any], kind: array[int], where: str) -> list[Any]:
    """Of an OOM, the memory that the card still had free: the recording keeps it in the address."""
    addresses = _column(trace, "addr", 0, where)
    if OOM in kind:
        for index, number in enumerate(kind):
            if number == OOM:
                addresses[index] = trace[index].get("device_free", addresses[index])
    return addresses


def _numbers(typecode: str, values: Iterable[Any], what: str) -> array[int]:
    values = list(values)
    try:
        return array(typecode, values)
    except (TypeError, OverflowError):
        limit = 1 << 8 * array(typecode).itemsize
        wrong = next((value for value in values if not isinstance(value, int) or not 0 <= value < limit), None)
        raise Unexpected(f"{shown(wrong)} as {what}", f"a whole number from 0 to {limit - 1}") from None


def _times(values: list[Any], where: str) -> array[int]:
    times = _numbers("Q", values, f"the time_us of an event in {where}")
    start = times[0] if times else 0
    # Threads stamp events before they are put in order, so a time may lie a little before the first.
    return array("Q", [time - start if time > start else 0 for time in times])


def _pools(
    trace: list[Any], segments: tuple[Segment, ...] | None, where: str
) -> tuple[tuple[tuple[int, int], ...], array[int]]:
    """The pools named, the default one first, and each event's place among them. In most versions events name none."""
    places: dict[Any, int] = {(0, 0): 0}
    for segment in segments or ():
        places.setdefault(segment.pool, len(places))
    try:
        named: list[Any] = list(map(itemgetter("pool_id"), trace))
    except KeyError:
        named = [event.get("pool_id", (0, 0)) for event in trace] if any("pool_id" in e for e in trace) else []
    if not named:
        return tuple(places), array("H", bytes(2 * len(trace)))
    what = f"the pool_id of an event in {where}"
    column = [places.setdefault(pool_id(value, what), len(places)) for value in named]
    return tuple(places), _numbers("H", column, f"the number of a pool in {where}")


def _check_sums(events: Events, where: str) -> None:
    """A replay adds sizes up and adds them to addresses, in columns of 64 bits."""
    requests = zip(events.kind, events.address, events.size, strict=True)
    total = 0
    highest = 0
    for kind, address, size in requests:
        if kind != OOM:
            total += size
            if address + size > highest:
                highest = address + size
    if total >= MAX_SUM_BYTES or highest >= ADDRESSES_END:
        raise Unexpected(
            f"sizes that add up to {total} bytes, up to address {highest}, in {where}",
            "less than any card could have had",
        )


def _plain(value: Any, depth: int = 0) -> Any:
    """Settings as plain values, in two levels as PyTorch has them; what is more, or no setting, is left out."""
    if isinstance(value, dict) and depth < 2:
        return {key: _plain(entry, depth + 1) for key, entry in list(value.items())[:256] if isinstance(key, str)}
    if isinstance(value, str):
        return printable(value[:4096])
    if isinstance(value, (int, float)) and abs(value) < 1 << 63:  # neither infinite nor no number at all
        return value
    return None

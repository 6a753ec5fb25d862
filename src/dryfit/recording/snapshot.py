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
from dryfit.recording.model import (
    FREE_COMPLETED,
    FREE_REQUESTED,
    KINDS,
    OOM,
    OTHER,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Block,
    DeviceTrace,
    Events,
    Recording,
    Segment,
)
from dryfit.recording.stacks import EMPTY, Frame, Stacks

FrameOf = Callable[[str, str, int], Frame | None]
"""Filename, name and line of a frame to the Frame that is kept; None leaves it out."""

# What no real snapshot reaches. A file can name one event, block or frame many times, in two bytes each.
MAX_EVENTS = MAX_BLOCKS = 16_000_000
MAX_STACKS = 8_000_000
MAX_FRAMES = 1 << 16
MAX_DEVICES = 1024
_END = 1 << 64
_SUM_LIMIT = 1 << 62

_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
_STATES = ("active_allocated", "active_awaiting_free", "inactive")
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
        found = f"the keys {_shown(list(snapshot)[:8])}" if isinstance(snapshot, Mapping) else _shown(snapshot)
        raise UsageError(
            f"{name} is no memory snapshot: it holds {found}, and a dictionary with segments and device_traces is "
            f"expected; {_ADVICE}."
        )
    try:
        stacks = Stacks()
        stack_of = _stack_interner(stacks, frame_of or Frame)
        traces = _list(snapshot.get("device_traces", []), "device_traces")
        segments = _segments_by_device(snapshot, stack_of)
        _check_count("events", sum(len(_list(trace, "a device's trace")) for trace in traces), MAX_EVENTS)
        devices = []
        for device in sorted({*range(len(traces)), *(segments or ())}):
            if device >= MAX_DEVICES:
                raise _Unexpected(f"a device number {device}", f"one below {MAX_DEVICES}")
            trace = traces[device] if device < len(traces) else []
            held = None if segments is None else tuple(segments.get(device, ()))
            if trace or held:
                devices.append(_device_trace(device, trace, held, stack_of))
        settings = _plain(snapshot.get("allocator_settings"))
    except _Unexpected as unexpected:
        raise UsageError(
            f"{name} is not a memory snapshot as PyTorch writes it: it has {unexpected.found} where "
            f"{unexpected.expected} is expected; {_ADVICE}."
        ) from None
    known = dict(about or {})
    if settings:
        known.setdefault("allocator_settings", settings)
    return Recording(source="snapshot", devices=tuple(devices), stacks=stacks, about=known)


class _Unexpected(Exception):
    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found, self.expected = found, expected


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
            raise _Unexpected(f"{_shown(action)} as the action of an event in {where}", "a word")
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
        segments=_with_places(segments, pools),
        pools=pools,
        starts_empty=segments is not None and len(events) > 0 and _reserved_before(events, segments) == {},
    )


def _halves(event: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    if event["action"] != "free":
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
    raise _Unexpected(f"{_shown(found)} in {where}", "an event, a dictionary with an action,")


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
        raise _Unexpected(f"{_shown(wrong)} as {what}", f"a whole number from 0 to {limit - 1}") from None


def _times(values: list[Any], where: str) -> array[int]:
    times = _numbers("Q", values, f"the time_us of an event in {where}")
    start = times[0] if times else 0
    # Threads stamp events before they are put in order, so a time may lie a little before the first.
    return array("Q", [time - start if time > start else 0 for time in times])


def _pools(
    trace: list[Any], segments: tuple[Segment, ...] | None, where: str
) -> tuple[tuple[tuple[int, int], ...], array[int]]:
    """The pools named, the default one first, and each event's place among them. Up to torch 2.13 events name none."""
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
    column = [places.setdefault(_pool(value, what), len(places)) for value in named]
    return tuple(places), _numbers("H", column, f"the number of a pool in {where}")


def _pool(value: Any, what: str) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return _whole(value[0], what), _whole(value[1], what)
    raise _Unexpected(f"{_shown(value)} as {what}", "a pair of numbers")


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise _Unexpected(f"{count:,} {what}", f"at most {limit:,} of them")


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
    if total >= _SUM_LIMIT or highest >= _END:
        raise _Unexpected(
            f"sizes that add up to {total} bytes, up to address {highest}, in {where}",
            "less than any card could have had",
        )


def _segments_by_device(snapshot: Mapping[str, Any], stack_of: Callable[[Any], int]) -> dict[int, list[Segment]] | None:
    if "segments" not in snapshot:
        return None
    found: dict[int, list[Segment]] = {}
    total = blocks = 0
    for segment in _list(snapshot["segments"], "segments"):
        if not isinstance(segment, dict):
            raise _Unexpected(f"{_shown(segment)} in segments", "a segment, a dictionary with an address,")
        blocks += len(_list(segment.get("blocks", []), "the blocks of a segment"))
        _check_count("blocks", blocks, MAX_BLOCKS)
        read = _segment(segment, stack_of)
        total += read.total_size
        found.setdefault(_whole(segment.get("device", 0), "the device of a segment"), []).append(read)
    if total >= _SUM_LIMIT:
        raise _Unexpected(f"segments of {total} bytes together", "less than any card could have")
    for segments in found.values():
        segments.sort(key=itemgetter(0))
    return found


def _segment(segment: dict[str, Any], stack_of: Callable[[Any], int]) -> Segment:
    """A segment; its `pool` is still PyTorch's id: `_with_places` puts the place among the device's pools there."""
    address = _whole(segment.get("address"), "the address of a segment")
    size = _whole(segment.get("total_size"), "the total_size of a segment")
    blocks = []
    place = address
    for block in segment.get("blocks", []):
        if not isinstance(block, dict):
            raise _Unexpected(f"{_shown(block)} in the blocks of a segment", "a block, a dictionary with a size,")
        read = _block(block, place, stack_of)
        if read.address < place or read.address + read.size > address + size:
            raise _Unexpected(
                f"a block of {read.size} bytes at address {read.address}, in a segment of {size} bytes at {address}",
                "one inside its segment, behind the block before it",
            )
        blocks.append(read)
        place = read.address + read.size
    return Segment(
        address,
        size,
        _whole(segment.get("stream", 0), "the stream of a segment"),
        segment.get("segment_type") == "small",
        segment.get("is_expandable") is True,
        _pool(segment.get("segment_pool_id", (0, 0)), "the segment_pool_id of a segment"),  # type: ignore[arg-type]
        tuple(blocks),
    )


def _block(block: dict[str, Any], place: int, stack_of: Callable[[Any], int]) -> Block:
    """A block. Up to torch 2.0 it has no address, and the request and its frames are the first of its history."""
    size = _whole(block.get("size"), "the size of a block")
    history = block.get("history")
    first = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
    state = block.get("state")
    if state == "active_pending_free":  # what torch writes; its documentation has the other name
        state = "active_awaiting_free"
    if state not in _STATES:
        raise _Unexpected(f"{_shown(state)} as the state of a block", f"one of {', '.join(_STATES)}")
    return Block(
        _whole(block.get("address", place), "the address of a block"),
        size,
        _whole(block.get("requested_size", first.get("real_size", size)), "the requested_size of a block"),
        state,
        stack_of(block.get("frames", first.get("frames"))),
    )


def _with_places(
    segments: tuple[Segment, ...] | None, pools: tuple[tuple[int, int], ...]
) -> tuple[Segment, ...] | None:
    places: dict[Any, int] = {pool: place for place, pool in enumerate(pools)}
    return None if segments is None else tuple(segment._replace(pool=places[segment.pool]) for segment in segments)


def _reserved_before(events: Events, segments: tuple[Segment, ...]) -> dict[int, int] | None:
    """What was reserved before the first event: sizes by address. None where events and segments do not fit together.

    Of expandable segments, which are mapped in pieces that the final state joins, only the sum is known.
    """
    reserved = {segment.address: segment.total_size for segment in segments if not segment.is_expandable}
    mapped_bytes = sum(segment.total_size for segment in segments if segment.is_expandable)
    for index in range(len(events) - 1, -1, -1):
        kind = events.kind[index]
        if kind == SEGMENT_ALLOC:
            if reserved.pop(events.address[index], None) != events.size[index]:
                return None
        elif kind == SEGMENT_FREE:
            reserved[events.address[index]] = events.size[index]
        elif kind == SEGMENT_MAP:
            mapped_bytes -= events.size[index]
        elif kind == SEGMENT_UNMAP:
            mapped_bytes += events.size[index]
    if mapped_bytes:
        return None if mapped_bytes < 0 else {**reserved, -1: mapped_bytes}
    return reserved


def _stack_interner(stacks: Stacks, frame_of: FrameOf) -> Callable[[Any], int]:
    """From a list of frames as PyTorch has it to the number of its stack.

    PyTorch makes one dictionary for each frame and one list for each stack, and a pickle keeps that; so frames and
    lists are known by identity, which spares comparing fifty frames for each of a million events. The snapshot is
    alive as long as this is used, so an identity is never that of another object.
    """
    frames_by_id: dict[int, Frame | None] = {}
    numbers_by_id: dict[int, int] = {}
    numbers: dict[bytes, int] = {}

    def frame(entry: Any) -> Frame | None:
        if not isinstance(entry, dict):
            raise _Unexpected(f"{_shown(entry)} in a list of frames", "a dictionary with filename, name and line")
        file, name, line = entry.get("filename"), entry.get("name"), entry.get("line", 0)
        if not isinstance(file, str) or not isinstance(name, str) or not isinstance(line, int):
            raise _Unexpected(f"a frame {_shown([file, name, line])}", "one with a filename, a name and a line")
        return frame_of(_printable(file), _printable(name), line if 0 <= line < 1 << 31 else 0)

    def stack_of(entries: Any) -> int:
        known = numbers_by_id.get(id(entries))
        if known is not None:
            return known
        if not entries:  # no frames, or none recorded
            return EMPTY
        if not isinstance(entries, list):
            raise _Unexpected(f"{_shown(entries)} as frames", "a list")
        if len(entries) > MAX_FRAMES or len(stacks) > MAX_STACKS:
            raise _Unexpected("more frames than a program can have", f"a stack of at most {MAX_FRAMES:,} frames")
        key = array("Q", map(id, entries)).tobytes()
        number = numbers.get(key)
        if number is None:
            number = EMPTY
            for entry in reversed(entries):
                identity = id(entry)
                if identity not in frames_by_id:
                    frames_by_id[identity] = frame(entry)
                kept = frames_by_id[identity]
                if kept is not None:
                    number = stacks.call(number, kept)
            numbers[key] = number
        numbers_by_id[id(entries)] = number
        return number

    return stack_of


def _printable(text: str) -> str:
    """A lone surrogate, as a pickle can hold it, could be neither printed nor saved."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _plain(value: Any, depth: int = 0) -> Any:
    """Settings as plain values; what is none, or too much to be settings, is left out."""
    if isinstance(value, dict) and depth < 4:
        return {key: _plain(entry, depth + 1) for key, entry in list(value.items())[:256] if isinstance(key, str)}
    if isinstance(value, str):
        return _printable(value[:4096])
    if isinstance(value, (int, float)) and abs(value) < 1 << 63:  # neither infinite nor no number at all
        return value
    return None


def _whole(value: Any, what: str) -> int:
    if isinstance(value, int) and 0 <= value < _END:
        return value
    raise _Unexpected(f"{_shown(value)} as {what}", f"a whole number from 0 to {_END - 1}")


def _list(value: Any, what: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise _Unexpected(f"{_shown(value)} as {what}", "a list")


def _shown(value: Any) -> str:
    """A stranger's value for a sentence: short, whatever it is, and never walked into."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:40]) if len(value) <= 40 else f"{value[:40]!r}..."
    if isinstance(value, int) and abs(value) >= 1 << 70:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, (str, int, float)) for entry in value[:8]):
        return f"[{', '.join(_shown(entry) for entry in value[:8])}{', ...' if len(value) > 8 else ''}]"
    return {"dict": "a dictionary", "list": "a list", "tuple": "a tuple"}.get(
        type(value).__name__, f"a value of type {type(value).__name__}"
    )

"""A recording as a file: `save` and `load`. `columns` has the container, `tables` the rows in it.

`docs/recording.md` describes the format to those who read it without dryfit.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from pathlib import Path
from typing import Any

from dryfit.errors import UsageError
from dryfit.recording.columns import FIRST_BYTES, Columns, is_recording, write
from dryfit.recording.model import (
    BLOCK_STATES,
    KINDS,
    OWNERS,
    Block,
    DeviceTrace,
    Events,
    Label,
    Mark,
    ModuleOutput,
    Recording,
    Segment,
)
from dryfit.recording.stacks import Frame, Stacks
from dryfit.recording.tables import TableReader, TableWriter
from dryfit.whole_files import whole_file

__all__ = ["FIRST_BYTES", "is_recording", "load", "save"]

_EVENTS = {"kind": "B", "address": "Q", "size": "Q", "stream": "Q", "pool": "H", "stack": "I", "time_us": "Q"}
_ABOUT = {
    "program": list, "versions": dict, "card": dict, "allocator_settings": dict, "ending": str, "peak_used_bytes": int,
    "is_cut": bool, "lost_events": bool,
}  # fmt: skip
"""What readers rely on in `about`, where it is there at all; anything else may be in it too."""
_MOST_DEVICES = 1024
_FIELDS = {"device": int, "starts_empty": bool, "dropped_events": int, "has_segments": bool}
"""What the header says of a device."""


def save(recording: Recording, path: Path | str) -> None:
    """Write a recording, whole or not at all; equal recordings make equal files.

    >>> save(recording, "run.dryfit")                                       # doctest: +SKIP

    `about` is written as JSON: its tuples come back as lists.

    Raises:
        UsageError: the place cannot be written, or something does not fit the format: it says what.
    """
    try:
        header, columns = _columns_of(recording)
    except OverflowError as error:
        raise UsageError(f"The recording could not be saved as {path}: a number is out of range ({error}).") from error
    with whole_file(path, "recording") as file:
        write(file, header, columns)


def load(path: Path | str) -> Recording:
    """Open a recording.

    >>> load("run.dryfit").devices[0].events.kind                            # doctest: +SKIP
    array('B', [3, 0, 0, 1, 2])

    Events and stacks are read from the file when they are first used, column by column.

    Raises:
        UsageError: the file cannot be read, is no recording, is damaged, or was written by a newer dryfit. A damaged
            column of events or stacks raises it when it is first used.
    """
    tables = TableReader(Columns(path))
    header, damaged = tables.columns.header, tables.columns.damaged
    source, about, devices = (header.get(name) for name in ("source", "about", "devices"))
    if not isinstance(source, str) or not isinstance(about, dict):
        raise damaged("its header does not say what was recorded")
    if wrong := _wrong_about(about):
        raise damaged(f"its header has no {wrong} as dryfit writes it")
    if not isinstance(devices, list) or len(devices) > _MOST_DEVICES:
        raise damaged("its header does not say which devices were recorded")
    stacks = _StoredStacks(tables)
    traces = tuple(_device(tables, place, device, len(stacks)) for place, device in enumerate(devices))
    if len({trace.device for trace in traces}) < len(traces):
        raise damaged("its header has a device twice")
    return Recording(
        source=source,
        devices=traces,
        stacks=stacks,
        modules=tuple(map(ModuleOutput._make, tables.rows("modules"))),
        workspaces=tuple((address, size) for address, size in tables.rows("workspaces")),
        about=about,
    )


def _columns_of(recording: Recording) -> tuple[dict[str, Any], dict[str, array[int]]]:
    """The header and the columns of a recording."""
    tables, devices = TableWriter(), []
    for place, trace in enumerate(recording.devices):
        prefix = f"devices/{place}/"
        for name in _EVENTS:
            tables.add_column(f"{prefix}events/{name}", getattr(trace.events, name))
        segments = trace.segments or ()
        tables.add("pools", trace.pools, prefix)
        tables.add("marks", trace.marks, prefix)
        tables.add("labels", trace.labels, prefix)
        tables.add("segments", [(*segment[:-1], len(segment.blocks)) for segment in segments], prefix)
        tables.add("blocks", [block for segment in segments for block in segment.blocks], prefix)
        values = (trace.device, trace.starts_empty, trace.dropped_events, trace.segments is not None)
        devices.append(dict(zip(_FIELDS, values, strict=True)))
    tables.add("modules", recording.modules)
    tables.add("workspaces", recording.workspaces)
    tables.add("frames", recording.stacks.all_frames)
    tables.add_column("stacks/frame", recording.stacks.frame_of)
    tables.add_column("stacks/caller", recording.stacks.caller_of)
    return {"source": recording.source, "about": recording.about, "devices": devices}, tables.columns()


def _wrong_about(about: dict[str, Any]) -> str:
    """The name of a value that is not what `Recording.about` says; "" if there is none."""
    card = about.get("card")
    sizes = {name: value for name, value in card.items() if name.endswith("_bytes")} if type(card) is dict else {}
    named = [(name, about.get(name), kind) for name, kind in _ABOUT.items()]
    named += [(f"{name} of the card", value, int) for name, value in sizes.items()]
    return next((name for name, value, kind in named if value is not None and type(value) is not kind), "")


def _device(tables: TableReader, place: int, described: Any, stack_count: int) -> DeviceTrace:
    prefix, damaged = f"devices/{place}/", tables.columns.damaged
    if not isinstance(described, dict) or any(type(described.get(name)) is not kind for name, kind in _FIELDS.items()):
        raise damaged(f"its header does not describe device {place}")
    if not 0 <= described["device"] < _MOST_DEVICES or described["dropped_events"] < 0:
        raise damaged(f"its header does not describe device {place} with numbers that can be")
    pools = tuple((first, second) for first, second in tables.rows("pools", prefix))
    events = _StoredEvents(tables, prefix, {"kind": len(KINDS), "pool": len(pools), "stack": stack_count})
    marks = tuple(map(Mark._make, tables.rows("marks", prefix, {"event": len(events) + 1})))
    labels = tuple(map(Label._make, tables.rows("labels", prefix, {"event": len(events)})))
    if not {label.owner for label in labels}.issubset(OWNERS):
        raise damaged(f"{prefix}labels has an owner that is none of {', '.join(OWNERS)}")
    blocks = [Block._make(row) for row in tables.rows("blocks", prefix, {"stack": stack_count})]
    if not {block.state for block in blocks}.issubset(BLOCK_STATES):
        raise damaged(f"{prefix}blocks has a state that is none of {', '.join(BLOCK_STATES)}")
    rows = tables.rows("segments", prefix, {"pool": len(pools)})
    if sum(row[-1] for row in rows) != len(blocks):
        raise damaged(f"{prefix}segments do not have the {len(blocks)} blocks of the table")
    remaining = iter(blocks)
    segments = tuple(Segment._make((*row[:-1], tuple(itertools.islice(remaining, row[-1])))) for row in rows)
    return DeviceTrace(
        device=described["device"],
        events=events,
        segments=segments if described["has_segments"] else None,
        marks=marks,
        labels=labels,
        pools=pools,
        starts_empty=described["starts_empty"],
        dropped_events=described["dropped_events"],
    )


class _StoredEvents(Events):
    """Events of a file: a column is read when it is first asked for, which is when its slot is still empty."""

    __slots__ = ("_below", "_count", "_prefix", "_tables")

    def __init__(self, tables: TableReader, prefix: str, below: dict[str, int]) -> None:
        self._tables, self._prefix, self._below = tables, f"{prefix}events/", below
        counts = {tables.columns.count(f"{self._prefix}{name}") for name in _EVENTS}
        if len(counts) > 1:
            raise tables.columns.damaged(f"{prefix}events has columns of different lengths")
        self._count = counts.pop()

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> array[int]:
        if name not in _EVENTS:
            raise AttributeError(name)
        full_name = f"{self._prefix}{name}"
        column = self._tables.columns.column(full_name, _EVENTS[name])
        self._tables.checked(full_name, column, self._below.get(name))
        setattr(self, name, column)
        return column


class _StoredStacks(Stacks):
    """Stacks of a file, read when they are first asked for."""

    def __init__(self, tables: TableReader) -> None:
        self._tables = tables
        self._count = tables.columns.count("stacks/frame")
        if not self._count or self._count != tables.columns.count("stacks/caller"):
            raise tables.columns.damaged("stacks has columns of different lengths, or none at all")

    def __len__(self) -> int:
        return len(self.frame_of) if "frame_of" in self.__dict__ else self._count

    def __getattr__(self, name: str) -> Any:
        if name not in ("all_frames", "frame_of", "caller_of", "_frame_numbers", "_numbers"):
            raise AttributeError(name)
        if name in ("_frame_numbers", "_numbers"):  # only for who adds stacks
            self._frame_numbers = {frame: number for number, frame in enumerate(self.all_frames)}
            pairs = itertools.islice(zip(self.caller_of, self.frame_of, strict=True), 1, None)
            self._numbers = {pair: number for number, pair in enumerate(pairs, 1)}
            return self.__dict__[name]
        self.all_frames = [Frame(*row) for row in self._tables.rows("frames")]
        columns = self._tables.columns
        self.frame_of, self.caller_of = columns.column("stacks/frame", "I"), columns.column("stacks/caller", "I")
        self._tables.checked("stacks/frame", self.frame_of[1:], len(self.all_frames))
        # A caller's number is smaller than its stack's, so that walking up a stack ends.
        if not all(map(operator.lt, self.caller_of[1:], range(1, self._count))):
            raise columns.damaged("stacks/caller has a stack that is called by a later one")
        return self.__dict__[name]

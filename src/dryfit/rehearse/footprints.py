"""The recording of a rehearsal -> who owned the memory, as a part of the result."""

from __future__ import annotations

import dataclasses
import traceback
from pathlib import Path

from dryfit.analyse import Analysis, Footprint, analyse
from dryfit.analyse.growth import with_keeper
from dryfit.errors import UsageError
from dryfit.recording.file import load
from dryfit.recording.model import Recording
from dryfit.recording.replay import replay
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.events import RECORDING_SUFFIX
from dryfit.rehearse.findings_of_all import keeper_of_growth
from dryfit.rehearse.result import Result
from dryfit.units import format_bytes

_FAULT = "Who owned the memory could not be found out{}. This is our fault; please report it with these lines:\n{}"


def recordings_in(folder: Path) -> tuple[dict[int, Recording], list[str]]:
    """The recordings that processes left, by their numbers, and a sentence for each that cannot be read.

    Their columns are read when they are needed, from files that stay open when the folder is gone.
    """
    recordings, unreadable = {}, []
    for path in sorted(folder.glob(f"*{RECORDING_SUFFIX}")):
        try:
            recordings[int(path.stem)] = load(path)
        except UsageError as error:
            unreadable.append(f"Who owned the memory of process {path.stem} is not known. {error}")
    return recordings, unreadable


def with_footprint(result: Result, observed: Observed) -> Result:
    """The result with the recording of the process that its figures are of, and the footprint read from that.

    Where our own recording, or our reading of it, fails, the figures still stand, and a note says so.
    """
    main = result.processes[0] if result.processes else None
    if main is None:
        return result
    notes = [
        _FAULT.format(" in full", event["trace"].rstrip())
        for events in observed.processes
        if events[0].get("pid") == main["pid"]
        for event in events
        if event["event"] == "unrecorded"
    ]
    recording, analysis = observed.recordings.get(main["pid"]), None
    keeper = keeper_of_growth(result.findings)
    if recording is not None:
        about = {
            "program": result.program,
            "card": result.card,
            "versions": result.versions,
            "ending": result.ending.how,
            "peak_used_bytes": main["peak_used_bytes"],
        }
        recording = dataclasses.replace(recording, about={**recording.about, **about})
        try:
            analysis = analyse(recording)
            growth = analysis.footprint.growth
            if growth is not None and keeper:
                footprint = dataclasses.replace(analysis.footprint, growth=with_keeper(growth, keeper))
                analysis = dataclasses.replace(analysis, footprint=footprint)
            notes += _what_is_missing(recording, analysis.footprint, result) or _what_differs(analysis, result)
        except Exception:
            notes.append(_FAULT.format("", traceback.format_exc().rstrip()))
    return dataclasses.replace(
        result,
        recording=recording,
        analysis=analysis,
        footprint=analysis.footprint if analysis is not None else None,
        notes=[*result.notes, *notes],
    )


def _what_is_missing(recording: Recording, footprint: Footprint, result: Result) -> list[str]:
    notes = []
    if recording.about.get("lost_events"):
        notes.append(
            "More events came between two passes of the program than are kept, and the first of them are lost. The "
            "figures are of all; steps and phases are not told apart, and owners are known only as far as stacks tell."
        )
    if recording.about.get("is_cut"):
        last = footprint.steps[-1].step if footprint.steps else 0
        note = f"The recording ends in step {last}, with more events than are kept; the figures are of all steps."
        if footprint.peak.allocated_bytes < result.peak_allocated_bytes:
            note += (
                f" Owners are those of the highest moment until then, {format_bytes(footprint.peak.allocated_bytes)}."
            )
        notes.append(note)
    return notes


def _what_differs(analysis: Analysis, result: Result) -> list[str]:
    """The recording of a whole run has the peaks that the allocator counted, to the byte, or one of the two is wrong.

    The allocator's are the highest of all devices, be it one for allocated and another for reserved memory.
    """
    footprint, recording = analysis.footprint, analysis.recording
    reserved_bytes = footprint.peak_reserved_bytes
    for trace in recording.devices:
        if trace.device != footprint.device:
            of_another = replay(trace, recording.about.get("allocator_settings")).reserved_bytes
            reserved_bytes = max([reserved_bytes, *of_another])
    found = ("allocated", footprint.peak.allocated_bytes), ("reserved", reserved_bytes)
    counted = result.peak_allocated_bytes, result.peak_reserved_bytes
    differing = [
        f"{replayed_bytes:,} bytes {name} against {counted_bytes:,}"
        for (name, replayed_bytes), counted_bytes in zip(found, counted, strict=True)
        if replayed_bytes != counted_bytes
    ]
    if not differing:
        return []
    return [
        f"The recording's peak is not the one that PyTorch's allocator counted: {' and '.join(differing)}. Who owned "
        "the memory may be off by as much. This is our fault; please report it, with the program if you can."
    ]

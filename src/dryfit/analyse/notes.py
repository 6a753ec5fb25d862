"""What a person should know beside the figures of a footprint, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.analyse.footprint import LineBytes, Peak
from dryfit.places import as_seen_from_here
from dryfit.recording.model import UNKNOWN, DeviceTrace
from dryfit.recording.replay import Replay
from dryfit.units import format_bytes

# What may stay unknown without a word: it changes no decision.
_LITTLE = 0.02
_LINES = 2


def notes_on(
    source: str,
    trace: DeviceTrace,
    replay: Replay,
    peak: Peak,
    lines: Sequence[LineBytes],
    other_devices: Sequence[int],
) -> tuple[str, ...]:
    """Everything about the record that a person should know beside the figures.

    How to record more is said of a snapshot only: of a rehearsal nobody but dryfit decides it.
    """
    notes = []
    is_snapshot = source == "snapshot"
    if other_devices:
        others = ", ".join(map(str, other_devices))
        notes.append(
            f"This is device {trace.device}; the recording has device{'s' * (len(other_devices) > 1)} {others} too."
        )
    if not len(trace.events):
        if not peak.allocated_bytes:
            notes.append("Nothing was allocated: the recording has no events and no memory of PyTorch's allocator.")
        else:
            notes.append("The recording has no events, only one state: its peak is that state, not that of the run.")
    elif trace.dropped_events:
        notes.append(
            f"{trace.dropped_events:,} events were dropped before the first that is left, as the record was full: "
            f"the peak may lie before{'; record with a larger max_entries' if is_snapshot else ''}."
        )
    elif (
        not trace.starts_empty
        and max(
            replay.before_allocated_bytes - _LITTLE * peak.allocated_bytes,
            replay.before_reserved_bytes - peak.allocated_bytes,
        )
        > 0
    ):
        # PyTorch keeps what it took from the card, so memory was never higher than what it had by then.
        earlier = ", and the run's peak may lie before" if replay.before_reserved_bytes > peak.allocated_bytes else ""
        advice = "; call torch.cuda.memory._record_memory_history() before the model is made to know all"
        notes.append(
            f"The recording began in the middle of the run, with {format_bytes(replay.before_allocated_bytes)} "
            "allocated, such as the model's parameters, of which only what its events and its end show is "
            f"known{earlier}{advice if is_snapshot else ''}."
        )
    if replay.end_error_bytes:
        notes.append(
            f"The events end with {format_bytes(abs(replay.end_error_bytes))} "
            f"{'more' if replay.end_error_bytes > 0 else 'less'} allocated than the recorded final state has: "
            "some events are missing, and the figures are off by up to as much."
        )
    unknown_bytes = sum(each.size_bytes for each in peak.owners if each.owner == UNKNOWN)
    if unknown_bytes > _LITTLE * peak.allocated_bytes:
        notes.append(
            f"{unknown_bytes / peak.allocated_bytes:.0%} of the peak ({format_bytes(unknown_bytes)}) could not be "
            f"attributed to an owner.{_where_unknown(lines)}"
        )
    if len(trace.events) and not trace.marks:
        notes.append("The recording does not say where steps and phases begin, so they are not told apart.")
    return tuple(notes)


def _where_unknown(lines: Sequence[LineBytes]) -> str:
    """The lines that made most of what is unknown: a person knows at a glance that it is the data, or an average."""
    found = [(sum(each.size_bytes for each in line.owners if each.owner == UNKNOWN), line) for line in lines]
    known = sorted((each for each in found if each[0] and each[1].file), key=lambda each: -each[0])[:_LINES]
    if not known:
        return ""
    places = " and ".join(f"{format_bytes(size)} at {as_seen_from_here(line.file)}:{line.line}" for size, line in known)
    return f" Of this, {places} {'were' if len(known) > 1 else 'was'} made, and kept."

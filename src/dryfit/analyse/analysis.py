"""One card of a recording, replayed, attributed and summed up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dryfit.analyse.attribution import Attribution, attribute
from dryfit.analyse.footprint import Footprint
from dryfit.analyse.phases_from_stacks import phases_from_stacks
from dryfit.analyse.stack_facts import facts_of
from dryfit.analyse.summary import footprint_of
from dryfit.errors import UsageError
from dryfit.recording.model import DeviceTrace, Recording
from dryfit.recording.replay import Replay, replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything a report needs of one card: the record itself, and what was found out from it.

    `trace` has the marks that the footprint goes by: of a snapshot, those found from its stacks.
    """

    recording: Recording
    trace: DeviceTrace
    replay: Replay
    attribution: Attribution
    footprint: Footprint


def analyse(recording: Recording, device: int | None = None) -> Analysis:
    """Find out who owned the memory of one card, by default of the one whose allocated memory went highest.

    >>> from dryfit.recording.model import Events
    >>> from dryfit.recording.stacks import Stacks
    >>> empty = DeviceTrace(device=0, events=Events())
    >>> analyse(Recording(source="snapshot", devices=(empty,), stacks=Stacks())).footprint.peak.allocated_bytes
    0

    `device` is the card's number in the recorded process. Sizes are bytes.

    Raises:
        UsageError: the recording has no such card, or none, or is damaged.
    """
    trace, replayed = _chosen(recording, device)
    facts = facts_of(recording.stacks)
    trace = dataclasses.replace(trace, marks=trace.marks or phases_from_stacks(trace, facts))
    attribution = attribute(recording, trace, replayed, facts)
    others = [each.device for each in recording.devices if each.device != trace.device]
    return Analysis(
        recording=recording,
        trace=trace,
        replay=replayed,
        attribution=attribution,
        footprint=footprint_of(recording, trace, replayed, attribution, facts, others),
    )


def _chosen(recording: Recording, device: int | None) -> tuple[DeviceTrace, Replay]:
    """The card to analyse, replayed; of equal ones the first."""
    if not recording.devices:
        raise UsageError("The recording has no card: PyTorch's CUDA allocator was not used while it was made.")
    settings = recording.about.get("allocator_settings")
    wanted = [trace for trace in recording.devices if device in (None, trace.device)]
    if not wanted:
        known = ", ".join(str(trace.device) for trace in recording.devices)
        raise UsageError(f"The recording has no device {device}; it has {known}.")
    replayed = [(trace, replay(trace, settings)) for trace in wanted]
    return max(replayed, key=lambda each: max([each[1].before_allocated_bytes, *each[1].allocated_bytes]))

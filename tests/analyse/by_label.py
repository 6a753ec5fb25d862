"""Footprints of recordings written by hand, attributed by their labels alone: what the figures sum up is then known."""

from __future__ import annotations

from array import array

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import Footprint
from dryfit.analyse.stack_facts import facts_of
from dryfit.analyse.summary import footprint_of
from dryfit.recording.model import OWNERS, UNKNOWN, DeviceTrace, Label, Recording
from dryfit.recording.replay import Replay, replay


def attributed(recording: Recording, trace: DeviceTrace, of: Replay) -> Attribution:
    """Owners as labelled, unknown without; the line is the innermost frame, the module the innermost module's."""
    labels: dict[int, Label] = {label.event: label for label in trace.labels}
    lines, modules = [("", 0, "")], [""]
    owner, line, module = array("B"), array("I"), array("I")
    tensor: dict[int, Label] = {}
    logits = bytearray()
    for index, (begin, stack) in enumerate(zip(of.lifetimes.begin, of.lifetimes.stack, strict=True)):
        label = labels.get(begin)
        owner.append(OWNERS.index(label.owner if label else UNKNOWN))
        logits.append(label is not None and label.name in ("logits", "loss"))
        if label is not None and label.name:
            tensor[index] = label
        frames = recording.stacks.frames(stack)
        line.append(_place(lines, [(frame.file, frame.line, frame.name) for frame in frames if not frame.is_module]))
        module.append(_place(modules, [frame.name for frame in frames if frame.is_module]))
    return Attribution(
        owner=owner,
        module=module,
        modules=tuple(modules),
        line=line,
        lines=tuple(lines),
        is_logits_or_loss=logits,
        tensor=tensor,
    )


def footprint(recording: Recording, trace: DeviceTrace | None = None) -> Footprint:
    """The footprint of a recording's only card, or of another trace in its place."""
    trace = trace or recording.devices[0]
    of = replay(trace, recording.about.get("allocator_settings"))
    return footprint_of(recording, trace, of, attributed(recording, trace, of), facts_of(recording.stacks))


def _place(known: list, found: list) -> int:  # type: ignore[type-arg]
    if not found:
        return 0
    if found[0] not in known:
        known.append(found[0])
    return known.index(found[0])

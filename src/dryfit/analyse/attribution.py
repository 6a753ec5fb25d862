"""Whose each allocation is: owner, module, line and tensor of every lifetime of a replay."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from dryfit.analyse.autocast_copies import mark_autocast_copies
from dryfit.analyse.backward_places import place_backward
from dryfit.analyse.lines import lines_of
from dryfit.analyse.logits import logits_and_loss
from dryfit.analyse.owners import GRADIENT, Evidence, owners_of
from dryfit.analyse.replaced_parameters import follow_replacements
from dryfit.analyse.snapshot_owners import refine_by_stacks
from dryfit.analyse.stack_facts import modules_of
from dryfit.analyse.stretches import stretches_of
from dryfit.analyse.tensor_names import best_labels, parameter_of, shapes_by_modules, size_of, sizes_of_outputs
from dryfit.recording.model import INPUT, OWNERS, PARAMETER, DeviceTrace, Label, Recording
from dryfit.recording.replay import BEFORE, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Columns beside `Replay.lifetimes`, one entry an allocation.

    `owner` is a place in `recording.model.OWNERS`, `module` one in `modules` (0 is "", no module), `line` one in
    `lines` (0 is none: ("", 0, "")), lines as (file, line, function). `is_logits_or_loss` is 0 or 1. `tensor` has the
    label that names the tensor, where there is one; one without a name says type and shape only. The block's remainder
    is not counted with the owner but as `REMAINDER`.
    """

    owner: array[int]
    module: array[int]
    modules: tuple[str, ...]
    line: array[int]
    lines: tuple[tuple[str, int, str], ...]
    is_logits_or_loss: bytearray
    tensor: dict[int, Label]


def attribute(recording: Recording, trace: DeviceTrace, replay: Replay, facts: array[int]) -> Attribution:
    """Find the owner, module, line and tensor of every allocation of one card.

    >>> from dryfit.analyse.stack_facts import facts_of
    >>> from dryfit.recording.model import Events
    >>> from dryfit.recording.replay import replay
    >>> from dryfit.recording.stacks import Stacks
    >>> stacks, trace = Stacks(), DeviceTrace(device=0, events=Events())
    >>> recording = Recording(source="snapshot", devices=(trace,), stacks=stacks)
    >>> attribute(recording, trace, replay(trace), facts_of(stacks)).modules
    ('',)

    `trace` has the marks to go by, `facts` are `facts_of` the recording's stacks. Every allocation has exactly one
    owner; `dryfit.analyse.owners` has the rules.
    """
    lifetimes, stacks = replay.lifetimes, recording.stacks
    evidence = Evidence(
        lifetimes=lifetimes,
        stretches=stretches_of(trace.events, trace.marks),
        facts=facts,
        labels=best_labels(trace.labels),
        workspaces=_sizes_by_address(recording.workspaces),
        stack_of_event=trace.events.stack,
        knows_what_was_before=trace.starts_empty or lifetimes.begin[:1].tolist() == [BEFORE],
    )
    module_of_stack, modules = modules_of(stacks)
    line_of_stack, lines = lines_of(stacks)
    module_of = array("I", map(module_of_stack.__getitem__, lifetimes.stack))
    line_of = array("I", map(line_of_stack.__getitem__, lifetimes.stack))

    owners = owners_of(evidence)
    tensors = shapes_by_modules(lifetimes, module_of, modules, sizes_of_outputs(recording.modules))
    if recording.source == "snapshot":
        tensors.update(refine_by_stacks(owners, trace.events, evidence))
    made_at, freed_at = evidence.by_event()
    follow_replacements(owners, made_at, freed_at, evidence)
    outputs = {output.path: output for output in recording.modules}
    copies = mark_autocast_copies(owners, module_of, modules, outputs, evidence)
    labelled = _labelled(owners, evidence)
    tensors.update(copies)
    tensors.update(labelled)

    flags = logits_and_loss(trace.marks, module_of, evidence)
    place_backward(owners, module_of, line_of, lines, flags, made_at, freed_at, evidence)
    _place_labelled(labelled, module_of, modules, line_of)
    return Attribution(
        owner=owners,
        module=module_of,
        modules=tuple(modules),
        line=line_of,
        lines=tuple(lines),
        is_logits_or_loss=flags,
        tensor=tensors,
    )


def _sizes_by_address(workspaces: Iterable[tuple[int, int]]) -> dict[int, frozenset[int]]:
    sizes: dict[int, frozenset[int]] = {}
    for address, size in workspaces:
        sizes[address] = sizes.get(address, frozenset()) | {size}
    return sizes


def _labelled(owners: array[int], evidence: Evidence) -> dict[int, Label]:
    """The labels of allocations; of what a model made and gave to another, only type and shape.

    A tensor may be a part of what was allocated, as the weights of an LSTM are: then its shape is not the allocation's.
    """
    labelled = {}
    for index, begin in enumerate(evidence.lifetimes.begin):
        label = evidence.labels.get(begin)
        if label is not None:
            is_input_of_another = label.owner == INPUT != OWNERS[owners[index]]
            label = label._replace(owner="", name="") if is_input_of_another else label
            is_all_of_it = size_of(label) in (None, evidence.lifetimes.requested_bytes[index])
            labelled[index] = label if is_all_of_it else label._replace(shape=None)
    return labelled


def _place_labelled(labelled: dict[int, Label], module_of: array[int], modules: list[str], line_of: array[int]) -> None:
    """Put what belongs to a parameter into its module; a gradient has the line of its parameter."""
    numbers = {path: number for number, path in enumerate(modules)}
    lines: dict[str, int] = {}
    for index, label in labelled.items():
        if label.owner == PARAMETER:
            lines.setdefault(label.name, line_of[index])
    for index, label in labelled.items():
        if not label.owner:
            continue
        name = parameter_of(label)
        path = name.rpartition(".")[0]
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(path)
        module_of[index] = numbers[path]
        if label.owner == OWNERS[GRADIENT] and name in lines:
            line_of[index] = lines[name]

"""The owner of every allocation: by its label, its stack, and how long it outlived the stretch that made it.

Rules in their order, the first that holds counts:

    labelled                                      what the label says; an input only if no model made it
    where a library was told to work              workspace
    made by torch.distributed and the like        communication buffer
    made by an optimizer                          optimizer state if it outlives the step, else temporary
    made in a forward pass or its loss            saved activation if it is there when backward begins, else temporary
    made in backward by a module called again     saved activation if it outlives the recomputation, else temporary
    made in backward                              temporary; gradient if it outlives it and is as large as a parameter
    made with gradients off                       temporary, but an output that the program holds: saved activation
    made elsewhere                                temporary if freed there, input if the next forward pass finds it

What only the end of the recording, or of the memory, kept from being freed is what its like was in an earlier step.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dryfit.analyse import stack_facts as facts
from dryfit.analyse.stretches import Stretch, Stretches
from dryfit.recording import model
from dryfit.recording.model import Label
from dryfit.recording.replay import Lifetimes

(
    PARAMETER, GRADIENT, STATE, AUTOCAST_COPY, BUFFER, INPUT, ACTIVATION, TEMPORARY, WORKSPACE, COMMUNICATION, _,
    UNKNOWN,
) = range(len(model.OWNERS))  # fmt: skip
"""Places in `model.OWNERS`."""

# A clip's total norm, say, is held a little longer than the clipping.
_LEAVES_SCRAPS = (model.CLIP, model.ZERO_GRAD, model.EVALUATION)
_COMPUTES = (model.FORWARD, model.EVALUATION, model.BACKWARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that owners are found from.

    `facts` are by stack; `labels` by event, each allocation's best one; `workspaces` are sizes in bytes by address.
    """

    lifetimes: Lifetimes
    stretches: Stretches
    facts: array[int]
    labels: Mapping[int, Label]
    workspaces: Mapping[int, frozenset[int]]
    event_count: int

    def by_event(self) -> tuple[array[int], array[int]]:
        """By event: the allocation it made, and the one it freed; -1 for none."""
        made_at = array("i", [-1]) * self.event_count
        freed_at = array("i", [-1]) * self.event_count
        for index, (begin, end) in enumerate(zip(self.lifetimes.begin, self.lifetimes.end, strict=True)):
            if begin >= 0:
                made_at[begin] = index
            if 0 <= end < self.event_count:
                freed_at[end] = index
        return made_at, freed_at

    @property
    def has_labels(self) -> bool:
        """Whether gradients would be labelled: a rehearsal's are."""
        return bool(self.labels)


def owners_of(evidence: Evidence) -> array[int]:
    """Each allocation's owner, as a place in `model.OWNERS`."""
    lifetimes = evidence.lifetimes
    owners = array("B", [UNKNOWN]) * len(lifetimes)
    in_backward: list[int] = []
    of_its_like: dict[tuple[int, int], tuple[int, int]] = {}
    """By stack and size, of what was freed by itself: the place of its stretch, and its owner."""
    rules = _Rules(evidence)
    never, by_stack = evidence.event_count, evidence.facts
    labelled, of_event, stretches = evidence.labels, evidence.stretches.of_event, evidence.stretches.all
    for index, (begin, end, stack, size, address) in enumerate(
        zip(lifetimes.begin, lifetimes.end, lifetimes.stack, lifetimes.requested_bytes, lifetimes.address, strict=True)
    ):
        bits = by_stack[stack]
        if begin < 0:
            continue
        place = of_event[begin]
        stretch = stretches[place]
        if begin in labelled:
            owner = rules.labelled(labelled[begin], stretch, bits)
            if owner is not None:
                owners[index] = owner
                continue
        if bits & facts.IS_WORKSPACE or (address in evidence.workspaces and rules.is_workspace(address, size, end)):
            owner = WORKSPACE
        elif bits & facts.COMMUNICATES:
            owner = COMMUNICATION
        elif stretch.phase == model.OPTIMIZER_STEP or bits & facts.IN_OPTIMIZER:
            owner = rules.of_optimizer(stretch, bits, end)
        elif stretch.phase == model.FORWARD:
            owner = ACTIVATION if end >= stretch.decided_at else TEMPORARY
        elif stretch.phase == model.BACKWARD:
            in_backward.append(index)
            continue
        elif end < stretch.end:
            owner = TEMPORARY
        else:
            owner = rules.elsewhere(stretch, bits, begin, end)
        if end < never:
            of_its_like[stack, size] = place, owner
        elif stretch.is_cut or owner == UNKNOWN:
            place_of_like, owner_of_like = of_its_like.get((stack, size), (place, owner))
            owner = owner_of_like if place_of_like < place else owner
        owners[index] = owner
    _decide_backward(in_backward, owners, evidence)
    _keep_what_modules_keep(owners, evidence)
    return owners


class _Rules:
    """The rules that need more than a comparison."""

    def __init__(self, evidence: Evidence) -> None:
        self._never = evidence.event_count
        self._workspaces = evidence.workspaces
        computing = [stretch.begin for stretch in evidence.stretches.all if stretch.phase in _COMPUTES]
        self._computing = computing
        self._ranks = {name: place for place, name in enumerate(model.OWNERS)}

    def is_workspace(self, address: int, size: int, end: int) -> bool:
        """Whether a library was given just this; or, for good, a part of it, as cuBLASLt is of cuBLAS's workspace."""
        given = self._workspaces[address]
        return size in given or (end == self._never and size >= min(given))

    def labelled(self, label: Label, stretch: Stretch, bits: int) -> int | None:
        """The label's owner, or None for an input that a model made: another's output, or a loss's logits."""
        owner = self._ranks[label.owner]
        if owner != INPUT:
            return owner
        is_made_by_model = bits & facts.IN_MODULE or stretch.phase in (model.FORWARD, model.BACKWARD)
        return None if is_made_by_model else owner

    def of_optimizer(self, stretch: Stretch, bits: int, end: int) -> int:
        if end < stretch.end:
            return TEMPORARY
        if stretch.is_cut and not bits & facts.MAKES_STATE:
            return TEMPORARY
        return STATE

    def elsewhere(self, stretch: Stretch, bits: int, begin: int, end: int) -> int:
        """Made outside a pass or with gradients off, and still there when that was over."""
        if stretch.phase == model.EVALUATION and stretch.precedes_backward and end >= stretch.decided_at:
            return ACTIVATION
        if bits & facts.MAKES_PARAMETERS:
            return PARAMETER
        if bits & facts.IN_MODULE:
            return ACTIVATION  # whatever the mark says, as in the first step of what torch.compile traces
        if stretch.phase in _LEAVES_SCRAPS:
            return TEMPORARY if end < self._never or stretch.is_cut else UNKNOWN
        if end == self._never:
            return UNKNOWN
        return INPUT if any(stretch.end <= begins <= end for begins in self._computing) else TEMPORARY


def _decide_backward(indexes: list[int], owners: array[int], evidence: Evidence) -> None:
    """Decide what backward passes allocated: the last first, for what comes after recomputation ends it."""
    lifetimes = evidence.lifetimes
    engine_worked_at = 0
    stretch: Stretch | None = None
    left_by_cut: dict[Stretch, list[int]] = {}
    for index in reversed(indexes):
        begin, end = lifetimes.begin[index], lifetimes.end[index]
        here = evidence.stretches.all[evidence.stretches.of_event[begin]]
        if here is not stretch:
            stretch, engine_worked_at = here, here.end
        if evidence.facts[lifetimes.stack[index]] & facts.IN_MODULE:
            owners[index] = ACTIVATION if end >= engine_worked_at else TEMPORARY
            continue
        engine_worked_at = begin
        if end < stretch.end:
            owners[index] = TEMPORARY
        elif not evidence.has_labels:
            owners[index] = GRADIENT
        elif stretch.is_cut:
            left_by_cut.setdefault(stretch, []).append(index)
        elif end < evidence.event_count:
            owners[index] = ACTIVATION  # for a second backward pass through this one
    for cut, left in left_by_cut.items():
        _decide_cut_backward(cut, reversed(left), owners, evidence)


def _decide_cut_backward(cut: Stretch, left: Iterable[int], owners: array[int], evidence: Evidence) -> None:
    """What is left of a backward pass that did not end: gradients by size, each parameter's once, the rest is scraps.

    The oldest are taken: a gradient stays, while the passing results of autograd's nodes do not last.
    """
    missing = _parameters_without_gradient(cut.end - 1, evidence)
    for index in left:
        size = evidence.lifetimes.requested_bytes[index]
        owners[index] = GRADIENT if missing[size] > 0 else TEMPORARY
        missing[size] -= 1


def _parameters_without_gradient(event: int, evidence: Evidence) -> Counter[int]:
    """How many parameters of each size, in bytes, have no gradient that is labelled and there at an event."""
    lifetimes = evidence.lifetimes
    missing: Counter[int] = Counter()
    for index, (begin, end) in enumerate(zip(lifetimes.begin, lifetimes.end, strict=True)):
        label = evidence.labels.get(begin) if 0 <= begin <= event < end else None
        if label is not None and label.owner == model.PARAMETER:
            missing[lifetimes.requested_bytes[index]] += 1
        elif label is not None and label.owner == model.GRADIENT:
            missing[lifetimes.requested_bytes[index]] -= 1
    return missing


def _keep_what_modules_keep(owners: array[int], evidence: Evidence) -> None:
    """Masks and tables that a module makes in its first forward pass and keeps are buffers, whatever holds them.

    A leak of activations, in contrast, is made anew in every step.
    """
    begins = [stretch.begin for stretch in evidence.stretches.all if stretch.phase == model.BACKWARD]
    if len(begins) < 3:
        return
    lifetimes = evidence.lifetimes
    never = evidence.event_count
    kept = [
        index
        for index, (owner, begin, end) in enumerate(zip(owners, lifetimes.begin, lifetimes.end, strict=True))
        if owner == ACTIVATION and end == never and begin < begins[-2]
    ]
    if not kept:
        return
    wanted = {(lifetimes.stack[index], lifetimes.requested_bytes[index]) for index in kept}
    times = Counter(key for key in zip(lifetimes.stack, lifetimes.requested_bytes, strict=True) if key in wanted)
    for index in kept:
        if times[lifetimes.stack[index], lifetimes.requested_bytes[index]] == 1:
            owners[index] = BUFFER

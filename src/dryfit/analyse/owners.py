"""The owner of every allocation: by its label, its stack, and how long it outlived the stretch that made it.

Rules in their order, the first that holds counts:

    labelled                                      what the label says; an input only if no model made it
    where a library was told to work              workspace
    made by torch.distributed and the like        communication buffer
    made by an optimizer                          optimizer state if it outlives the step, else temporary
    made in a forward pass or its loss            saved activation if it is there when backward begins, else temporary
    made in one that no backward pass follows     saved activation if it outlives the call that made it, else temporary
    made in backward by a module called again     saved activation if it outlives the recomputation, else temporary
    made in backward                              temporary; if it outlives it, gradient if it is as large as a
                                                  parameter, saved activation if a later backward frees it
    made with gradients off                       temporary, but an output that the program holds: saved activation
    made elsewhere                                temporary if freed there, input if the next forward pass finds it,
                                                  saved activation if there is none and backward frees it

What only the end of the recording, or of the memory, kept from being freed is what its like was in an earlier step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_UNLIKE_ANY = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that owners are found from.

    `facts` are by stack; `labels` by event, each allocation's best one; `workspaces` are sizes in bytes by address.
    `knows_what_was_before` says that all that was allocated when the recording began is among the lifetimes.
    """

    lifetimes: Lifetimes
    stretches: Stretches
    facts: array[int]
    labels: Mapping[int, Label]
    workspaces: Mapping[int, frozenset[int]]
    stack_of_event: Sequence[int]
    knows_what_was_before: bool

    @property
    def event_count(self) -> int:
        return len(self.stack_of_event)

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
            owner = rules.labelled(labelled[begin], stretch, bits, begin, end)
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
            like = of_its_like.get((stack, size), _UNLIKE_ANY)[1]
            owner = rules.of_forward(stretch, begin, end, like)
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
        self._evidence = evidence
        self._workspaces = evidence.workspaces
        self._stretches = evidence.stretches
        self._computing = [stretch for stretch in evidence.stretches.all if stretch.phase in _COMPUTES]
        self._computing_begins = [stretch.begin for stretch in self._computing]
        self._for_backward = _parts_for_backward(evidence)
        self._ranks = {name: place for place, name in enumerate(model.OWNERS)}

    def is_workspace(self, address: int, size: int, end: int) -> bool:
        """Whether a library was given just this; or, for good, a part of it, as cuBLASLt is of cuBLAS's workspace."""
        given = self._workspaces[address]
        return size in given or (end == self._never and size >= min(given))

    def labelled(self, label: Label, stretch: Stretch, bits: int, begin: int, end: int) -> int | None:
        """The label's owner, or None for an input that a model made: another's output, or a loss's logits."""
        owner = self._ranks[label.owner]
        if owner != INPUT:
            return owner
        if bits & facts.IN_MODULE or stretch.phase == model.BACKWARD:
            return None
        if stretch.phase != model.FORWARD:
            return owner
        part = self._stretches.parts[self._stretches.part_of_event[begin]]
        is_there_at_the_next_call = begin >= part.returned and stretch.end > part.end <= end
        return owner if is_there_at_the_next_call else None

    def of_forward(self, stretch: Stretch, begin: int, end: int, like: int) -> int:
        """What a forward pass allocated, or the program between calls of models in it."""
        number = self._stretches.part_of_event[begin]
        part = self._stretches.parts[number]
        is_made_between = begin >= part.returned and part.end < stretch.end
        if is_made_between and like == INPUT and end >= part.end:
            return INPUT
        if end >= stretch.decided_at:
            return ACTIVATION
        if number in self._for_backward and end < part.end:
            return TEMPORARY
        if begin >= part.returned:
            return ACTIVATION if is_made_between and end >= part.end else TEMPORARY
        return ACTIVATION if end >= part.returned or self._is_freed_outside_modules(end) else TEMPORARY

    def _is_freed_outside_modules(self, end: int) -> bool:
        bits = self._evidence.facts[self._evidence.stack_of_event[end]]
        return bits & (facts.HAS_PYTHON | facts.IN_MODULE) == facts.HAS_PYTHON

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
        following = bisect_left(self._computing_begins, stretch.end)
        if following == len(self._computing) or self._computing_begins[following] > end:
            return TEMPORARY
        ends_in = self._stretches.all[self._stretches.of_event[end]]
        is_saved = self._computing[following].phase == ends_in.phase == model.BACKWARD
        return ACTIVATION if is_saved else INPUT


def _parts_for_backward(evidence: Evidence) -> set[int]:
    """The calls of models that left something for the backward pass that follows them."""
    stretches = evidence.stretches
    found = set()
    for begin, end in zip(evidence.lifetimes.begin, evidence.lifetimes.end, strict=True):
        if begin >= 0:
            stretch = stretches.all[stretches.of_event[begin]]
            if stretch.precedes_backward and end >= stretch.decided_at:
                found.add(stretches.part_of_event[begin])
    return found


def _decide_backward(indexes: list[int], owners: array[int], evidence: Evidence) -> None:
    """Decide what backward passes allocated: the last first, for what comes after recomputation ends it."""
    lifetimes = evidence.lifetimes
    engine_worked_at = 0
    stretch: Stretch | None = None
    left: dict[Stretch, list[int]] = {}
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
        elif evidence.knows_what_was_before:
            left.setdefault(stretch, []).append(index)
        else:
            owners[index] = GRADIENT
    in_order = sorted(left, key=lambda backward: backward.end)
    for backward, missing in zip(in_order, _parameters_without_gradient(in_order, evidence), strict=True):
        _decide_left(backward, reversed(left[backward]), missing, owners, evidence)


def _decide_left(
    backward: Stretch, left: Iterable[int], missing: Counter[int], owners: array[int], evidence: Evidence
) -> None:
    """What a backward pass left: gradients by size, each parameter's once; what a second pass frees; and scraps.

    The oldest are taken: a gradient stays, while the passing results of autograd's nodes do not last.
    """
    for index in left:
        size, end = evidence.lifetimes.requested_bytes[index], evidence.lifetimes.end[index]
        if missing[size] > 0:
            missing[size] -= 1
            owners[index] = GRADIENT
        elif backward.is_cut:
            owners[index] = TEMPORARY
        elif end == evidence.event_count:
            owners[index] = UNKNOWN
        else:
            ends_in = evidence.stretches.all[evidence.stretches.of_event[end]]
            owners[index] = ACTIVATION if ends_in.phase == model.BACKWARD else TEMPORARY


def _parameters_without_gradient(passes: Iterable[Stretch], evidence: Evidence) -> Iterator[Counter[int]]:
    """How many parameters of each size, in bytes, have no gradient that is labelled and there at a pass's end, for
    each of these backward passes.

    Without labels, what is there then, and no pass has made, may be a parameter.
    """
    lifetimes, stretches = evidence.lifetimes, evidence.stretches
    counts = [
        _counts_as_parameter(begin, stretches, evidence) if begin < end else 0
        for begin, end in zip(lifetimes.begin, lifetimes.end, strict=True)
    ]
    made = [index for index, count in enumerate(counts) if count]
    freed = sorted(made, key=lifetimes.end.__getitem__, reverse=True)
    made.reverse()
    missing: Counter[int] = Counter()
    for backward in passes:
        while made and lifetimes.begin[made[-1]] < backward.end:
            index = made.pop()
            missing[lifetimes.requested_bytes[index]] += counts[index]
        while freed and lifetimes.end[freed[-1]] < backward.end:
            index = freed.pop()
            missing[lifetimes.requested_bytes[index]] -= counts[index]
        yield missing.copy()


def _counts_as_parameter(begin: int, stretches: Stretches, evidence: Evidence) -> int:
    """1 for what may be a parameter, -1 for a gradient."""
    label = evidence.labels.get(begin) if begin >= 0 else None
    if label is not None:
        return (label.owner == model.PARAMETER) - (label.owner == model.GRADIENT)
    if evidence.has_labels:
        return 0
    return int(begin < 0 or stretches.all[stretches.of_event[begin]].phase not in _COMPUTES)


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

"""What a rank of a distributed run holds at its peak because of how the ranks share the work."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.stack_facts import FSDP_CASTS
from dryfit.recording.model import BACKWARD, GRADIENT, OWNERS, PARAMETER, Label, Mark
from dryfit.recording.replay import Lifetimes
from dryfit.recording.stacks import Frame, Stacks

_FSDP = re.compile(r"(?:^|/)torch/distributed/(?:fsdp|_composable)/")
_DISTRIBUTED = re.compile(r"(?:^|/)torch/distributed/")
# Where DDP's reducer is made, and where it makes its buckets anew in the order of the first backward pass (2.14.1).
_DDP = re.compile(r"(?:^|/)torch/nn/parallel/distributed\.py$")
_MAKES_BUCKETS = ("_ddp_init_helper", "_pre_forward")
_CASTS = re.compile(FSDP_CASTS)
_NOT_HERE = Label(0, PARAMETER, shape=(0,))
"""A shard that is on the host, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossRanks:
    """A rank at its peak. All sizes are bytes.

    `whole_gradient_bytes` are gradients of sharded parameters that are kept whole, `shards_of_them_bytes` what this
    rank's shards of the same gradients take. `bucket_bytes` are DDP's buckets, `beside_buckets_bytes` the gradients
    that are no views of them. `cast_bytes` are copies of activations in the types of FSDP's mixed precision.
    `backward_passes` are those of the peak's step. `is_sharded` says whether FSDP is at work, `views_buckets` whether
    any gradient is ever a view of a bucket.
    """

    is_sharded: bool
    cast_bytes: int
    whole_gradient_bytes: int
    shards_of_them_bytes: int
    bucket_bytes: int
    beside_buckets_bytes: int
    views_buckets: bool
    backward_passes: int


def across_ranks(analysis: Analysis) -> AcrossRanks:
    """What the recording of one rank shows of the ranks' shares.

    >>> from dryfit.analyse import analyse
    >>> from dryfit.recording.model import DeviceTrace, Events, Recording
    >>> from dryfit.recording.stacks import Stacks
    >>> empty = DeviceTrace(device=0, events=Events())
    >>> across_ranks(analyse(Recording(source="snapshot", devices=(empty,), stacks=Stacks()))).is_sharded
    False
    """
    lifetimes, labels = analysis.replay.lifetimes, analysis.trace.labels
    peak, stacks = analysis.footprint.peak, analysis.recording.stacks
    alive = {
        begin: index
        for index, (begin, end) in enumerate(zip(lifetimes.begin, lifetimes.end, strict=True))
        if begin <= peak.event < end
    }
    gradient = OWNERS.index(GRADIENT)
    buckets = {begin: index for begin, index in alive.items() if _is_bucket(lifetimes.stack[index], stacks)}
    beside = [index for begin, index in alive.items() if begin not in buckets]
    whole_bytes, shards_bytes = _whole_gradients(labels, alive, lifetimes)
    return AcrossRanks(
        is_sharded=any(_FSDP.search(frame.file) for frame in stacks.all_frames),
        cast_bytes=sum(
            lifetimes.requested_bytes[index] for index in alive.values() if _is_cast(lifetimes.stack[index], stacks)
        ),
        whole_gradient_bytes=whole_bytes,
        shards_of_them_bytes=shards_bytes,
        bucket_bytes=sum(lifetimes.requested_bytes[index] for index in buckets.values()),
        beside_buckets_bytes=sum(
            lifetimes.requested_bytes[index] for index in beside if analysis.attribution.owner[index] == gradient
        ),
        views_buckets=any(label.owner == GRADIENT and label.event in buckets for label in labels),
        backward_passes=_backward_passes(analysis.trace.marks, peak.step),
    )


def _is_bucket(stack: int, stacks: Stacks) -> bool:
    frame = _innermost(stack, stacks)
    return frame.name in _MAKES_BUCKETS and bool(_DDP.search(frame.file))


def _is_cast(stack: int, stacks: Stacks) -> bool:
    frame = _innermost(stack, stacks)
    return bool(_CASTS.match(frame.name)) and bool(_DISTRIBUTED.search(frame.file))


def _innermost(stack: int, stacks: Stacks) -> Frame:
    return stacks.all_frames[stacks.frame_of[stack]] if stack else Frame("", "", 0)


def _whole_gradients(labels: Iterable[Label], alive: Mapping[int, int], lifetimes: Lifetimes) -> tuple[int, int]:
    """The bytes of gradients that are larger than the parameter of their name, and of this rank's shards of them.

    Of several gradients in one allocation, as in FSDP1's flat ones, all of it counts. A parameter has its shard's shape
    while nothing gathers it, and a larger one in between. A shard's gradient has its parameter's type, whatever a pass
    computes in.
    """
    shards: dict[str, Label] = {}
    of_allocation: dict[int, dict[str, Label]] = defaultdict(dict)
    for label in labels:
        if label.owner == PARAMETER and label.shape is not None:
            shards[label.name] = min(shards.get(label.name, label), label, key=_elements)
        elif label.owner == GRADIENT and label.shape and label.event in alive:
            of_allocation[label.event][label.name] = label
    whole_bytes = shards_bytes = 0
    for event, gradients in of_allocation.items():
        if any(_elements(each) > _elements(shards.get(name, _NOT_HERE)) for name, each in gradients.items()):
            whole_bytes += lifetimes.requested_bytes[alive[event]]
            made = {shards[name].event for name in gradients if name in shards} & set(alive)
            shards_bytes += sum(lifetimes.requested_bytes[alive[each]] for each in made)
    return whole_bytes, shards_bytes


def _elements(label: Label) -> int:
    return math.prod(label.shape or ())


def _backward_passes(marks: Iterable[Mark], step: int) -> int:
    passes, before = 0, ""
    for mark in marks:
        passes += mark.step == step and mark.phase == BACKWARD != before
        before = mark.phase
    return passes

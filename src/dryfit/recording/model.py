"""What a recording holds. Built by a rehearsal or from a snapshot of a real card, read by everything else."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dryfit.recording.stacks import Stacks

# What the allocator did, by PyTorch's names for it in a snapshot.
(
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    OOM,
    SNAPSHOT,
    OTHER,
) = range(10)
KINDS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "other",
)

# Whose memory a block can be. `analyse` finds the last ones out; labels name the first.
PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, INPUT = "parameter", "gradient", "optimizer state", "buffer", "input"
COMMUNICATION, WORKSPACE = "communication buffer", "workspace"
ACTIVATION, TEMPORARY, AUTOCAST_COPY = "saved activation", "temporary", "autocast weight copy"
REMAINDER, UNKNOWN = "block remainder", "unknown"
OWNERS = (
    PARAMETER,
    GRADIENT,
    OPTIMIZER_STATE,
    AUTOCAST_COPY,
    BUFFER,
    INPUT,
    ACTIVATION,
    TEMPORARY,
    WORKSPACE,
    COMMUNICATION,
    REMAINDER,
    UNKNOWN,
)
"""In the order every report shows them. `REMAINDER` is what is left over in blocks that the allocator did not split."""
MADE_OF_A_BATCH = (INPUT, ACTIVATION, TEMPORARY)
"""What a batch of another size makes of another size; of temporaries, those of the phases that work on a batch."""

# Phases of a step. A rehearsal marks them; see `rehearse.inside.phases`.
SETUP, DATA, FORWARD, LOSS, EVALUATION, BACKWARD = "setup", "data", "forward", "loss", "evaluation", "backward"
AFTER_BACKWARD, CLIP, OPTIMIZER_STEP = "after backward", "clip", "optimizer step"
ZERO_GRAD, AFTER_STEP = "zero_grad", "after the step"
PHASES = (
    SETUP, DATA, FORWARD, LOSS, EVALUATION, BACKWARD, AFTER_BACKWARD, CLIP, OPTIMIZER_STEP, ZERO_GRAD, AFTER_STEP,
)  # fmt: skip


class Events:
    """The allocator's events in the order they came, as columns of equal length; an event is a place in all of them.

    `size` is what was asked for (of segments: all of it), in bytes; `stack` is a number of `Recording.stacks`;
    `time_us` counts from the first event, in microseconds; `pool` is a place in `DeviceTrace.pools`. Of an OOM,
    `address` is the memory the card still had free.
    """

    __slots__ = ("address", "kind", "pool", "size", "stack", "stream", "time_us")

    def __init__(self) -> None:
        self.kind = array("B")
        self.address = array("Q")
        self.size = array("Q")
        self.stream = array("Q")
        self.pool = array("H")
        self.stack = array("I")
        self.time_us = array("Q")

    def __len__(self) -> int:
        return len(self.kind)


class Mark(NamedTuple):
    """From event number `event` on, the program is in this step and phase. Step 0 is the setup."""

    event: int
    step: int
    phase: str
    autocast: bool = False


class Label(NamedTuple):
    """What is known of the allocation that event number `event` made: its owner, and its tensor as far as known.

    `name` is the program's own: "blocks.0.qkv.weight", for an optimizer's state "exp_avg of blocks.0.qkv.weight".
    `dtype` is torch's name for it, "float32". An allocation may have several labels; the owner that comes first in
    `OWNERS` counts.
    """

    event: int
    owner: str
    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None


class ModuleOutput(NamedTuple):
    """What the module of a path gave back when it was last called: class, dtype and shape of its output tensor."""

    path: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None


ALLOCATED, AWAITING_FREE, INACTIVE = "active_allocated", "active_awaiting_free", "inactive"
BLOCK_STATES = (ALLOCATED, AWAITING_FREE, INACTIVE)
"""PyTorch's names for what a block is: a tensor's, freed but in use by another stream, or free."""


class Block(NamedTuple):
    """A block of a segment; `state` is one of `BLOCK_STATES`."""

    address: int
    size: int
    requested_size: int
    state: str
    stack: int = 0


class Segment(NamedTuple):
    """Memory that PyTorch holds from the card: of an expandable segment, what is mapped."""

    address: int
    total_size: int
    stream: int
    is_small: bool
    is_expandable: bool
    pool: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrace:
    """One card's events and the state they ended in.

    `segments` is the state after the last event; None if it is not known. `starts_empty` says that the events began
    before anything was allocated; otherwise the blocks held before are what the replay finds.
    `pools` are PyTorch's ids of memory pools, (0, 0) the default one. `dropped_events` were lost before the first.
    """

    device: int
    events: Events
    segments: tuple[Segment, ...] | None = None
    marks: tuple[Mark, ...] = ()
    labels: tuple[Label, ...] = ()
    pools: tuple[tuple[int, int], ...] = ((0, 0),)
    starts_empty: bool = False
    dropped_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The durable record of one process: what its allocators did, when, for whom, from which line.

    `source` is "rehearsal" or "snapshot". `about` has plain values as far as they are known: "program" (words),
    "versions", "card" (as `Card.to_dict`), "allocator_settings" (PyTorch's), "ending" (`Ending.how`),
    "peak_used_bytes" (what the process took of the card, by PyTorch's allocator or past it), "is_cut" (whether the
    program went on after the last event), "lost_events" (whether there were more than were kept, of those between).
    `workspaces` are addresses and sizes, in bytes, that libraries such as cuBLAS were given to work in.
    """

    source: str
    devices: tuple[DeviceTrace, ...]
    stacks: Stacks
    modules: tuple[ModuleOutput, ...] = ()
    workspaces: tuple[tuple[int, int], ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

"""The answer of an analysis: who owned the bytes, when. Plain values; `docs/footprint.md` documents their JSON."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from dryfit.errors import UsageError
from dryfit.plain import from_plain, to_plain

SCHEMA_VERSION = 1

BEFORE_THE_RECORDING = "before the recording"
"""`TensorBytes.begin` of what was there when the recording began; any other is a step and phase, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerBytes:
    """What one owner (`recording.model.OWNERS`) holds. `blocks` is the number of allocations."""

    owner: str
    size_bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBytes:
    """What a module and those inside it hold; `own_bytes` without those inside. Heaviest children first.

    `path` is the program's name of the module ("" is the model itself), `kind` its class. `owners` sums `size_bytes`.
    """

    path: str
    kind: str
    size_bytes: int
    own_bytes: int
    owners: tuple[OwnerBytes, ...] = ()
    children: tuple[ModuleBytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBytes:
    """What one line of the user's own program holds; of a library's where no line of the program is known.

    What backward allocates for a line of the forward pass counts there too. `file` is "" for what has no line at all.
    """

    file: str
    line: int
    function: str
    size_bytes: int
    blocks: int
    owners: tuple[OwnerBytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBytes:
    """One allocation alive at the peak; `size_bytes` is its whole block. `index` is its place in `Replay.lifetimes`.

    `begin` and `end` say when it was made and freed: "step 2, forward"; `BEFORE_THE_RECORDING`; "" if never, or if no
    steps are known.
    """

    index: int
    owner: str
    size_bytes: int
    requested_bytes: int
    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    module: str = ""
    file: str = ""
    line: int = 0
    begin: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A moment of high allocated memory, after event number `event`; owners sum to `allocated_bytes` exactly.

    Event -1 is the state before the first. `requested_bytes` is what the allocated blocks were asked for.
    `logits_and_loss_bytes` are the model's output and what the loss computes from it, whoever owns them;
    `grows_with_batch_bytes` is what is made anew of each batch (inputs, activations, temporaries of forward, loss and
    backward), an upper limit of what a smaller batch can save; `fixed_bytes` is the rest.
    """

    event: int
    step: int
    phase: str
    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    reserved_bytes: int
    owners: tuple[OwnerBytes, ...]
    fixed_bytes: int
    grows_with_batch_bytes: int
    logits_and_loss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """The highest figures within one phase of one step, what was held when it began included."""

    phase: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    owners: tuple[OwnerBytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFootprint:
    """One step: its peak, its phases in the order they first came, and what is held when it is over."""

    step: int
    peak: Peak
    phases: tuple[PhasePeak, ...]
    end_allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """One owner in two states: the first step's peak against the steady one's, or one step's end against another's."""

    owner: str
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """What PyTorch holds from the card at the peak of reserved memory but no tensor uses, and why.

    `whole_segments_bytes` lies in segments without any tensor, which PyTorch gives back by itself before it fails;
    `split_bytes` are holes in segments that tensors share ("inactive_split", but those of expandable segments count
    too). `awaiting_bytes` are freed blocks that wait for another stream; they count as neither cached nor allocated.
    `largest_hole_bytes` is the largest free block, `largest_request_bytes` the largest request of the run, rounded to
    512 bytes. `sentence` says what follows; of a run that ran out of memory, of that moment.
    """

    event: int
    reserved_bytes: int
    allocated_bytes: int
    cached_bytes: int
    whole_segments_bytes: int
    split_bytes: int
    largest_hole_bytes: int
    largest_request_bytes: int
    sentence: str
    awaiting_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How many bytes each of the model's parameters takes: its own, its gradient's and its optimizer's states'.

    `parameters` counts elements. `parts` are those three owners, each at the first moment when it holds most, which is
    the optimizer's step as a rule and not the peak; they sum to `size_bytes`. `sentence` says it for one parameter.
    """

    parameters: int
    parts: tuple[OwnerBytes, ...]
    size_bytes: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request that PyTorch ended with an out-of-memory error, after it gave back what it could.

    `requested_bytes` is rounded as the allocator rounds it, `free_bytes` is what the card had free. Of `holes_bytes`,
    the free blocks that could have served it, the largest has `largest_hole_bytes`. `sentence` says whether memory was
    too little or in pieces.
    """

    event: int
    step: int
    phase: str
    requested_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    holes_bytes: int
    largest_hole_bytes: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One of the numbers people compare, and why it differs from the one above it."""

    name: str
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much more is held from step to step, between equal points: the ends of steps `first_step` to `last_step`.

    `owners` are those of the two ends, `lines` what each line holds more at the second; only those that grew.
    """

    first_step: int
    last_step: int
    bytes_per_step: int
    owners: tuple[OwnerChange, ...] = ()
    sentence: str = ""
    lines: tuple[LineBytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Who owns the memory of one card over a recording. All sizes are bytes.

    `modules`, `lines` and `tensors` belong to the whole run's peak; of lines and tensors there are the heaviest.
    `first_against_steady` compares the peaks of the first and of the last whole step.
    `out_of_memory` is of the last such error. `recipe` is None where parameters, or their shapes, are not known.
    """

    source: str
    device: int
    about: dict[str, Any] = field(default_factory=dict)
    peak: Peak
    peak_reserved_bytes: int
    modules: ModuleBytes
    lines: tuple[LineBytes, ...]
    tensors: tuple[TensorBytes, ...]
    steps: tuple[StepFootprint, ...]
    first_against_steady: tuple[OwnerChange, ...]
    growth: Growth | None
    cached: Cached
    numbers: tuple[Number, ...]
    out_of_memory: FailedRequest | None
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def _repr_html_(self) -> str:
        """The footprint in a notebook: the peak, and who owns it."""
        # The room `report` reads footprints, and a footprint that is shown is the one step back.
        shown: str = importlib.import_module("dryfit.report.notebook").html(self)
        return shown

    def to_dict(self) -> dict[str, Any]:
        """The footprint as JSON's types; `from_dict` reads it back."""
        return {"schema_version": self.schema_version, **to_plain(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Footprint:
        """Read a footprint that `to_dict` wrote; fields it does not know are skipped.

        Raises:
            UsageError: the values are not a footprint, or of a newer schema than this dryfit knows.
        """
        try:
            version = values["schema_version"]
            if version > SCHEMA_VERSION:
                raise UsageError(
                    f"The footprint has schema version {version}, and this dryfit knows up to {SCHEMA_VERSION}; read "
                    "it with the dryfit that wrote it, or a newer one."
                )
            return from_plain(cls, values)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"These values are not a footprint of dryfit: {error}.") from error

"""The answer of a rehearsal: a value that can be saved, read back and printed in any form."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dryfit.analyse import Analysis, Footprint
from dryfit.errors import DryfitError, UsageError
from dryfit.findings import Finding
from dryfit.measures.facts import Facts
from dryfit.recording import file
from dryfit.recording.model import Recording
from dryfit.rehearse import guessed, workspaces
from dryfit.rehearse.longest import LoaderBatches
from dryfit.rehearse.total import Part
from dryfit.rehearse.world import World
from dryfit.saved import read_saved, write_saved

SCHEMA_VERSION = 1

FITS, DOES_NOT_FIT, UNKNOWN = "fits", "does not fit", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPeak:
    """The highest figures within one step, in bytes; step 0 is the setup before the first forward pass."""

    step: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_phase: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Collective calls of one kind in one step: how many, their payload, and what one rank of a ring sends for them."""

    calls: int
    payload_bytes: int
    sent_bytes: int


def sent_bytes_of(communication: Mapping[str, Communication]) -> int:
    """What one rank sends in a step, by all kinds of calls together."""
    return sum(each.sent_bytes for each in communication.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeak:
    """The highest figures of one rank of a world, in bytes, whether it fits, and what a step of it sends to others."""

    rank: int
    verdict: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_total_bytes: int
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The last out-of-memory error: what was asked for when nothing was left.

    `allowed_bytes` is what the program may take: the card's total, or less if it limits itself.
    """

    step: int
    phase: str
    requested_bytes: int
    free_bytes: int
    allowed_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    caught: bool
    count: int
    message: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something the virtual card could not know.

    `kind` is "call" (a CUDA call without a faithful answer), "value" (a value read from the card that had to be
    invented) or "memory" (memory that is not in the figures). `decides_size` says whether it can change the bytes.
    `file`, `line` and `source` are the program's own line; `through` is a library's, where the value was read there.
    `to_change` is what to write for another answer at that line.
    """

    kind: str
    what: str
    answer: str
    decides_size: bool
    count: int
    file: str | None = None
    line: int | None = None
    source: str | None = None
    through: str | None = None
    to_change: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the program ended. `how` is one of

    "steady", "steps", "most steps": the rehearsal stopped it, having seen enough; "finished": it ended by itself;
    "out of memory": with that error, uncaught; "raised": with another exception, or a status other than 0;
    "crashed": by a signal; "time limit", "host memory", "interrupted": a limit or the user stopped it;
    "fell silent": one of its processes had seen enough, and the others did nothing more.
    """

    how: str
    sentence: str
    exit_status: int | None = None
    signal: int | None = None
    error_type: str | None = None
    error_message: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPeaks:
    """The peaks with segments placed in one order of addresses, in bytes.

    `ending` is "same": every request ended as in the rehearsal; "out of memory": one failed that was served there, and
    the peaks are those until then; "served": the request that failed there was served, and the peaks are those until
    the recording ends; "ran on": it was served, and a second rehearsal, whose peaks these are, did not run out.
    """

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    ending: str = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one rehearsal found. All sizes are bytes.

    `peak_allocated_bytes` is what tensors held, `peak_reserved_bytes` what PyTorch held from the card,
    `peak_total_bytes` what nvidia-smi would show: everything taken from the card, and the memory outside PyTorch's
    allocator (the CUDA context), which is a range: the sum of those of `total_parts`. `usable_bytes` is the card's
    total less the expected outside part.
    `phase_peaks` is what tensors held at most in each phase of any step. `measures` are those that were switched on,
    with whether each found something to do; `workspaces` is what is not known of cuDNN's, see docs/result.md. `facts`
    is what the program is like, where that was asked for. `findings` are what the program does that costs memory for
    nothing, such as what it keeps from step to step.
    `world` is the rank that was rehearsed, of how many, and `ranks` are the peaks of all ranks that were, if several:
    one after the other, or as real processes together. `world_notes` are those of the `notes` that say the program's
    own world is another: without a process group, made of other ranks, or with a mesh of another size.
    `communication` is what a steady step passes to other ranks through NCCL, by the kind of call.
    `peaks_by_address_order` is what the peaks are with segments placed in other orders; empty where that decides
    nothing, or is not known.
    `batches` are those of each loader under `--longest`.
    `footprint` says who owned the memory of the process that took most; `recording` is what that is read from, and
    `analysis` all that was found out from it. `facts` and these two are not saved with the result.
    """

    verdict: str
    card: dict[str, Any] | None
    program: list[str]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_total_bytes: int
    peak_total_range_bytes: dict[str, int]
    usable_bytes: int | None
    peak_step: int | None
    peak_phase: str | None
    steps: int
    step_peaks: list[StepPeak] = field(default_factory=list)
    out_of_memory: OutOfMemory | None = None
    fits_on: list[str] = field(default_factory=list)
    close_on: list[str] = field(default_factory=list)
    does_not_fit_on: list[str] = field(default_factory=list)
    unknowns: list[Unknown] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ending: Ending
    wall_seconds: float
    versions: dict[str, str | None] = field(default_factory=dict)
    allocator_settings: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    exit_code: int
    phase_peaks: dict[str, int] = field(default_factory=dict)
    measures: dict[str, bool] = field(default_factory=dict)
    workspaces: dict[str, int] = field(default_factory=dict)
    total_parts: list[Part] = field(default_factory=list)
    world: World | None = None
    world_notes: list[str] = field(default_factory=list)
    ranks: list[RankPeak] = field(default_factory=list)
    communication: dict[str, Communication] = field(default_factory=dict)
    peaks_by_address_order: dict[str, OrderPeaks] = field(default_factory=dict)
    batches: list[LoaderBatches] = field(default_factory=list)
    footprint: Footprint | None = None
    facts: Facts | None = field(default=None, repr=False, compare=False)
    recording: Recording | None = field(default=None, repr=False, compare=False)
    analysis: Analysis | None = field(default=None, repr=False, compare=False)
    schema_version: int = SCHEMA_VERSION

    @property
    def is_apart_from_unknowns(self) -> bool:
        """Whether sizes are not known that could change the verdict.

        What workspaces may take more is in the range of the total: it counts where that passes the card.
        """
        in_the_range = (*workspaces.IN_THE_RANGE, *guessed.IN_THE_RANGE)
        usable_at_most = self.card["total_bytes"] if self.card is not None else 0
        range_fits = self.peak_total_range_bytes["high"] <= usable_at_most
        return any(each.decides_size and not (range_fits and each.what in in_the_range) for each in self.unknowns)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values, in the documented order of docs/result.md; without recording and analysis."""
        values = asdict(
            dataclasses.replace(self, findings=[], footprint=None, recording=None, analysis=None, facts=None)
        )
        del values["recording"], values["analysis"], values["facts"]
        values["findings"] = [finding.to_dict() for finding in self.findings]
        values["footprint"] = self.footprint.to_dict() if self.footprint is not None else None
        return {"schema_version": self.schema_version, **values}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def save(self, path: str | Path) -> None:
        """Write the result as JSON.

        Raises:
            UsageError: the file cannot be written.
        """
        write_saved(self.to_json(), path, what="result")

    def _repr_html_(self) -> str:
        """The result in a notebook: the verdict, and who owns the peak."""
        shown: str = _report("notebook").html(self)
        return shown

    def save_report(self, path: str | Path) -> None:
        """Write one HTML page that shows who owned the memory, and when.

            result.save_report("run.html")

        Raises:
            UsageError: there is no recording (nothing was allocated, or this result was read from a file); the page
                cannot be written.
            DryfitError: the recording could not be analysed, which is our fault.
        """
        refusal = f"There is nothing to show in {path}"
        self._recording_for(refusal)
        if self.analysis is None:
            raise DryfitError(
                f"{refusal}: who owned the memory could not be found out. This is our fault; please report it with the "
                "lines in the result's notes."
            )
        _report("page").write_page(self.analysis, path, result=self)

    def save_recording(self, path: str | Path) -> None:
        """Write the recording, for `dryfit report`.

            result.save_recording("run.dryfit")

        Raises:
            UsageError: there is none (nothing was allocated, or this result was read from a file); the file cannot be
                written.
        """
        file.save(self._recording_for(f"There is no recording to save as {path}"), path)

    def _recording_for(self, refusal: str) -> Recording:
        if self.recording is not None:
            return self.recording
        if not self.peak_reserved_bytes:
            raise UsageError(f"{refusal}: PyTorch's allocator was not used.")
        raise UsageError(
            f"{refusal}: a result that was read from a file has no recording, and PyTorch's cudaMallocAsync backend "
            "makes none; run the program again with --record, and with PyTorch's own allocator."
        )

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a saved result.

        Raises:
            UsageError: the file is not a result, or of a newer schema than this dryfit knows.
        """
        return read_saved(cls, path, what="result of dryfit run", newest=SCHEMA_VERSION)


def _report(name: str) -> Any:
    """A module of the room `report`, by name: it reads results, and a result that is shown is the one step back."""
    return importlib.import_module(f"dryfit.report.{name}")

"""What `dryfit.explain` answers, as values: reports print them, and sentences are there beside the numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dryfit.analyse.footprint import FailedRequest, Footprint
from dryfit.findings import Finding, Place
from dryfit.oom.message import OomMessage
from dryfit.plain import to_plain

SCHEMA_VERSION = 1

TEXT, LOG, SNAPSHOT, RECORDING = "text", "log", "snapshot", "recording"
"""What was explained: text that was given, a file of it, PyTorch's record of a real card, or dryfit's own."""


NOT_ASKED = "It was not asked for."
"""`ExplainedCard.why_not_retraced` where a person wanted no other settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedMessage:
    """One out-of-memory message of a text, and what it says about the cause."""

    message: OomMessage
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What PyTorch's allocator makes of the recorded requests under some settings. Sizes are bytes.

    `settings` are as `PYTORCH_CUDA_ALLOC_CONF` has them, "" for PyTorch's defaults. The peaks are those with as much
    memory as it takes. `served` says whether `memory_bytes`, what PyTorch could have of the card, would have been
    enough for every request, those that failed when they were recorded included; None where `memory_bytes` is not
    known. `failed_bytes` is the size of the first that would have failed. `retries` counts how often the cache would
    have been given back to the card for want of memory.
    `saved_bytes` is how much less is reserved at the peak than under the recorded settings; negative if it is more.
    `is_exact` says that the state in which the recording began is the recorded one; otherwise its blocks are packed.
    `fits_on` are the names of the catalogue's cards that hold the recording, the smallest first; empty if not asked.
    """

    settings: str
    memory_bytes: int | None
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    saved_bytes: int
    served: bool | None
    failed_bytes: int | None
    retries: int
    is_exact: bool
    fits_on: tuple[str, ...] = ()
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOtherSettings:
    """A recording's requests, played through the allocator of torch `torch`, as recorded and under other settings.

    `is_faithful` says that under the recorded settings they came to the recorded peak of reserved memory, to the byte;
    where not, `doubt` says by how much they differ. `best` is the place in `others` of what helps most, or None.
    """

    torch: str
    as_recorded: Outcome
    others: tuple[Outcome, ...]
    best: int | None
    is_faithful: bool
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCard:
    """One card of a recording: who owned the peak, what was asked for, and what would have been.

    `failed` is the last request that failed, `failed_at` the line that made it. `capacity_bytes` is what PyTorch could
    have of that card, where failed requests tell, or of the card that was named.
    """

    device: int
    footprint: Footprint
    failed: FailedRequest | None
    failed_at: Place | None
    capacity_bytes: int | None
    settings: str
    would_have: OnOtherSettings | None
    finding: Finding | None
    why_not_retraced: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why memory ran out, or who holds it, and the next step.

        explanation = dryfit.explain("snapshot.pickle")
        for finding in explanation.findings:
            print(finding.code, finding.claim, finding.advice)

    `kind` is one of `TEXT`, `LOG`, `SNAPSHOT`, `RECORDING`. A text has `messages`, one for each failure it tells of; a
    snapshot or recording has `cards`: those where a request failed, else the one with the highest peak.
    """

    kind: str
    name: str
    findings: tuple[Finding, ...]
    messages: tuple[ExplainedMessage, ...] = ()
    cards: tuple[ExplainedCard, ...] = ()
    next_step: str = ""
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The explanation in JSON's types."""
        values: dict[str, Any] = to_plain(self)
        for card, plain in zip(self.cards, values["cards"], strict=True):
            plain["footprint"] = card.footprint.to_dict()
        return values

    def to_json(self, *, indent: int | None = 2) -> str:
        """The explanation as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

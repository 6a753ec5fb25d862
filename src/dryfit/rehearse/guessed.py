"""Memory of libraries whose size nobody tells without a card: what is counted, a range for the total, and words for it.

`c/guesses.c` counts it, from what each library is known to keep; docs/virtual-card.md says from where each size is.
"""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.rehearse.events import Event
from dryfit.rehearse.total import Part
from dryfit.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of library: its part of the total, its memory in words, and what the expected size is made of."""

    part: str
    what: str
    answer: str


KINDS = {
    "recurrent networks": Kind(
        part="workspaces of recurrent networks",
        what="reserve and workspace of cuDNN's recurrent networks",
        answer="what a cuDNN of 2017 took",
    ),
    "batch normalisation": Kind(
        part="workspaces of channels-last batch normalisation",
        what="workspace and reserve of cuDNN's channels-last batch normalisation",
        answer="no reserve, and a workspace for the sums of all blocks",
    ),
    "CTC loss": Kind(
        part="workspaces of CTC loss",
        what="workspace of cuDNN's CTC loss",
        answer="its sums, forwards and backwards",
    ),
    "dropout states": Kind(
        part="states of cuDNN's dropout",
        what="states of cuDNN's dropout in recurrent networks",
        answer="one for each thread that the card runs at a time",
    ),
    "Fourier transforms": Kind(
        part="work areas of Fourier transforms",
        what="work areas of cuFFT's plans",
        answer="room for all complex values",
    ),
}
_WORTH_A_NOTE_BYTES = 1 << 20
# Of `Result.unknowns`: what the range of the total has in it.
IN_THE_RANGE = tuple(kind.what for kind in KINDS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessed:
    """One kind of memory in a process, as `virtual_card.calls.Guessed` says it: bytes are of the peak of tensors."""

    kind: Kind
    calls: int
    less_bytes: int
    more_bytes: int


def of(end: Event | None) -> list[Guessed]:
    """Read them from a process's last event.

    >>> found = of({"guessed": [{"kind": "CTC loss", "calls": 2, "less_bytes": 4096, "more_bytes": 512}]})
    >>> found[0].kind.part, found[0].less_bytes
    ('workspaces of CTC loss', 4096)
    """
    return [
        Guessed(
            kind=KINDS[each["kind"]],
            calls=each["calls"],
            less_bytes=each["less_bytes"],
            more_bytes=each["more_bytes"],
        )
        for each in (end or {}).get("guessed", [])
    ]


def parts(end: Event | None) -> list[Part]:
    """What these sizes may change of what nvidia-smi would show; PyTorch does without none of it, so it has to fit."""
    return [
        Part(what=each.kind.part, low_bytes=-each.less_bytes, expected_bytes=0, high_bytes=each.more_bytes)
        for each in of(end)
        if each.less_bytes or each.more_bytes
    ]


def notes(end: Event | None) -> list[str]:
    """Say what was assumed of each kind, and how much it can change, where that is a MiB or more."""
    return [
        f"NVIDIA's libraries tell the size of the {each.kind.what} on a card only. Counted: {each.kind.answer}. The "
        f"peak of tensors may be up to {format_bytes(each.less_bytes)} lower or {format_bytes(each.more_bytes)} higher."
        for each in of(end)
        if max(each.less_bytes, each.more_bytes) >= _WORTH_A_NOTE_BYTES
    ]

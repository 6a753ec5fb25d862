"""What one process could not know, from its last event: calls, values and memory without a faithful answer."""

from __future__ import annotations

import dataclasses

from dryfit.rehearse import guessed, workspaces
from dryfit.rehearse.events import Event
from dryfit.rehearse.result import Unknown
from dryfit.rehearse.workspaces import Workspaces
from dryfit.virtual_card.calls import RECEIVED_ALONE

# CUDA calls that ask a library how much memory it wants, or that make it take some, with what that memory is for. They
# are answered with 0 or a lower bound, so the figures can be too low by it. docs/virtual-card.md says more.
_MEMORY_CALLS = {
    workspaces.NOT_ANSWERED: workspaces.NONE_HERE,
    "cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE) of attention": (
        "what cuDNN's attention works in beside the room for gradients and sums that PyTorch asks for itself"
    ),
    "cufft": "workspaces of cuFFT's plans",
    "cusolver": "workspaces of cuSOLVER",
    "cusparse": "buffers of cuSPARSE",
    "cudaMallocAsync": "growth of the driver's memory pool",
    "cudaMallocManaged": "what managed memory takes of the card at a time",
    "cudaGraphInstantiate": "memory of executable CUDA graphs",
}


NO_ADDRESSES = "address space used up"
_NOT_STORED = "copies not stored"


def of(end: Event | None) -> list[Unknown]:
    """List what was unknown, what can change the bytes first."""
    if end is None:
        return []
    found = [_call(name, count) for name, count in end.get("unfaithful_calls", {}).items()]
    found += _plans(workspaces.of(end))
    found += [
        Unknown(kind="memory", what=each.kind.what, answer=each.kind.answer, decides_size=True, count=each.calls)
        for each in guessed.of(end)
    ]
    found += [_not_computed(name, count) for name, count in end.get("not_computed", {}).items()]
    found += [_value(invention) for invention in end.get("inventions", [])]
    return sorted(_merged(found), key=lambda unknown: (not unknown.decides_size, -unknown.count))


def _merged(found: list[Unknown]) -> list[Unknown]:
    """One for all that differ in their count alone, as the many calls by which one library asks for workspaces."""
    counts: dict[Unknown, int] = {}
    for unknown in found:
        alike = dataclasses.replace(unknown, count=0)
        counts[alike] = counts.get(alike, 0) + unknown.count
    return [dataclasses.replace(unknown, count=count) for unknown, count in counts.items()]


def _call(name: str, count: int) -> Unknown:
    if name == NO_ADDRESSES:
        what = "whether more would have fitted: this process had no addresses left (a limit on virtual memory?)"
        return Unknown(kind="memory", what=what, answer="out of memory", decides_size=True, count=count)
    if name == _NOT_STORED:
        what = "contents of copies to the card, once they filled 2 GiB of this machine's memory"
        return Unknown(kind="value", what=what, answer="zeros", decides_size=False, count=count)
    if name == RECEIVED_ALONE:
        what = "what another rank sends to this one, which plays alone (recv, irecv, all_to_all of uneven splits)"
        return Unknown(kind="call", what=what, answer="stand-ins", decides_size=False, count=count)
    memory = next((what for prefix, what in _MEMORY_CALLS.items() if name.startswith(prefix)), None)
    if memory is not None:
        return Unknown(kind="memory", what=memory, answer="0 bytes or a lower bound", decides_size=True, count=count)
    return Unknown(kind="call", what=name, answer="success, with outputs of zero", decides_size=False, count=count)


def _plans(found: Workspaces) -> list[Unknown]:
    """Convolutions whose plan was not cuDNN's answer."""
    rows = [
        (workspaces.ON_A_CARD_ONLY, "128 MiB", found.on_a_card_only),
        (workspaces.NEXT_TAKEN, "the next plan of each", found.next_taken),
        (workspaces.TIMED, "cuDNN's first", found.timed),
        (
            "first plans of convolutions, which cuDNN does not offer without a card",
            "the first it offers",
            found.first_unknown,
        ),
    ]
    return [
        Unknown(kind="memory", what=what, answer=answer, decides_size=True, count=count)
        for what, answer, count in rows
        if count
    ]


def _not_computed(name: str, count: int) -> Unknown:
    """A small operator that the CPU refused; what read its result is listed on its own."""
    what = f"{name}, which this machine's CPU could not compute"
    return Unknown(kind="value", what=what, answer="unknown from there on", decides_size=False, count=count)


def _value(invention: Event) -> Unknown:
    return Unknown(
        kind="value",
        what=invention["what"],
        answer=str(invention["answer"]),
        decides_size=invention["decides_size"],
        count=invention["count"],
        file=invention["file"],
        line=invention["line"],
        source=invention["source"],
        through=invention["through"],
        to_change=invention["to_change"] or None,
    )

"""What is not known of cuDNN's workspaces, from a process's last event: a range for the total, and words for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields

from dryfit.rehearse.events import Event
from dryfit.rehearse.total import WORKSPACES, Part
from dryfit.units import format_bytes

# Of `unfaithful_calls`: plans that nobody answered for.
NOT_ANSWERED = "cudnnBackendGetAttribute(EXECUTION_PLAN_WORKSPACE_SIZE) of a convolution"
# Of `Result.unknowns`: what the range of the total has in it.
ON_A_CARD_ONLY = "workspaces of convolutions that cuDNN plans through cuBLASLt"
NEXT_TAKEN = "workspaces of convolutions for which cuDNN prefers a plan through cuBLASLt"
TIMED = "which plan of a convolution is fastest on a card"
NONE_HERE = "workspaces of cuDNN's convolutions"
IN_THE_RANGE = (ON_A_CARD_ONLY, NEXT_TAKEN, TIMED, NONE_HERE)

# Where a workspace is smaller, other blocks are cut, and what is reserved may be more: with none in place of 128 MiB it
# was between 76 MiB less and 378 MiB more in nine convolutional networks (docs/virtual-card.md).
_RESERVED_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """As `virtual_card.calls.Workspaces` says them: plans that have run, and what is not known of them.

    `less_bytes` and `more_bytes` are of the peak of tensors; `total_more_bytes` is of what nvidia-smi would show.
    """

    plans: int = 0
    less_bytes: int = 0
    more_bytes: int = 0
    on_a_card_only: int = 0
    next_taken: int = 0
    timed: int = 0
    first_unknown: int = 0
    not_answered: int = 0
    total_more_bytes: int = 0


def of(end: Event | None) -> Workspaces:
    """Read them from a process's last event."""
    found = end.get("workspaces", {}) if end is not None else {}
    workspaces = Workspaces(**{field.name: found.get(field.name, 0) for field in fields(Workspaces)})
    total_more_bytes = workspaces.more_bytes + _RESERVED_PARTS * workspaces.less_bytes
    return dataclasses.replace(workspaces, total_more_bytes=total_more_bytes)


def parts(workspaces: Workspaces, unused_bytes: int) -> list[Part]:
    """What workspaces may change of what nvidia-smi would show.

    Torch takes a workspace for the length of a call, so the peak of tensors moves by the largest difference at most.
    What is reserved has no such bound; it is known from rehearsals with other workspaces, and that no less is reserved
    than tensors take: of what is, `unused_bytes` were not in use. Where a workspace does not fit, torch takes the next
    plan.
    """
    if not workspaces.less_bytes and not workspaces.total_more_bytes:
        return []
    total_less_bytes = workspaces.less_bytes + min(unused_bytes, _RESERVED_PARTS * workspaces.more_bytes)
    return [
        Part(
            what=WORKSPACES,
            low_bytes=-total_less_bytes,
            expected_bytes=0,
            high_bytes=workspaces.total_more_bytes,
            gives_way=True,
        )
    ]


def notes(end: Event | None, doubt: str) -> list[str]:
    """Say what was assumed, and how much it can change; `doubt` is what there is to say of cuDNN's answers."""
    workspaces = of(end)
    found = []
    if NOT_ANSWERED in (end or {}).get("unfaithful_calls", {}):
        found.append(
            doubt or "The process that asks cuDNN for its plans ended; what it had not answered counts as 0 bytes."
        )
    elif workspaces.plans and doubt:
        found.append(doubt)
    if workspaces.not_answered:
        found.append(
            f"{_convolutions(workspaces.not_answered)} no workspace here. One has been seen to take as much as input, "
            f"weights and output together: up to {format_bytes(workspaces.more_bytes)} more at the peak of tensors."
        )
    if workspaces.on_a_card_only:
        found.append(
            f"{_convolutions(workspaces.on_a_card_only)} a plan through cuBLASLt, which cuDNN offers on a card only. "
            "Such a plan was given 128 MiB, as most of them have been seen to take; with less, the peak of tensors is "
            f"up to {format_bytes(workspaces.less_bytes)} lower, and what is reserved may be less or more."
        )
    if workspaces.next_taken:
        found.append(
            f"{_convolutions(workspaces.next_taken)} a plan through cuBLASLt first, which cuDNN offers on a card only. "
            "The next plan was taken, as has been seen on a card of this kind; with 128 MiB for each, the peak of "
            f"tensors is up to {format_bytes(workspaces.more_bytes)} higher, and what is reserved may be less or more."
        )
    if workspaces.timed:
        found.append(
            f"{_convolutions(workspaces.timed)} the plan that is fastest on a card (torch.backends.cudnn.benchmark), "
            "here cuDNN's first. With others the peak of tensors is up to "
            f"{format_bytes(workspaces.less_bytes)} lower or {format_bytes(workspaces.more_bytes)} higher."
        )
    return found


def _convolutions(count: int) -> str:
    return "One convolution takes" if count == 1 else f"{count} convolutions take"

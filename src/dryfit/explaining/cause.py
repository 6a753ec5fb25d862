"""Why a recorded request failed, or would fail on another card: one cause, and one next step."""

from __future__ import annotations

from dryfit.analyse.footprint import FailedRequest, Footprint, OwnerBytes
from dryfit.cards import Card
from dryfit.explaining.explanation import OnOtherSettings, Outcome
from dryfit.findings import Evidence, Finding, Place
from dryfit.places import as_seen_from_here
from dryfit.recording.model import OPTIMIZER_STEP
from dryfit.rehearse.allocator_settings import VARIABLE, AllocatorSettings
from dryfit.rehearse.requests import segment_bytes
from dryfit.units import format_bytes

_LARGEST_FIRST = (
    "Have the largest tensors allocated first, as by running the largest batch first: later ones then fit into their "
    "memory."
)


def cause_of_failure(
    failed: FailedRequest,
    footprint: Footprint,
    place: Place | None,
    settings: AllocatorSettings,
    would_have: OnOtherSettings | None,
    card: Card | None,
) -> Finding:
    """The cause of a request that failed when it was recorded.

    `card` is the one it was recorded on, where a person has named it. Fragmentation is named only where the block map
    shows it, free blocks that together would have done and none that would, or where PyTorch's own allocator served
    the request under other settings from the recorded beginning.
    """
    numbers = {
        "requested_bytes": failed.requested_bytes,
        "free_bytes": failed.free_bytes,
        "allocated_bytes": failed.allocated_bytes,
        "reserved_bytes": failed.reserved_bytes,
        "holes_bytes": failed.holes_bytes,
        "largest_hole_bytes": failed.largest_hole_bytes,
    }
    short_bytes = failed.requested_bytes - failed.holes_bytes - failed.free_bytes
    remedy = _remedy(would_have)
    asked = _asked(failed, place)
    held = f"PyTorch holds {format_bytes(failed.reserved_bytes)}, and {format_bytes(failed.free_bytes)} are free"
    if failed.free_bytes >= segment_bytes(failed.requested_bytes):
        code = "DF504"
        claim = f"{asked}. {held} on the card, enough for it: a limit that the program set refused it."
        advice = (
            "Raise the fraction that torch.cuda.set_per_process_memory_fraction was called with; without such a call, "
            "another process took the memory just then: look at nvidia-smi."
        )
    elif failed.largest_hole_bytes < failed.requested_bytes and short_bytes <= 0:
        code = "DF502"
        claim = (
            f"{asked} in one piece. {format_bytes(failed.holes_bytes)} lie free in PyTorch's segments, in pieces of at "
            f"most {format_bytes(failed.largest_hole_bytes)}, and {format_bytes(failed.free_bytes)} on the card: "
            "together enough."
        )
        advice = _use(remedy) if remedy else _for_fragments(settings, would_have)
    elif remedy is not None and remedy.is_exact:
        code = "DF502"
        claim = (
            f"{asked}. {held}. Under other settings PyTorch's own allocator serves the same requests from the same "
            f"memory: what was free lay where it could not be used."
        )
        advice = _use(remedy)
    elif (elsewhere := _held_by_others(failed, card)) >= short_bytes > 0:
        code = "DF503"
        numbers["held_by_others_bytes"] = elsewhere
        claim = (
            f"{asked}. {held} of {format_bytes(card.total_bytes if card else 0)}: {format_bytes(elsewhere)} more than "
            "CUDA itself takes are with somebody else, another process or libraries of this one, and would have done."
        )
        advice = "Look at nvidia-smi while it runs, and end what else has memory on this card."
    else:
        code = "DF501"
        numbers["short_bytes"] = max(short_bytes, 0)
        short = f": even in one piece {format_bytes(short_bytes)} too little" if short_bytes > 0 else ""
        claim = f"{asked}. {held} on the card{short}. {_owners(footprint)}"
        advice = _use(remedy) if remedy else _smaller(footprint, short_bytes, failed)
    return _finding(code, claim, advice, place, failed.requested_bytes, numbers)


def cause_on_card(footprint: Footprint, card: Card, would_have: OnOtherSettings) -> Finding | None:
    """Why a recording that was served would fail on another card; None if it would not."""
    base = would_have.as_recorded
    if base.served is not False or base.memory_bytes is None:
        return None
    remedy = _remedy(would_have)
    asked = f", at a request of {format_bytes(base.failed_bytes)}" if base.failed_bytes else ""
    claim = (
        f"On the {card.name}, which has {format_bytes(base.memory_bytes)} for PyTorch, this recording runs out of "
        f"memory{asked}: {format_bytes(base.peak_allocated_bytes)} are allocated at the peak, and "
        f"{format_bytes(base.peak_reserved_bytes)} reserved."
    )
    numbers = {
        "allocated_bytes": base.peak_allocated_bytes,
        "reserved_bytes": base.peak_reserved_bytes,
        "memory_bytes": base.memory_bytes,
    }
    code = "DF502" if remedy is not None and remedy.is_exact else "DF501"
    short_bytes = base.peak_allocated_bytes - base.memory_bytes
    advice = _use(remedy) if remedy else _smaller(footprint, short_bytes)
    return _finding(code, f"{claim} {_owners(footprint)}", advice, None, base.failed_bytes, numbers)


def next_step_without_failure(would_have: OnOtherSettings | None, footprint: Footprint, *, has_events: bool) -> str:
    """What a person could do about a recording in which nothing failed, as far as it has events to tell."""
    failed = "Nothing failed." if has_events else "It has no events to tell whether a request failed."
    if would_have is not None and would_have.best is not None:
        best = would_have.others[would_have.best]
        return f"{failed} {_use(best)}"
    if footprint.peak.grows_with_batch_bytes > footprint.peak.fixed_bytes:
        return (
            f"{failed} {format_bytes(footprint.peak.grows_with_batch_bytes)} of the peak grow with the batch: "
            "`dryfit fit` finds the largest that a card holds."
        )
    return (
        f"{failed} {format_bytes(footprint.peak.fixed_bytes)} of the peak are there whatever the batch: "
        "`dryfit plan` says what can lower them."
    )


def _remedy(would_have: OnOtherSettings | None) -> Outcome | None:
    if would_have is None or would_have.best is None:
        return None
    best = would_have.others[would_have.best]
    return best if best.served else None


def _use(remedy: Outcome) -> str:
    if not remedy.settings:
        return f"Take what is set now out of {VARIABLE}. {remedy.sentence}"
    return f"Set {VARIABLE}={remedy.settings}. {remedy.sentence}"


def _for_fragments(settings: AllocatorSettings, would_have: OnOtherSettings | None) -> str:
    """Expandable segments are not advised where they are on, or were tried and did not help."""
    tried = would_have is not None and any("expandable_segments:True" in each.settings for each in would_have.others)
    if settings.expandable_segments or tried:
        return _LARGEST_FIRST
    return f"Set {VARIABLE}=expandable_segments:True, which lets such pieces move."


def _smaller(footprint: Footprint, short_bytes: int, failed: FailedRequest | None = None) -> str:
    grows, fixed = footprint.peak.grows_with_batch_bytes, footprint.peak.fixed_bytes
    if grows >= max(short_bytes, fixed):
        return (
            f"Make the batch smaller: {format_bytes(grows)} of what is allocated at the peak grow with it. "
            "`dryfit fit` finds the largest that fits, and `dryfit plan` what else would make room."
        )
    if failed is not None and _is_first_of_optimizer(failed, footprint):
        return (
            "This is the optimizer's first step, in which it makes its state, and all later ones need that too: a "
            f"smaller batch saves at most {format_bytes(grows)}. `dryfit plan` says which changes make room, such as "
            "an optimizer with less state."
        )
    return (
        f"A smaller batch saves at most {format_bytes(grows)}; {format_bytes(fixed)} are there whatever the batch. "
        "`dryfit plan` says which changes make room."
    )


def _is_first_of_optimizer(failed: FailedRequest, footprint: Footprint) -> bool:
    if failed.phase != OPTIMIZER_STEP:
        return False
    return all(
        step.step >= failed.step or all(phase.phase != OPTIMIZER_STEP for phase in step.phases)
        for step in footprint.steps
    )


def _held_by_others(failed: FailedRequest, card: Card | None) -> int:
    """What of the card neither PyTorch here has, nor CUDA itself, nor nobody."""
    if card is None:
        return 0
    usual = card.outside_bytes + card.outside_margin_bytes
    return max(card.total_bytes - failed.reserved_bytes - failed.free_bytes - usual, 0)


def _asked(failed: FailedRequest, place: Place | None) -> str:
    where = f" at {as_seen_from_here(place.file)}:{place.line}" if place else ""
    when = f" in step {failed.step}, {failed.phase}," if failed.phase and failed.step else ""
    return f"The request that failed{when} needs {format_bytes(failed.requested_bytes)}{where}"


def _owners(footprint: Footprint) -> str:
    largest = sorted(footprint.peak.owners, key=lambda owner: -owner.size_bytes)[:2]
    if not largest:
        return "Nothing is allocated at the peak."
    held = " and ".join(f"{format_bytes(owner.size_bytes)} {_named(owner)}" for owner in largest)
    return f"At the peak of {format_bytes(footprint.peak.allocated_bytes)}, tensors hold {held}."


def _named(owner: OwnerBytes) -> str:
    return f"of {owner.owner}s" if owner.owner in ("parameter", "gradient", "input") else f"as {owner.owner}"


def _finding(
    code: str, claim: str, advice: str, place: Place | None, size_bytes: int | None, numbers: dict[str, int]
) -> Finding:
    return Finding(
        code=code,
        claim=claim,
        advice=advice,
        place=place,
        evidence=Evidence(size_bytes=size_bytes, numbers=numbers),
    )

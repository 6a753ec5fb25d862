"""The numbers people compare, from what tensors asked for to what nvidia-smi shows, and why each differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dryfit.analyse.block_map import BlockMap
from dryfit.analyse.footprint import Number, Peak
from dryfit.cards import outside_bytes_of_any
from dryfit.recording.model import REMAINDER
from dryfit.recording.rounding import SMALLEST_BLOCK_BYTES
from dryfit.units import format_bytes


def reconciled(
    peak: Peak, blocks: BlockMap, peak_reserved_bytes: int, peak_reserved_words: str, about: Mapping[str, Any]
) -> tuple[Number, ...]:
    """The table: the moment of the allocated peak first, then the run's highest reserved memory, then the card's.

    Each number's reason says what it has more than the one above it.
    """
    numbers = [
        Number(name="requested by tensors", size_bytes=peak.requested_bytes, why=_requested(peak)),
        Number(name="allocated", size_bytes=peak.allocated_bytes, why=_allocated(peak)),
        Number(name="active", size_bytes=peak.active_bytes, why=_active(peak)),
        Number(name="reserved", size_bytes=peak.reserved_bytes, why=_reserved(peak, blocks)),
    ]
    if peak_reserved_bytes != peak.reserved_bytes:
        when = f", in {peak_reserved_words}" if peak_reserved_words else ""
        numbers.append(
            Number(
                name="reserved at its own peak",
                size_bytes=peak_reserved_bytes,
                why=f"{format_bytes(peak_reserved_bytes - peak.reserved_bytes)} more at another moment{when}: PyTorch "
                "keeps what it took from the card, and takes more where nothing free is large enough.",
            )
        )
    return (*numbers, _on_the_card(peak_reserved_bytes, about))


def _requested(peak: Peak) -> str:
    blocks = sum(each.blocks for each in peak.owners if each.owner != REMAINDER)
    return f"What {blocks:,} allocations asked for."


def _allocated(peak: Peak) -> str:
    left_bytes = sum(each.size_bytes for each in peak.owners if each.owner == REMAINDER)
    rounded_bytes = peak.allocated_bytes - left_bytes - peak.requested_bytes
    parts = (
        (rounded_bytes, f"because sizes are rounded up to {SMALLEST_BLOCK_BYTES} bytes"),
        (left_bytes, "left over in blocks that the allocator did not split"),
    )
    why = ", and ".join(f"{format_bytes(size)} {words}" for size, words in parts if size)
    return f"{why or f'The same: every size is a multiple of {SMALLEST_BLOCK_BYTES} bytes'}."


def _active(peak: Peak) -> str:
    more_bytes = peak.active_bytes - peak.allocated_bytes
    if not more_bytes:
        return "The same: no freed block waits for another stream."
    return f"{format_bytes(more_bytes)} of blocks that are freed, but wait until another stream is done with them."


def _reserved(peak: Peak, blocks: BlockMap) -> str:
    more_bytes = peak.reserved_bytes - peak.active_bytes
    if not more_bytes and not blocks.is_whole_truth:
        return "At least the same; the record does not say what PyTorch caches."
    if not more_bytes:
        return "The same: nothing is cached."
    if not blocks.is_whole_truth:
        return f"{format_bytes(more_bytes)} that PyTorch caches; the record does not say where all of it lies."
    where = (
        (blocks.whole_segments_bytes(), "in segments without any tensor"),
        (blocks.split_bytes(), 'in holes between tensors ("inactive split")'),
    )
    parts = [f"{format_bytes(size)} {words}" for size, words in where if size]
    return f"{' and '.join(parts)}, which PyTorch caches."


def _on_the_card(peak_reserved_bytes: int, about: Mapping[str, Any]) -> Number:
    """What nvidia-smi shows at most: what is taken from the card, by the allocator or past it, and the CUDA context."""
    card = about.get("card") or {}
    decides = "This number decides whether it fits."
    taken_bytes = max(peak_reserved_bytes, about.get("peak_used_bytes") or 0)
    past_bytes = taken_bytes - peak_reserved_bytes
    past = f"{format_bytes(past_bytes)} taken past PyTorch's allocator (NCCL, extensions). " if past_bytes else ""
    if card.get("outside_bytes") is not None and card.get("key") != "unlimited":
        outside_bytes, margin_bytes = card["outside_bytes"], card.get("outside_margin_bytes", 0)
        give_or_take = f", give or take {format_bytes(margin_bytes)}" if margin_bytes else ""
        why = (
            f"{past}About {format_bytes(outside_bytes)}{give_or_take}, outside PyTorch's allocator: the CUDA context, "
            f"its kernels and libraries on {card.get('name', 'the card')}; NCCL's buffers come on top. {decides}"
        )
        return Number(name="nvidia-smi", size_bytes=taken_bytes + outside_bytes, why=why)
    least, middle, most = outside_bytes_of_any()
    why = (
        f"{past}About {format_bytes(middle)} outside PyTorch's allocator: the CUDA context, its kernels and libraries. "
        f"The card is not known; {format_bytes(least)} to {format_bytes(most)} are expected on those of dryfit's "
        f"catalogue. {decides}"
    )
    return Number(name="nvidia-smi", size_bytes=taken_bytes + middle, why=why)

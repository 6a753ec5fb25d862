"""A card with another amount of memory, and the amounts no card can have."""

from __future__ import annotations

from dataclasses import replace

from dryfit.cards.card import Card
from dryfit.errors import UsageError
from dryfit.units import MIB, TIB, format_bytes

# No GPU that PyTorch's CUDA builds run on has less than the one, and none comes near the other.
SMALLEST_TOTAL_BYTES = 256 * MIB
LARGEST_TOTAL_BYTES = 64 * TIB


def with_total(card: Card, total_bytes: int) -> Card:
    """Give the same card with another total, as PyTorch would see it.

    >>> from dryfit.cards import find_card
    >>> with_total(find_card("t4"), 4 << 30).total_bytes
    4294967296

    nvidia-smi's total is dropped, since it was that of the real card.

    Raises:
        UsageError: no card can have that total, or nothing of it would be left to PyTorch.
    """
    check_total(total_bytes, outside_bytes=card.outside_bytes, name=card.name)
    return replace(
        card,
        total_bytes=total_bytes,
        smi_total_bytes=None,
        totals_seen_mib=None,
        unverified=tuple(figure for figure in card.unverified if figure != "total_bytes"),
        sources={**card.sources, "total_bytes": ("given by hand",)},
    )


def check_total(total_bytes: int, *, outside_bytes: int, name: str) -> None:
    """Refuse a total that no card can have."""
    total = format_bytes(total_bytes)
    if total_bytes < SMALLEST_TOTAL_BYTES:
        raise UsageError(
            f"{total} is not the memory of a card: the least dryfit accepts is {format_bytes(SMALLEST_TOTAL_BYTES)}. "
            "Write the unit with the number, such as 24GiB."
        )
    if total_bytes > LARGEST_TOTAL_BYTES:
        raise UsageError(
            f"{total} is not the memory of a card: the most dryfit accepts is {format_bytes(LARGEST_TOTAL_BYTES)}. "
            "Write the unit with the number, such as 24GiB."
        )
    if total_bytes <= outside_bytes:
        raise UsageError(
            f"{total} is too little memory for {name}: CUDA itself takes about {format_bytes(outside_bytes)} of it, "
            "so nothing would be left to PyTorch. Give more memory."
        )

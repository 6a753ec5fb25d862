"""Gives the running interpreter a virtual card, for notebooks and tests."""

from __future__ import annotations

from dryfit.cards import Card, find_card
from dryfit.virtual_card import put_in_front
from dryfit.virtual_card.settings import settings_of


def virtual(gpu: str = "a100-80gb", *, memory_bytes: int | None = None, address_order: str = "linux") -> Card:
    """Put a virtual card into this process; it is there for good, and for the processes this one starts.

        import dryfit
        dryfit.virtual("rtx-4090")
        import torch
        torch.cuda.get_device_name()        # 'NVIDIA GeForce RTX 4090'

    Nothing else changes: no step is counted, nothing is kept from writing, and no operator's values are computed
    unless `dryfit.run` is used. `memory_bytes` overrides the card's total.

    Raises:
        UsageError: torch has been imported already (it holds on to the real libraries from then on), it is a build
            without CUDA, or the card is unknown.
    """
    card = find_card(gpu, memory_bytes=memory_bytes)
    put_in_front(settings_of(card, address_order=address_order))
    return card

"""A card as cuDNN's mode without a card wants it described: the JSON of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dryfit.cards import Card, all_cards
from dryfit.cards.catalogue import chip_limits_of

if TYPE_CHECKING:
    from dryfit.virtual_card.settings import CardSettings

# Of every card since Pascal: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_OF_ALL_CARDS = {
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 48 << 10,
    "maxThreadsPerBlock": 1024,
    "supportCoopLaunch": 1,
}
# What decides no plan, as far as it was tried (docs/virtual-card.md): which driver, and which of several cards.
_OF_THE_MACHINE = {"smCountOrigin": 0, "pciDeviceId": 0, "isTccDriver": 0, "cudaDeviceId": 0, "driverVer": 13000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A card in cuDNN's JSON, and what there is to say of figures that another card lends; "" where none does."""

    text: str
    doubt: str


def description_of(settings: CardSettings) -> Description:
    """Describe a card to cuDNN.

    >>> from dryfit.cards import find_card
    >>> from dryfit.virtual_card.settings import settings_of
    >>> described = description_of(settings_of(find_card("a100-80gb")))
    >>> json.loads(described.text)["smClockRateKHz"], described.doubt
    (1410000, '')
    >>> description_of(settings_of(find_card("l4"))).doubt
    'cuDNN was told the clocks of NVIDIA GeForce RTX 4090: those of NVIDIA L4 are not known, and seldom decide a plan.'

    Clocks are the catalogue's, in kHz; a card without them gets those of the most alike card that has them, which goes
    without saying if it has the same chip. Limits follow from the compute capability, or the one before it that the
    catalogue knows.
    """
    lender = _with_clocks(settings)
    limits = chip_limits_of(settings.sm)
    values = {
        **_OF_ALL_CARDS,
        **_OF_THE_MACHINE,
        "deviceName": settings.name,
        "deviceVer": settings.sm * 10,
        "multiProcessorCount": settings.sms,
        "maxThreadsPerSM": settings.threads_per_sm or limits.threads_per_sm,
        "maxCtasPerSM": limits.blocks_per_sm,
        "maxSharedMemoryPerBlockOptin": limits.shared_bytes_per_block,
        "reservedSharedMemoryPerBlock": limits.reserved_shared_bytes_per_block,
        "totalGlobalMem": settings.memory_bytes,
        "l2CacheSize": settings.l2_bytes or lender.l2_bytes,
        "smClockRateKHz": lender.clock_khz,
        "memClockRateKHz": lender.memory_clock_khz,
    }
    doubt = ""
    if lender.name != settings.name and (lender.sm, lender.sm_count) != (settings.sm, settings.sms):
        doubt = (
            f"cuDNN was told the clocks of {lender.name}: those of {settings.name} are not known, and seldom decide a "
            "plan."
        )
    return Description(text=json.dumps(values, sort_keys=True), doubt=doubt)


def _with_clocks(settings: CardSettings) -> Card:
    """The card itself, or the most alike one whose clocks are known."""

    def unlikeness(card: Card) -> tuple[bool, int, int, int]:
        other_memory_bytes = abs(card.total_bytes - settings.memory_bytes)
        return (
            card.name != settings.name,
            abs(card.sm - settings.sm),
            abs(card.sm_count - settings.sms),
            other_memory_bytes,
        )

    return min((card for card in all_cards() if card.clock_khz and card.memory_clock_khz), key=unlikeness)

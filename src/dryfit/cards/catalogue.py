"""The catalogue: `catalogue.toml` read into cards, once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dryfit.cards.card import Card, expected_outside_bytes, least_outside_bytes, outside_margin_bytes
from dryfit.units import KIB, TIB, parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

_SIZES = ("l2_bytes", "total_bytes", "smi_total_bytes", "outside_measured_bytes")
_LISTS = ("aliases", "unverified")


@cache
def all_cards() -> tuple[Card, ...]:
    """Give every card of the catalogue, older architectures first.

    >>> [card.key for card in all_cards()][-1]
    'rtx-pro-6000'
    """
    return tuple(_card(key, table) for key, table in _tables()["card"].items())


@cache
def ambiguous_names() -> Mapping[str, tuple[str, ...]]:
    """Give the names that several cards bear, each with the keys of those cards; the first is the one meant.

    >>> ambiguous_names()["A100"][0]
    'a100-40gb'
    """
    return {name: tuple(keys) for name, keys in _tables()["ambiguous"].items()}


@cache
def outside_bytes_of_any() -> tuple[int, int, int]:
    """Expect this much memory outside PyTorch's allocator where the card is not known: the least, median and most.

    >>> least, median, most = outside_bytes_of_any()
    >>> least < median < most
    True

    Of the catalogue's cards, for one process on one card, in bytes; the ends are the ends of their ranges.
    """
    cards = all_cards()
    middle = sorted(card.outside_bytes for card in cards)[len(cards) // 2]
    most = max(card.outside_bytes + card.outside_margin_bytes for card in cards)
    return min(card.outside_low_bytes for card in cards), middle, most


def architecture_of(sm: int) -> str | None:
    """Name the architecture of a compute capability; None where the catalogue does not know it.

    >>> architecture_of(90), architecture_of(47)
    ('hopper', None)
    """
    known = _tables()["compute_capability"].get(str(sm))
    return known["architecture"] if known else None


def max_threads_per_sm_of(sm: int) -> int | None:
    """Say how many threads a multiprocessor holds at once; None where the catalogue does not know.

    >>> max_threads_per_sm_of(75), max_threads_per_sm_of(47)
    (1024, None)
    """
    known = _tables()["compute_capability"].get(str(sm))
    return known["max_threads_per_sm"] if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLimits:
    """What a compute capability allows a multiprocessor, and how much shared memory it allows a block at most."""

    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int


def chip_limits_of(sm: int) -> ChipLimits:
    """Give the limits of a compute capability, or of the last one before it that the catalogue knows.

    >>> chip_limits_of(89).shared_bytes_per_block // 1024, chip_limits_of(99) == chip_limits_of(90)
    (99, True)
    """
    known = {int(key): table for key, table in _tables()["compute_capability"].items()}
    nearest = max((each for each in known if each <= sm), default=min(known))
    table = known[nearest]
    return ChipLimits(
        threads_per_sm=table["max_threads_per_sm"],
        blocks_per_sm=table["max_blocks_per_sm"],
        shared_bytes_per_block=parse_bytes(table["max_shared_per_block"]),
        reserved_shared_bytes_per_block=KIB if nearest >= 80 else 0,
    )


@cache
def unlimited_card() -> Card:
    """Give the card used when none is named: an A100's chip with more memory than a program needs.

    >>> unlimited_card().sm, unlimited_card().usable_bytes // TIB
    (80, 2)

    Nothing is set aside outside the allocator: the need found on it is PyTorch's alone, and each card that could
    hold it adds its own (`cards_that_fit`). Programs that look at the name find «A100» in it.
    """
    a100 = next(card for card in all_cards() if card.key == "a100-40gb")
    return Card(
        key="unlimited",
        name="NVIDIA A100 without a memory limit (dryfit)",
        architecture=a100.architecture,
        sm=a100.sm,
        sm_count=a100.sm_count,
        max_threads_per_sm=a100.max_threads_per_sm,
        l2_bytes=a100.l2_bytes,
        # With expandable segments torch reserves 1.125 times the total for each stream and pool, and a process has room
        # for 64 TiB of it: 28 reservations.
        total_bytes=2 * TIB,
        outside_bytes=0,
        outside_margin_bytes=0,
        note="No such card exists. It is used when no card is named, to find what a program needs.",
        sources={"chip": ("as a100-40gb",)},
    )


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    return tables


def _card(key: str, table: Mapping[str, Any]) -> Card:
    values = dict(table)
    values |= {name: parse_bytes(values[name]) for name in _SIZES if name in values}
    values |= {name: tuple(values[name]) for name in _LISTS if name in values}
    values["sources"] = {figure: tuple(where) for figure, where in table.get("sources", {}).items()}
    capability = _tables()["compute_capability"][str(table["sm"])]
    threads: int = capability["max_threads_per_sm"]
    outside_bytes = expected_outside_bytes(sm_count=table["sm_count"], max_threads_per_sm=threads)
    return Card(
        key=key,
        architecture=capability["architecture"],
        max_threads_per_sm=threads,
        outside_bytes=outside_bytes,
        outside_margin_bytes=outside_margin_bytes(table["sm"]),
        outside_low_bytes=least_outside_bytes(outside_bytes),
        **values,
    )

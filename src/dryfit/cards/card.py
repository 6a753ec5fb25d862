"""A card as a value, and the two rules that say how much of it a process loses before PyTorch allocates anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dryfit.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One model of GPU: what a program can ask about it, and how much memory it leaves to PyTorch.

    >>> from dryfit.cards import find_card
    >>> card = find_card("4090")
    >>> card.name, card.sm, card.total_bytes - card.outside_bytes == card.usable_bytes
    ('NVIDIA GeForce RTX 4090', 89, True)

    Everything ending in `_bytes` is in bytes. `sm` is the compute capability times ten, as in PyTorch's `sm_89`.
    `total_bytes` is what PyTorch reports on Linux, `smi_total_bytes` what nvidia-smi does.
    `outside_bytes` is the memory expected outside PyTorch's allocator (CUDA context, kernels); see
    `expected_outside_bytes`. It may be as little as `outside_low_bytes`; `outside_margin_bytes` is what to leave free
    besides if running out is not an option.
    The clocks are the highest, in kHz; they are known of few cards.
    `unverified` names the fields no source was read for; `sources` says where the others come from.
    """

    key: str
    name: str
    architecture: str
    sm: int
    sm_count: int
    max_threads_per_sm: int
    l2_bytes: int
    total_bytes: int
    outside_bytes: int
    outside_margin_bytes: int
    outside_low_bytes: int = 0
    aliases: tuple[str, ...] = ()
    totals_seen_mib: str | None = None
    smi_total_bytes: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    outside_measured_bytes: int | None = None
    outside_points: int = 0
    unverified: tuple[str, ...] = ()
    note: str | None = None
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def usable_bytes(self) -> int:
        """What PyTorch's allocator can reserve before the card is full."""
        return self.total_bytes - self.outside_bytes

    def to_dict(self) -> dict[str, Any]:
        """Give every figure in JSON's types, `usable_bytes` included; `card_from_dict` reads it back.

        >>> from dryfit.cards import card_from_dict, find_card
        >>> card_from_dict(find_card("l4").to_dict()) == find_card("l4")
        True
        """
        values = asdict(self) | {"usable_bytes": self.usable_bytes}
        for name in ("aliases", "unverified"):
            values[name] = list(values[name])
        values["sources"] = {figure: list(where) for figure, where in self.sources.items()}
        return values


def card_from_dict(values: Mapping[str, Any]) -> Card:
    """Read a card that `Card.to_dict` wrote; keys it does not know are skipped.

    >>> from dryfit.cards import find_card
    >>> card_from_dict(find_card("t4").to_dict()).key
    't4'
    """
    known = {each.name: values[each.name] for each in fields(Card) if each.name in values}
    for name in ("aliases", "unverified"):
        known[name] = tuple(known.get(name, ()))
    known["sources"] = {figure: tuple(where) for figure, where in known.get("sources", {}).items()}
    return Card(**known)


def expected_outside_bytes(*, sm_count: int, max_threads_per_sm: int) -> int:
    """Expect this much memory outside PyTorch's allocator, for one process on one card.

    >>> expected_outside_bytes(sm_count=128, max_threads_per_sm=1536) // MIB
    460

    48 MiB + 2.15 MiB for every 1024 threads the card can hold at once: a Theil-Sen line through the medians of 27
    cards, 99 measurements of Linux processes with PyTorch 1.13 or later and CUDA 11.7 or later (kernels loaded when
    first used). Four measurements in five lie between 58 MiB below the line and 41 MiB above it. The likely reason
    of the slope is the local memory CUDA sets aside for each of those threads.
    """
    return int((48 + 2.15 * sm_count * max_threads_per_sm / 1024) * MIB)


def least_outside_bytes(expected_bytes: int) -> int:
    """Expect no less than this outside PyTorch's allocator, of a card on which `expected_bytes` are expected.

    >>> least_outside_bytes(500 * MIB) // MIB
    400

    A fifth less: of the 99 measurements three lie below it. Lowest are contexts in which nothing has run, and the cards
    of 142 multiprocessors of Ada.
    """
    return expected_bytes * 4 // 5


def outside_margin_bytes(sm: int) -> int:
    """Leave this much free besides when running out is not an option.

    >>> outside_margin_bytes(89) // MIB, outside_margin_bytes(90) // MIB
    (100, 150)

    From the same measurements: one in ten lies above the line by more than 41 MiB, the widest by 152 MiB, on Hopper.
    With this margin and `least_outside_bytes`, 93 of the 99 lie inside (docs/cards.md).
    """
    return (150 if sm // 10 == 9 else 100) * MIB

"""Which cards hold a need: surely, barely, or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dryfit.cards.card import Card
from dryfit.cards.catalogue import all_cards

Fit = Literal["fits", "tight", "too small"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardsByFit:
    """Cards sorted by how they hold a need; each group smallest total first.

    `tight` are the cards that hold the need by the expected memory outside PyTorch's allocator, but with less to
    spare than the spread of that expectation: a run there may go either way.
    """

    fits: tuple[Card, ...]
    tight: tuple[Card, ...]
    too_small: tuple[Card, ...]


def how_it_fits(card: Card, need_bytes: int) -> Fit:
    """Say whether a card holds what PyTorch's allocator reserves at the peak.

    >>> from dryfit.cards import find_card
    >>> how_it_fits(find_card("t4"), 8 << 30), how_it_fits(find_card("t4"), 15 << 30)
    ('fits', 'too small')
    """
    spare_bytes = card.usable_bytes - need_bytes
    if spare_bytes < 0:
        return "too small"
    return "fits" if spare_bytes >= card.outside_margin_bytes else "tight"


def cards_that_fit(need_bytes: int, cards: Iterable[Card] | None = None) -> CardsByFit:
    """Sort cards, the whole catalogue unless given, by how they hold a peak of reserved memory.

    >>> cards_that_fit(20 << 30).fits[0].total_bytes >= 20 << 30
    True

    `need_bytes` is the peak that PyTorch reserves; each card's own outside memory is added to it here.
    """
    groups: dict[Fit, list[Card]] = {"fits": [], "tight": [], "too small": []}
    for card in sorted(all_cards() if cards is None else cards, key=lambda card: (card.total_bytes, card.key)):
        groups[how_it_fits(card, need_bytes)].append(card)
    return CardsByFit(fits=tuple(groups["fits"]), tight=tuple(groups["tight"]), too_small=tuple(groups["too small"]))

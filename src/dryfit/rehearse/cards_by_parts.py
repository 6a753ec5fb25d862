"""Which cards of the catalogue hold what a rehearsal on no card in particular took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dryfit.cards import all_cards, cards_that_fit
from dryfit.rehearse.total import ADDRESSES, OUTSIDE, Part, range_of


def cards_by_parts(parts: Sequence[Part]) -> dict[str, Any]:
    """The names of the cards that hold all parts at their most, that hold them perhaps, and that do not at their least.

    They are by the names that a `Result` has for them, smallest card first. Each card adds its own context in place of
    the one in `parts`. What gives way where a card has no room counts as expected, but for the order of addresses,
    which is the same on every card.
    """
    beside = [part for part in parts if part.what != OUTSIDE]
    most_bytes = sum(
        part.expected_bytes if part.gives_way and part.what != ADDRESSES else part.high_bytes for part in beside
    )
    fits = cards_that_fit(most_bytes).fits
    too_small = cards_that_fit(range_of(beside)["low"]).too_small
    cards = sorted(all_cards(), key=lambda card: (card.total_bytes, card.key))
    return {
        "fits_on": [card.key for card in fits],
        "close_on": [card.key for card in cards if card not in (*fits, *too_small)],
        "does_not_fit_on": [card.key for card in too_small],
    }

"""Which card: the catalogue, the names people write, cards given by hand, and which cards hold a need.

>>> find_card("RTX 4090").usable_bytes < find_card("a100-80gb").usable_bytes
True
"""

from dryfit.cards.card import Card, card_from_dict
from dryfit.cards.catalogue import all_cards, outside_bytes_of_any, unlimited_card
from dryfit.cards.eager import with_eager_loading
from dryfit.cards.fit import CardsByFit, Fit, cards_that_fit, how_it_fits
from dryfit.cards.names import find_card, namesakes

__all__ = [
    "Card",
    "CardsByFit",
    "Fit",
    "all_cards",
    "card_from_dict",
    "cards_that_fit",
    "find_card",
    "how_it_fits",
    "namesakes",
    "outside_bytes_of_any",
    "unlimited_card",
    "with_eager_loading",
]

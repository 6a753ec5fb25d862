"""From what people write to the card they mean."""

from __future__ import annotations

import re
from functools import cache

from dryfit.cards.by_hand import EXAMPLE, card_by_hand
from dryfit.cards.card import Card
from dryfit.cards.catalogue import all_cards, ambiguous_names, unlimited_card
from dryfit.cards.memory import with_total
from dryfit.errors import UnknownCard

# Words of a name that tell no two cards apart.
_IDLE_WORDS = re.compile("nvidia|geforce|tesla|rtx|gpu")


def find_card(text: str, *, memory_bytes: int | None = None) -> Card:
    """Give the card that a name, or a card written by hand, stands for.

    >>> find_card("A100 80GB PCIe").key, find_card("nvidia geforce rtx 3090").key, find_card("h100").key
    ('a100-80gb-pcie', 'rtx-3090', 'h100-sxm')
    >>> find_card("sm=90,sms=132,memory=141GB").total_bytes
    141000000000

    Case, spacing and punctuation do not count. A name that several cards bear means the one with the smaller memory
    (`[ambiguous]` in `catalogue.toml` lists these); "unlimited" is `unlimited_card()`. `memory_bytes` replaces the
    card's total.

    Raises:
        UnknownCard: no card has that name; the nearest names are in the message.
        UsageError: a card written by hand cannot be read, or the memory is none a card can have.
    """
    if "=" in text:
        return card_by_hand(text, memory_bytes=memory_bytes)
    card = _cards_by_name().get(normal_name(text))
    if card is None:
        raise _unknown(text)
    return card if memory_bytes is None else with_total(card, memory_bytes)


def namesakes(text: str) -> tuple[Card, ...]:
    """Give the other cards that an ambiguous name could have meant.

    >>> [card.key for card in namesakes("V100")], namesakes("T4")
    (['v100-32gb'], ())
    """
    by_key = {card.key: card for card in all_cards()}
    for name, keys in ambiguous_names().items():
        if normal_name(name) == normal_name(text):
            return tuple(by_key[key] for key in keys[1:])
    return ()


def normal_name(text: str) -> str:
    """Reduce a name to what tells cards apart.

    >>> normal_name("NVIDIA GeForce RTX 4090"), normal_name("A100-SXM4-80GB"), normal_name("a100_sxm4 80 GiB")
    ('4090', 'a100sxm480', 'a100sxm480')
    """
    letters = re.sub(r"[^a-z0-9]+", "", text.lower())
    return re.sub(r"(?<=[0-9])gi?b", "", _IDLE_WORDS.sub("", letters))


@cache
def _cards_by_name() -> dict[str, Card]:
    by_key = {card.key: card for card in all_cards()}
    by_name = {normal_name(name): by_key[keys[0]] for name, keys in ambiguous_names().items()}
    for card in (*all_cards(), unlimited_card()):
        for name in (card.key, card.name, *card.aliases):
            by_name.setdefault(normal_name(name), card)
    return by_name


def _unknown(text: str) -> UnknownCard:
    nearest = _nearest_keys(normal_name(text))
    advice = f"`dryfit cards` lists the {len(all_cards())} it knows; another can be given by hand, as in {EXAMPLE}."
    if not nearest:
        return UnknownCard(f"dryfit knows no card called {text!r}. {advice}")
    *others, last = nearest
    said = f"The nearest names are {', '.join(others)} and {last}." if others else f"The nearest name is {last}."
    return UnknownCard(f"dryfit knows no card called {text!r}. {said} {advice}", nearest)


def _nearest_keys(name: str) -> tuple[str, ...]:
    import difflib

    by_name = _cards_by_name()
    longer = [known for known in by_name if len(name) > 1 and name in known]
    alike = difflib.get_close_matches(name, by_name, n=6, cutoff=0.5)
    return tuple(dict.fromkeys(by_name[known].key for known in (*longer, *alike)))[:3]

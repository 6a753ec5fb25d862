"""Cards sorted by how they hold a need."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.cards import all_cards, cards_that_fit, find_card, how_it_fits
from dryfit.units import GIB


def test_the_three_answers_and_their_edges() -> None:
    card = find_card("rtx-4090")
    sure_bytes = card.usable_bytes - card.outside_margin_bytes
    assert how_it_fits(card, sure_bytes) == "fits"
    assert how_it_fits(card, sure_bytes + 1) == "tight"
    assert how_it_fits(card, card.usable_bytes) == "tight"
    assert how_it_fits(card, card.usable_bytes + 1) == "too small"


@settings(deadline=None)
@given(st.integers(0, 300 * GIB))
def test_every_card_is_in_one_group_smallest_first(need_bytes: int) -> None:
    found = cards_that_fit(need_bytes)
    groups = (found.fits, found.tight, found.too_small)
    assert sorted(card.key for group in groups for card in group) == sorted(card.key for card in all_cards())
    for group in groups:
        assert [card.total_bytes for card in group] == sorted(card.total_bytes for card in group)
    assert all(how_it_fits(card, need_bytes) == "fits" for card in found.fits)
    assert all(how_it_fits(card, need_bytes) == "tight" for card in found.tight)
    assert all(how_it_fits(card, need_bytes) == "too small" for card in found.too_small)


def test_the_ends() -> None:
    assert len(cards_that_fit(0).fits) == len(all_cards())
    assert len(cards_that_fit(300 * GIB).too_small) == len(all_cards())


def test_only_the_cards_given_are_sorted() -> None:
    t4, l4, a100 = (find_card(name) for name in ("t4", "l4", "a100-80gb"))
    found = cards_that_fit(t4.usable_bytes, [a100, l4, t4])
    assert (found.fits, found.tight, found.too_small) == ((l4, a100), (t4,), ())

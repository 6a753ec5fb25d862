"""The catalogue is consistent in itself, and loads without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from dryfit.cards import Card, all_cards, card_from_dict, find_card, unlimited_card
from dryfit.cards.card import expected_outside_bytes, outside_margin_bytes
from dryfit.cards.catalogue import ambiguous_names, architecture_of, max_threads_per_sm_of
from dryfit.units import GIB, MIB, TIB

every_card = pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.key)


def test_the_catalogue_is_read_once() -> None:
    assert all_cards() is all_cards()
    assert len(all_cards()) == len({card.key for card in all_cards()})


@every_card
def test_figures_are_of_a_possible_card(card: Card) -> None:
    assert card.max_threads_per_sm in (1024, 1536, 2048)
    assert 1 <= card.sm_count <= 192
    assert 2 * MIB <= card.l2_bytes <= 192 * MIB
    assert 4 * GIB <= card.total_bytes <= 256 * GIB
    assert 0 < card.outside_bytes < card.total_bytes
    if card.smi_total_bytes is not None:
        assert 0.94 * card.smi_total_bytes < card.total_bytes < card.smi_total_bytes


@every_card
def test_measured_memory_outside_is_near_the_formula(card: Card) -> None:
    assert (card.outside_measured_bytes is None) == (card.outside_points == 0)
    if card.outside_measured_bytes is not None:
        assert abs(card.outside_measured_bytes - card.outside_bytes) <= 110 * MIB  # the widest is the H100 NVL


@every_card
def test_every_figure_has_a_source_or_is_called_unverified(card: Card) -> None:
    assert set(card.unverified) <= {"sm_count", "l2_bytes", "total_bytes"}
    assert set(card.sources) <= {"chip", "total_bytes", "smi_total_bytes", "clocks", "outside_measured_bytes"}
    assert all(card.sources.values())
    if not {"sm_count", "l2_bytes"} <= set(card.unverified):
        assert "chip" in card.sources
    derived = card.sources["total_bytes"][0].startswith("derived: ")
    assert derived == ("total_bytes" in card.unverified)
    assert (card.clock_khz is None) == (card.memory_clock_khz is None) == ("clocks" not in card.sources)
    assert (card.smi_total_bytes is None) == ("smi_total_bytes" not in card.sources)
    assert (card.outside_measured_bytes is None) == ("outside_measured_bytes" not in card.sources)


@every_card
def test_a_total_derived_from_another_card_is_that_cards_total_and_was_read_somewhere(card: Card) -> None:
    derivation = card.sources["total_bytes"][0]
    if derivation.startswith("derived: as "):
        other = find_card(derivation.removeprefix("derived: as "))
        assert other.key == derivation.removeprefix("derived: as ")
        assert "total_bytes" not in other.unverified
        assert round(other.total_bytes / MIB) == round(card.total_bytes / MIB)
        assert other.architecture == card.architecture
    elif derivation.startswith("derived: "):
        whole, less = (int(word) for word in derivation.split() if word.isdigit())
        assert card.total_bytes == (whole - less) * MIB


@every_card
def test_a_card_survives_json(card: Card) -> None:
    import json

    values = json.loads(json.dumps(card.to_dict()))
    assert values["usable_bytes"] == card.total_bytes - card.outside_bytes
    assert {each.name for each in fields(Card)} < set(values)
    assert card_from_dict(values) == card


def test_cards_are_values() -> None:
    assert hash(find_card("t4")) == hash(card_from_dict(find_card("t4").to_dict()))
    with pytest.raises(AttributeError):
        find_card("t4").total_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "outside_mib"),
    [("t4", 134), ("rtx-2080-ti", 195), ("rtx-3070", 197), ("rtx-3090", 313), ("a100-80gb", 513), ("l4", 235),
     ("rtx-4090", 461), ("h100-sxm", 616), ("h100-pcie", 539), ("b200", 685), ("rtx-5090", 597)],
)  # fmt: skip
def test_memory_outside_is_that_of_the_published_formula(key: str, outside_mib: int) -> None:
    assert find_card(key).outside_bytes / MIB == pytest.approx(outside_mib, abs=1.2)


def test_the_formula_counts_threads_not_cards() -> None:
    assert expected_outside_bytes(sm_count=0, max_threads_per_sm=2048) == 48 * MIB
    grown = expected_outside_bytes(sm_count=20, max_threads_per_sm=1024)
    assert grown == expected_outside_bytes(sm_count=10, max_threads_per_sm=2048) == 91 * MIB


def test_hopper_has_the_wider_margin() -> None:
    assert [outside_margin_bytes(sm) // MIB for sm in (75, 89, 90, 100, 120)] == [100, 100, 150, 100, 100]
    assert find_card("h200").outside_margin_bytes == 150 * MIB


def test_compute_capabilities() -> None:
    assert (architecture_of(86), max_threads_per_sm_of(86)) == ("ampere", 1536)
    assert (architecture_of(47), max_threads_per_sm_of(47)) == (None, None)


def test_the_unlimited_card_is_an_a100_that_no_program_fills() -> None:
    card, a100 = unlimited_card(), find_card("a100-40gb")
    assert (card.sm, card.sm_count, card.l2_bytes) == (a100.sm, a100.sm_count, a100.l2_bytes) == (80, 108, 40 * MIB)
    assert card.usable_bytes == card.total_bytes == 2 * TIB
    assert card.outside_bytes == card.outside_margin_bytes == 0
    assert "A100" in card.name
    assert card not in all_cards()
    assert find_card("unlimited") is card


def test_of_several_namesakes_the_smallest_is_meant() -> None:
    for name, keys in ambiguous_names().items():
        assert len(keys) > 1
        totals = [find_card(key).total_bytes for key in keys]
        assert [find_card(key).key for key in keys] == list(keys)
        assert totals[0] <= 1.01 * min(totals), name  # boards of one size differ by less


def test_loading_needs_no_torch() -> None:
    program = "import sys, dryfit.cards as cards; cards.all_cards(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

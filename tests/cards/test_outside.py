"""What lies outside PyTorch's allocator, against what others measured: 99 processes on 27 cards, and NCCL's jobs.

`python tests/cards/test_outside.py` prints the table of docs/cards.md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from dryfit.cards import Card, all_cards, find_card, outside_bytes_of_any, with_eager_loading
from dryfit.cards.card import least_outside_bytes
from dryfit.cards.eager import counts_eager_loading, loads_eagerly
from dryfit.units import MIB

MEASURED = Path(__file__).with_name("outside_measured.csv")
DOCS = Path(__file__).parents[2] / "docs" / "cards.md"


def measured() -> Iterator[tuple[Card, float]]:
    with MEASURED.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield find_card(row["card"]), float(row["outside_mib"]) * MIB


def table() -> list[str]:
    """For each architecture: measurements, those below, inside and above the range of their card."""
    counts: dict[str, list[int]] = {}
    for card, size_bytes in measured():
        place = (
            1 + (size_bytes > card.outside_bytes + card.outside_margin_bytes) - (size_bytes < card.outside_low_bytes)
        )
        for name in (card.architecture, "all"):
            counts.setdefault(name, [0, 0, 0])[place] += 1
    order = sorted(counts, key=lambda name: (name == "all", name))
    return [f"| {name} | {sum(counts[name])} | {' | '.join(map(str, counts[name]))} |" for name in order]


def test_nine_measurements_in_ten_lie_inside_the_range_of_their_card() -> None:
    inside = [
        card.outside_low_bytes <= size <= card.outside_bytes + card.outside_margin_bytes for card, size in measured()
    ]
    assert len(inside) == 99
    assert sum(inside) / len(inside) >= 0.9


def test_the_docs_have_the_counts() -> None:
    assert "\n".join(table()) in DOCS.read_text(encoding="utf-8")


def test_the_ranges_of_cards_that_are_not_alike_do_not_hold_each_others_measurements() -> None:
    """A range so wide that it holds anything would pass the first test."""
    t4, b200 = find_card("t4"), find_card("b200")
    of_hopper = [size for card, size in measured() if card.architecture == "hopper"]
    assert all(size > t4.outside_bytes + t4.outside_margin_bytes for size in of_hopper)
    assert b200.outside_low_bytes > t4.outside_bytes + t4.outside_margin_bytes


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.key)
def test_the_range_of_every_card_holds_what_is_expected(card: Card) -> None:
    assert 0 < card.outside_low_bytes == least_outside_bytes(card.outside_bytes) < card.outside_bytes
    least, middle, most = outside_bytes_of_any()
    assert least <= card.outside_low_bytes
    assert card.outside_bytes + card.outside_margin_bytes <= most
    assert least < middle < most


def test_what_was_given_by_hand_has_no_range() -> None:
    card = find_card("sm=90,sms=132,memory=80GiB,outside=700MiB")
    assert card.outside_low_bytes == card.outside_bytes == 700 * MIB
    assert with_eager_loading(card) == card
    assert find_card("sm=90,sms=132,memory=80GiB").outside_low_bytes == find_card("h100-sxm").outside_low_bytes


def test_eager_loading_holds_the_measurement_of_the_newest_torch_that_has_one() -> None:
    card = find_card("a100-80gb")
    eager = with_eager_loading(card)
    assert eager.outside_low_bytes <= 940.1 * MIB <= eager.outside_bytes + eager.outside_margin_bytes
    assert eager.outside_bytes - card.outside_bytes >= 629 * MIB, "the code of torch 2.14 for this chip"
    assert eager.usable_bytes == card.total_bytes - eager.outside_bytes
    assert counts_eager_loading(eager)
    assert not counts_eager_loading(card)


@pytest.mark.parametrize(
    ("environment", "eagerly"),
    [({}, False), ({"CUDA_MODULE_LOADING": "LAZY"}, False), ({"CUDA_MODULE_LOADING": "eager"}, True)],
)
def test_who_loads_eagerly(environment: dict[str, str], eagerly: bool) -> None:
    assert loads_eagerly(environment) is eagerly


if __name__ == "__main__":
    print("\n".join(table()))

"""Names as people write them find their card; what is no name is told so in words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.cards import Card, all_cards, find_card, namesakes
from dryfit.cards.catalogue import ambiguous_names
from dryfit.cards.names import normal_name
from dryfit.errors import UnknownCard, UsageError
from dryfit.units import GIB, MIB, TIB

NAMED = [(name, card) for card in all_cards() for name in (card.key, card.name, *card.aliases)]
AMBIGUOUS = {normal_name(name): keys for name, keys in ambiguous_names().items()}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("4090", "rtx-4090"), ("RTX 4090", "rtx-4090"), ("rtx4090", "rtx-4090"), ("GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop"), ("3060", "rtx-3060-12gb"), ("5090", "rtx-5090"),
        ("A100 40GB", "a100-40gb"), ("a100-40", "a100-40gb"), ("a100-40g", "a100-40gb"), ("a100", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("A100-80", "a100-80gb"), ("A100 80GB PCIe", "a100-80gb-pcie"),
        ("h100", "h100-sxm"), ("H100 SXM", "h100-sxm"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("H200", "h200"),
        ("T4", "t4"), ("Tesla T4", "t4"), ("V100", "v100-16gb"), ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("l40s", "l40s"), ("L40", "l40"), ("A10", "a10"), ("A10G", "a10g"), ("RTX A6000", "rtx-a6000"),
        ("RTX 6000 Ada", "rtx-6000-ada"), ("RTX 6000", "quadro-rtx-6000"), ("RTX PRO 6000", "rtx-pro-6000"),
        ("4060 Ti 16GB", "rtx-4060-ti-16gb"), ("4060ti", "rtx-4060-ti-8gb"), ("  titan_rtx ", "titan-rtx"),
    ],
)  # fmt: skip
def test_names_people_write(text: str, key: str) -> None:
    assert find_card(text).key == key


@settings(deadline=None)
@given(data=st.data())
def test_every_name_in_any_case_and_spacing_finds_its_card(data: st.DataObject) -> None:
    name, card = data.draw(st.sampled_from(NAMED))
    words = name.replace("-", " ").split()
    gaps = data.draw(st.lists(st.sampled_from(["", " ", "-", "_", " / ", "\t"]), min_size=len(words)))
    spaced = "".join(gap + word for gap, word in zip(gaps, words, strict=False))
    prefix = data.draw(st.sampled_from(["", "NVIDIA ", "nvidia-"]))
    written = prefix + "".join(data.draw(st.sampled_from([str.upper, str.lower]))(letter) for letter in spaced)
    meant = AMBIGUOUS.get(normal_name(name), (card.key,))
    assert find_card(written).key == meant[0]


def test_no_two_cards_share_a_name_that_is_not_listed_as_ambiguous() -> None:
    owners: dict[str, set[str]] = {}
    for name, card in NAMED:
        owners.setdefault(normal_name(name), set()).add(card.key)
    shared = {name: keys for name, keys in owners.items() if len(keys) > 1}
    assert all(keys <= set(AMBIGUOUS.get(name, ())) for name, keys in shared.items()), shared
    assert set(shared) == {"3080", "4060ti", "5060ti"}  # PyTorch prints one name for both sizes of these
    assert "" not in owners


def test_an_ambiguous_name_is_the_own_name_of_no_other_card() -> None:
    for name, card in NAMED:
        assert card.key in AMBIGUOUS.get(normal_name(name), (card.key,))


def test_namesakes() -> None:
    assert [card.key for card in namesakes("nvidia a100")] == ["a100-40gb-pcie", "a100-80gb", "a100-80gb-pcie"]
    assert namesakes("rtx-4090") == ()


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownCard) as raised:
        find_card("RTX 4900")
    assert raised.value.exit_code == 2
    assert raised.value.nearest[0] == "rtx-4090"
    assert str(raised.value) == (
        f"dryfit knows no card called 'RTX 4900'. The nearest names are {raised.value.nearest[0]}, "
        f"{raised.value.nearest[1]} and {raised.value.nearest[2]}. `dryfit cards` lists the {len(all_cards())} it "
        "knows; another can be given by hand, as in sm=90,sms=132,memory=141GB."
    )


def test_a_part_of_a_name_gets_the_whole() -> None:
    with pytest.raises(UnknownCard) as raised:
        find_card("RTX 4000")
    assert "rtx-4000-ada" in raised.value.nearest


@pytest.mark.parametrize("text", ["", "   ", "NVIDIA", "rtx", "qqqqqqqq", "🦆"])
def test_what_is_like_nothing_gets_no_suggestion(text: str) -> None:
    with pytest.raises(UnknownCard) as raised:
        find_card(text)
    assert raised.value.nearest == ()
    assert str(raised.value).startswith(f"dryfit knows no card called {text!r}. `dryfit cards` lists the ")


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_card_or_a_sentence(text: str) -> None:
    try:
        assert isinstance(find_card(text), Card)
    except UsageError as error:
        assert str(error).endswith(".")


def test_memory_replaces_the_total_and_what_was_said_of_it() -> None:
    card = find_card("rtx-4080", memory_bytes=10 * GIB)
    assert card.total_bytes == 10 * GIB
    assert card.usable_bytes == 10 * GIB - find_card("rtx-4080").outside_bytes
    assert card.smi_total_bytes is None
    assert "total_bytes" in find_card("rtx-4080").unverified
    assert "total_bytes" not in card.unverified
    assert card.sources["total_bytes"] == ("given by hand",)
    assert find_card("unlimited", memory_bytes=4 * GIB).usable_bytes == 4 * GIB


@pytest.mark.parametrize(
    ("memory_bytes", "sentence"),
    [
        (1, "1 B is not the memory of a card: the least dryfit accepts is 256.00 MiB."),
        (256 * MIB - 1, "256.00 MiB is not the memory of a card: the least dryfit accepts is 256.00 MiB."),
        (65 * TIB, "65.00 TiB is not the memory of a card: the most dryfit accepts is 64.00 TiB."),
        (
            400 * MIB,
            "400.00 MiB is too little memory for NVIDIA GeForce RTX 4090: CUDA itself takes about 460.80 MiB of it, "
            "so nothing would be left to PyTorch.",
        ),
    ],
)
def test_absurd_memory(memory_bytes: int, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_card("rtx-4090", memory_bytes=memory_bytes)
    assert str(raised.value).startswith(sentence)
    assert not isinstance(raised.value, UnknownCard)


def test_the_bounds_themselves_are_allowed() -> None:
    assert find_card("t4", memory_bytes=256 * MIB).total_bytes == 256 * MIB
    assert find_card("t4", memory_bytes=64 * TIB).total_bytes == 64 * TIB

"""Cards given by hand: read, completed, or refused in a sentence that says what to write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.cards import find_card
from dryfit.cards.card import expected_outside_bytes
from dryfit.errors import UnknownCard, UsageError
from dryfit.units import GIB, MIB


def test_the_least_that_makes_a_card() -> None:
    card = find_card("sm=90,sms=132,memory=141GB")
    h200 = find_card("h200")
    assert (card.sm, card.sm_count, card.total_bytes) == (90, 132, 141 * 10**9)
    assert (card.architecture, card.max_threads_per_sm) == ("hopper", 2048)
    assert card.outside_bytes == h200.outside_bytes
    assert card.outside_margin_bytes == h200.outside_margin_bytes
    assert card.unverified == ("l2_bytes",)
    assert card.name == "NVIDIA sm_90 card given by hand"
    assert card.sources["chip"][1].startswith("L2 assumed: as h100-")


def test_everything_given() -> None:
    card = find_card(" SM = 8.9 , sms=76, memory=16375MiB, threads=1024, l2=64MiB, name=My Card, outside=300MiB")
    assert (card.sm, card.max_threads_per_sm, card.l2_bytes, card.name) == (89, 1024, 64 * MIB, "My Card")
    assert card.usable_bytes == (16375 - 300) * MIB
    assert card.outside_margin_bytes == 0, "what the user measured is taken as it is"
    assert card.unverified == ()


def test_nothing_outside_can_be_asked_for() -> None:
    assert find_card("sm=80,sms=1,memory=1GiB,outside=0").usable_bytes == GIB


def test_memory_from_elsewhere_stands_in() -> None:
    assert find_card("sm=80,sms=108", memory_bytes=20 * GIB).total_bytes == 20 * GIB
    assert find_card("sm=80,sms=108,memory=40GiB", memory_bytes=20 * GIB).total_bytes == 20 * GIB


@settings(deadline=None)
@given(
    sm=st.sampled_from([60, 61, 70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121]),
    sms=st.integers(1, 1024),
    memory_mib=st.integers(8192, 10**6),
    dotted=st.booleans(),
)
def test_any_card_of_a_known_capability(sm: int, sms: int, memory_mib: int, dotted: bool) -> None:
    written = f"{sm // 10}.{sm % 10}" if dotted else str(sm)
    card = find_card(f"memory={memory_mib}MiB,sms={sms},sm={written}")
    assert (card.sm, card.sm_count, card.total_bytes) == (sm, sms, memory_mib * MIB)
    assert card.outside_bytes == expected_outside_bytes(sm_count=sms, max_threads_per_sm=card.max_threads_per_sm)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "sm=90,sms=132",
            "The card 'sm=90,sms=132' lacks `memory` (the total as PyTorch sees it). "
            "Write it as in sm=90,sms=132,memory=141GB.",
        ),
        (
            "memory=8GB",
            "The card 'memory=8GB' lacks `sm` (the compute capability) and `sms` (the number of multiprocessors). "
            "Write it as in sm=90,sms=132,memory=141GB.",
        ),
        (
            "sm=90,cores=9",
            "A card given by hand has no 'cores', found in 'sm=90,cores=9'. "
            "It can have sm, sms, memory, threads, l2, name, outside.",
        ),
        (
            "sm=90,132",
            "'132' in the card 'sm=90,132' is not `key=value`. Write it as in sm=90,sms=132,memory=141GB.",
        ),
        ("sm=", "'sm=' in the card 'sm=' is not `key=value`. Write it as in sm=90,sms=132,memory=141GB."),
        ("sm=90,sm=80", "`sm` is in the card 'sm=90,sm=80' twice. Give it once."),
        (
            "sm=9,sms=132,memory=80GB",
            "sm=9 is not a compute capability PyTorch runs on. Write 8.9 or 89 for an RTX 4090; "
            "https://developer.nvidia.com/cuda-gpus lists them.",
        ),
        (
            "sm=90,sms=0,memory=80GB",
            "sms=0 is not the number of multiprocessors: it has to be a whole number from 1 to 1024.",
        ),
        (
            "sm=90,sms=many,memory=80GB",
            "sms=many is not the number of multiprocessors: it has to be a whole number from 1 to 1024.",
        ),
        (
            "sm=99,sms=132,memory=80GB",
            "dryfit does not know how many threads a multiprocessor of compute capability 9.9 holds. "
            "Add it to the card, as in threads=2048; CUDA's deviceQuery prints it.",
        ),
        (
            "sm=90,sms=132,memory=80GB,threads=1000",
            "threads=1000 is not a whole number of warps: write a multiple of 32, such as 2048.",
        ),
        (
            "sm=90,sms=132,memory=lots",
            "'lots' is not an amount of memory; write a number and a unit, such as 24GiB, 80GB or 512MiB.",
        ),
        (
            "sm=90,sms=132,memory=80",
            "80 B is not the memory of a card: the least dryfit accepts is 256.00 MiB. "
            "Write the unit with the number, such as 24GiB.",
        ),
        (
            "sm=90,sms=132,memory=600MiB",
            "600.00 MiB is too little memory for NVIDIA sm_90 card given by hand: CUDA itself takes about 615.60 MiB "
            "of it, so nothing would be left to PyTorch. Give more memory.",
        ),
    ],
)
def test_what_cannot_be_read(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_card(text)
    assert str(raised.value) == sentence
    assert raised.value.exit_code == 2
    assert not isinstance(raised.value, UnknownCard)

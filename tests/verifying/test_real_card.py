"""Which card is there, and its twin: answers of drivers, as given here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.verifying.real_card import card_of, check_driver, described, twin_of

from .sides import CARD, MIB

L4 = {
    "name": "NVIDIA L4", "sm": 89, "sm_count": 58, "max_threads_per_sm": 1536, "l2_bytes": 48 * MIB,
    "total_bytes": 22563 * MIB, "used_before_bytes": 3 * MIB,
}  # fmt: skip
T4 = {**L4, "name": "Tesla T4", "sm": 75, "sm_count": 40}


def answer(*cards: dict[str, Any], is_virtual: bool = False) -> dict[str, Any]:
    return {"driver": "550.54.15", "cuda": "12.4", "is_virtual": is_virtual, "cards": list(cards)}


def test_one_card() -> None:
    assert card_of(answer(L4)) == CARD
    assert described(CARD) == "NVIDIA L4, 22.03 GiB, driver 550.54.15"


def test_several_cards_of_one_kind_are_one_with_a_count() -> None:
    assert card_of(answer(L4, L4)) == dataclasses.replace(CARD, count=2)
    assert described(card_of(answer(L4, L4))).startswith("2 x NVIDIA L4, ")
    # One of them is used by others: which one the program takes most of is not known.
    assert card_of(answer(L4, {**L4, "used_before_bytes": 900 * MIB})).used_before_bytes is None


def test_cards_of_several_kinds_have_to_be_chosen_from() -> None:
    with pytest.raises(UsageError) as raised:
        card_of(answer(L4, T4))
    assert str(raised.value) == (
        "This machine has cards of several kinds (0: NVIDIA L4, 1: Tesla T4), and a row is about one. Choose it: "
        "CUDA_VISIBLE_DEVICES=0 dryfit verify ..."
    )


@pytest.mark.parametrize(
    ("problem", "reason", "hidden", "sentence"),
    [
        (
            "no driver", "libcuda.so.1: cannot open", None,
            "There is no NVIDIA driver on this machine (libcuda.so.1: cannot open). `dryfit verify` compares with a "
            "real card; `dryfit run` needs none.",
        ),
        (
            "not started", "CUDA error 804, forward compatibility was attempted on non supported HW", None,
            "The NVIDIA driver could not be started (CUDA error 804, forward compatibility was attempted on non "
            "supported HW); see what nvidia-smi says of it. `dryfit verify` compares with a real card; `dryfit run` "
            "needs none.",
        ),
        (
            "no card", "", None,
            "The NVIDIA driver finds no card on this machine; see whether `nvidia-smi -L` lists one. `dryfit verify` "
            "compares with a real card; `dryfit run` needs none.",
        ),
        (
            "no card", "", "7",
            "CUDA_VISIBLE_DEVICES is '7' and leaves no card to run on; set it to one that `nvidia-smi -L` lists, or "
            "unset it.",
        ),
    ],
)  # fmt: skip
def test_no_card_is_a_sentence(problem: str, reason: str, hidden: str | None, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        card_of({"problem": problem, "reason": reason}, hidden=hidden)
    assert str(raised.value) == sentence


def test_the_twin_is_the_catalogues_card_with_the_real_cards_memory() -> None:
    twin = twin_of(dataclasses.replace(CARD, total_bytes=22731 * MIB))
    assert (twin.key, twin.gpu, twin.memory_bytes) == ("l4", "l4", 22731 * MIB)


@pytest.mark.parametrize(
    ("key", "total_mib"), [("rtx-3080-10gb", 9872), ("a100-40gb", 40330), ("a100-80gb-pcie", 80994)]
)
def test_of_cards_with_one_name_the_twin_has_the_chip_and_about_the_memory(key: str, total_mib: int) -> None:
    card = find_card(key)
    real = dataclasses.replace(CARD, name=card.name, sm=card.sm, sm_count=card.sm_count, total_bytes=total_mib * MIB)
    assert twin_of(real).key == key


@pytest.mark.parametrize(
    ("name", "sm_count"),
    [
        ("NVIDIA B999, rev=2; early", 58),  # no card of that name
        ("NVIDIA L4", 56),  # of that name, with another chip
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14),
    ],
)
def test_a_card_that_the_catalogue_does_not_have_is_made_by_hand(name: str, sm_count: int) -> None:
    real = dataclasses.replace(CARD, name=name, sm_count=sm_count, is_mig="MIG" in name)
    twin = twin_of(real)
    assert twin.key == "by hand"
    card = find_card(twin.gpu, memory_bytes=twin.memory_bytes)
    assert (card.sm, card.sm_count, card.total_bytes, card.l2_bytes) == (89, sm_count, 22563 * MIB, 48 * MIB)
    assert card.max_threads_per_sm == 1536
    assert card.name.split()[:2] == name.replace(",", " ").split()[:2]


def test_a_mig_part_is_known_by_its_name() -> None:
    assert card_of(answer({**L4, "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"})).is_mig
    assert not card_of(answer(L4)).is_mig


def test_a_virtual_cards_context_is_the_programs_own() -> None:
    assert card_of(answer(L4, is_virtual=True)).used_before_bytes == 0


def test_a_driver_that_is_too_old_for_torch() -> None:
    check_driver(CARD, "2.6.0+cu126", "12.6")  # minor versions are compatible
    with pytest.raises(UsageError) as raised:
        check_driver(CARD, "2.14.1+cu130", "13.0")
    assert str(raised.value) == (
        "The driver 550.54.15 runs CUDA up to 12.4, and the installed torch 2.14.1+cu130 is built for CUDA 13.0, so "
        "the program cannot run for real. Update the driver, or install a torch for CUDA 12."
    )

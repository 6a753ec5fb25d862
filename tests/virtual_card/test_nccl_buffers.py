"""NCCL's buffers leave the card when NCCL would take them, and as many as its source says."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import GIB, MIB, Card

H100 = {"name": "NVIDIA H100 80GB HBM3", "sm": 90, "sms": 132, "memory_bytes": 80 * GIB, "alone": True}
KERNELS = 100 * MIB
CONNECTION = 12 * MIB  # 10 MiB to receive in, 2 MiB to send from


def on(card: Card, world: int, variables: dict[str, str] | None = None, **settings: Any) -> dict[str, Any]:
    said: dict[str, Any] = card.run("nccl_buffers.py", str(world), variables=variables, **(H100 | settings)).said
    return said


@pytest.fixture(scope="module")
def eight(card: Card) -> dict[str, Any]:
    return on(card, 8)


def test_the_card_loses_the_buffers_at_the_first_call_that_needs_them(eight: dict[str, Any]) -> None:
    assert eight["before"] - eight["made"] == KERNELS, "NCCL since 2.22 connects when a connection is needed"
    assert eight["made"] - eight["reduced"] == 24 * 2 * CONNECTION + 256 * MIB, "ring, tree, and the switch's buffers"
    assert eight["reduced"] - eight["exchanged"] == 7 * 32 * CONNECTION, "of each of the others, once"
    assert eight["exchanged"] - eight["second"] == eight["made"] - eight["reduced"], "no kernels: they are loaded"


def test_two_ranks_have_one_neighbour(card: Card) -> None:
    said = on(card, 2)
    assert said["made"] - said["reduced"] == 24 * CONNECTION


def test_they_are_not_counted_as_the_programs_own_and_nvml_shows_them(eight: dict[str, Any]) -> None:
    low, expected, high = eight["range"]
    assert eight["before"] - eight["second"] == expected
    assert 0 < low < expected < high
    assert eight["used"] == eight["used_before"]
    assert eight["nvidia-smi"] == eight["used"] + expected
    assert "ncclCommInitRank(buffers)" not in eight["unfaithful"]


def test_communicators_are_known_with_what_they_were_used_for(eight: dict[str, Any]) -> None:
    assert eight["communicators"] == [[8, 1, 2, 7, 0], [8, 1, 1, 0, 0]]


def test_the_environment_is_nccls(card: Card) -> None:
    limits = {"NCCL_MAX_NCHANNELS": "2", "NCCL_BUFFSIZE": str(MIB), "NCCL_NVLS_ENABLE": "0",
              "NCCL_MAX_P2P_NCHANNELS": "1"}  # fmt: skip
    said = on(card, 8, limits)
    connection = 10 * MIB  # 512 KiB, 4800 KiB and 1 MiB, in pages, and a page
    assert said["made"] - said["reduced"] == 2 * 2 * connection
    assert said["reduced"] - said["exchanged"] == 7 * connection
    at_once = on(card, 8, {"NCCL_RUNTIME_CONNECT": "0", **limits})
    assert at_once["before"] - at_once["made"] == KERNELS + 2 * 2 * connection
    assert at_once["reduced"] == at_once["made"]


def test_ranks_on_other_machines_share_their_buffers(card: Card) -> None:
    said = on(card, 8, {"LOCAL_WORLD_SIZE": "2"})
    assert said["communicators"][0] == [8, 4, 2, 1, 6]
    assert said["reduced"] - said["exchanged"] == 32 * CONNECTION + 128 * MIB
    assert said["made"] - said["reduced"] == 24 * (CONNECTION + 20 * MIB), "one of the neighbours is on another machine"


def test_without_nvlink_there_are_few_channels_and_perhaps_host_memory(card: Card) -> None:
    said = on(card, 8, name="NVIDIA GeForce RTX 4090", sm=89, sms=128, memory_bytes=24 * GIB)
    assert said["made"] - said["reduced"] == 4 * 2 * CONNECTION
    assert said["range"][0] == 20 * MIB, "the low end is NCCL's kernels alone"


def test_a_card_that_is_full_fails_in_nccls_words(card: Card) -> None:
    done = card.run("nccl_buffers.py", "8", "full", **H100)
    assert done.code != 0
    assert "Cuda failure 2 'out of memory': NCCL found no room on the card for its own buffers." in done.stderr


# What processes of jobs held outside PyTorch's allocator, less a context (docs/cards.md), in MiB, from the same places:
# the lowest and the highest that their errors allow.
MEASURED = [
    ("eight H100, after a barrier", "NVIDIA H100 80GB HBM3", 90, 8, "reduced", 892, 900),
    ("eight H200, after a barrier", "NVIDIA H200", 90, 8, "reduced", 857, 977),
    ("two H100 NVL", "NVIDIA H100 NVL", 90, 2, "reduced", 330, 500),
    ("two of four A100, an all-reduce", "NVIDIA A100-SXM4-80GB", 80, 2, "reduced", 544, 544),
    ("four A100, an all-reduce", "NVIDIA A100-SXM4-80GB", 80, 4, "reduced", 688, 688),
    ("eight H100, an all-to-all more", "NVIDIA H100 80GB HBM3", 90, 8, "exchanged", 3359, 3359),
    ("eight RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell", 120, 8, "reduced", 451, 502),
    ("RTX 3090, several", "NVIDIA GeForce RTX 3090", 86, 4, "reduced", 860, 922),
    ("A10G, several", "NVIDIA A10G", 86, 4, "reduced", 47, 73),
    ("second T4 of two", "Tesla T4", 75, 2, "reduced", 20, 30),
]


@pytest.mark.parametrize(("name", "sm", "world", "after", "least", "most"), [row[1:] for row in MEASURED],
                         ids=[row[0] for row in MEASURED])  # fmt: skip
def test_the_range_holds_what_was_measured(
    card: Card, name: str, sm: int, world: int, after: str, least: int, most: int
) -> None:
    said = on(card, world, name=name, sm=sm)
    low, expected, high = (size // MIB for size in said[f"range_{after}"])
    print(f"{name}, {world}: {low} to {high}, expected {expected}, measured {least} to {most}")
    assert low <= least
    assert most <= high

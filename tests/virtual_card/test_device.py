"""The card's properties: what torch, cuBLAS and NVML make of them."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import torch_release

MIB, GIB = 1 << 20, 1 << 30
BLACKWELL = 33554432 if torch_release() > (2, 11) else 8519680  # of 10.0 and 12.0; torch has changed its mind
RTX_4090 = {
    "name": "NVIDIA GeForce RTX 4090",
    "sm": 89,
    "sms": 128,
    "threads_per_sm": 1536,
    "l2_bytes": 72 * MIB,
    "memory_bytes": 25250627584,
    "outside_bytes": 460 * MIB,
}


@pytest.fixture(scope="module")
def device(said: Any) -> dict[str, Any]:
    return said("device.py", **RTX_4090)


def test_torch_sees_the_card(device: dict[str, Any]) -> None:
    assert device["name"] == "NVIDIA GeForce RTX 4090"
    assert (device["count"], device["capability"], device["total"]) == (1, [8, 9], 25250627584)
    assert (device["sms"], device["threads_per_sm"], device["l2"]) == (128, 1536, 72 * MIB)
    assert (device["warp"], device["registers"], device["integrated"]) == (32, 65536, False)
    assert device["bf16"] is True


def test_shared_memory_follows_from_the_compute_capability(device: dict[str, Any]) -> None:
    # CUDA C++ Programming Guide: 100 KiB for a multiprocessor of 8.9, of which a block gets all but 1 KiB
    assert (device["shared_per_block"], device["shared_per_sm"]) == (99 * 1024, 100 * 1024)
    assert device["shared_optin_of_properties"] == device["shared_per_block"]
    assert device["shared_per_sm_of_properties"] == device["shared_per_sm"]


def test_nvml_sees_the_same_card_and_what_the_context_took(device: dict[str, Any]) -> None:
    nvml = device["nvml"]
    assert (nvml["name"], nvml["total"]) == ("NVIDIA GeForce RTX 4090", 25250627584)
    assert nvml["used"] == device["used"] + 460 * MIB
    assert nvml["free"] == nvml["total"] - nvml["used"]


def test_a_stream_keeps_its_priority(device: dict[str, Any]) -> None:
    assert device["priorities"] == [-1, 0]


@pytest.mark.parametrize(
    ("sm", "workspace_bytes"),
    [(75, 8519680), (80, 8519680), (86, 8519680), (89, 8519680), (90, 33554432), (100, BLACKWELL), (120, BLACKWELL)],
)
def test_the_cublas_workspace_is_that_of_the_capability(said: Any, sm: int, workspace_bytes: int) -> None:
    assert said("device.py", **(RTX_4090 | {"sm": sm}))["workspaces"] == [workspace_bytes]


def test_several_cards_and_visible_devices(said: Any) -> None:
    assert said("device.py", count=4)["count"] == 4
    assert said("device.py", variables=(("CUDA_VISIBLE_DEVICES", "7,3"),), count=4)["count"] == 2

"""`release`: what it frees, and whom it names for the rest."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed
from tests.train.on_card import MIB, found_on_card
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import Shard, distribute_tensor

from dryfit.train.releasing import _held_on, release

HIDDEN = (
    "that no Python object shows, as activations in a graph whose loss or output is alive, and workspaces of libraries"
)


def test_a_cycle_is_freed_and_the_holders_of_the_rest_are_counted_once() -> None:
    found = found_on_card()["releases"]
    assert found["freed"] == 64 * MIB
    weight = ["float32 (1024, 1024)"]
    (parameters, gradients, others) = found["held"]
    assert parameters == ["parameters", 4 * MIB, 1, *weight]
    assert gradients == ["gradients", 4 * MIB, 1, *weight]
    # An output that a graph has kept, its loss, and a tensor that has two views.
    assert others[0] == "other tensors"
    assert others[3] == "uint8 (2, 16777216)"
    assert 48 * MIB <= others[1] < 48 * MIB + 32 * MIB


def test_the_sentences_have_the_numbers() -> None:
    found = found_on_card()["releases"]
    before, after = found["reserved"]
    first = found["first"]
    assert first.startswith(f"cuda:0: freed 64.00 MiB of tensors, gave {(before - after) / MIB:.2f} MiB back to the ")
    assert "4.00 MiB in 1 parameter, the largest float32 (1024, 1024)" in first
    assert f"{found['hidden'][0] / MIB:.2f} MiB {HIDDEN}." in first
    assert first.endswith(
        "sys.last_value keeps the last error and so all variables of the functions that it left, tensors among them."
    )


def test_a_graph_is_hidden_and_goes_with_its_loss() -> None:
    found = found_on_card()["releases"]
    # A ReLU's output of 4096 x 1024 floats, which the graph alone holds, and what a block is larger than its 4 bytes.
    assert found["hidden"][0] - found["hidden"][1] == 4096 * 1024 * 4 + 508
    assert "other tensor" not in found["second"]
    assert "sys." not in found["second"]


def test_without_a_device_there_is_nothing_to_say() -> None:
    assert release() == ()


def test_tensors_that_have_no_storage_of_their_own(tmp_path: Path) -> None:
    def held() -> dict[str, int]:
        found = _held_on(torch.device("cpu"), tensors)
        return {each.what: each.size_bytes for each in found}

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        weight = nn.Parameter(distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)]))
        tensors = [weight]
        assert held() == {"parameters": 128}
    finally:
        torch.distributed.destroy_process_group()
    embedding = nn.Embedding(9, 4, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    tensors = [embedding.weight]
    assert held() == {"parameters": 144}
    with FakeTensorMode():
        tensors = [torch.zeros(4)]
    assert held() == {}

"""A 3D segmentation on a large crop: two ranks take as much each as one, and wrapping every module makes it more.

The shape of Lightning-AI/pytorch-lightning#15976: 24 GB on one card and on each of two, 46 GB with every module of more
than ten parameters wrapped.
"""

from __future__ import annotations

import pytest
from tests.rehearse.distributed.shares import found, held, most, played

pytestmark = pytest.mark.xdist_group("segmentation")

CROP_VOXELS, BATCH, HALF = 128**3, 2, 2


def test_two_ranks_save_half_of_next_to_nothing() -> None:
    alone, shared = played("segmentation.py", world=1), played("segmentation.py", world=2)
    whole_bytes, shard_bytes = (sum(most(result).values()) for result in (alone, shared))
    assert whole_bytes - shard_bytes <= whole_bytes // 2
    assert held(alone, "backward")["saved activation"] == held(shared, "backward")["saved activation"]
    assert abs(alone.peak_allocated_bytes - shared.peak_allocated_bytes) < whole_bytes
    finding = found(shared, "DF408")
    numbers = finding.evidence.numbers
    assert finding.evidence.size_bytes == numbers["states_bytes"]
    states = ("parameter", "gradient", "optimizer state")
    assert numbers["states_bytes"] == sum(held(shared, "backward").get(owner, 0) for owner in states)
    assert numbers["whole_states_bytes"] == 2 * numbers["states_bytes"] < shared.peak_allocated_bytes // 50
    assert finding.claim == (
        "Parameters, gradients and optimizer states are 0.7% of the peak, 32.06 MiB of 4.19 GiB. To shard them over 2 "
        "ranks saves at most 32.06 MiB. More ranks can save these 32.06 MiB at most. FSDP's own buffers take 10.69 MiB."
    )
    assert "made anew of each batch: checkpoint activations, or make the batch, the crop" in finding.advice


def test_wrapping_every_module_casts_what_goes_through_batch_norms() -> None:
    shared, wrapped = played("segmentation.py", world=2), played("segmentation.py", "wrap", world=2)
    assert wrapped.peak_allocated_bytes > 1.3 * shared.peak_allocated_bytes
    finding = found(wrapped, "DF408")
    # In float32 from float16, and each of these saved for the backward pass of a batch norm or of what follows it.
    assert finding.evidence.numbers["cast_bytes"] > shared.peak_allocated_bytes // 2
    assert "Copies of activations that its mixed precision makes, as around batch norms, take 3." in finding.claim
    assert held(wrapped, "backward")["communication buffer"] < held(wrapped, "backward")["saved activation"] // 1000


def test_ddp_is_told_nothing_of_sharding() -> None:
    result = played("segmentation.py", "ddp", world=2)
    assert not [finding for finding in result.findings if finding.code == "DF408"]

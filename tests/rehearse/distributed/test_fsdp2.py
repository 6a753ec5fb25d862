"""FSDP2 with its options: shards, gathered parameters and buffers of a transformer equal the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rehearse.distributed.shares import (
    BF16,
    BLOCK,
    BLOCKS,
    FP32,
    ROOT,
    UNITS,
    Shape,
    chunk,
    each_rounded,
    found,
    held,
    most,
    own,
    played,
    rounded,
)

pytestmark = pytest.mark.xdist_group("fsdp2")

RANKS = 6  # divides none of 512, 1000 and 2048


def parameters(ranks: int) -> int:
    """Each is a tensor of its own, padded as for the first rank."""
    return each_rounded(FP32 * chunk(shape, ranks) for unit in UNITS for shape in unit)


def gradients(ranks: int) -> int:
    """Those of a unit come out of one reduce-scatter, padded."""
    return each_rounded(FP32 * sum(chunk(shape, ranks) for shape in unit) for unit in UNITS)


def states(ranks: int, rank: int) -> int:
    """AdamW's two moments, without padding."""
    return 2 * each_rounded(FP32 * own(shape, ranks, rank) for unit in UNITS for shape in unit)


def flat(ranks: int, item_bytes: int) -> int:
    """A block in one buffer: what all ranks gather, or what they reduce."""
    return rounded(item_bytes * ranks * sum(chunk(shape, ranks) for shape in BLOCK))


def whole(ranks: int, item_bytes: int, unit: Sequence[Shape] = BLOCK) -> int:
    """A unit's parameters while they are gathered, each a tensor of its own."""
    return each_rounded(item_bytes * ranks * chunk(shape, ranks) for shape in unit)


def test_a_rank_holds_its_shards() -> None:
    result = played("fsdp2.py", world=RANKS)
    assert most(result) == {
        "parameter": parameters(RANKS),
        "gradient": gradients(RANKS),
        "optimizer state": states(RANKS, 0),
    }
    # In backward a block is gathered while the gradients of the one before are reduced, and the root stays gathered.
    gathered = whole(RANKS, FP32) + whole(RANKS, FP32, ROOT)
    buffers = flat(RANKS, FP32) + flat(RANKS, FP32)
    assert held(result, "backward")["communication buffer"] == gathered + buffers
    assert "communication buffer" not in held(result, "loss")
    sent = result.communication["reduce-scatter"]
    assert sent.payload_bytes == FP32 * RANKS * sum(chunk(shape, RANKS) for unit in UNITS for shape in unit)
    assert result.communication["all-gather"].payload_bytes == 2 * sent.payload_bytes


def test_ranks_are_unequal_where_they_do_not_divide_the_rows() -> None:
    # 512 rows over 48 ranks are 11 each, so that rank 46 has the last 6 and rank 47 has none of most parameters.
    ranks = 48
    assert own((512,), ranks, 46) == 6
    assert own((512,), ranks, 47) == 0 < own((2048,), ranks, 47)
    first_and_last = played("fsdp2.py", world=ranks, ranks="0,last")
    peaks = {each.rank: each.peak_allocated_bytes for each in first_and_last.ranks}
    assert first_and_last.world is not None and first_and_last.world.rank == 0
    # Parameters and gradients are padded to the same size on all ranks; states are not.
    assert peaks[0] - peaks[47] == states(ranks, 0) - states(ranks, 47) > 0
    last = played("fsdp2.py", world=ranks, ranks="last")
    assert most(last) == {
        "parameter": parameters(ranks),
        "gradient": gradients(ranks),
        "optimizer state": states(ranks, 47),
    }


def test_mixed_precision_gathers_in_bfloat16_and_reduces_in_float32() -> None:
    result = played("fsdp2.py", "bf16", world=RANKS)
    assert most(result) == most(played("fsdp2.py", world=RANKS))
    gathered = whole(RANKS, BF16) + whole(RANKS, BF16, ROOT)
    assert held(result, "backward")["communication buffer"] == gathered + flat(RANKS, BF16) + flat(RANKS, FP32)
    payload = FP32 * RANKS * sum(chunk(shape, RANKS) for unit in UNITS for shape in unit)
    assert result.communication["reduce-scatter"].payload_bytes == payload
    assert result.communication["all-gather"].payload_bytes == 2 * payload // 2


def test_without_resharding_all_units_stay_gathered() -> None:
    kept = played("fsdp2.py", "keep", world=RANKS)
    gathered = BLOCKS * whole(RANKS, FP32) + whole(RANKS, FP32, ROOT)
    assert held(kept, "loss")["communication buffer"] == gathered
    assert kept.communication["all-gather"].payload_bytes == kept.communication["reduce-scatter"].payload_bytes


def test_offloaded_shards_leave_nothing_on_the_card() -> None:
    result, on_card = played("fsdp2.py", "offload", world=RANKS), played("fsdp2.py", world=RANKS)
    for phase in ("forward", "backward", "after backward", "optimizer step"):
        assert not {"parameter", "gradient", "optimizer state"} & held(result, phase).keys()
    # The rest of the peak is the same, but for what is left over in blocks that were not split.
    here, there = held(result, "backward"), held(on_card, "backward")
    shards = {"parameter", "gradient", "optimizer state", "block remainder"}
    assert here.keys() - shards == there.keys() - shards
    assert all(here[owner] == there[owner] for owner in here.keys() - shards)


def test_hsdp_shards_within_halves_of_the_ranks() -> None:
    result = played("fsdp2.py", "hsdp", "checkpoint", world=RANKS)
    half = RANKS // 2
    assert most(result) == {
        "parameter": parameters(half),
        "gradient": gradients(half),
        "optimizer state": states(half, 0),
    }
    # Each shard is reduced once more, with its copy in the other half.
    all_reduced = FP32 * sum(chunk(shape, half) for unit in UNITS for shape in unit)
    assert result.communication["all-reduce"].payload_bytes == all_reduced
    # Of each block its input alone is kept: as many tokens as 2 sequences of 128, each of 512 numbers.
    block_inputs, logits, loss = BLOCKS * 2 * 128 * 512 * FP32, 2 * 128 * 1000 * FP32, 512
    assert held(result, "loss")["saved activation"] >= block_inputs
    assert held(result, "loss")["saved activation"] <= block_inputs + 2 * 128 * 512 * FP32 + 2 * logits + 4 * loss


def test_no_sync_keeps_the_gradients_whole() -> None:
    layers, width, ranks = 8, 2048, 8
    reduced = played("accumulate.py", world=ranks)
    kept = played("accumulate.py", "no_sync", world=ranks)
    layer_bytes = (width + 1) * width * FP32
    # At its peak the last layer is reduced to its shard, and the others' gradients are whole instead of shards.
    more_bytes = (layers - 1) * layer_bytes * (ranks - 1) // ranks
    assert kept.peak_allocated_bytes - reduced.peak_allocated_bytes == more_bytes
    assert held(kept, "forward")["gradient"] == layers * layer_bytes
    assert not [finding for finding in reduced.findings if finding.code == "DF406"]
    finding = found(kept, "DF406")
    sent_more = 3 * layers * layer_bytes * (ranks - 1) // ranks
    assert finding.evidence.size_bytes == more_bytes
    assert finding.evidence.numbers["sent_more_bytes"] == sent_more
    sent = reduced.communication["reduce-scatter"].sent_bytes - kept.communication["reduce-scatter"].sent_bytes
    assert sent == sent_more
    assert finding.claim == (
        "4 micro-batches add up their gradients before these are reduced: at the peak 112.05 MiB of gradients are kept "
        "whole, of which this rank's shards are 14.01 MiB."
    )
    assert finding.advice == (
        "To reduce them with each micro-batch, without no_sync, takes 98.05 MiB less there, and sends 336.16 MiB more "
        "in each step."
    )

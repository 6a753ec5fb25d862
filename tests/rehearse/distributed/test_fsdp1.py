"""FSDP1 with its options: parts of flat parameters, and what is gathered of them, equal the arithmetic."""

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
    each_rounded,
    elements,
    found,
    held,
    most,
    played,
    rounded,
)

pytestmark = pytest.mark.xdist_group("fsdp1")

RANKS = 6  # divides neither unit


def part(unit: Sequence[Shape], ranks: int) -> int:
    """Elements of a rank's part of a unit's flat parameter, which is padded at its end."""
    return -(-elements(unit) // ranks)


def parts(ranks: int) -> int:
    return each_rounded(FP32 * part(unit, ranks) for unit in UNITS)


def gathered(unit: Sequence[Shape], ranks: int, item_bytes: int) -> int:
    return rounded(item_bytes * ranks * part(unit, ranks))


def test_a_rank_holds_its_part_of_each_flat_parameter() -> None:
    assert elements(BLOCK) % RANKS and elements(ROOT) % RANKS
    result, last = played("fsdp1.py", world=RANKS), played("fsdp1.py", world=RANKS, ranks="last")
    assert most(result) == {"parameter": parts(RANKS), "gradient": parts(RANKS), "optimizer state": 2 * parts(RANKS)}
    # The last rank's part is padded to the same size, made in another way, which leaves other remainders of blocks.
    for phase in ("backward", "optimizer step"):
        of_first, of_last = held(result, phase), held(last, phase)
        assert of_first | {"block remainder": 0} == of_last | {"block remainder": 0}
    # Two blocks are gathered in backward, the next one ahead of its turn, and the root from forward on.
    buffers = 2 * gathered(BLOCK, RANKS, FP32) + gathered(ROOT, RANKS, FP32)
    assert held(result, "backward")["communication buffer"] == buffers
    payload = FP32 * RANKS * sum(part(unit, RANKS) for unit in UNITS)
    assert result.communication["reduce-scatter"].payload_bytes == payload
    # All in forward; all but the root, which stays gathered, in backward.
    again = FP32 * RANKS * sum(part(unit, RANKS) for unit in UNITS[1:])
    assert result.communication["all-gather"].payload_bytes == payload + again


def test_shard_grad_op_keeps_the_parameters_gathered_and_bf16_halves_them() -> None:
    result = played("fsdp1.py", "grad_op", "bf16", world=RANKS)
    assert most(result)["parameter"] == parts(RANKS)
    whole = BLOCKS * gathered(BLOCK, RANKS, BF16) + gathered(ROOT, RANKS, BF16)
    assert held(result, "loss")["communication buffer"] == whole
    # Gradients go out in float32: a block's, and the same once more with the padding.
    payload = FP32 * RANKS * sum(part(unit, RANKS) for unit in UNITS)
    assert result.communication["reduce-scatter"].payload_bytes == payload
    assert result.communication["all-gather"].payload_bytes == payload // 2


def test_hybrid_shards_within_halves_of_the_ranks() -> None:
    result, half = played("fsdp1.py", "hybrid", world=RANKS), RANKS // 2
    assert most(result) == {"parameter": parts(half), "gradient": parts(half), "optimizer state": 2 * parts(half)}
    reduced_again = FP32 * sum(part(unit, half) for unit in UNITS)
    assert result.communication["all-reduce"].payload_bytes == reduced_again


def test_offloaded_parts_leave_nothing_on_the_card() -> None:
    result = played("fsdp1.py", "offload", "orig", world=RANKS)
    for phase in ("forward", "after backward", "optimizer step"):
        assert not {"parameter", "gradient", "optimizer state"} & held(result, phase).keys()


def test_no_sync_keeps_the_gradients_whole() -> None:
    for words, rank in ((("no_sync",), "0"), (("no_sync", "orig"), "last")):
        result = played("fsdp1.py", *words, world=RANKS, ranks=rank)
        in_all = sum(FP32 * elements(unit) for unit in UNITS)
        padding = FP32 * sum(RANKS * part(unit, RANKS) - elements(unit) for unit in UNITS)
        finding = found(result, "DF406")
        whole_bytes = finding.evidence.numbers["whole_gradient_bytes"]
        assert whole_bytes == in_all + (padding if "orig" in words else 0)
        shards_bytes = FP32 * sum(part(unit, RANKS) for unit in UNITS)
        assert finding.evidence.size_bytes == whole_bytes - shards_bytes
        assert finding.evidence.numbers["backward_passes"] == 4
        assert finding.evidence.numbers["sent_more_bytes"] == 3 * result.communication["reduce-scatter"].sent_bytes

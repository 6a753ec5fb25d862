"""`accumulate` with several real processes (gloo, on the CPU): DDP, FSDP2, FSDP1, unequal ranks, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train import ranks
from tests.train.processes import needs_fsdp2_on_the_host, run_on_ranks

EQUAL = 1e-6
Found = list[dict[str, dict[str, Any]]]


def run(world: int, folder: Path, *names: str) -> Found:
    run_on_ranks(world, ranks.start, world, str(folder), names)
    return [torch.load(folder / f"rank{rank}") for rank in range(world)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(2, tmp_path_factory.mktemp("two"), *ranks.CASES)


@pytest.mark.parametrize(
    "wrapped",
    [
        *("DDP", "DDP, static graph", "DDP, bucket views", "DDP, every", "FSDP1", "FSDP1, last"),
        *(pytest.param(name, marks=needs_fsdp2_on_the_host) for name in ("FSDP2", "FSDP2, last")),
    ],
)
def test_unequal_tokens_on_two_ranks_equal_the_large_batch(two: Found, wrapped: str) -> None:
    for found in two:
        assert found[wrapped]["sizes"] == [3, 2]
        assert max(found[wrapped]["off"]) <= EQUAL
        assert found[wrapped]["warnings"] == []


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(4, tmp_path_factory.mktemp("four"), "DDP", "unequal counts", *ranks.ON_FOUR_RANKS)


@needs_fsdp2_on_the_host
def test_ranks_that_hold_parts_of_a_layer_are_no_ranks_with_batches_of_their_own(four: Found) -> None:
    for found in four:
        assert max(found["FSDP2, tensor parallel"]["off"]) <= EQUAL
        assert found["FSDP2, tensor parallel"]["described"].startswith("3 micro-batches on 2 ranks make one")


def test_four_ranks_with_unequal_tokens_and_counts_equal_the_large_batch(four: Found) -> None:
    for found in four:
        for name in ("DDP", "unequal counts"):
            assert found[name]["sizes"] == [3, 2]
            assert max(found[name]["off"]) <= EQUAL
        (warned,) = found["unequal counts"]["warnings"]
        assert "rank 0 has 2, rank 1 none, rank 2 none, rank 3 none" in warned


@needs_fsdp2_on_the_host
def test_the_price_of_not_exchanging_is_said(two: Found) -> None:
    assert two[0]["FSDP2"]["described"] == (
        "3 micro-batches on 2 ranks make one optimizer step. FSDP exchanges gradients after each micro-batch; "
        'sync="last" would do so once per window, and keep 2.35 KiB of unsharded gradients on each card.'
    )
    assert two[0]["FSDP2, last"]["described"] == (
        "3 micro-batches on 2 ranks make one optimizer step. Gradients stay unsharded until the last micro-batch, "
        "2.35 KiB on each card."
    )
    parameters = sum(each.numel() for each in ranks.language_model().parameters())
    assert f"{4 * parameters / 1024:.2f}" == "2.35"


def test_ranks_with_unequal_counts_stop_together_and_say_so(two: Found) -> None:
    for found, read in zip(two, (7, 5), strict=True):
        assert found["unequal counts"]["sizes"] == [3, 2]
        assert max(found["unequal counts"]["off"]) <= EQUAL
        assert found["unequal counts"]["warnings"] == [
            f"The ranks have different numbers of micro-batches, so the epoch ends on all of them here, after {read} "
            f"read on this rank: of those for the next window rank 0 has 2, rank 1 none. They are left out, and what "
            f"more a loader has is not read. Give each rank as many, for example by DistributedSampler."
        ]
    for found, carried in zip(two, (3, 2), strict=True):
        assert found["unequal counts, carried"]["sizes"] == [3]
        assert found["unequal counts, carried"]["carried"] == carried
        (warned,) = found["unequal counts, carried"]["warnings"]
        assert "rank 0 has 3, rank 1 2. They are kept for the next epoch" in warned


def test_a_rank_whose_loader_fails_stops_the_others(two: Found) -> None:
    assert two[0]["a loader that fails"]["error"] == (
        "DryfitError: Rank 1 of 2 could not read its next micro-batches, so this rank stops too: OSError: the disk is "
        "gone. The traceback is in that rank's output."
    )
    assert two[1]["a loader that fails"]["error"] == "OSError: the disk is gone"


def test_b4_4_no_sync_belongs_around_forward_and_backward(two: Found) -> None:
    for own, found in ((1.0, two[0]["no_sync by hand"]), (2.0, two[1]["no_sync by hand"])):
        assert found["neither"] == 1.5
        assert found["backward only"] == 1.5  # exchanged after all
        assert found["forward only"] == own  # never exchanged
        assert found["both"] == own
        # ours: this rank's own gradient (a sum, times 2 for DDP's mean), and the sum of all with the last
        assert found["ours"] == [2 * own, 6.0]


def test_bf16_gradients_are_summed_and_exchanged_in_fp32_on_request(two: Found) -> None:
    for found in two:
        assert found["bf16"]["fp32"] <= 2**-9 < found["bf16"]["bf16"]


def test_refusals_that_need_ranks(two: Found) -> None:
    assert two[0]["refused"]["fp32 in FSDP"] == (
        "FSDP keeps gradients in the dtype of the sharded parameters. For sums in fp32 keep the parameters in fp32 and "
        "give fully_shard a MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), instead of "
        "fp32_gradients."
    )
    assert two[0]["refused"]["scaler in FSDP1"] == (
        "GradScaler looks for infinities in this rank's shards alone, so ranks would skip different steps. With "
        "FullyShardedDataParallel use torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler."
    )
    assert two[0]["refused"]["static graph"] == (
        "DistributedDataParallel(static_graph=True) cannot leave out exchanging gradients: PyTorch's no_sync fails "
        "with it, or leaves ranks apart (pytorch/pytorch#143580). Leave out static_graph, or what is asked of "
        'accumulate here: sync="last".'
    )
    assert two[0]["DDP, static graph"]["described"] == (
        "3 micro-batches on 2 ranks make one optimizer step. DDP exchanges gradients after each micro-batch, as "
        "no_sync does not work with static_graph=True."
    )
    assert two[0]["refused"]["effective"] == (
        "effective=64 was asked for, and micro-batches of 10 x 2 steps x 2 ranks make 40. Change one of them."
    )


def test_a_model_that_nothing_averages_is_named_unless_told(two: Found) -> None:
    for found in two:
        assert max(found["not wrapped"]["off"]) <= EQUAL
        assert found["not wrapped"]["warnings"] == [
            "There are 2 ranks, and the model is in neither DDP nor FSDP, so each rank is taken to train by itself. If "
            "something else averages its gradients, give accumulate(..., group=torch.distributed.group.WORLD)."
        ]
        assert max(found["averaged by hand"]["off"]) <= EQUAL
        assert found["averaged by hand"]["warnings"] == []


def test_equivalence_is_checked_on_one_rank(two: Found) -> None:
    for found in two:
        assert found["equivalence"]["DDP"]
        for name, kind in (("FSDP1", "FullyShardedDataParallel"), ("FSDP2", "FSDPSequential")):
            assert found["equivalence"][name] == (
                f"{kind} exchanges parameters or gradients with other ranks in every pass, and each would have to make "
                f"the same passes. Check the model before it is wrapped, on one process, in a small configuration if "
                f"need be."
            )

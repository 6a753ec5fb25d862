"""`micro_batched` with two real processes (gloo, on the CPU), of which one runs out of memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.train import micro_batching_ranks
from tests.train.processes import run_on_ranks

EQUAL = 1e-6
Found = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("two")
    run_on_ranks(2, micro_batching_ranks.start, 2, str(folder))
    return [torch.load(folder / f"rank{rank}") for rank in range(2)]


@pytest.mark.parametrize("case", ["forward", "backward", "bucket views"])
def test_one_rank_takes_smaller_pieces_and_the_gradient_is_that_of_ddp(two: Found, case: str) -> None:
    assert [found[case]["micro_batch"] for found in two] == [None, 3]
    assert [found[case]["warnings"] for found in two] == [[], ["MicroBatchWarning"]]
    for found in two:
        assert found[case]["off"] <= EQUAL
        assert found[case]["off afterwards"] <= EQUAL


def test_the_statistics_of_the_first_rank_are_everyones_when_a_step_begins(two: Found) -> None:
    for found in two:
        assert found["BatchNorm"]["off"] <= EQUAL


@pytest.mark.parametrize(
    ("case", "own"),
    [
        ("not even one", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("another error", "ValueError: a mistake in the step"),
    ],
)
def test_a_rank_that_cannot_go_on_tells_the_other_at_once(two: Found, case: str, own: str) -> None:
    assert two[1][case]["error"].startswith(own)
    assert two[0][case]["error"] == (
        "DryfitError: Rank 1 of 2 could not finish its batch, so this rank stops too. The error is in that rank's "
        "output."
    )
    for found in two:
        assert found[case]["seconds"] < 10
        assert found[case]["left"] == 0


def test_what_exchanges_within_forward_is_refused(two: Found) -> None:
    for found in two:
        assert found["refused"]["FSDP"].startswith(
            "micro_batched cannot go on after an out-of-memory error with an FSDP model: the other ranks wait inside a "
            "collective for the one that ran out."
        )
        assert found["refused"]["SyncBatchNorm"].startswith(
            "SyncBatchNorm at 0 exchanges statistics within the forward"
        )

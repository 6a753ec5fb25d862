"""Tensor, sequence and loss parallel, and slices that FSDP2 shards, against the arithmetic of the slices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse, Rehearsed

PROGRAM = (Path(__file__).parents[3] / "examples" / "distributed" / "tensor_parallel.py").read_text()
VOCABULARY, WIDTH, BLOCKS, TOKENS, BYTES_EACH = 8192, 512, 4, 2 * 512, 2
HIDDEN_BYTES = TOKENS * WIDTH * BYTES_EACH  # of the residual stream
LOGITS_BYTES = TOKENS * VOCABULARY * BYTES_EACH
NORMS = 2 * BLOCKS + 1
STATISTICS_BYTES = 2 * TOKENS * 4  # of a norm: mean and 1 / deviation, in float32
NORM_WEIGHTS_BYTES = NORMS * 2 * WIDTH * BYTES_EACH


def slices(ranks: int) -> list[int]:
    """The elements of each parameter of one rank: of biases, those that are added after the sum are whole."""
    mlp = [4 * WIDTH * WIDTH // ranks, 4 * WIDTH // ranks, 4 * WIDTH * WIDTH // ranks, WIDTH]
    attention = [3 * WIDTH * WIDTH // ranks, 3 * WIDTH // ranks, WIDTH * WIDTH // ranks, WIDTH]
    return BLOCKS * [*attention, *mlp, *4 * [WIDTH]] + [*2 * [VOCABULARY * WIDTH // ranks], WIDTH, WIDTH]


def in_blocks(elements: list[int]) -> int:
    """What the allocator makes of them: each in multiples of 512 bytes."""
    return sum(-(-each * BYTES_EACH // 512) * 512 for each in elements)


def ran(rehearse: Rehearse, *words: str, options: tuple[str, ...] = ()) -> Rehearsed:
    done = rehearse(PROGRAM, *words, options=("--world", "4", *options))
    assert done.code == 0, done.stderr
    return done


def kept_bytes(done: Rehearsed) -> int:
    """What the forward pass keeps, once cuBLAS has its workspace."""
    return int(re.findall(r"the forward pass keeps (\d+) bytes", done.stderr + done.stdout)[-1])


def passed(done: Rehearsed) -> dict[str, int]:
    return {kind: each["payload_bytes"] for kind, each in done.result["communication"].items()}


def test_slices_and_their_sums_and_what_is_shared_out_between_the_blocks(rehearse: Rehearse) -> None:
    ranks = 4
    whole = ran(rehearse)
    shared = ran(rehearse, "sequence", "loss", options=("--ranks", "last"))
    assert [each.result["world"]["rank"] for each in (whole, shared)] == [0, ranks - 1]
    for done in (whole, shared):
        assert f"the model takes {sum(slices(ranks)) * BYTES_EACH} bytes" in done.stdout + done.stderr
        owners = {each["owner"]: each["size_bytes"] for each in done.result["footprint"]["peak"]["owners"]}
        assert owners["parameter"] == in_blocks(slices(ranks))
        assert owners["optimizer state"] == 2 * in_blocks(slices(ranks))

    # Of each rank: 2 heads of 512 tokens in 2 samples, of which flash attention keeps a number for each, and its seeds.
    attention_bytes = 2 * 512 * 2 * 4 + 3 * 8
    slices_kept = (3 + 1 + 4 + 4) * HIDDEN_BYTES // ranks + attention_bytes  # qkv, seen, both sides of GELU
    inputs_kept = 2 * HIDDEN_BYTES  # what a norm gives is whole on every rank, for it is multiplied by all columns
    between = NORMS * (HIDDEN_BYTES + STATISTICS_BYTES)
    others = BLOCKS * (slices_kept + inputs_kept) + HIDDEN_BYTES
    assert kept_bytes(whole) == others + between + LOGITS_BYTES
    assert kept_bytes(shared) == others + (between + LOGITS_BYTES) // ranks

    # The sum after each attention and MLP, and of their gradients; of the embedding, and the gradient of the head.
    sums_bytes = (2 * 2 * BLOCKS + 2) * HIDDEN_BYTES
    assert passed(whole) == {"all-reduce": sums_bytes, "all-gather": LOGITS_BYTES}
    # Loss parallel reduces three numbers of each token: the largest logit, the sum of exponents, the target's logit.
    # AdamW uses the gradient of a norm's weight three times, which torch sums each time.
    statistics = TOKENS * (BYTES_EACH + 4 + 4)
    sums_of_norms = 3 * NORM_WEIGHTS_BYTES
    shared_out = {"all-gather": sums_bytes, "reduce-scatter": sums_bytes, "all-reduce": statistics + sums_of_norms}
    assert passed(shared) == shared_out
    for kind, each in shared.result["communication"].items():
        times = 2 if kind == "all-reduce" else 1
        assert each["sent_bytes"] == each["payload_bytes"] * times * (ranks - 1) // ranks


def test_slices_that_pairs_of_ranks_shard(rehearse: Rehearse) -> None:
    """Two dimensions: two ranks have a half of each weight, and shard the halves with another two."""
    done = ran(rehearse, "fsdp", "sequence", "loss")
    halves = slices(2)
    assert f"the model takes {sum(halves) * BYTES_EACH // 2} bytes" in done.stdout + done.stderr
    owners = {each["owner"]: each["size_bytes"] for each in done.result["footprint"]["peak"]["owners"]}
    assert owners["optimizer state"] == 2 * in_blocks([each // 2 for each in halves])

    whole_bytes = sum(halves) * BYTES_EACH
    of_blocks = (sum(halves[: 12 * BLOCKS])) * BYTES_EACH
    sums_bytes = (2 * 2 * BLOCKS + 2) * HIDDEN_BYTES
    assert passed(done) == {
        "all-gather": sums_bytes + whole_bytes + of_blocks,  # blocks are gathered for the backward pass once more
        "reduce-scatter": sums_bytes + whole_bytes,
        "all-reduce": TOKENS * (BYTES_EACH + 4 + 4) + NORM_WEIGHTS_BYTES,
    }


@pytest.mark.parametrize("ranks", [2, 4])
def test_slices_add_up(ranks: int) -> None:
    """The arithmetic itself: what is sliced is so many times smaller, and the rest is the same."""
    whole, part = slices(1), slices(ranks)
    assert {a // b for a, b in zip(whole, part, strict=True)} == {1, ranks}

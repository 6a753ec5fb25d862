"""DDP with its options: buckets, the gradients beside them, and hooks, equal the arithmetic."""

from __future__ import annotations

import pytest
from tests.rehearse.distributed.shares import found, held, most, played

pytestmark = pytest.mark.xdist_group("ddp")

RANKS, LAYERS, WIDTH = 8, 8, 2048
LAYER_BYTES = (WIDTH + 1) * WIDTH * 4
WEIGHTS_BYTES = LAYERS * LAYER_BYTES


def test_buckets_are_a_second_copy_of_the_gradients() -> None:
    copied, viewed = played("ddp.py", world=RANKS), played("ddp.py", "view", world=RANKS)
    assert most(copied) == {
        "parameter": WEIGHTS_BYTES,
        "gradient": WEIGHTS_BYTES,
        "optimizer state": 2 * WEIGHTS_BYTES,
    }
    assert most(viewed) == most(copied)
    assert held(copied, "optimizer step")["communication buffer"] == WEIGHTS_BYTES
    assert "communication buffer" not in held(viewed, "optimizer step")
    assert copied.peak_allocated_bytes - viewed.peak_allocated_bytes == WEIGHTS_BYTES
    assert copied.communication["all-reduce"].payload_bytes == WEIGHTS_BYTES
    assert copied.communication["all-reduce"].sent_bytes == 2 * (RANKS - 1) * WEIGHTS_BYTES // RANKS
    finding = found(copied, "DF407")
    assert finding.evidence.size_bytes == finding.evidence.numbers["bucket_bytes"] == WEIGHTS_BYTES
    assert finding.claim == (
        "At the peak 128.06 MiB of gradients lie beside DDP's buckets of 128.06 MiB, which hold all of them too."
    )
    assert "gradient_as_bucket_view=True" in finding.advice
    assert not [each for each in viewed.findings if each.code == "DF407"]


def test_views_of_buckets_are_lost_while_micro_batches_add_up() -> None:
    viewed = played("ddp.py", "view", "no_sync", world=RANKS)
    # The passes under no_sync make gradients of their own, beside the buckets, which the steps before have filled.
    assert held(viewed, "forward")["gradient"] == 2 * WEIGHTS_BYTES
    assert held(viewed, "optimizer step")["gradient"] == WEIGHTS_BYTES
    finding = found(viewed, "DF407")
    assert finding.evidence.size_bytes == WEIGHTS_BYTES
    assert finding.evidence.numbers["sent_more_bytes"] == 3 * 2 * (RANKS - 1) * WEIGHTS_BYTES // RANKS
    assert finding.claim.startswith("4 micro-batches add up their gradients under no_sync: at the peak 128.06 MiB of ")
    # What is advised: gradients that are set to zero, and not to None, stay views of the buckets.
    zeroed = played("ddp.py", "view", "no_sync", "zeros", world=RANKS)
    assert held(zeroed, "backward")["gradient"] == held(zeroed, "optimizer step")["gradient"] == WEIGHTS_BYTES
    assert not [each for each in zeroed.findings if each.code == "DF407"]


def test_a_hook_that_compresses_keeps_its_buckets_until_they_are_reduced() -> None:
    result = played("ddp.py", "view", "bf16", world=RANKS)
    assert result.communication["all-reduce"].payload_bytes == WEIGHTS_BYTES // 2
    assert most(result)["gradient"] == WEIGHTS_BYTES


def test_the_graph_known_to_be_static_and_large_buckets_change_no_sizes() -> None:
    result, plain = played("ddp.py", "view", "static", "cap=100", world=RANKS), played("ddp.py", "view", world=RANKS)
    assert most(result) == most(plain)
    assert result.communication["all-reduce"].payload_bytes == WEIGHTS_BYTES
    # Of 128 MiB, the first bucket has 1 MiB or a layer, and the rest is more than 100 MiB.
    calls = {each.communication["all-reduce"].calls for each in (result, plain)}
    assert result.communication["all-reduce"].calls < plain.communication["all-reduce"].calls, calls


def test_zero_shares_out_the_states_by_whole_parameters() -> None:
    # Eight weights over six ranks: the first two have two each, and the others one and two of the eight biases.
    weight, bias = WIDTH * WIDTH * 4, WIDTH * 4
    result = played("zero.py", world=6, ranks="0,2,last")
    states = {0: 2 * (2 * weight), 2: 2 * (weight + 2 * bias), 5: 2 * (weight + 2 * bias)}
    assert most(result) == {"parameter": WEIGHTS_BYTES, "gradient": WEIGHTS_BYTES, "optimizer state": states[0]}
    peaks = {each.rank: each.peak_allocated_bytes for each in result.ranks}
    # The peak is the foreach step, which takes half as much again for a while.
    assert peaks[0] - peaks[2] == (states[0] - states[2]) * 3 // 2
    assert peaks[2] == peaks[5]
    # Gradients are reduced, and each parameter is sent by the rank that steps it.
    assert result.communication["broadcast"].payload_bytes == WEIGHTS_BYTES

"""Context parallel: a rank has its part of the sequence's activations, and keys and values go round."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rehearse.conftest import Rehearse

PROGRAM = (Path(__file__).parents[3] / "examples" / "distributed" / "context_parallel.py").read_text()
VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, RANKS, BYTES_EACH = 8192, 4096, 512, 8, 4, 4, 2
HIDDEN_BYTES = LENGTH // RANKS * WIDTH * BYTES_EACH
PARAMETERS = 2 * VOCABULARY * WIDTH + BLOCKS * ((3 + 1 + 4 + 4) * WIDTH * WIDTH + (3 + 1 + 4 + 1) * WIDTH + 4 * WIDTH)
KEYS_AND_VALUES_BYTES = 2 * HIDDEN_BYTES


def test_activations_of_a_part_of_the_sequence(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--world", str(RANKS), "--ranks", "0,last"))
    assert done.code == 0, done.stderr
    # Inputs and outputs of linear layers, norms, attention and GELU; two norms' statistics; for each head and token the
    # number that flash attention keeps, and its seeds.
    tokens = LENGTH // RANKS
    block_bytes = (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4) * HIDDEN_BYTES + 2 * 2 * tokens * 4 + HEADS * tokens * 4 + 3 * 8
    kept_bytes = BLOCKS * block_bytes + HIDDEN_BYTES + tokens * VOCABULARY * BYTES_EACH
    kept = [int(each) for each in re.findall(r"the forward pass keeps (\d+) bytes", done.stdout + done.stderr)]
    # Where later ranks' keys are not seen, the ring puts what is seen together anew, by heads; torch then copies it.
    first, last = kept[2], kept[-1]
    assert last == kept_bytes
    assert first == kept_bytes + BLOCKS * HIDDEN_BYTES
    peaks = {each["rank"]: each["peak_allocated_bytes"] for each in done.result["ranks"]}
    assert done.result["world"]["rank"] == max(peaks, key=lambda rank: peaks[rank])

    communication = {kind: each["payload_bytes"] for kind, each in done.result["communication"].items()}
    # Gradients of keys and values, in float32, go all the way round to where they belong.
    round_bytes = BLOCKS * RANKS * 2 * KEYS_AND_VALUES_BYTES
    assert communication == {
        "all-gather": 2 * BLOCKS * RANKS * KEYS_AND_VALUES_BYTES,  # forward and backward
        "send": round_bytes,
        "receive": round_bytes,
        "all-reduce": PARAMETERS * BYTES_EACH,
    }


def test_from_neighbour_to_neighbour(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, "alltoall", options=("--world", str(RANKS)))
    assert done.code == 0, done.stderr
    steps_bytes = 2 * BLOCKS * (RANKS - 1) * KEYS_AND_VALUES_BYTES
    sent = done.result["communication"]["send"]
    assert sent["payload_bytes"] == steps_bytes + BLOCKS * RANKS * 2 * KEYS_AND_VALUES_BYTES
    assert sent["sent_bytes"] == sent["payload_bytes"]
    assert done.result["communication"]["receive"]["payload_bytes"] == sent["payload_bytes"]
    # What a neighbour sends is as large as what this rank sends: nothing had to be made up.
    assert done.result["unknowns"] == []

"""The examples of training on many cards, against the arithmetic of shards and buckets."""

from __future__ import annotations

from pathlib import Path

from tests.rehearse.conftest import Rehearse

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
LAYERS, WIDTH, WORLD = 8, 2048, 8
WEIGHTS_BYTES = LAYERS * (WIDTH + 1) * WIDTH * 4


def test_no_sync_under_fsdp2_keeps_the_gradients_whole(rehearse: Rehearse) -> None:
    program = (EXAMPLES / "accumulate.py").read_text()
    options = ("--world", str(WORLD))
    reduced = rehearse(program, options=options)
    assert reduced.code == 0, reduced.stderr
    whole = rehearse(program, "no_sync", options=options)
    assert whole.code == 0, whole.stderr
    more = whole.result["peak_allocated_bytes"] - reduced.result["peak_allocated_bytes"]
    # At its peak the last layer is reduced to its shard, and the others' gradients are whole instead of shards.
    assert more == WEIGHTS_BYTES // LAYERS * (LAYERS - 1) * (WORLD - 1) // WORLD


def test_tensor_parallel_halves_with_twice_the_ranks(rehearse: Rehearse) -> None:
    program = (EXAMPLES / "tensor_parallel.py").read_text()
    done = rehearse(program, options=("--world", "4"))
    assert done.code == 0, done.stderr
    assert done.result["world"] == {"size": 4, "nodes": 1, "rank": 0}
    # Weights and the column-wise bias are shared out among the ranks; the row-wise bias is whole on each.
    blocks, width, ranks, bytes_each = 6, 1024, 4, 4
    parameters = blocks * (2 * 4 * width * width // ranks + 4 * width // ranks + width)
    assert f"the model takes {parameters * bytes_each} bytes" in done.stdout + done.stderr

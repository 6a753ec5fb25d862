"""The examples of training on many cards, against the arithmetic of shards and buckets."""

from __future__ import annotations

from pathlib import Path

from tests.rehearse.conftest import Rehearse

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"


def test_tensor_parallel_halves_with_twice_the_ranks(rehearse: Rehearse) -> None:
    program = (EXAMPLES / "tensor_parallel.py").read_text()
    done = rehearse(program, options=("--world", "4"))
    assert done.code == 0, done.stderr
    assert done.result["world"] == {"size": 4, "nodes": 1, "rank": 0}
    # Weights and the column-wise bias are shared out among the ranks; the row-wise bias is whole on each.
    blocks, width, ranks, bytes_each = 6, 1024, 4, 4
    parameters = blocks * (2 * 4 * width * width // ranks + 4 * width // ranks + width)
    assert f"the model takes {parameters * bytes_each} bytes" in done.stdout + done.stderr

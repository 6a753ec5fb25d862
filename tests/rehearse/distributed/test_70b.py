"""Llama 70B on 64 ranks: the shards of the first and of the last rank, on a machine that could not hold the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rehearse.distributed.shares import BF16, EXAMPLES, Shape, each_rounded, elements, own, rounded

RANKS, LAYERS, WIDTH, INNER, KEYS, VOCABULARY = 64, 80, 8192, 28672, 1024, 128256
LAYER: tuple[Shape, ...] = (
    (WIDTH,), (WIDTH,), (WIDTH, WIDTH), (WIDTH, WIDTH), (KEYS, WIDTH), (KEYS, WIDTH), (INNER, WIDTH), (INNER, WIDTH),
    (WIDTH, INNER),
)  # fmt: skip
ROOT: tuple[Shape, ...] = ((VOCABULARY, WIDTH), (WIDTH,), (VOCABULARY, WIDTH))
UNITS = (ROOT, *[LAYER] * LAYERS)
MOST_HOST_BYTES = 3 << 30


@pytest.mark.parametrize("rank", [0, RANKS - 1])
def test_shards_of_70b_equal_the_arithmetic(rank: int, tmp_path: Path) -> None:
    assert sum(elements(unit) for unit in UNITS) == 70_553_706_496
    saved = tmp_path / "result.json"
    options = ["--world", str(RANKS), "--ranks", str(rank), "--gpu", "h100", "--steps", "1", "-o", str(saved)]
    program = str(EXAMPLES / "llama_70b.py")
    with (tmp_path / "output").open("w") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "dryfit", "run", *options, program], stdout=output, stderr=output, cwd=tmp_path
        )
        _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    result = json.loads(saved.read_text())
    assert result["verdict"] == "fits", result["ending"]
    assert result["world"] == {"size": RANKS, "nodes": 8, "rank": rank}
    shards = [[BF16 * own(shape, RANKS, rank) for shape in unit] for unit in UNITS]
    parameters = each_rounded(size for unit in shards for size in unit)
    parts = {part["owner"]: part["size_bytes"] for part in result["footprint"]["recipe"]["parts"]}
    assert parts == {
        "parameter": parameters,
        "gradient": sum(rounded(sum(unit)) for unit in shards),
        "optimizer state": 2 * parameters,
    }
    payload = BF16 * 70_553_706_496
    assert result["communication"]["reduce-scatter"]["payload_bytes"] == payload
    # Backward gathers the layers again, and has the root still.
    again = BF16 * LAYERS * elements(LAYER)
    assert result["communication"]["all-gather"]["payload_bytes"] == payload + again
    assert usage.ru_maxrss * 1024 < MOST_HOST_BYTES

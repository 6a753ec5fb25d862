"""26 billion parameters in bfloat16 on 16 ranks, accumulated without reducing: 3.25 GB of gradients become 52 GB.

The size of what a user of FSDP2 met (meta-pytorch/tnt#1057): 38 % of the cards in use, or 86 %.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from tests.rehearse.distributed.shares import BF16, EXAMPLES, found, held, most, played

RANKS, LAYERS, WIDTH = 16, 97, 16384
GRADIENT_BYTES = BF16 * LAYERS * WIDTH * WIDTH


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The example on accumulation, made on the meta device and much larger."""
    text = (EXAMPLES / "accumulate.py").read_text()
    for found_there, instead in (
        (
            "model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()",
            'torch.set_default_dtype(torch.bfloat16)\nwith torch.device("meta"):\n    layers = [torch.nn.Linear('
            f"{WIDTH}, {WIDTH}, bias=False) for _ in range({LAYERS})]\nmodel = torch.nn.Sequential(*layers)",
        ),
        ("fully_shard(model)\n", 'fully_shard(model)\nmodel.to_empty(device="cuda")\n'),
        ("for _ in range(4):\n    for", "for _ in range(2):\n    for"),  # steps
        ("torch.randn(16, 2048,", f"torch.randn(16, {WIDTH},"),
    ):
        assert found_there in text
        text = text.replace(found_there, instead)
    path = tmp_path / "accumulate.py"
    path.write_text(text)
    return path


def test_no_sync_takes_fifteen_sixteenths_more(program: Path) -> None:
    run = functools.partial(played, program, world=RANKS, gpu="h200")
    reduced, kept = run(), run("no_sync")
    assert GRADIENT_BYTES == 52_076_478_464
    assert most(reduced)["gradient"] == GRADIENT_BYTES // RANKS == 3_254_779_904
    assert held(kept, "forward")["gradient"] == GRADIENT_BYTES
    finding = found(kept, "DF406")
    # At the peak the last two layers are on their way: one is a shard, and of one the gradient is not there yet.
    layer = GRADIENT_BYTES // LAYERS
    assert finding.evidence.numbers["whole_gradient_bytes"] == (LAYERS - 1) * layer
    assert finding.evidence.size_bytes == (LAYERS - 1) * layer * (RANKS - 1) // RANKS
    assert "48.00 GiB of gradients are kept whole, of which this rank's shards are 3.00 GiB" in finding.claim
    assert not reduced.findings

"""The owners of a rehearsal against those that PyTorch's own profiler found on a real card.

`torch.profiler` names the category of every allocation (`export_memory_timeline`), from what it saw of every operator.
The figures are those of github.com/tonghuikang/optimizer-memory-profiles, recorded on an A10G.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from dryfit.analyse import analyse
from dryfit.recording.file import load
from dryfit.recording.model import ACTIVATION, GRADIENT, OPTIMIZER_STATE, OWNERS

TIMELINES = Path(__file__).parents[3] / "shared" / "truth" / "snapshots"
CATEGORIES = {1: OPTIMIZER_STATE, 4: ACTIVATION, 5: GRADIENT}
"""The profiler's numbers of its categories that have an owner of the same meaning here."""

PROGRAM = """
    import torch
    from torchvision import models

    model = models.resnet50().cuda()
    images = torch.randn(1, 3, 224, 224, device="cuda")
    labels = torch.rand_like(model(images))
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.OPTIMIZER
    for _ in range(4):
        predicted = model(images)
        loss_of(predicted, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
"""

# The most that each category held, in bytes.
RECORDED = {
    "sgd": {OPTIMIZER_STATE: 0, ACTIVATION: 87_203_840, GRADIENT: 104_361_984},
    "sgdm": {OPTIMIZER_STATE: 105_869_312, ACTIVATION: 87_629_824, GRADIENT: 104_361_984},
    "adam": {OPTIMIZER_STATE: 209_412_096, ACTIVATION: 87_564_288, GRADIENT: 104_984_576},
}
OPTIMIZERS = {
    "sgd": "SGD(model.parameters(), lr=1e-2)",
    "sgdm": "SGD(model.parameters(), lr=1e-2, momentum=0.9)",
    "adam": "Adam(model.parameters(), lr=1e-2)",
}


@pytest.mark.stacks
@pytest.mark.truth
@pytest.mark.parametrize("name", ["sgdm", "adam"])  # without momentum there is nothing that these do not have
def test_owners_hold_to_the_byte_what_the_profiler_found_on_a_real_card(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM.replace("OPTIMIZER", OPTIMIZERS[name])))
    options = ["--gpu", "a10g", "--steps", "all", "--record", "run.dryfit"]
    command = [sys.executable, "-m", "dryfit", "run", *options, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    analysed = analyse(load(tmp_path / "run.dryfit"))
    replayed, found = analysed.replay, analysed.attribution

    changes: list[tuple[int, str, int]] = []
    lifetimes = replayed.lifetimes
    for owner, begin, end, size in zip(found.owner, lifetimes.begin, lifetimes.end, lifetimes.block_bytes, strict=True):
        changes += [(begin, OWNERS[owner], size), (end, OWNERS[owner], -size)]
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event, owner, size in sorted(changes):
        if event < len(analysed.trace.events):
            held[owner] += size
            most[owner] = max(most[owner], held[owner])
    assert {owner: most[owner] for owner in RECORDED[name]} == RECORDED[name]


@pytest.mark.truth
@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_figures_are_what_the_timeline_says(name: str) -> None:
    timeline = TIMELINES / f"timeline_resnet50_bs1_{name}_a10g.raw.json.gz"
    if not timeline.exists():
        pytest.skip(f"the timeline does not lie beside this checkout, at {timeline}")
    held: Counter[str] = Counter()
    most: Counter[str] = Counter()
    with gzip.open(timeline) as file:
        for _time, _action, size, category in json.load(file):
            owner = CATEGORIES.get(category, "")
            held[owner] += size
            most[owner] = max(most[owner], held[owner])
    assert {owner: most[owner] for owner in RECORDED[name]} == RECORDED[name]

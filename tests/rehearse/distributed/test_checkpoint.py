"""Distributed checkpoints in a rank that plays alone: nobody is waited for, and nothing of the user's is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse

RANKS = 4
START = """
    import os
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def train():
        for _ in range(3):
            model(torch.randn(16, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def test_each_rank_saves_its_part_and_nothing_stays(rehearse: Rehearse, project: Path) -> None:
    program = """
    train()
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "states": states}, checkpoint_id="checkpoint/first")
    written = sum(each.stat().st_size for each in __import__("pathlib").Path("checkpoint/first").iterdir())
    dcp.async_save({"weights": weights}, checkpoint_id="checkpoint/second").result()
    dcp.load({"weights": weights, "states": states}, checkpoint_id="checkpoint/first")
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    print("rank", dist.get_rank(), "wrote", written, "and has", len(whole))
    """
    done = rehearse(START + program, options=("--world", str(RANKS), "--ranks", "0,last", "--steps", "all"))
    assert done.code == 0, done.stderr
    assert done.result["steps"] == 3
    found = re.findall(r"rank (\d) wrote (\d+) and has (\d+)", done.stdout + done.stderr)
    # The first rank gathers whole weights.
    assert [(rank, count) for rank, _, count in found] == [("0", "8"), (str(RANKS - 1), "0")]
    part_bytes = 4 * (512 + 1) * 512 // RANKS * 4 * 3  # weights and two states
    for _, written, _ in found:
        assert part_bytes < int(written) < part_bytes * 1.2  # with the names and places of the parts
    assert [each.name for each in project.iterdir()] == ["train.py"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # no_dist says as much
def test_a_rank_resumes_from_a_checkpoint_that_is_there(rehearse: Rehearse, project: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 512)).sum().backward()
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "states": states}, checkpoint_id=str(project / "checkpoint"), no_dist=True)
    files = {each.name: each.stat().st_mtime_ns for each in (project / "checkpoint").iterdir()}
    program = """
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"weights": weights, "states": states}, checkpoint_id="checkpoint")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    print("went on from step", int(next(iter(optimizer.state.values()))["step"]))
    train()
    """
    done = rehearse(START + program, options=("--world", str(RANKS), "--rank", str(RANKS - 1)))
    assert done.code == 0, done.stderr
    assert "went on from step 1" in done.stdout + done.stderr
    assert {each.name: each.stat().st_mtime_ns for each in (project / "checkpoint").iterdir()} == files

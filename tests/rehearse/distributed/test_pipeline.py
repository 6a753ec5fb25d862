"""Pipelines, whose stages are real processes: what each takes to the byte, and how a run of several ranks ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.rehearse.conftest import CARD, Rehearse

PIPELINE = Path(__file__).parents[3] / "examples" / "distributed" / "pipeline.py"
KIB, MIB = 1 << 10, 1 << 20
STAGES, MICRO_BATCHES, SAMPLES, WIDTH = 4, 8, 512, 1024
BLOCKS = 2  # of each stage

PARAMETERS_BYTES = BLOCKS * (8 * WIDTH * WIDTH + 5 * WIDTH) * 4
INPUT_BYTES = SAMPLES * WIDTH * 4  # of one micro-batch, and so its output and their gradients
HIDDEN_BYTES = 4 * INPUT_BYTES  # before GELU, and after it once more
WORKSPACE_BYTES = 8 * MIB + 128 * KIB  # cuBLAS', of the program's thread and of autograd's: on an A100
SCALAR_BYTES = 512  # as the allocator rounds it


def peak_bytes(schedule: str, stage: int) -> int:
    """The most that tensors hold, in the backward pass of a micro-batch whose gradients are added to others'.

    That is not the first, which makes the gradients, and where it reaches the last Linear.
    """
    is_first, is_last = stage == 0, stage == STAGES - 1
    # GPipe has run all micro-batches forward, and the first of them backward; 1F1B as many as stages are still to come.
    kept = MICRO_BATCHES - 1 if schedule == "GPipe" else STAGES - stage
    activations = BLOCKS * 2 * HIDDEN_BYTES + (BLOCKS - 1) * INPUT_BYTES
    received = (0 if is_first else MICRO_BATCHES) + (0 if is_last else MICRO_BATCHES)  # into buffers made at the start
    batch = MICRO_BATCHES * (is_first + is_last)  # or its target
    if is_last:
        # All outputs, to be merged into one; and each loss is a scalar in the storage that mse_loss had for squares.
        outputs = 2 * MICRO_BATCHES
    elif schedule == "GPipe":
        outputs = MICRO_BATCHES  # the works of their sends are waited for, and kept to the end of the step
    else:
        outputs = kept + 1  # one more for the work of the last send before the first backward pass
    passed_back = 0 if is_first else 1  # the gradient of the previous micro-batch's input, sent to the stage before
    of_the_last_linear = HIDDEN_BYTES + 4 * WIDTH * WIDTH * 4 + WIDTH * 4  # gradients: input, weight, bias
    of_the_loss = INPUT_BYTES + SCALAR_BYTES if is_last else 0
    return (
        4 * PARAMETERS_BYTES  # with gradients and AdamW's two states
        + 2 * WORKSPACE_BYTES
        + kept * activations
        + (received + batch + outputs + passed_back) * INPUT_BYTES
        + of_the_last_linear
        + of_the_loss
    )


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_each_stage_takes_what_its_schedule_keeps(rehearse: Rehearse, schedule: str) -> None:
    done = rehearse(["torchrun", "--nproc-per-node", str(STAGES), str(PIPELINE), schedule])
    assert done.code == 0, done.stderr
    ranks = done.result["ranks"]
    assert [rank["rank"] for rank in ranks] == list(range(STAGES))
    expected = [peak_bytes(schedule, stage) for stage in range(STAGES)]
    assert [rank["peak_allocated_bytes"] for rank in ranks] == expected
    assert [rank["verdict"] for rank in ranks] == ["fits"] * STAGES
    # Inner stages send outputs on and gradients back, the outer ones one of both.
    sent_bytes = MICRO_BATCHES * INPUT_BYTES
    assert [rank["sent_bytes"] for rank in ranks] == [sent_bytes, 2 * sent_bytes, 2 * sent_bytes, sent_bytes]
    # Between neighbours NCCL makes a communicator for each pair, so that an inner stage has three.
    decides = max(ranks, key=lambda rank: rank["peak_total_bytes"])
    assert decides["rank"] in (1, 2)
    assert done.result["world"] == {"size": STAGES, "nodes": 1, "rank": decides["rank"]}
    assert done.result["peak_allocated_bytes"] == decides["peak_allocated_bytes"]
    assert f" as rank {decides['rank']} of 4: needs " in done.stdout
    assert (
        f"4 ranks ran together, each on a card of its own; the figures are those of rank {decides['rank']}."
        in done.result["notes"]
    )
    assert done.result["findings"] == []


TWO = """
    import os, signal, sys, time
    import torch, torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, 4):
        loss = model(torch.randn(8, 64, device="cuda")).sum()
        loss.backward()
        if dist.get_rank() == 1 and step == 2:
            HAPPENS
        dist.all_reduce(loss)
        optimizer.step()
        optimizer.zero_grad()
"""


def two_ranks(project: Path, happens: str) -> list[str]:
    (project / "train.py").write_text(re.sub("(?m)^    ", "", TWO).replace("HAPPENS", happens))
    return ["torchrun", "--nproc-per-node", "2", "train.py"]


@pytest.mark.parametrize(
    ("happens", "sentence"),
    [
        (
            "os.kill(os.getpid(), signal.SIGSEGV)",
            "Rank 1 crashed after 1 optimiser step with SIGSEGV (train.py:13). If it runs on a real card, the virtual "
            "one is at fault: please report it with the program.",
        ),
        ("sys.exit()", "Rank 1 ended after 1 optimiser step, and rank 0 waited for it (train.py:14)."),
    ],
)
def test_the_rank_that_fails_is_named(rehearse: Rehearse, project: Path, happens: str, sentence: str) -> None:
    done = rehearse(two_ranks(project, happens))
    assert done.code == 2, done.stderr
    assert done.result["ending"]["sentence"] == sentence
    assert not still_there(project)


def test_ctrl_c_ends_ranks_that_wait_and_says_for_whom(project: Path) -> None:
    words = two_ranks(project, "print('sleeps', flush=True); time.sleep(1000)")
    command = [sys.executable, "-m", "dryfit", "run", "--gpu", CARD, "--no-values", *words]
    with subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        said = next(line for line in running.stderr if "sleeps" in line)
        assert said.strip().endswith("sleeps")
        time.sleep(2)  # for rank 0 to come to its wait
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        stdout, _ = running.communicate(timeout=60)
        assert time.monotonic() - began < 20
    assert running.returncode == 130
    assert "torchrun was stopped after 1 optimiser step, by Ctrl-C. Rank 0 was waiting in a call, rank 1 was not." in (
        " ".join(stdout.split())
    )
    assert not still_there(project)


def still_there(project: Path) -> list[int]:
    """Processes that are in a folder, as those of a rehearsal are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == project:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_spawned_ranks_stop_after_the_same_step(rehearse: Rehearse) -> None:
    """torch.multiprocessing starts them; rank 1 takes more in each of five steps, and rank 0 is steady after three."""
    done = rehearse(
        """
        import os
        import torch, torch.distributed as dist, torch.multiprocessing as mp

        def train(rank, ranks):
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
            torch.cuda.set_device(rank)
            dist.init_process_group("nccl", rank=rank, world_size=ranks)
            model = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            kept = []
            for step in range(1, 30):
                loss = model(torch.randn(8, 64, device="cuda")).sum()
                loss.backward()
                dist.all_reduce(loss)
                optimizer.step()
                optimizer.zero_grad()
                if rank == 1 and step <= 5:
                    kept.append(torch.empty(32 << 20, dtype=torch.uint8, device="cuda"))

        if __name__ == "__main__":
            mp.spawn(train, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
        """,
        options=("--cards", "2"),
    )
    assert done.code == 0, done.stderr
    assert done.result["ending"]["how"] == "steady"
    one, other = (process["steps"] for process in done.result["processes"])
    assert one == other > 5
    assert done.result["world"] == {"size": 2, "nodes": 1, "rank": 1}
    steady, growing = done.result["ranks"]
    assert growing["peak_allocated_bytes"] - steady["peak_allocated_bytes"] == 5 * 32 * MIB

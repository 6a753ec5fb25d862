"""What is said where a lone rank meets what only its peers have, or a world is asked for that there is not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse

from dryfit.rehearse.inside.alone.meshes import another_size
from dryfit.rehearse.inside.bootstrap import STOP_SIGNAL
from dryfit.rehearse.world import World

ONE_PROCESS = "--num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"


@pytest.mark.parametrize(
    ("shape", "size", "sentence"),
    [
        (
            (3, 2),
            8,
            "init_device_mesh was asked for 3 x 2 ranks, and --world says 8: ranks 6 and 7 are in no part of the mesh. "
            "If the mesh is to be all of the world, write --world 6, or give it another shape.",
        ),
        (
            (7,),
            8,
            "init_device_mesh was asked for 7 ranks, and --world says 8: rank 7 is in no part of the mesh. If the mesh "
            "is to be all of the world, write --world 7, or give it another shape.",
        ),
        (
            (3, 2),
            4,
            "init_device_mesh was asked for 3 x 2 ranks, and --world says 4: there are too few for it. Rehearse with "
            "--world 6, or give it another shape.",
        ),
    ],
)
def test_a_mesh_of_another_size_than_the_world(shape: tuple[int, ...], size: int, sentence: str) -> None:
    assert another_size(shape, World(size=size)) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--world", "2", "--nodes", "3"),
            "--world 2 --nodes 3: 2 ranks cannot be shared out equally among 3 nodes; every node has as many cards as "
            "the others.",
        ),
        (
            ("--world", "8", "--ranks", "0,8"),
            "--ranks 0,8: there is no rank 8 in a world of 8; they are numbered from 0 to 7.",
        ),
    ],
)
def test_there_is_no_such_world(rehearse: Rehearse, options: tuple[str, ...], sentence: str) -> None:
    done = rehearse("import torch", options=options, gpu="rtx-4090")
    assert (done.code, done.stderr.strip()) == (2, f"dryfit: {sentence}")


@pytest.mark.stacks
def test_a_rank_that_waits_for_a_peer_says_where_when_it_is_stopped(rehearse: Rehearse, project: Path) -> None:
    program = f"""
        import os
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        dist.init_process_group("nccl")
        init_device_mesh("cuda", (3, 1))
        store, tries = dist.distributed_c10d._get_default_store(), 0
        while not store.check(["rank 1 is ready"]):
            tries += 1
            if tries == 20:  # in place of a limit of time, which would have to leave this machine enough for torch
                os.kill(os.getppid(), {STOP_SIGNAL})
                os.kill(os.getpid(), {STOP_SIGNAL})
    """
    (project / "train.py").write_text(textwrap.dedent(program))
    done = rehearse(["accelerate", "launch", *ONE_PROCESS.split(), "train.py"], options=("--world", "4"))
    assert done.code == 3
    (said,) = [note for note in done.result["notes"] if note.startswith("It was at ")]  # the launcher says nothing
    assert said == (
        f"It was at train.py:13 then (os.kill(os.getpid(), {STOP_SIGNAL})), and had asked the store 20 times for "
        "'rank 1 is ready', which this rank has not written. It plays rank 0 of 4 alone: what another rank would write "
        "or send never comes. If it waits for that, rehearse real processes: dryfit run torchrun --nproc-per-node N "
        "train.py"
    )
    launcher, mesh = done.result["world_notes"]
    assert launcher.startswith("accelerate was to start 1 rank on 1 machine")
    assert mesh == another_size((3, 1), World(size=4))


def test_what_a_neighbour_sends_is_a_stand_in_and_said(rehearse: Rehearse) -> None:
    program = """
        import os
        import torch, torch.distributed as dist

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        received = torch.full((2,), 5, device="cuda")
        dist.recv(received, src=1)
        dist.irecv(received, src=2).wait()
        own = torch.full((4,), 7.0, device="cuda")
        forward = torch.empty(4, device="cuda")
        ring = [dist.P2POp(dist.isend, own, 1), dist.P2POp(dist.irecv, forward, 3)]
        [work.wait() for work in dist.batch_isend_irecv(ring)]
        parts = torch.empty(4, device="cuda")
        dist.all_to_all_single(parts, torch.arange(10.0, device="cuda"), [1] * 4, [1, 2, 3, 4])
        print("received", received.tolist(), forward.tolist())
    """
    done = rehearse(program, options=("--world", "4", "--steps", "all"))
    assert done.code == 0, done.stderr
    assert "received [0, 0] [7.0, 7.0, 7.0, 7.0]" in done.stderr  # in a ring comes what this rank sends on
    (told,) = [each for each in done.result["unknowns"] if "sends to this one" in each["what"]]
    assert told["what"] == (
        "what another rank sends to this one, which plays alone (recv, irecv, all_to_all of uneven splits)"
    )
    assert (told["answer"], told["decides_size"]) == ("stand-ins", False)


def test_a_program_without_peers_is_told_so(rehearse: Rehearse) -> None:
    program = """
        import torch
        torch.zeros(1 << 20, device="cuda")
    """
    done = rehearse(program, options=("--world", "8"))
    assert done.code == 0, done.stderr
    note = (
        "The program never made a process group (torch.distributed.init_process_group), so nothing is shared out among "
        "the 8 ranks of --world: the figures are those of one process by itself."
    )
    assert done.result["notes"][0] == note
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("FITS on ") and "rank" not in first
    assert second == note


def test_a_rank_that_fails_over_what_a_peer_would_have_told_it(rehearse: Rehearse) -> None:
    program = """
        import torch.distributed as dist

        dist.init_process_group("nccl")
        port = int(dist.distributed_c10d._get_default_store().get("port of rank 1"))
    """
    done = rehearse(program, options=("--world", "4"))
    assert done.code == 2
    assert done.result["ending"]["sentence"].startswith("train.py failed before its first optimiser step: ValueError: ")
    assert done.result["notes"][0] == (
        "It had read zeros from the store for 'port of rank 1': it plays rank 0 of 4 alone, and another rank would "
        "have written that. Rehearse real processes: dryfit run torchrun --nproc-per-node N train.py"
    )

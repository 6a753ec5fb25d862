"""What is said where a lone rank meets what only its peers have, or a world is asked for that there is not."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse

from dryfit.rehearse.inside.alone import last_words
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
        "or send never comes. If it waits for that, rehearse real processes: dryfit run torchrun --nproc-per-node 4 "
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
    sentence = done.result["ending"]["sentence"]
    assert sentence.startswith("train.py failed before its first optimiser step: ValueError: ")
    assert sentence.endswith(
        ". It plays rank 0 of 4 alone: what it read from the store for 'port of rank 1' was zeros. If it failed "
        "because of that, rehearse real processes: dryfit run torchrun --nproc-per-node 4 train.py"
    )


def test_a_rank_that_fails_over_objects_and_tensors_of_others(rehearse: Rehearse) -> None:
    program = """
        import torch, torch.distributed as dist

        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        dist.recv(torch.empty(4, device="cuda"), src=1)
        settings = [{"width": 4}] if dist.get_rank() == 0 else [None]
        dist.broadcast_object_list(settings, src=0)
        settings[0]["width"]
    """
    done = rehearse(program, "--epochs", "3", options=("--world", "4", "--rank", "3"))
    assert done.code == 2
    assert done.result["ending"]["sentence"] == (
        "train.py failed before its first optimiser step: TypeError: 'NoneType' object is not subscriptable "
        "(train.py:9). Its own output above says more. It plays rank 3 of 4 alone: objects that are gathered, "
        "broadcast or scattered are its own, and what it receives is a stand-in. If it failed because of that, "
        "rehearse real processes: dryfit run torchrun --nproc-per-node 4 train.py --epochs 3"
    )
    # Rank 0 has the objects itself, and its failure comes of something else.
    first = rehearse(
        """
        import torch.distributed as dist

        dist.init_process_group("nccl")
        dist.broadcast_object_list([{"width": 4}])
        dist.broadcast_object_list([{"width": 4}], src=0)
        raise ValueError("its own")
    """,
        options=("--world", "4"),
    )
    assert first.result["ending"]["sentence"].endswith("Its own output above says more.")


def after(error: BaseException, *, size: int = 8, rank: int = 3) -> str:
    return last_words.after(error, (), World(size=size, rank=rank), has_objects=False, has_received=False)


def test_a_rank_that_fails_over_a_connection_or_variables_of_a_batch_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--name", "a b"])
    assert after(ConnectionRefusedError(111, "refused")) == (
        "It plays rank 3 of 8 alone: nobody listens where it connects. If it failed because of that, rehearse real "
        "processes: dryfit run torchrun --nproc-per-node 8 train.py --name 'a b'"
    )
    start = (
        "--world sets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK), and none of a batch system's. Give them "
        "yourself, for one rank at a time: "
    )
    end = " dryfit run --world 8 --ranks 3 train.py --name 'a b'"
    for name, words in (
        ("SLURM_PROCID", "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=3"),
        ("SLURM_NODELIST", "SLURM_NODELIST=... SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=3"),
        (
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=3",
        ),
    ):
        assert after(KeyError(name)) == start + words + end
    assert after(KeyError("SOMETHING")) == after(ValueError("SLURM_PROCID")) == ""
    assert after(ConnectionRefusedError(), size=1, rank=0) == ""

"""One process plays one rank of a distributed run, alone: what it meets, and what it takes."""

from __future__ import annotations

import pytest
from tests.rehearse.conftest import Rehearse

MIB = 1 << 20
# Eight linear layers of 2048 x 2048, and what DDP and an optimizer keep of them.
LAYERS, WIDTH = 8, 2048
WEIGHTS_BYTES = LAYERS * (WIDTH + 1) * WIDTH * 4

DDP = """
    import os, sys
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    model = DistributedDataParallel(model, gradient_as_bucket_view="view" in sys.argv)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.randn(16, 2048, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_ddp_copies_the_gradients_into_buckets_unless_they_are_views(rehearse: Rehearse) -> None:
    copied = rehearse(DDP, options=("--world", "8"))
    assert copied.code == 0, copied.stderr
    viewed = rehearse(DDP, "view", options=("--world", "8"))
    assert copied.result["world"] == {"size": 8, "nodes": 1, "rank": 0}
    # In backward a view's gradient is there twice for a moment, too; when the optimizer steps, it is not.
    stepping = [each.result["phase_peaks"]["optimizer step"] for each in (copied, viewed)]
    assert stepping[0] - stepping[1] == WEIGHTS_BYTES
    assert viewed.result["peak_allocated_bytes"] < copied.result["peak_allocated_bytes"]
    assert "as rank 0 of 8" in copied.stdout


@pytest.mark.parametrize("words", [[], ["torchrun", "--nproc-per-node", "4"]])
def test_a_rank_sees_its_world_and_agrees_with_itself(rehearse: Rehearse, words: list[str]) -> None:
    """A launcher starts one process, which is the rank that is asked for."""
    rehearse("")  # to have the folder
    program = """
        import os, torch, torch.distributed as dist

        dist.init_process_group("cpu:gloo,cuda:nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, {"rank": dist.get_rank()})
        told = ["from rank 0"] if dist.get_rank() == 0 else [None]
        dist.broadcast_object_list(told, src=0)
        pair = dist.new_group([2, 3])
        total = torch.ones(4)
        dist.all_reduce(total)
        dist.barrier()
        print("I am", dist.get_rank(), "of", dist.get_world_size(), torch.cuda.current_device(), gathered[0], told)
        torch.zeros(1 << 20, device="cuda")
    """
    if words:
        rehearse(program, options=("--world", "4"))  # writes it
        done = rehearse([*words, "train.py"], options=("--world", "4", "--rank", "3"))
    else:
        done = rehearse(program, options=("--world", "4", "--rank", "3"))
    assert done.code == 0, done.stderr
    assert "I am 3 of 4 3 {'rank': 3} [None]" in done.stderr
    assert len([process for process in done.result["processes"] if process["peak_used_bytes"]]) == 1


def test_the_rank_that_takes_most_decides(rehearse: Rehearse) -> None:
    program = """
        import os, torch, torch.distributed as dist

        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        kept = torch.empty((dist.get_rank() + 1) << 20, dtype=torch.uint8, device="cuda")
    """
    done = rehearse(program, options=("--world", "4", "--ranks", "all"))
    assert done.code == 0, done.stderr
    assert done.result["world"]["rank"] == 3
    assert done.result["peak_allocated_bytes"] == 4 * MIB
    assert [each["peak_allocated_bytes"] for each in done.result["ranks"]] == [MIB, 2 * MIB, 3 * MIB, 4 * MIB]


def test_a_process_that_fails_says_so(rehearse: Rehearse) -> None:
    program = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        torch.zeros(4, device="cuda")
        raise SystemExit(3)
    """
    done = rehearse(program, options=("--world", "4"))
    assert done.result["ending"]["exit_status"] == 3


def test_what_only_another_rank_has_is_said(rehearse: Rehearse) -> None:
    program = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        dist.recv_object_list([None], src=1)
    """
    done = rehearse(program, options=("--world", "4"))
    assert "torch.distributed.recv_object_list waits for objects that only another rank has" in done.stderr
    assert "dryfit run torchrun --nproc-per-node N train.py" in done.stderr


def test_ranks_without_a_world(rehearse: Rehearse) -> None:
    done = rehearse("import torch", options=("--ranks", "all"))
    assert done.code == 2
    assert "--ranks and --nodes say something of a world: give its number of ranks, as in --world 8." in done.stderr

"""A program that makes itself ranks of its own, in one process or in several."""

from __future__ import annotations

from typing import Any

from tests.rehearse.conftest import Rehearse

from dryfit.rehearse import joined


def process(pid: int, *ranks: tuple[int, int], asked: tuple[int, int] = (0, 4)) -> list[dict[str, Any]]:
    made = [{"event": "joined", "rank": rank, "ranks": size, "asked": list(asked)} for rank, size in ranks]
    return [{"event": "python", "pid": pid}, *made]


def test_one_process_that_is_another_rank() -> None:
    assert joined.notes([process(1), process(2, (0, 4))], 2, ["train.py"]) == []
    assert joined.notes([process(1), process(2, (0, 4), (3, 4))], 2, ["train.py"]) == [
        "The program made itself rank 3 of 4, and the figures are of that, where rank 0 of 4 was asked for."
    ]


def test_several_processes_of_two_worlds() -> None:
    processes = [process(1), process(2, (0, 2)), process(3, (1, 2)), process(4, (0, 3))]
    assert joined.notes(processes, 3, ["train.py", "a b"]) == [
        "The program's processes made themselves ranks 0 and 1 of 2 and rank 0 of 3, where rank 0 of 4 was asked for: "
        "each was alone, and the figures are those of rank 1 of 2, which took most. To rehearse them together, with "
        "real messages: dryfit run --cards 3 train.py 'a b'"
    ]


def test_a_process_for_each_card_is_said_once(rehearse: Rehearse) -> None:
    program = """
        import multiprocessing

        def train(rank):
            import torch, torch.distributed as dist

            torch.cuda.set_device(rank)
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=2)
            kept = torch.zeros((rank + 1) << 20, device="cuda")

        if __name__ == "__main__":
            processes = [multiprocessing.Process(target=train, args=(rank,)) for rank in range(2)]
            [process.start() for process in processes]
            [process.join() for process in processes]
    """
    done = rehearse(program, options=("--world", "2"))
    assert done.code == 0, done.stderr
    assert done.result["peak_allocated_bytes"] == 2 * 4 << 20
    assert done.result["world_notes"] == [
        "The program's processes made themselves ranks 0 and 1 of 2, where rank 0 of 2 was asked for: each was alone, "
        "and the figures are those of rank 1 of 2, which took most. To rehearse them together, with real messages: "
        "dryfit run --cards 2 train.py"
    ]
    assert "as rank" not in done.stdout.splitlines()[0]


def test_a_spawned_rank_that_fails_is_told_how_to_have_real_ones(rehearse: Rehearse) -> None:
    program = """
        import torch, torch.distributed as dist, torch.multiprocessing

        def train(rank):
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=4)
            torch.zeros(1 << 20, device=f"cuda:{rank}")
            settings = [{"width": 4}] if rank == 0 else [None]
            dist.broadcast_object_list(settings)
            settings[0]["width"]

        if __name__ == "__main__":
            torch.multiprocessing.spawn(train, nprocs=4)
    """
    done = rehearse(program, options=("--world", "4", "--rank", "3"))
    assert done.code == 2
    assert done.result["ending"]["sentence"] == (
        "train.py failed before its first optimiser step: TypeError: 'NoneType' object is not subscriptable "
        "(train.py:9). Its own output above says more. It plays rank 3 of 4 alone: objects that are gathered, "
        "broadcast or scattered are its own. If it failed because of that, rehearse real processes: dryfit run "
        "--cards 4 train.py"
    )

"""One process plays one rank of a distributed run, alone: what it meets, and what it takes."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

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
def test_a_rank_sees_its_world_and_agrees_with_itself(rehearse: Rehearse, project: Path, words: list[str]) -> None:
    """A launcher starts one process, which is the rank that is asked for."""
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
    (project / "train.py").write_text(textwrap.dedent(program))
    done = rehearse([*words, "train.py"], options=("--world", "4", "--rank", "3"))
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
    done = rehearse(program, "1F1B", options=("--world", "4"))
    assert "torch.distributed.recv_object_list waits for objects that only another rank has" in done.stderr
    assert "dryfit run torchrun --nproc-per-node 4 train.py 1F1B" in done.result["ending"]["sentence"]


def test_ranks_without_a_world(rehearse: Rehearse) -> None:
    done = rehearse("import torch", options=("--ranks", "all"))
    assert done.code == 2
    assert "--ranks and --nodes say something of a world: give its number of ranks, as in --world 8." in done.stderr


QUESTIONS = """
    import datetime, json, os, tempfile
    import torch, torch.distributed as dist

    said = {}

    def ask(name, question):
        try:
            said[name] = question()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"

    def filled(tensor, collective, *arguments, **keywords):
        collective(tensor, *arguments, **keywords)
        return tensor.tolist()

    def objects(collective, size, *arguments, **keywords):
        collected = [None] * size
        collective(collected, *arguments, **keywords)
        return collected

    def gathered_at(destination):
        collected = [None] * size if rank == destination else None
        dist.gather_object(("own", rank), collected, dst=destination)
        return collected

    card = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(card)
    second = datetime.timedelta(seconds=1)
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=second, device_id=card)
    rank, size = dist.get_rank(), dist.get_world_size()
    on_card, on_host = torch.ones(2, device=card), torch.ones(2)

    ask("elastic", dist.is_torchelastic_launched)
    ask("objects of all", lambda: objects(dist.all_gather_object, size, ("own", rank)))
    ask("gathered here", lambda: gathered_at(rank))
    ask("gathered there", lambda: gathered_at(0))
    ask("from rank 0", lambda: objects(dist.scatter_object_list, 1, None, src=0))
    ask("from a list of all", lambda: objects(dist.scatter_object_list, 1, list("abcd"), src=0))
    ask("from here", lambda: objects(dist.scatter_object_list, 1, list("abcd"), src=rank))
    ask("told by rank 3", lambda: filled(on_card.clone(), dist.broadcast, src=3))
    ask("sum on the host", lambda: filled(on_host.clone(), dist.all_reduce))
    ask("mean", lambda: filled(on_card.clone(), dist.all_reduce, op=dist.ReduceOp.AVG))

    without = dist.new_group([0, 1])
    ask("not in it", lambda: (dist.get_rank(without), dist.all_reduce(on_card, group=without)))
    own, all_of_them = dist.new_subgroups(2)
    ask("subgroup", lambda: (dist.get_rank(own), dist.get_process_group_ranks(own), len(all_of_them)))
    ask("objects of two", lambda: objects(dist.all_gather_object, 2, rank, group=own))
    ask("part", lambda: dist.get_process_group_ranks(dist.split_group(split_ranks=[[0, 3], [1, 2]])))
    gloo = dist.new_group(backend="gloo")
    ask("named", lambda: dist.get_backend(gloo))
    ask("barriers", lambda: [
        dist.barrier(), dist.barrier(gloo), dist.barrier(async_op=True).wait(), dist.monitored_barrier(gloo, second)
    ])

    store = dist.distributed_c10d._get_default_store()
    ask("waits", lambda: [store.wait(["nobody"], second), dist.PrefixStore("mine", store).wait(["nobody"])])
    ask("barrier of the store", lambda: dist.distributed_c10d._store_based_barrier(rank, store, "x", size, second))
    ask("counted", lambda: [store.add("n", 1), store.add("n", 2), int(store.get("n")), store.num_keys() > 0])
    ask("deleted", lambda: [store.delete_key("n"), store.delete_key("n"), store.check(["n"])])
    ask("stores", lambda: [
        (made.set("a", "b"), made.get("a").decode())[1]
        for made in (dist.TCPStore("10.1.2.3", 1234, size, False, second), dist.FileStore(tempfile.mktemp(), size))
    ])
    dist.destroy_process_group()

    def joins(**keywords):
        dist.init_process_group(rank=rank, world_size=size, **keywords)
        found = (dist.get_rank(), filled(torch.ones(1, device=card), dist.all_reduce))
        dist.destroy_process_group()
        return found

    ask("tcp", lambda: joins(backend="nccl", init_method="tcp://10.1.2.3:1234"))
    ask("file", lambda: joins(init_method="file:///nowhere/shared"))
    ask("its own store", lambda: joins(backend="nccl", store=dist.PrefixStore("mine", dist.HashStore())))
    dist.init_process_group("nccl")
    ask("split unbound", lambda: dist.split_group(split_ranks=[[0, 3], [1, 2]]))
    print("said", json.dumps(said))
    if os.fork() == 0:
        raise SystemExit(0)  # without the groups' threads
    os.wait()
    raise SystemExit(7)
"""


def test_a_lone_rank_gets_answers_to_whatever_it_asks_its_peers(rehearse: Rehearse) -> None:
    done = rehearse(
        QUESTIONS, options=("--world", "4", "--rank", "2"), environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    )
    assert done.result["ending"]["exit_status"] == 7, done.stderr  # also with groups left
    line = next(line for line in done.stderr.splitlines() if line.startswith("said "))
    assert json.loads(line.removeprefix("said ")) == {
        "elastic": True,
        "objects of all": [["own", 2]] * 4,
        "gathered here": [["own", 2]] * 4,
        "gathered there": None,
        "from rank 0": [None],
        "from a list of all": ["c"],
        "from here": ["c"],
        "told by rank 3": [1.0, 1.0],
        "sum on the host": [4.0, 4.0],
        "mean": [1.0, 1.0],
        "not in it": [-1, None],
        "subgroup": [0, [2, 3], 2],
        "objects of two": [2, 2],
        "part": [1, 2],
        "named": "gloo",
        "barriers": [None, None, True, None],
        "waits": [None, None],
        "barrier of the store": None,
        "counted": [1, 3, 3, True],
        "deleted": [True, False, False],
        "stores": ["b", "b"],
        "tcp": [2, [4.0]],
        "file": [2, [4.0]],
        "its own store": [2, [4.0]],
        "split unbound": "RuntimeError: No device associated with the default pg, not safe to split any process groups",
    }

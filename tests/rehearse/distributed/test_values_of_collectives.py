"""What a rank that plays alone reads after a collective: as if every rank had brought the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.rehearse.conftest import Rehearse

RANKS = 4
PROGRAM = """
    import json, os, warnings
    import torch, torch.distributed as dist
    from torch.distributed import ReduceOp

    warnings.simplefilter("ignore", FutureWarning)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = {"rank": rank}

    def card(*values, dtype=None):
        return torch.tensor(values, dtype=dtype).cuda()

    for dtype in ("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64"):
        for operation in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            brought = card(3, -1 if dtype[0] in "fb" else 1, dtype=getattr(torch, dtype))
            dist.all_reduce(brought, getattr(ReduceOp, operation))
            found.setdefault(operation, {})[dtype] = brought.tolist()
    ones = card(1.0)
    dist.all_reduce(ones)
    found["world size"] = int(ones.item())
    half = card(1.5)
    dist.all_reduce(half, dist._make_nccl_premul_sum(0.5))
    found["premultiplied sum"] = half.tolist()
    many = torch.ones(1 << 17, dtype=torch.int64, device="cuda")  # 1 MiB
    dist.all_reduce(many)
    found["1 MiB"] = many.sum().item()

    own = card(5, rank)
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    found["all_gather"] = [part.tolist() for part in parts]
    long = torch.arange(1 << 14, device="cuda")  # 128 KiB of each
    gathered = torch.empty(ranks << 14, dtype=torch.int64, device="cuda")
    dist.all_gather_into_tensor(gathered, long)
    found["all_gather_into_tensor"] = [gathered[-1].item(), (gathered == 7).sum().item()]
    parts = [torch.empty_like(own) for _ in range(ranks)] if rank == 0 else None
    dist.gather(own, parts, dst=0)
    found["gather"] = parts and [part.tolist() for part in parts]
    part = torch.empty(1, dtype=torch.int64, device="cuda")
    dist.reduce_scatter_tensor(part, card(10, 11, 12, 13))
    found["reduce_scatter"] = part.item()
    counts, theirs = card(1, 2, 3, 4), torch.empty(4, dtype=torch.int64, device="cuda")
    dist.all_to_all_single(theirs, counts)
    found["all_to_all"] = theirs.tolist()
    tokens = torch.empty(sum(theirs.tolist()), 8, device="cuda")
    dist.all_to_all_single(tokens, torch.ones(10, 8, device="cuda"), theirs.tolist(), counts.tolist())
    found["tokens"] = tokens.shape[0]

    root = card(7, rank)
    dist.broadcast(root, src=0)
    found["broadcast"] = root.tolist()
    for _ in range(8):  # what lay where the next tensor will
        torch.full((2,), 99, device="cuda")
    unset = torch.empty(2, dtype=torch.int64, device="cuda")
    dist.broadcast(unset, src=3)
    scattered = torch.full((1,), 99, device="cuda")
    dist.scatter(scattered, list(card(20, 21, 22, 23).split(1)) if rank == 0 else None, src=0)
    found["scatter"] = scattered.item()
    found["of another"] = unset.tolist()
    ring = torch.empty(2, dtype=torch.int64, device="cuda")
    sends = dist.P2POp(dist.isend, own, (rank + 1) % ranks)
    for request in dist.batch_isend_irecv([sends, dist.P2POp(dist.irecv, ring, (rank - 1) % ranks)]):
        request.wait()
    found["ring"] = ring.tolist()

    pair, single = dist.new_group([0, 1]), [dist.new_group([each]) for each in range(ranks)][rank]
    for name, group in (("pair", pair), ("single", single)):
        count = card(1)
        dist.all_reduce(count, group=group)
        found[name] = count.item()

    on_host = torch.ones(2)
    dist.all_reduce(on_host)
    largest = torch.tensor([3.0])
    dist.all_reduce(largest, ReduceOp.MAX)
    found["of the host"] = [*on_host.tolist(), *largest.tolist()]
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 3_000_000})
    found["objects"] = [(each["rank"], len(each["text"])) for each in objects]
    found["loss"] = None
    loss = torch.randn(512, 512, device="cuda").matmul(torch.randn(512, 512, device="cuda")).mean()
    dist.all_reduce(loss, ReduceOp.AVG)
    found["loss"] = loss.item()
    print("found", json.dumps(found))
"""


def test_every_rank_brought_the_same(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--world", str(RANKS), "--ranks", "0,1"))
    assert done.code == 0, done.stderr
    lines = [line.partition("found ")[2] for line in (done.stdout + done.stderr).splitlines() if "found {" in line]
    first, second = (json.loads(line) for line in lines)
    for rank, found in enumerate((first, second)):
        assert found["rank"] == rank
        check_sums(found)
        assert found["all_gather"] == [[5, rank]] * RANKS
        assert found["all_gather_into_tensor"] == [(1 << 14) - 1, RANKS]
        assert found["reduce_scatter"] == RANKS * (10 + rank)
        # Every rank sends to this one what this one sends to itself.
        assert found["all_to_all"] == [1 + rank] * RANKS
        assert found["tokens"] == RANKS * (1 + rank)
        assert found["ring"] == [5, rank]
        assert (found["pair"], found["single"]) == (2, 1)
        assert found["of the host"] == [RANKS, RANKS, 3.0]
        assert found["objects"] == [[rank, 3_000_000]] * RANKS
        assert found["loss"] == 1.0  # what an unknown number is taken as
        # What only another rank has: what this one has, where that is known; or else what stands in for it.
        assert found["broadcast"] == [7, rank]
        assert found["of another"] == [0, 0]
    assert (first["gather"], second["gather"]) == ([[5, 0]] * RANKS, None)
    assert (first["scatter"], second["scatter"]) == (20, 0)


def check_sums(found: dict[str, Any]) -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64"):
        one = -1 if dtype[0] in "fb" else 1
        assert found["SUM"][dtype] == [3 * RANKS, one * RANKS], dtype
        assert found["PRODUCT"][dtype] == [3**RANKS, 1], dtype
        for operation in ("MIN", "MAX", "AVG"):
            assert found[operation][dtype] == [3, one], (operation, dtype)
    assert found["world size"] == RANKS
    assert found["premultiplied sum"] == pytest.approx([1.5 * 0.5 * RANKS])
    assert found["1 MiB"] == RANKS << 17

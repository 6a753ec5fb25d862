"""What a step passes to other ranks: whole programs, and sums that are known without running anything."""

from __future__ import annotations

from tests.rehearse.conftest import Rehearse

from dryfit.rehearse.result import Communication
from dryfit.report.text import communication_line

RANKS = 8
WIDTH, BLOCKS = 512, 3
BLOCK_PARAMETERS = 2 * (WIDTH + 1) * WIDTH
HEAD_PARAMETERS = (WIDTH + 1) * WIDTH
PARAMETERS = BLOCKS * BLOCK_PARAMETERS + HEAD_PARAMETERS

START = """
    import os
    import torch, torch.distributed as dist
    from torch import nn

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    layer = lambda: nn.Linear(512, 512)
    blocks = [nn.Sequential(layer(), nn.GELU(), layer()) for _ in range(3)]
    model = nn.Sequential(*blocks, layer()).cuda()
"""
TRAIN = """
    for _ in range(4):
        model(torch.randn(16, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def passed(rehearse: Rehearse, wrapping: str, *, ranks: int = RANKS) -> dict[str, dict[str, int]]:
    done = rehearse(START + wrapping + TRAIN, options=("--world", str(ranks)))
    assert done.code == 0, done.stderr
    found: dict[str, dict[str, int]] = done.result["communication"]
    if found and ranks > 1:
        assert "Each step sends " in done.stdout
    return found


DDP = """
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
"""


def test_ddp_reduces_its_gradients_once(rehearse: Rehearse) -> None:
    found = passed(rehearse, DDP)
    payload_bytes = PARAMETERS * 4
    assert list(found) == ["all-reduce"]  # the setup's broadcast of the weights is in no step
    assert found["all-reduce"]["payload_bytes"] == payload_bytes
    assert found["all-reduce"]["sent_bytes"] == payload_bytes * 2 * (RANKS - 1) // RANKS


def test_a_rank_of_one_sends_nothing(rehearse: Rehearse) -> None:
    found = passed(rehearse, DDP, ranks=1)
    assert found["all-reduce"]["payload_bytes"] == PARAMETERS * 4
    assert found["all-reduce"]["sent_bytes"] == 0


def test_fsdp_gathers_blocks_twice_in_bf16_and_scatters_gradients_once(rehearse: Rehearse) -> None:
    found = passed(
        rehearse,
        """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters())
    """,
    )
    # What is left to the outermost module stays gathered from forward to backward.
    gathered_bytes = (2 * BLOCKS * BLOCK_PARAMETERS + HEAD_PARAMETERS) * 2
    scattered_bytes = PARAMETERS * 4
    assert found == {
        "all-gather": {
            "calls": 2 * BLOCKS + 1,
            "payload_bytes": gathered_bytes,
            "sent_bytes": gathered_bytes * (RANKS - 1) // RANKS,
        },
        "reduce-scatter": {
            "calls": BLOCKS + 1,
            "payload_bytes": scattered_bytes,
            "sent_bytes": scattered_bytes * (RANKS - 1) // RANKS,
        },
    }


def test_a_sharded_optimizer_broadcasts_what_it_has_updated(rehearse: Rehearse) -> None:
    found = passed(
        rehearse,
        """
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
    """,
    )
    assert set(found) == {"all-reduce", "broadcast"}
    assert found["broadcast"]["payload_bytes"] == found["broadcast"]["sent_bytes"] == PARAMETERS * 4


def test_every_kind_of_call(rehearse: Rehearse) -> None:
    """Four ranks, the second of them, 1 MiB from each rank to each."""
    program = """
        import os
        import torch, torch.distributed as dist

        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        rank, optimizer = dist.get_rank(), torch.optim.SGD([torch.ones(1, device="cuda", requires_grad=True)])
        one, four = (torch.zeros(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 4))
        for _ in range(4):
            optimizer.param_groups[0]["params"][0].sum().backward()
            dist.all_reduce(one)
            dist.reduce(one, dst=0)
            dist.broadcast(one, src=1)
            dist.all_gather_into_tensor(four, one)
            dist.reduce_scatter_tensor(one, four)
            dist.send(one, dst=2)
            dist.recv(one, src=0)
            optimizer.step()
            optimizer.zero_grad()
    """
    done = rehearse(program, options=("--world", "4", "--ranks", "1"))
    assert done.code == 0, done.stderr
    mib = 1 << 20
    assert {kind: tuple(each.values()) for kind, each in done.result["communication"].items()} == {
        "all-reduce": (1, mib, mib * 3 // 2),
        "reduce": (1, mib, mib),
        "broadcast": (1, mib, mib),
        "all-gather": (1, 4 * mib, 3 * mib),
        "reduce-scatter": (1, 4 * mib, 3 * mib),
        "send": (1, mib, mib),
        "receive": (1, mib, 0),
    }


def test_in_one_line() -> None:
    gib = 1 << 30
    found = {
        "reduce-scatter": Communication(calls=7, payload_bytes=gib, sent_bytes=gib // 2),
        "all-gather": Communication(calls=13, payload_bytes=2 * gib, sent_bytes=gib),
        "receive": Communication(calls=1, payload_bytes=gib, sent_bytes=0),
    }
    assert communication_line(found) == "Each step sends 1.50 GiB: all-gather 1.00 GiB, reduce-scatter 512.00 MiB"

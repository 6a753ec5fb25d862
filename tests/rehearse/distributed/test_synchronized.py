"""Uneven inputs under Join, whole tensors of DTensors, batch norm over all ranks, compiled blocks under FSDP2."""

from __future__ import annotations

from tests.rehearse.conftest import Rehearse

RANKS = 4


def test_join_full_tensor_and_sync_batch_norm(rehearse: Rehearse) -> None:
    program = """
        import os
        import torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.algorithms.join import Join
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        from torch.nn.parallel import DistributedDataParallel

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        rank, ranks = dist.get_rank(), dist.get_world_size()

        def held_bytes():
            return torch.cuda.memory_stats()["requested_bytes.all.current"]

        before = held_bytes()
        rows = distribute_tensor(torch.empty(1001, 64, device="cuda"), init_device_mesh("cuda", (ranks,)), [Shard(0)])
        part = held_bytes() - before
        whole = rows.full_tensor()
        print("of", *whole.shape, "a part of", part, "and the whole of", held_bytes() - before - part)

        model = DistributedDataParallel(nn.Linear(512, 512).cuda())
        with Join([model]):  # the others join when this one does
            for _ in range(rank + 1):
                model(torch.randn(16, 512, device="cuda")).sum().backward()
        print("joined")

        model = nn.Sequential(nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3, bias=False))
        model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.randn(4, 3, 32, 32, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    done = rehearse(program, options=("--world", str(RANKS), "--ranks", "last"))
    assert done.code == 0, done.stderr
    said = done.stdout + done.stderr
    # 1001 rows are 251 for each rank but the last, which has 248 of them: padded to as many, as it was sent.
    part_bytes = 251 * 64 * 4
    assert f"of 1001 64 a part of {part_bytes} and the whole of {RANKS * part_bytes}" in said
    assert "joined" in said

    channels, parameters_bytes = 16, (3 * 16 * 9 + 2 * 16 + 16 * 8 * 9) * 4
    passed = {kind: (each["calls"], each["payload_bytes"]) for kind, each in done.result["communication"].items()}
    assert passed == {
        # DDP's bucket, and of the norm's gradient two sums for each channel.
        "all-reduce": (2, parameters_bytes + 2 * channels * 4),
        # Of each rank: means, deviations, and how many elements they are of.
        "all-gather": (1, RANKS * (2 * channels + 1) * 4),
        # DDP hands out its buffers before each forward pass: running means and variances, and a count of batches.
        "broadcast": (2, 2 * channels * 4 + 8),
    }
    # A rank with an empty batch would be left out of the means; none has.
    assert [(each["what"], each["answer"]) for each in done.result["unknowns"] if each["decides_size"]] == [
        ("nonzero", f"all {RANKS} elements are kept, the most there can be")
    ]


def test_compiled_blocks_under_fsdp2(rehearse: Rehearse) -> None:
    program = """
        import os
        import torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import fully_shard

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(2)]).cuda()
        for block in model:
            block.compile()
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(4):
            model(torch.randn(16, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    done = rehearse(program, options=("--world", str(RANKS)))
    assert done.code == 0, done.stderr
    parameters_bytes = 2 * (512 + 1) * 512 * 4
    passed = {kind: (each["calls"], each["payload_bytes"]) for kind, each in done.result["communication"].items()}
    assert passed == {"all-gather": (4, 2 * parameters_bytes), "reduce-scatter": (2, parameters_bytes)}
    phases = {each["phase"]: each["owners"] for each in done.result["footprint"]["steps"][2]["phases"]}
    stepping = {each["owner"]: each["size_bytes"] for each in phases["optimizer step"]}
    assert stepping["parameter"] == stepping["gradient"] == parameters_bytes // RANKS
    assert stepping["optimizer state"] == 2 * parameters_bytes // RANKS

"""A rank alone over gloo: sums, DDP and hooks that read the future of a work, on the host and on the card."""

from __future__ import annotations

import json

from tests.rehearse.conftest import Rehearse

RANKS, WIDTH = 4, 1024
LAYER_BYTES = (WIDTH + 1) * WIDTH * 4

PROGRAM = f"""
    import datetime, json, os
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    ranks, found = dist.get_world_size(), {{"name": dist.get_backend()}}

    def said(collective, written, *more, **named):
        work = collective(written, *more, async_op=True, **named)
        work.wait(datetime.timedelta(seconds=1))
        values = work.get_future().value()
        assert work.is_completed() and all(value.device.type == device for value in values)
        return [value.tolist() for value in values]

    def own(*values):
        return torch.tensor(values, device=device)

    for device in ("cpu", "cuda"):
        found[device] = [
            said(dist.all_reduce, own(1.0, 2.0)),
            said(dist.all_reduce, own(2, 1), op=dist.ReduceOp.PRODUCT),
            said(dist.all_reduce, own(5), op=dist.ReduceOp.MAX),
            said(dist.reduce_scatter, own(0), list(own(10, 11, 12, 13).split(1))),
            said(dist.all_gather, list(own(0, 0, 0, 0).split(1)), own(6)),
            said(dist.broadcast, own(7), src=0),
            said(dist.all_to_all_single, own(0, 0, 0, 0), own(1, 2, 3, 4)),
            said(dist.all_to_all_single, own(*[0] * 8), own(*range(9)), [2] * 4, [1, 2, 3, 3]),
        ]

    def hook(_, bucket):
        reduced = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return reduced.then(lambda future: future.value()[0].div_(ranks))

    on_host = DistributedDataParallel(torch.nn.Linear(2, 2, bias=False))
    on_host(torch.ones(1, 2)).sum().backward()
    found["gradients"] = on_host.module.weight.grad.tolist()

    model = torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {WIDTH}) for _ in range(4)]).cuda()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.randn(16, {WIDTH}, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            model.register_comm_hook(None, hook)
    print("found", json.dumps(found))
"""


def test_works_hold_what_all_ranks_brought(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--world", str(RANKS), "--rank", "1", "--steps", "all"))
    assert done.code == 0, done.stderr
    found = json.loads(next(line for line in done.stderr.splitlines() if line.startswith("found "))[6:])
    of_each = [
        [[RANKS * 1.0, RANKS * 2.0]],
        [[2**RANKS, 1]],
        [[5]],
        [[RANKS * 11]],  # rank 1 brought 11 for itself
        [[6]] * RANKS,
        [[7]],
        [[2] * RANKS],
        [[1, 2] * RANKS],  # the second part, of uneven ones
    ]
    assert found == {"name": "gloo", "cpu": of_each, "cuda": of_each, "gradients": [[1.0, 1.0], [1.0, 1.0]]}
    # As over NCCL: gradients, and a second copy of them in buckets. Nothing is NCCL's.
    phases = {each["phase"]: each["owners"] for each in done.result["footprint"]["steps"][-1]["phases"]}
    stepping = {each["owner"]: each["size_bytes"] for each in phases["optimizer step"]}
    assert stepping["communication buffer"] == stepping["gradient"] == 4 * LAYER_BYTES
    assert done.result["communication"] == {}
    assert {"NCCL's buffers", "DDP's first buckets"}.isdisjoint(part["what"] for part in done.result["total_parts"])

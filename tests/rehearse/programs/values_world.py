"""Collectives of a world of one: what was known stays known."""

import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
count = torch.arange(4, device="cuda")
dist.all_reduce(count)
gathered = [torch.empty_like(count)]
dist.all_gather(gathered, count)
objects, others = [{"a": 1}], [None]
dist.broadcast_object_list(objects, src=0)
dist.all_gather_object(others, {"b": 2})
loss = torch.empty(1 << 20, device="cuda").mean()
dist.all_reduce(loss)
found = {
    "all_reduce": count.tolist(),
    "all_gather": gathered[0].tolist(),
    "objects": objects + others,
    "loss": loss.item(),
}
dist.destroy_process_group()

"""Everything small that ranks tell each other, under torchrun or as one rank alone."""

import json
import os
import sys

import torch
import torch.distributed as dist

from dryfit.virtual_card import calls

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if "alone" in sys.argv:  # alone: the other ranks' half of the meeting is made up, as rehearsals do it

    class Alone(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key):
            return self.values.get(key, bytes(128))

        def add(self, key, amount):
            self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
            return int(self.values[key])

        def compare_set(self, key, expected, value):
            self.values.setdefault(key, value.encode() if isinstance(value, str) else bytes(value))
            return self.values[key]

        def wait(self, keys, timeout=None):
            pass

        def check(self, keys):
            return all(key in self.values for key in keys)

        def set_timeout(self, timeout):
            pass

    store = Alone()
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world)
else:
    dist.init_process_group("nccl")
torch.cuda.set_device(0)


def on_card(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, device="cuda")


said = {"rank": rank}
for name, dtype in (
    ("float", torch.float32),
    ("bfloat16", torch.bfloat16),
    ("half", torch.float16),
    ("long", torch.int64),
):
    t = on_card(rank + 1, 10, dtype=dtype)
    dist.all_reduce(t)
    said[f"sum_{name}"] = t.tolist()
t = on_card(rank + 1)
dist.all_reduce(t, op=dist.ReduceOp.MAX)
said["max"] = t.item()
t = on_card(4.0 * (rank + 1))
dist.all_reduce(t, op=dist.ReduceOp.AVG)
said["average"] = t.item()
parts = [on_card(0) for _ in range(world)]
dist.all_gather(parts, on_card(rank))
said["gathered"] = [p.item() for p in parts]
out = on_card(0)
dist.reduce_scatter_tensor(out, on_card(*range(world)))
said["scattered"] = out.item()
exchanged = on_card(*[0] * world)
dist.all_to_all_single(exchanged, on_card(*[10 * rank + i for i in range(world)]))
said["exchanged"] = exchanged.tolist()
if sys.argv[1:2] == ["objects"]:
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 500})
    said["objects"] = [o["rank"] for o in objects]
    sent = on_card(rank)
    dist.broadcast(sent, src=world - 1)
    said["broadcast"] = sent.item()
    pair = dist.new_group([0, 1])
    received, peer = [on_card(0) for _ in range(6)], 1 - rank
    sends = [dist.P2POp(dist.isend, on_card(100 * rank + i), peer, pair) for i in range(6)]
    receipts = [dist.P2POp(dist.irecv, t, peer, pair) for t in received]
    for work in dist.batch_isend_irecv(sends + receipts):  # more in a row than boxes hold
        work.wait()
    said["received"] = [t.item() for t in received]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
model(torch.randn(4, 512, device="cuda")).sum().backward()
dist.barrier()
if "alone" in sys.argv:  # a neighbour that is not there
    t = on_card(5)
    dist.recv(t, src=(rank + 1) % world)
    said["from_nobody"] = t.item()
    said["unfaithful"] = calls.unfaithful_calls()
print(json.dumps(said), flush=True)
if sys.argv[1:2] != ["abrupt"]:
    dist.destroy_process_group()

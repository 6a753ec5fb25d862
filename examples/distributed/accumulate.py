"""Four micro-batches a step under FSDP2. `dryfit run --world 8 examples/distributed/accumulate.py [no_sync]`.

With the word "no_sync" only the last micro-batch reduces its gradients: until then each rank keeps all of them whole.
"""

import os
import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

MICRO_BATCHES = 4

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl", device_id=device)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    for micro_batch in range(MICRO_BATCHES):
        model.set_requires_gradient_sync("no_sync" not in sys.argv or micro_batch == MICRO_BATCHES - 1)
        model(torch.randn(16, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

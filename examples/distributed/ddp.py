"""DDP: every rank keeps the whole model. `dryfit run --world 8 examples/distributed/ddp.py [view]`.

With the word "view" the gradients are views of DDP's buckets, and their copy is gone.
"""

import os
import sys

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
model = DistributedDataParallel(model, gradient_as_bucket_view="view" in sys.argv)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(16, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

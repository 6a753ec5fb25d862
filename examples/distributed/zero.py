"""DDP whose optimizer states are shared out among the ranks.

    dryfit run --world 8 --ranks all examples/distributed/zero.py [head]

States are shared out by whole parameters. With the word "head" the model ends in a layer eight times as large, so that
one rank has more of them than the others.
"""

import os
import sys

import torch
from torch import distributed
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
layers = [torch.nn.Linear(2048, 2048) for _ in range(8)]
if "head" in sys.argv:
    layers.append(torch.nn.Linear(2048, 8 * 2048))
model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
for _ in range(4):
    model(torch.randn(16, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

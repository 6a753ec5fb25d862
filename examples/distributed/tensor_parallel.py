"""Tensor parallel: each rank has a slice of every weight. `dryfit run --world 4` runs it."""

import os

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = 1024

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("cpu:gloo,cuda:nccl")
mesh = init_device_mesh("cuda", (distributed.get_world_size(),))
blocks = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(6)]
model = nn.Sequential(*blocks).cuda()
for block in model:
    parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
print("the model takes", sum(each.to_local().nbytes for each in model.parameters()), "bytes")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(8, WIDTH, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""FSDP2 with a batch to search. `dryfit fit --world 1,2,4,8 --gpu h100 examples/distributed/fsdp2_batch.py {batch}`.

Thirty-six blocks of 134 million parameters in float32 with AdamW, and samples of 1024 positions.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

WIDTH, INNER, BLOCKS, LENGTH, BATCH = 4096, 16384, 36, 1024, int(sys.argv[1])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(nn.functional.gelu(self.up(self.norm(hidden))))


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
with torch.device("meta"):
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
for block in model:
    fully_shard(block)
fully_shard(model)
model.to_empty(device="cuda")
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(BATCH, LENGTH, WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""FSDP2: every rank has a shard of each block. `dryfit run --world 8 examples/distributed/fsdp2.py [WORD ...]`.

Words: "bf16" computes in bfloat16 and reduces in float32, "keep" keeps a block's parameters whole from the forward pass
to the backward pass, "offload" keeps the shards on the host, "hsdp" shards within halves of the ranks, and
"checkpoint" keeps of each block its input alone.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 1000, 128, 512, 8, 6, 2


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if "checkpoint" in sys.argv else block(hidden)
        return self.head(hidden)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
world = distributed.get_world_size()
if "hsdp" in sys.argv:
    mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("copies", "shards"))
else:
    mesh = init_device_mesh("cuda", (world,))
options = {
    "mesh": mesh,
    "reshard_after_forward": "keep" not in sys.argv,
    "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32) if "bf16" in sys.argv else MixedPrecisionPolicy(),
    "offload_policy": CPUOffloadPolicy() if "offload" in sys.argv else OffloadPolicy(),
}
model = Transformer().cuda()
for block in model.blocks:
    fully_shard(block, **options)
fully_shard(model, **options)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")
    nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""Tensor parallel: each rank has a slice of every weight.

    dryfit run --world 4 examples/distributed/tensor_parallel.py [WORD ...]

Words: "sequence" shares out the residual stream between the blocks by tokens, "loss" leaves the logits shared out by
vocabulary, and "fsdp" shards the slices over pairs of ranks, which then have half the ranks for the slices.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 8192, 512, 512, 8, 4, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        of_heads = self.qkv(hidden).unflatten(-1, (-1, 3, WIDTH // HEADS)).transpose(1, 2)  # this rank's heads
        seen = scaled_dot_product_attention(*of_heads.unbind(-2), is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.mlp(self.norm2(hidden))


def held_bytes() -> int:
    return torch.cuda.memory_stats()["requested_bytes.all.current"]  # without what the allocator rounds up


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("cpu:gloo,cuda:nccl")
world, pairs = distributed.get_world_size(), 2 if "fsdp" in sys.argv else 1
mesh = init_device_mesh("cuda", (pairs, world // pairs), mesh_dim_names=("data", "tensor"))

blocks = [Block() for _ in range(BLOCKS)]
model = nn.Sequential(
    nn.Embedding(VOCABULARY, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
)
model = model.to("cuda", torch.bfloat16)

between = Shard(1) if "sequence" in sys.argv else Replicate()  # how the residual stream is kept
of_block = {
    "attention.qkv": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=between),
    "mlp.0": ColwiseParallel(),
    "mlp.2": RowwiseParallel(output_layouts=between),
}
if "sequence" in sys.argv:
    whole = {"input_layouts": (between,), "desired_input_layouts": (Replicate(),)}
    of_block |= {"norm1": SequenceParallel(), "attention": PrepareModuleInput(**whole)}
    of_block |= {"norm2": SequenceParallel(), "mlp": PrepareModuleInput(**whole)}
for block in blocks:
    parallelize_module(block, mesh["tensor"], of_block)
of_model = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
    f"{BLOCKS + 2}": ColwiseParallel(
        input_layouts=between,
        output_layouts=Shard(-1) if "loss" in sys.argv else Replicate(),
        use_local_output="loss" not in sys.argv,
    ),
}
if "sequence" in sys.argv:
    of_model[f"{BLOCKS + 1}"] = SequenceParallel()
parallelize_module(model, mesh["tensor"], of_model)
if "fsdp" in sys.argv:
    for block in blocks:
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])

local = [each.to_local() if hasattr(each, "to_local") else each for each in model.parameters()]
print("the model takes", sum(each.nbytes for each in local), "bytes")
# Not foreach: some parameters are DTensors, others are not, and torch takes no list of both.
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(4):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")
    before = held_bytes()
    logits = model(tokens)
    print("the forward pass keeps", held_bytes() - before, "bytes")
    if "loss" in sys.argv:
        with loss_parallel():
            cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    else:
        cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    del logits
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

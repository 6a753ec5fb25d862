"""Context parallel: each rank has a part of every sequence.

    dryfit run --world 4 examples/distributed/context_parallel.py [alltoall]

Keys and values go round the ranks: gathered at once, or with the word "alltoall" from neighbour to neighbour.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS = 8192, 4096, 512, 8, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        of_heads = self.qkv(self.norm(hidden)).unflatten(-1, (HEADS, 3, -1)).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(*of_heads.unbind(-2), is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        return hidden + self.mlp(hidden)


def held_bytes() -> int:
    return torch.cuda.memory_stats()["requested_bytes.all.current"]  # without what the allocator rounds up


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("cpu:gloo,cuda:nccl")
mesh = init_device_mesh("cuda", (distributed.get_world_size(),))
set_rotate_method("alltoall" if "alltoall" in sys.argv else "allgather")
model = nn.Sequential(
    nn.Embedding(VOCABULARY, WIDTH), *[Block() for _ in range(BLOCKS)], nn.Linear(WIDTH, VOCABULARY, bias=False)
)
model = model.to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(VOCABULARY, (1, LENGTH), device="cuda")
    targets = tokens.roll(-1, 1)
    # Within the context both are this rank's part; afterwards they are whole again.
    with (
        context_parallel(mesh, buffers=[tokens, targets], buffer_seq_dims=[1, 1]),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
    ):
        before = held_bytes()
        logits = model(tokens)
        print("the forward pass keeps", held_bytes() - before, "bytes")
        functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    del logits
    for weight in model.parameters():
        distributed.all_reduce(weight.grad, distributed.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

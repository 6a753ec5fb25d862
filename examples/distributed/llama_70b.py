"""Llama 70B under FSDP2, in plain PyTorch. `dryfit run --world 64 --gpu h100 examples/distributed/llama_70b.py`.

70.6 billion parameters in bfloat16, made on the meta device and sharded before they take memory; AdamW, and of each of
the 80 layers its input alone is kept for the backward pass.
"""

import os

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

VOCABULARY, LAYERS, WIDTH, INNER, HEADS, KEY_HEADS, HEAD = 128256, 80, 8192, 28672, 64, 8, 128
BATCH, LENGTH = 1, 4096


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, hidden: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape
        normed = self.before_attention(hidden)
        query = rotated(self.query(normed).view(batch, length, HEADS, HEAD), rotation)
        key = rotated(self.key(normed).view(batch, length, KEY_HEADS, HEAD), rotation)
        value = self.value(normed).view(batch, length, KEY_HEADS, HEAD)
        heads = (each.transpose(1, 2) for each in (query, key, value))
        attended = scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        normed = self.before_mlp(hidden)
        return hidden + self.down(silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, rotation = self.embedding(tokens), rotation_of(tokens.shape[1], tokens.device)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden, rotation, use_reentrant=False)
        return self.head(self.norm(hidden))


def rotation_of(length: int, device: torch.device) -> torch.Tensor:
    angles = torch.outer(
        torch.arange(length, device=device), 500000.0 ** -(torch.arange(0, HEAD, 2, device=device) / HEAD)
    )
    return torch.stack((angles.cos(), angles.sin())).to(torch.bfloat16).unsqueeze(2)


def rotated(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    cosine, sine = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    model = Llama()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
    cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""A GPT-2 with autocast, clipping and AdamW: prints what the allocator did."""

import hashlib
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

SIZES = {"gpt2": (50257, 1024, 768, 12, 12, 4), "tiny": (300, 64, 48, 2, 4, 2)}
vocabulary, length, width, layers, heads, batch = SIZES[sys.argv[1]]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.first(x)).split(c, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), labels.flatten())


with torch.device("cuda"):
    model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), fused="fused" in sys.argv)
torch.cuda.memory._record_memory_history(stacks="python", max_entries=10**6)
for _ in range(3):
    ids, labels = (torch.randint(0, vocabulary, (batch, length)).cuda() for _ in range(2))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(ids, labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

statistics = torch.cuda.memory_stats()
events = [event for event in torch.cuda.memory._snapshot()["device_traces"][0] if event["action"] == "alloc"]
# Frees are left out: autograd frees a step's buffers in an order that differs from run to run, with values or without.
start = min(event["addr"] for event in events)
history = [(event["size"], event["addr"] - start) for event in events]
found = {
    "allocated": statistics["allocated_bytes.all.peak"],
    "reserved": statistics["reserved_bytes.all.peak"],
    "allocations": len(history),
    "history": hashlib.sha256(json.dumps(history).encode()).hexdigest(),
}

"""A language model of 3.4e9 parameters: forward passes without gradients, or AdamW training steps.

    python xl_lm.py --context 128 --mode forward --autocast

Five steps to warm up, then one that is looked at. The same operations, in the same order, as the public program whose
memory recordings `expected/torch-2.11.0.toml` names; only the weights are made on the card, where that program makes
them on the CPU and moves them.
"""

import argparse
import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 10_000
BATCH = 4
WARM_UP_STEPS = 5


def truncated_normal_(weight: Tensor, std: float) -> Tensor:
    """In place. `nn.init.trunc_normal_` of torch 2.14 draws again, with new tensors, while a value lies outside."""
    return weight.normal_(std=std).clamp_(-3 * std, 3 * std)


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int, device: str) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs, device=device)
        self.weight = nn.Parameter(truncated_normal_(weight, std=math.sqrt(2 / (inputs + outputs))))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, count: int, width: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(truncated_normal_(torch.empty(count, width, device=device), std=1))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens, :]


class RMSNorm(nn.Module):
    def __init__(self, width: int, device: str, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        x = x * scale
        return (self.weight * x).to(dtype)


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position; one table for all layers."""

    def __init__(self, longest: int, width: int, device: str, base: float = 10_000.0) -> None:
        super().__init__()
        speeds = torch.tensor(base) ** -(torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(longest), speeds)
        table = torch.stack((torch.cos(angles), torch.sin(angles)))
        self.register_buffer("table", table.to(device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x_1, x_2 = x.unflatten(-1, (-1, 2)).movedim(-1, 0).unbind(0)
        cos, sin = self.table[:, : x.size(-2), :].unbind(0)
        turned_1 = cos * x_1 - sin * x_2
        turned_2 = sin * x_1 + cos * x_2
        return torch.concat((turned_1, turned_2), dim=-1)


def softmax(x: Tensor) -> Tensor:
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
    scores = torch.where(mask, scores, -math.inf)
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, rotary: Rotary, device: str) -> None:
        super().__init__()
        self.heads = heads
        self.rotary = rotary
        self.q = Linear(width, width, device)
        self.k = Linear(width, width, device)
        self.v = Linear(width, width, device)
        self.out = Linear(width, width, device)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for y in (q, k, v))
        q = self.rotary(q)
        k = self.rotary(k)
        positions = torch.arange(length, device=x.device)
        mask = positions[:, None] >= positions[None, :]
        mixed = attend(q, k, v, mask[None])
        mixed = mixed.transpose(-2, -3).flatten(-2).contiguous()
        return self.out(mixed)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, device: str) -> None:
        super().__init__()
        self.gate = Linear(width, hidden, device)
        self.down = Linear(hidden, width, device)
        self.up = Linear(width, hidden, device)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, rotary: Rotary, device: str) -> None:
        super().__init__()
        self.attention = Attention(width, heads, rotary, device)
        self.feed_forward = FeedForward(width, hidden, device)
        self.norm_1 = RMSNorm(width, device)
        self.norm_2 = RMSNorm(width, device)

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attention(self.norm_1(x))
        middle = x + attended
        fed = self.feed_forward(self.norm_2(middle))
        return middle + fed


class LanguageModel(nn.Module):
    def __init__(
        self,
        longest: int,
        width: int = 2560,
        layers: int = 32,
        heads: int = 32,
        hidden: int = 10_240,
        device: str = "cuda",
    ) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, width, device)
        self.rotary = Rotary(longest, width // heads, device)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, self.rotary, device) for _ in range(layers))
        self.norm = RMSNorm(width, device)
        self.head = Linear(width, VOCABULARY, device)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        x = embedded
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    targets: Tensor,
    arguments: argparse.Namespace,
) -> None:
    optimizer.zero_grad(set_to_none=True)
    precision = torch.autocast("cuda", dtype=torch.bfloat16) if arguments.autocast else nullcontext()
    with torch.no_grad() if arguments.mode == "forward" else nullcontext(), precision:
        logits = model(tokens)
    if arguments.mode == "forward":
        return
    loss = F.cross_entropy(logits.float().reshape(-1, VOCABULARY), targets.reshape(-1))
    loss.backward()
    optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--mode", choices=["train", "forward"], default="forward")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 autocast around the forward pass")
    parser.add_argument("--empty-cache", action="store_true", help="give cached memory back before the last step")
    parser.add_argument("--snapshot", metavar="FILE", help="record the last step's memory history, and save it")
    arguments = parser.parse_args()

    model = LanguageModel(arguments.context)
    tokens = torch.randint(0, VOCABULARY, (BATCH, arguments.context), device="cuda")
    targets = torch.randint(0, VOCABULARY, (BATCH, arguments.context), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for _ in range(WARM_UP_STEPS):
        step(model, optimizer, tokens, targets, arguments)
        torch.cuda.synchronize()
    if arguments.empty_cache:
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    if arguments.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    step(model, optimizer, tokens, targets, arguments)
    if arguments.snapshot:
        torch.cuda.memory._dump_snapshot(arguments.snapshot)


if __name__ == "__main__":
    main()

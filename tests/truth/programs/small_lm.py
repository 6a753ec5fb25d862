"""A small language model with its own layers and its own Adam: three training steps, or three forward passes.

    python small_lm.py --context 100 --mode train

Written as a student writes it to learn: every layer by hand, attention without a fused kernel, rotary tables kept on
the CPU and copied at each use. The loss looks at the last position only. The same operations, in the same order, as
the public program whose memory recordings `expected/torch-2.6.0.toml` names.
"""

import argparse
import math

import torch
from torch import Tensor, nn

VOCABULARY = 10_000
BATCH = 10
STEPS = 3


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
        return self.weight[tokens]


class RMSNorm(nn.Module):
    def __init__(self, width: int, device: str, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        rms = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + self.eps)
        return x / rms * self.weight


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position."""

    def __init__(self, base: float, width: int, longest: int, device: str) -> None:
        super().__init__()
        self.device = device
        speeds = torch.tensor([base ** (-2 * pair / width) for pair in range(width // 2)])
        angles = torch.outer(torch.arange(longest), speeds)
        self.register_buffer("sin", torch.sin(angles), persistent=False)
        self.register_buffer("cos", torch.cos(angles), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[-2])
        sin = self.sin[positions].to(self.device).unsqueeze(-1)
        cos = self.cos[positions].to(self.device).unsqueeze(-1)
        x = x.unflatten(-1, (-1, 2))
        first = cos * x[..., :1] - sin * x[..., 1:]
        second = sin * x[..., :1] + cos * x[..., 1:]
        return torch.cat([first, second], dim=-1).flatten(-2)


def softmax(x: Tensor) -> Tensor:
    largest, _ = torch.max(x, dim=-1, keepdim=True)
    return torch.exp(x - largest) / torch.sum(torch.exp(x - largest), dim=-1, keepdim=True)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    mask = mask.to(q.device)
    products = torch.einsum("...qd,...kd->...qk", q, k)
    scores = products / torch.sqrt(torch.tensor(q.shape[-1], device=products.device))
    scores = scores.masked_fill_(~mask.bool(), -math.inf)
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, base: float, device: str) -> None:
        super().__init__()
        self.heads = heads
        self.rotary = Rotary(base, width // heads, longest, device)
        self.q = Linear(width, width, device)
        self.k = Linear(width, width, device)
        self.v = Linear(width, width, device)
        self.out = Linear(width, width, device)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        q, k, v = self.q(x), self.k(x), self.v(x)
        q = q.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        k = k.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        v = v.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        q = self.rotary(q)
        k = self.rotary(k)
        mask = torch.tril(torch.ones(length, length))
        mixed = attend(q, k, v, mask)
        mixed = mixed.transpose(-2, -3).flatten(-2)
        return self.out(mixed)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, device: str) -> None:
        super().__init__()
        self.gate = Linear(width, hidden, device)
        self.down = Linear(hidden, width, device)
        self.up = Linear(width, hidden, device)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        gated = gate * torch.sigmoid(gate)
        up = self.up(x)
        hidden = gated * up
        return self.down(hidden)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, longest: int, base: float, device: str) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(width, device)
        self.norm_2 = RMSNorm(width, device)
        self.attention = Attention(width, heads, longest, base, device)
        self.feed_forward = FeedForward(width, hidden, device)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.attention(normed)
        middle = attended + x
        normed_middle = self.norm_2(middle)
        fed = self.feed_forward(normed_middle)
        return fed + middle


class LanguageModel(nn.Module):
    def __init__(
        self,
        width: int = 512,
        layers: int = 4,
        heads: int = 16,
        hidden: int = 1344,
        longest: int = 256,
        base: float = 10_000.0,
        device: str = "cuda",
    ) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, width, device)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, longest, base, device) for _ in range(layers))
        self.norm = RMSNorm(width, device)
        self.head = Linear(width, VOCABULARY, device)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    largest, _ = torch.max(logits, dim=-1, keepdim=True)
    log_p = logits - largest - torch.log(torch.sum(torch.exp(logits - largest), dim=-1, keepdim=True))
    one_hot = torch.zeros_like(log_p)
    one_hot.scatter_(-1, labels.unsqueeze(-1), 1)
    return -torch.sum(one_hot * log_p) / logits.shape[0]


class Adam(torch.optim.Optimizer):
    """Adam with decoupled weight decay; its two moments exist from the start and are made anew at every step."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {"m": torch.zeros_like(p.data), "v": torch.zeros_like(p.data), "t": 0}

    def step(self, closure=None):
        for group in self.param_groups:
            lr, (beta_1, beta_2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                t = state["t"] + 1
                rate = lr * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
                grad = p.grad.data
                m = state["m"]
                new_m = beta_1 * m + (1 - beta_1) * grad
                state["m"] = new_m
                v = state["v"]
                new_v = beta_2 * v + (1 - beta_2) * grad**2
                state["v"] = new_v
                state["t"] = t
                p.data = p.data - rate * (new_m / (torch.sqrt(new_v) + group["eps"]))
                p.data = p.data - lr * group["weight_decay"] * p.data


def forward_only(context: int, snapshot: str | None) -> None:
    model = LanguageModel()
    tokens = torch.randint(0, VOCABULARY, (BATCH, context)).to("cuda")
    for _ in range(STEPS):
        model(tokens)
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)


def train(context: int, snapshot: str | None) -> None:
    model = LanguageModel()
    optimizer = Adam(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, VOCABULARY, (BATCH, context)).to("cuda")
    labels = torch.randint(0, VOCABULARY, (BATCH,)).to("cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens)
        last = logits[:, -1, :]
        loss = cross_entropy(last, labels)
        loss.backward()
        optimizer.step()
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, default=100)
    parser.add_argument("--mode", choices=["train", "forward"], default="train")
    parser.add_argument("--snapshot", metavar="FILE", help="record the memory history from the start, and save it")
    arguments = parser.parse_args()
    if arguments.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    (train if arguments.mode == "train" else forward_only)(arguments.context, arguments.snapshot)


if __name__ == "__main__":
    main()

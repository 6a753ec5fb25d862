"""Fine-tune Llama-2-7B by LoRA as one rank of FSDP, as torchtune did in June 2024: all in bfloat16, AdamW.

    dryfit run --world 2 lora_fsdp_step.py --batch 4 --length 2048 --checkpoint

Adapters of rank 8 are on queries and values. Each layer is sharded, and each matrix of an adapter by itself.
"""

import argparse
import functools

import torch
import torch.nn.functional as F
from one_rank import join_world
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

VOCABULARY, LAYERS, WIDTH, HIDDEN, HEADS = 32_000, 32, 4096, 11_008, 32


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.scale


class Adapted(nn.Module):
    def __init__(self, rank: int = 8, scale: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH))
        self.dropout = nn.Dropout(0.0)
        self.down = nn.Linear(WIDTH, rank, bias=False)
        self.up = nn.Linear(rank, WIDTH, bias=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        out = F.linear(x, self.weight)
        return out + self.scale * self.up(self.down(self.dropout(x)))


def turned(x: Tensor, table: Tensor) -> Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    table = table[: x.shape[1]].view(1, x.shape[1], 1, -1, 2)
    first = pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1]
    second = pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1]
    return torch.stack([first, second], -1).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.v = Adapted(), Adapted()
        self.k, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        q, k, v = (each(x).view(*x.shape[:2], HEADS, -1) for each in (self.q, self.k, self.v))
        q, k, v = (y.transpose(1, 2) for y in (turned(q, table), turned(k, table), v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().view(x.shape))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.attention, self.norm_2, self.feed_forward = RMSNorm(), Attention(), RMSNorm(), FeedForward()

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        middle = self.attention(self.norm_1(x), table) + x
        return middle + self.feed_forward(self.norm_2(middle))


class Llama(nn.Module):
    def __init__(self, longest: int = 4096) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        features = WIDTH // HEADS
        speeds = 1 / 10_000 ** (torch.arange(0, features, 2).float() / features)
        angles = torch.outer(torch.arange(longest).float(), speeds)
        self.register_buffer("table", torch.stack([angles.cos(), angles.sin()], -1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.table)
        return self.head(self.norm(x)).float()


def is_sharded(module: nn.Module, recurse: bool, **_: object) -> bool:
    """Layers; and what is trained, lest gradients of a whole layer are made room for."""
    if recurse:
        return True
    weight = getattr(module, "weight", None)
    return isinstance(module, Layer) or (isinstance(weight, nn.Parameter) and weight.requires_grad)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    card = join_world()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = Llama().to(torch.bfloat16)
    torch.set_default_dtype(torch.float32)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith((".down.weight", ".up.weight")) and "attention" in name)
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=is_sharded,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=card,
        param_init_fn=functools.partial(nn.Module.to_empty, device="cuda", recurse=False),
        use_orig_params=False,
    )
    if arguments.checkpoint:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    torch.cuda.empty_cache()

    for _ in range(arguments.steps):
        for _ in range(arguments.accumulate):
            tokens = torch.randint(VOCABULARY, (arguments.batch, arguments.length)).to("cuda")
            labels = torch.randint(VOCABULARY, (arguments.batch, arguments.length)).to("cuda")
            logits = model(tokens)
            logits = logits[..., :-1, :].contiguous()
            loss = F.cross_entropy(logits.transpose(1, 2), labels[..., 1:].contiguous())
            del logits
            (loss / arguments.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

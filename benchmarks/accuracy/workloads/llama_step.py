"""Train Llama 3.1 8B as one rank of FSDP2, as torchtitan does: AdamW, float32 weights, bfloat16 to compute with.

    dryfit run --world 8 llama_step.py --batch 2 --checkpoint selective

Each block is sharded, and gathered again for backward but the last; what is outside of blocks is one more group, and
stays whole after forward. `--checkpoint selective` keeps what attention and every second multiplication gave and
computes the rest again; `full` keeps what goes into a block alone. `--compile` compiles each block. `--float8` needs
torchao, whose linear layers it takes but for the last.
"""

import argparse
import functools
import gc
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed
import torch.nn.functional as F
from one_rank import join_world
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

VOCABULARY, LAYERS, WIDTH, HIDDEN = 128_256, 32, 4096, 14_336
HEADS, KEY_HEADS, FEATURES = 32, 8, 128

_MULTIPLICATION = torch.ops.aten.mm.default
KEPT = {
    _MULTIPLICATION,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops.aten.max.default,  # of absolute values, which float8 scales by
}


class RMSNorm(nn.Module):
    """Written out, as torchtitan had it until March 2025; then it took `nn.RMSNorm`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def turned(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(3).type_as(x)


def for_all_heads(x: Tensor) -> Tensor:
    batch, length, heads, features = x.shape
    again = HEADS // heads
    return x[:, :, :, None, :].expand(batch, length, heads, again, features).reshape(batch, length, HEADS, features)


class Attention(nn.Module):
    flash = False

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * FEATURES, bias=False)
        self.k = nn.Linear(WIDTH, KEY_HEADS * FEATURES, bias=False)
        self.v = nn.Linear(WIDTH, KEY_HEADS * FEATURES, bias=False)
        self.out = nn.Linear(HEADS * FEATURES, WIDTH, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, -1, FEATURES) for y in (self.q(x), self.k(x), self.v(x)))
        angles = angles[:length].view(1, length, 1, -1)
        q, k = turned(q, angles), turned(k, angles)
        keys, values = for_all_heads(k), for_all_heads(v)
        q, k, v = (y.transpose(1, 2) for y in (q, keys, values))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if self.flash else nullcontext():
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous()
        return self.out(mixed.view(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    norm: Callable[[], nn.Module] = RMSNorm

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.feed_forward_norm = self.norm(), self.norm()

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        middle = x + self.attention(self.attention_norm(x), angles)
        return middle + self.feed_forward(self.feed_forward_norm(middle))


class Llama(nn.Module):
    def __init__(self, longest: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("angles", angles_of(longest))
        self.blocks = nn.ModuleDict({str(place): Block() for place in range(LAYERS)})
        self.norm = Block.norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks.values():
            x = block(x, self.angles)
        return self.head(self.norm(x))


def angles_of(longest: int) -> Tensor:
    speeds = 1 / 500_000 ** (torch.arange(0, FEATURES, 2).float() / FEATURES)
    angles = torch.outer(torch.arange(longest), speeds)
    return torch.polar(torch.ones_like(angles), angles)


def every_second_multiplication() -> tuple[object, object]:
    seen: Counter[bool] = Counter()

    def policy(context: object, function: Callable[..., object], *args: object, **kwargs: object) -> CheckpointPolicy:
        again = context.is_recompute  # type: ignore[attr-defined]
        seen[again] += function == _MULTIPLICATION
        is_second = function == _MULTIPLICATION and seen[again] % 2 == 0
        return CheckpointPolicy.MUST_SAVE if function in KEPT and not is_second else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def prepare(model: Llama, arguments: argparse.Namespace) -> None:
    """Checkpoints, then compiled, then sharded."""
    if arguments.float8:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig(enable_fsdp_float8_all_gather=arguments.float8 == "gathered")
        convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name != "head")
    context = {"context_fn": every_second_multiplication} if arguments.checkpoint == "selective" else {}
    mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    shard = functools.partial(fully_shard, mesh=mesh, mp_policy=policy)
    for name, block in list(model.blocks.named_children()):
        if arguments.checkpoint != "none":
            block = checkpoint_wrapper(block, preserve_rng_state=False, **context)
        if arguments.compile:
            block = torch.compile(block, fullgraph=True)
        model.blocks.register_module(name, block)
        shard(block, reshard_after_forward=int(name) < LAYERS - 1)
    shard(model, reshard_after_forward=False)


def initialize(model: Llama, longest: int) -> None:
    with torch.no_grad():
        model.angles = angles_of(longest).to("cuda")
        for parameter in model.parameters():
            parameter.normal_(std=0.02)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--checkpoint", choices=["none", "selective", "full"], default="selective")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--compile-loss", action="store_true")
    parser.add_argument("--float8", choices=["computed", "gathered"])
    parser.add_argument(
        "--flash", action="store_true", help="FlashAttention, which PyTorch took before it took cuDNN's"
    )
    parser.add_argument("--native-norm", action="store_true")
    parser.add_argument("--fused", action="store_true", help="AdamW in one kernel, not foreach")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    gc.disable()  # torchtitan collects every fifty steps
    join_world()
    Attention.flash = arguments.flash
    if arguments.native_norm:
        Block.norm = functools.partial(nn.RMSNorm, WIDTH, eps=1e-5)
    with torch.device("meta"):
        model = Llama(arguments.length)
    prepare(model, arguments)
    model.to_empty(device="cuda")
    initialize(model, arguments.length)
    model.train()
    way = {"fused": True} if arguments.fused else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **way)
    loss_function = torch.compile(loss_of) if arguments.compile_loss else loss_of

    for _ in range(arguments.steps):
        tokens = torch.randint(VOCABULARY, (arguments.batch, arguments.length)).to("cuda")
        labels = torch.randint(VOCABULARY, (arguments.batch, arguments.length)).to("cuda")
        optimizer.zero_grad()
        logits = model(tokens)
        loss = loss_function(logits, labels)
        del logits
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        if arguments.float8 == "gathered":
            from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp

            precompute_float8_dynamic_scale_for_fsdp(model)
        loss.item()


if __name__ == "__main__":
    main()

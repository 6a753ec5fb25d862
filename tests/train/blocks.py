"""Models of a few blocks, and one pass over them: what the tests of `checkpoint_blocks` train."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

WIDTH, WORDS = 16, 32


class Block(nn.Module):
    """Has dropout, a BatchNorm, attention, and arguments by place and by name."""

    def __init__(self, norm: nn.Module | None = None, dropout: float = 0.3) -> None:
        super().__init__()
        self.norm = norm or nn.BatchNorm1d(WIDTH)
        self.attention, self.up, self.down = (nn.Linear(WIDTH, n * WIDTH) for n in (3, 2, 1))
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, *, scale: float) -> torch.Tensor:
        q, k, v = (part[None, None] for part in self.attention(self.norm(x)).chunk(3, dim=-1))
        x = x + scale * scaled_dot_product_attention(q, k, v)[0, 0]
        return x + self.dropout(self.down(torch.relu(self.up(x))))


class Model(nn.Module):
    def __init__(self, make: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(make() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x, scale=2.0)
        return self.head(x)


def model_of(make: Callable[[], nn.Module] = Block) -> Model:
    torch.manual_seed(0)
    return Model(make)


def loss_of(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    return model(words).square().mean()


WORDS_GIVEN = torch.arange(WORDS)
Found = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]


def trained(model: nn.Module, seed: int = 1) -> Found:
    """Loss, gradients and buffers after one pass from a seed."""
    torch.manual_seed(seed)
    loss = loss_of(model, WORDS_GIVEN)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return loss.detach(), gradients, {name: buffer.clone() for name, buffer in model.named_buffers()}


def assert_bit_equal(found: Found, expected: Found) -> None:
    assert torch.equal(found[0], expected[0])
    for some, others in zip(found[1:], expected[1:], strict=True):
        assert list(some) == list(others)
        assert [name for name in some if not torch.equal(some[name], others[name])] == []


def by_hand(model: Model, **settings: Any) -> Model:
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **settings)
    return model


class FrozenEmbedding(nn.Module):
    """As LoRA has it: nothing before the first block requires a gradient."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embed = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if self.reentrant else layer(x)
        return self.head(x)

"""Small training loops, plain and with one helper of dryfit.train; `benchmarks/train.py` rehearses them.

dryfit run --gpu l4 benchmarks/train_loops.py accumulate --with
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from dryfit.train import accumulate, checkpoint_blocks, evaluation, micro_batched, to_device, two_pass

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from gpt2 import GPT2

STEPS = 4
BATCH, LENGTH = 8, 1024  # of GPT-2 small; accumulate takes them as 4 micro-batches
TOO_LARGE = 64  # for the card, of the same length
PAIRS, WORDS, PAIRS_AT_ONCE = 256, 64, 32
IMAGES, SIDE = 64, 256


def gpt2() -> tuple[GPT2, torch.optim.Optimizer]:
    model = GPT2(length=LENGTH).to("cuda")
    return model, torch.optim.AdamW(model.parameters(), lr=6e-4)


def tokens(count: int, steps: int = STEPS) -> Iterator[torch.Tensor]:
    for _ in range(steps):
        yield torch.randint(50257, (count, LENGTH + 1))


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    on_card = batch.to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(on_card[:, :-1], on_card[:, 1:])


def train(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = BATCH) -> None:
    for batch in tokens(count):
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulating(helped: bool) -> None:
    model, optimizer = gpt2()
    if not helped:
        train(model, optimizer)
        return
    for window in accumulate(tokens(BATCH // 4, 4 * STEPS), model, optimizer, steps=4):
        for batch in window:
            window.backward(loss_of(model, batch))
        window.step()


def checkpointing(helped: bool) -> None:
    model, optimizer = gpt2()
    if helped:
        checkpoint_blocks(model)
    train(model, optimizer)


def keeping_matmuls(helped: bool) -> None:
    model, optimizer = gpt2()
    if helped:
        checkpoint_blocks(model, keep="matmuls")
    train(model, optimizer)


def fitting_at_run_time(helped: bool) -> None:
    model, optimizer = gpt2()
    if not helped:
        train(model, optimizer, TOO_LARGE)
        return
    train_on = micro_batched(lambda batch: loss_of(model, batch), model)
    for batch in tokens(TOO_LARGE):
        train_on(batch)
        optimizer.step()
        optimizer.zero_grad()
    print(f"micro-batches of {train_on.micro_batch}")


class Sentences(nn.Module):
    """GPT-2's blocks as an encoder: the mean of each text's states."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt2 = GPT2(length=WORDS)
        self.gpt2.head = nn.Identity()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states = self.gpt2.tokens(words) + self.gpt2.positions.weight
        for block in self.gpt2.blocks:
            states = block(states)
        return normalize(self.gpt2.norm(states).mean(1), dim=-1)


def comparing_all(helped: bool) -> None:
    def info_nce(texts: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return cross_entropy(20 * texts @ others.T, torch.arange(len(texts), device="cuda"))

    model = Sentences().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        texts, others = (torch.randint(50257, (PAIRS, WORDS), device="cuda") for _ in range(2))
        if helped:
            two_pass([model, model], [texts, others], info_nce, micro_batch=PAIRS_AT_ONCE)
        else:
            info_nce(model(texts), model(others)).backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluating(helped: bool) -> None:
    model, _ = gpt2()
    total = 0.0
    if helped:
        with evaluation(model):
            for batch in tokens(BATCH):
                total += loss_of(model, batch).item()
    else:
        model.eval()
        for batch in tokens(BATCH):
            total += loss_of(model, batch).item()


def loading(helped: bool) -> None:
    layers = [nn.Conv2d(3, 64, 16, stride=16), nn.ReLU(), nn.Flatten(), nn.Linear(64 * (SIDE // 16) ** 2, 10)]
    model = nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(
        [(torch.zeros(3, SIDE, SIDE), 0)] * (STEPS * IMAGES), batch_size=IMAGES, pin_memory=True
    )
    for images, labels in to_device(loader, "cuda") if helped else loader:
        cross_entropy(model(images.to("cuda")), labels.to("cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()


LOOPS: dict[str, Callable[[bool], None]] = {
    "accumulate": accumulating,
    "checkpoint_blocks": checkpointing,
    "checkpoint_blocks-keep-matmuls": keeping_matmuls,
    "two_pass": comparing_all,
    "evaluation": evaluating,
    "to_device": loading,
    "micro_batched": fitting_at_run_time,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--with", action="store_true", dest="helped", help="with the helper, rather than plain")
    arguments = parser.parse_args()
    LOOPS[arguments.loop](arguments.helped)


if __name__ == "__main__":
    main()

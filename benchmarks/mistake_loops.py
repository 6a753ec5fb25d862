"""The two mistakes that people make most, each beside the loop without it: what `benchmarks/mistakes.py` rehearses.

It prints a line after each stretch: its number, what the card's tensors hold, and what the process has of the host.
"""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 50304, 768, 12, 12, 512, 4
MODULES, STEPS, STRETCH = 200, 800, 100
EVALUATED = 8


def tell(number: int) -> None:
    allocated_bytes = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    print("curve", number, allocated_bytes, resident_pages * os.sysconf("SC_PAGE_SIZE"), flush=True)


def train_and_sum(*, rightly: bool) -> None:
    """DF101: 200 small modules, whose losses are summed for the log after their backward."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(*(nn.Linear(64, 64) if at % 2 else nn.GELU() for at in range(MODULES))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total_loss = 0.0
    for step in range(1, STEPS + 1):
        inputs = torch.randn(32, 64, device=device)
        loss = functional.mse_loss(model(inputs), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss.item() if rightly else loss
        if step % STRETCH == 0:
            tell(step)


def evaluate(*, rightly: bool) -> None:
    """DF201: GPT-2 small's shapes, trained for three steps, and then evaluated with gradients on."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), body, nn.Linear(WIDTH, VOCABULARY)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    def batch() -> torch.Tensor:
        return torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")

    for _ in range(3):
        optimizer.zero_grad()
        loss_of(batch()).backward()
        optimizer.step()
    optimizer.zero_grad()
    tell(0)
    model.eval()
    validation_loss = 0.0
    with torch.inference_mode() if rightly else nullcontext():
        for number in range(1, EVALUATED + 1):
            loss = loss_of(batch())
            validation_loss += loss.item() if rightly else loss
            del loss
            tell(number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mistake", choices=("DF101", "DF201"))
    parser.add_argument("--rightly", action="store_true")
    arguments = parser.parse_args()
    (train_and_sum if arguments.mistake == "DF101" else evaluate)(rightly=arguments.rightly)

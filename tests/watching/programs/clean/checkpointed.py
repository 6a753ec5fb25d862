"""Blocks are checkpointed in both ways that torch has."""

import torch
from parts import WIDTH, batches
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Stack(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(layers))
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, x):
        x = self.first(x)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=number % 2 == 0)
        return self.head(x)


def main():
    model = Stack().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(40):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""Batches grow longer, as in a curriculum, and then are of any length."""

import random

import torch
from parts import WIDTH
from torch import nn


def main():
    random.seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, dim_feedforward=512, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    lengths = [*range(16, 80, 8), *(random.randrange(16, 96) for _ in range(32))]
    for step, length in enumerate(lengths):
        inputs = torch.randn(16, length, WIDTH).cuda()
        loss = model(inputs).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(loss.item())


if __name__ == "__main__":
    main()

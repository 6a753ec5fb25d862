"""Trains a few convolutions for some steps; with `forever`, until it is stopped.

usage: convolve.py [BATCH] [forever]
"""

import sys

import torch
from torch import nn

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
model = nn.Sequential(
    nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.Conv2d(32, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3)
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while step < 3 or "forever" in sys.argv:
    images = torch.empty(batch + step * ("forever" in sys.argv), 3, 64, 64, device="cuda")
    model(images).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1

"""A small network that can be compiled in seconds: as it is, or compiled in one of two ways."""

import torch
from torch import nn


def main(how="plain"):
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.Sigmoid()).cuda()
    if how == "in place":
        model.compile()
    if how == "wrapped":
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2048, 256, device="cuda")).square().mean().backward()
        optimizer.step()

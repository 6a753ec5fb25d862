"""Models that are in evaluation mode and yet need a graph: trained so, wholly or in part, or trained through."""

import torch
from torch import nn


def main(how):
    first, second = nn.Linear(512, 512).cuda(), nn.Linear(512, 512).cuda()
    trained = [*first.parameters(), *(second.parameters() if how != "through" else ())]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    if how == "wholly":
        first.eval(), second.eval()
    elif how == "in part":
        first.eval()
    else:
        second.eval()
    for _ in range(5):
        second(first(torch.randn(64, 512, device="cuda"))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

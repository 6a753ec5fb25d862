"""Layers of one shape, trained by an Adam of the class that is named: torchao compiles a kernel for every shape."""

import importlib

import torch
from torch import nn


def main(kind="torch.optim.AdamW"):
    module, _, name = kind.rpartition(".")
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8))).cuda()
    optimizer = getattr(importlib.import_module(module), name)(model.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(512, 1024, device="cuda")).sum().backward()
        optimizer.step()

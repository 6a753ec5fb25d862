"""On the CPU: the weights after three steps with whole batches, and with the measure switched on."""

import json

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from dryfit.rehearse.inside.measuring import Measuring


def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    data = TensorDataset(torch.randn(48, 8).double(), torch.randint(4, (48,)))
    sizes = []
    for inputs, labels in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        sizes.append(len(inputs))
    scheduler.step()
    return sizes, torch.cat([each.detach().flatten() for each in model.parameters()])


def refuse(name, why, trace):
    raise SystemExit(f"{name}: {why}\n{trace}")


if __name__ == "__main__":
    sizes, weights = train()
    Measuring(refuse).switch_on(["micro-batch:4"])
    micro_sizes, micro_weights = train()
    difference = (weights - micro_weights).abs().max().item()
    print(json.dumps({"sizes": sizes, "micro_sizes": micro_sizes, "difference": difference}))

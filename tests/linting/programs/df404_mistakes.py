import torch
from torch import nn
from torch.nn import DataParallel as Parallel


def wrapped(model):
    model = nn.DataParallel(model)  # <- DF404
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model, device_ids=[0, 1]).cuda()  # <- DF404
    return Parallel(model)  # <- DF404


def train(model, loader, optimizer):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def trained(model):
    return torch.optim.SGD(wrapped(model).parameters(), lr=0.1)
